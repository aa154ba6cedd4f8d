//! The result of a workload: figures and curves by name.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A curve of latencies has this many points, and one more.
const STEPS: usize = 200;

/// The result of a workload.
///
/// A name has three parts: the title of the workload, a point, and the measured figure with its
/// unit. An example is `storm-disk.t8.p99_us`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// Single numbers.
    pub figures: BTreeMap<String, f64>,
    /// Curves as lists of points.
    pub curves: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Answer {
    /// Adds a figure.
    pub(super) fn put(&mut self, title: &str, name: &str, value: f64) {
        self.figures.insert(format!("{title}.{name}"), value);
    }

    /// Adds the median, the 99th percentile and the curve of latencies in microseconds.
    pub(super) fn put_latency(&mut self, title: &str, threads: usize, mut us: Vec<f64>) {
        us.sort_by(f64::total_cmp);
        let Some(last) = us.len().checked_sub(1) else { return };
        let at = |share: usize, of: usize| us[(us.len() * share / of).min(last)];
        let (p50, p99) = (at(1, 2), at(99, 100));
        let curve = (0..=STEPS).map(|p| (at(p, STEPS), p as f64 / STEPS as f64)).collect();
        self.put(title, &format!("t{threads}.p50_us"), p50);
        self.put(title, &format!("t{threads}.p99_us"), p99);
        self.curves.insert(format!("{title}.t{threads}.latency_us"), curve);
    }

    /// Encodes the result as one line of JSON.
    pub fn to_json(&self) -> Value {
        json!({ "figures": self.figures, "curves": self.curves })
    }

    /// Decodes the output of [`Answer::to_json`], or of a peer.
    ///
    /// # Errors
    /// The value lacks figures, or a figure or point is no number.
    pub fn of_json(value: &Value) -> Result<Answer> {
        let figures = value["figures"].as_object().context("an answer has figures")?;
        let number = |v: &Value| v.as_f64().context("a figure is a number");
        let figures = figures.iter().map(|(n, v)| Ok((n.clone(), number(v)?))).collect::<Result<_>>()?;
        let mut curves = BTreeMap::new();
        for (name, points) in value["curves"].as_object().into_iter().flatten() {
            let points = points.as_array().context("a curve has points")?;
            let point = |p: &Value| Ok((number(&p[0])?, number(&p[1])?));
            curves.insert(name.clone(), points.iter().map(point).collect::<Result<_>>()?);
        }
        Ok(Answer { figures, curves })
    }

    /// Adds the figures and curves of another result.
    pub(super) fn extend(&mut self, other: Answer) {
        self.figures.extend(other.figures);
        self.curves.extend(other.curves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a result survives encoding and decoding, and percentiles are right.
    #[test]
    fn there_and_back() {
        let mut answer = Answer::default();
        answer.put("storm", "t8.ops_s", 12.5);
        answer.put_latency("storm", 8, (1..=1000).rev().map(f64::from).collect());
        assert_eq!(answer.figures["storm.t8.p50_us"], 501.0);
        assert_eq!(answer.figures["storm.t8.p99_us"], 991.0);
        assert_eq!(answer.curves["storm.t8.latency_us"].last(), Some(&(1000.0, 1.0)));
        assert_eq!(Answer::of_json(&answer.to_json()).unwrap(), answer);
        assert!(Answer::of_json(&json!({})).is_err());
    }
}
