//! Line plots as SVG, written as text without a library.

use std::fmt::Write;

/// How an axis is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// Evenly, from zero.
    Linear,
    /// By powers of two.
    Log2,
    /// By powers of ten.
    Log10,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// Margins around the lines, and the size of the area for the lines.
const LEFT: f64 = 80.0;
const ABOVE: f64 = 40.0;
const WIDE: f64 = WIDTH - LEFT - 170.0;
const TALL: f64 = HEIGHT - ABOVE - 50.0;
/// The colours of Okabe and Ito, which colour-blind readers can tell apart.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// The ranges of the axes.
struct Frame {
    low: f64,
    high: f64,
    top: f64,
    /// The distance of two grid lines.
    step: f64,
}

impl Frame {
    fn x(&self, v: f64) -> f64 {
        LEFT + (v - self.low) / (self.high - self.low) * WIDE
    }

    fn y(&self, v: f64) -> f64 {
        ABOVE + TALL - v / self.top * TALL
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = escape(words);
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn line(out: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
    );
}

/// Lines over two axes.
#[derive(Debug)]
pub(super) struct Plot {
    title: String,
    axes: (String, String),
    /// How the horizontal axis is divided. The vertical axis is linear.
    pub(super) x: Scale,
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Plot {
    pub(super) fn new(title: &str, x: &str, y: &str) -> Plot {
        Plot {
            title: title.to_owned(),
            axes: (x.to_owned(), y.to_owned()),
            x: Scale::Linear,
            lines: Vec::new(),
        }
    }

    /// Adds a line, unless the axes can show none of its points.
    pub(super) fn line(&mut self, name: &str, mut points: Vec<(f64, f64)>) {
        points.retain(|(x, y)| x.is_finite() && y.is_finite() && (self.x == Scale::Linear || *x > 0.0));
        if !points.is_empty() {
            self.lines.push((name.to_owned(), points));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Where a value is on the horizontal axis.
    fn place(&self, x: f64) -> f64 {
        match self.x {
            Scale::Linear => x,
            Scale::Log2 => x.log2(),
            Scale::Log10 => x.log10(),
        }
    }

    /// Draws the plot.
    pub(super) fn svg(&self) -> String {
        let frame = self.frame();
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        self.put_axes(&frame, &mut out);
        for (i, (name, points)) in self.lines.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let y = ABOVE + 10.0 + 18.0 * i as f64;
            line(&mut out, (LEFT + WIDE + 10.0, y), (LEFT + WIDE + 28.0, y), colour, 2.0);
            text(&mut out, LEFT + WIDE + 34.0, y + 4.0, "start", name);
            let path: Vec<String> = points
                .iter()
                .map(|(x, y)| format!("{:.1},{:.1}", frame.x(self.place(*x)), frame.y(*y)))
                .collect();
            let _ = writeln!(
                out,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
                path.join(" ")
            );
        }
        out.push_str("</svg>\n");
        out
    }

    /// The ranges of the axes.
    fn frame(&self) -> Frame {
        let points = || self.lines.iter().flat_map(|(_, p)| p);
        let low = points().map(|p| self.place(p.0)).fold(f64::INFINITY, f64::min);
        let high = points().map(|p| self.place(p.0)).fold(f64::NEG_INFINITY, f64::max);
        let (low, high) =
            if self.x == Scale::Linear { (low.min(0.0), high) } else { (low.floor(), high.ceil()) };
        let most = points().map(|p| p.1).fold(0.0, f64::max);
        let step = nice_step(most);
        Frame { low, high: high.max(low + 1.0), top: (most / step).ceil().max(1.0) * step, step }
    }

    fn put_axes(&self, frame: &Frame, out: &mut String) {
        text(out, LEFT, ABOVE - 16.0, "start", &self.title);
        text(out, LEFT + WIDE / 2.0, HEIGHT - 12.0, "middle", &self.axes.0);
        text(out, LEFT - 8.0, ABOVE - 2.0, "end", &self.axes.1);
        let rungs = (0..).map(|i| f64::from(i) * frame.step).take_while(|v| *v <= frame.top * 1.001);
        for v in rungs {
            line(out, (LEFT, frame.y(v)), (LEFT + WIDE, frame.y(v)), "#ddd", 1.0);
            if v > 0.0 {
                text(out, LEFT - 8.0, frame.y(v) + 4.0, "end", &number(v));
            }
        }
        for (v, name) in self.ticks(frame.low, frame.high) {
            line(out, (frame.x(v), ABOVE + TALL), (frame.x(v), ABOVE + TALL + 4.0), "#444", 1.0);
            text(out, frame.x(v), ABOVE + TALL + 18.0, "middle", &name);
        }
        line(out, (LEFT, ABOVE), (LEFT, ABOVE + TALL), "#444", 1.0);
    }

    /// The marks of the horizontal axis in a range, with their labels.
    fn ticks(&self, low: f64, high: f64) -> Vec<(f64, String)> {
        let powers = |base: f64| {
            let all = (low as i32..=high as i32).map(|p| (f64::from(p), number(base.powi(p))));
            all.collect()
        };
        match self.x {
            Scale::Log2 => powers(2.0),
            Scale::Log10 => powers(10.0),
            Scale::Linear => {
                let step = nice_step(high - low);
                let all = (0..).map(|i| low + f64::from(i) * step).take_while(|v| *v <= high * 1.001);
                all.map(|v| (v, number(v))).collect()
            }
        }
    }
}

/// A round number that divides `span` into four to eight steps.
fn nice_step(span: f64) -> f64 {
    if span <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf((span / 10.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| span / s <= 8.0).unwrap_or(20.0 * power)
}

fn number(v: f64) -> String {
    match v.abs() {
        a if a >= 1e6 => format!("{} M", trim(v / 1e6)),
        a if a >= 1e4 => format!("{} k", trim(v / 1e3)),
        _ => trim(v),
    }
}

fn trim(v: f64) -> String {
    let text = format!("{v:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a line reaches from the left end to the right. Its highest point is at the top grid
    /// line or below. Words are escaped.
    #[test]
    fn picture() {
        let mut plot = Plot::new("a < b", "x", "y");
        plot.x = Scale::Log2;
        plot.line("one", vec![(1.0, 0.0), (4.0, 100.0)]);
        plot.line("nothing", vec![(0.0, 1.0)]);
        let svg = plot.svg();
        assert!(svg.contains("points=\"80.0,370.0 550.0,40.0\""), "{svg}");
        assert!(svg.contains("a &lt; b") && !svg.contains("nothing"));
        assert!(svg.ends_with("</svg>\n"));
    }

    /// Goal: grid lines are at round numbers, and neither too few nor too many.
    #[test]
    fn rungs() {
        for span in [0.3, 1.0, 7.0, 99.0, 123_456.0] {
            let n = span / nice_step(span);
            assert!((3.0..=8.0).contains(&n), "{span}: {n}");
        }
        assert_eq!(number(1_500_000.0), "1.5 M");
        assert_eq!(number(0.25), "0.25");
    }
}
