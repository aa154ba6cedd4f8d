//! Time of work in this process or in a child process, and the median of several rounds.

use anyhow::{Context, Result, bail};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The times of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Took {
    /// Wall time in seconds.
    pub wall_s: f64,
    /// CPU time of all threads in seconds, user and system.
    pub cpu_s: f64,
}

/// Runs `work` in this process, and measures it. The CPU time is that of all threads.
///
/// # Errors
/// `work` failed.
pub fn here<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Took)> {
    let (wall, cpu) = (Instant::now(), process_cpu());
    let out = work()?;
    Ok((out, Took { wall_s: wall.elapsed().as_secs_f64(), cpu_s: process_cpu() - cpu }))
}

/// CPU seconds of this process, with all threads.
pub fn process_cpu() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Runs a program, discards its output, and measures the whole process.
///
/// The CPU time is in steps of 10 ms, so the program should run for a while.
///
/// # Errors
/// The program can't be started, or it failed.
pub fn program(command: &mut Command) -> Result<Took> {
    let (wall, cpu) = (Instant::now(), children_cpu()?);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.with_context(|| format!("start {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{} failed: {status}", command.get_program().display());
    }
    Ok(Took { wall_s: wall.elapsed().as_secs_f64(), cpu_s: children_cpu()? - cpu })
}

/// CPU seconds of all children that have ended: `cutime` and `cstime` of this process.
pub(crate) fn children_cpu() -> Result<f64> {
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The program's name may contain spaces and parentheses. So count the fields after the last
    // parenthesis.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(13).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>().context("/proc/self/stat")? / TICKS)
}

/// Runs a program and parses the last line of its output as JSON.
///
/// # Errors
/// The program can't be started, it failed (the error has the first line of its messages), or the
/// line is no JSON.
pub fn answer(command: &mut Command) -> Result<Value> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("start {}", command.get_program().display()))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{}", words.trim().lines().next().unwrap_or("it failed without a word"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim().lines().last().unwrap_or("")).context("its answer is no JSON")
}

/// The median of each time, and the minimum and maximum of the CPU time.
pub fn summary(rounds: &[Took]) -> Value {
    let mut wall: Vec<f64> = rounds.iter().map(|r| r.wall_s).collect();
    let mut cpu: Vec<f64> = rounds.iter().map(|r| r.cpu_s).collect();
    let (wall, cpu_median) = (median(&mut wall), median(&mut cpu));
    json!({
        "wall_s": round(wall),
        "cpu_s": round(cpu_median),
        "cpu_s_min": cpu.first().map(|c| round(*c)),
        "cpu_s_max": cpu.last().map(|c| round(*c)),
    })
}

/// The median of `values`, which this sorts. 0 if there are none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Rounds to four decimal places, which is more than the precision of a measurement.
pub fn round(v: f64) -> f64 {
    (v * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the median is the middle value, or the mean of the two middle ones, in any order.
    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&mut []), 0.0);
    }

    /// Goal: work has a CPU time, and the time of a program is found in `/proc`.
    #[test]
    fn measures() {
        let (sum, took) = here(|| Ok((0..1_000_000u64).map(|x| x ^ (x >> 3)).sum::<u64>())).unwrap();
        assert!(sum > 0 && took.cpu_s > 0.0);
        assert!(program(&mut Command::new("true")).unwrap().cpu_s >= 0.0);
        assert!(program(&mut Command::new("false")).is_err());
        assert_eq!(answer(Command::new("echo").arg("{\"a\": 1}")).unwrap()["a"], 1);
    }
}
