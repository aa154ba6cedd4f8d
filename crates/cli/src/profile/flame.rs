//! A flame graph in SVG.
//!
//! # See
//! Brendan Gregg's flame graphs. This one has no script: each box has its text as a tooltip, and
//! all boxes are on one page.

use std::collections::BTreeMap;

use super::Stack;

const WIDTH: f64 = 1200.0;
const ROW: usize = 22;
/// The width of a character, about.
const LETTER: f64 = 7.0;
/// Boxes that are narrower are left out.
const LEAST: f64 = 0.3;

/// A box, and those on it.
#[derive(Debug, Default)]
struct Node {
    count: u64,
    above: BTreeMap<String, Node>,
}

/// Text for XML.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.push('?'),
            c => safe.push(c),
        }
    }
    safe
}

/// The colour of a box: warm where threads compute, cold where they wait, grey around both.
fn colour(name: &str, level: usize) -> &'static str {
    match (level, name) {
        (0, _) => "#d9dde4",
        (1, _) => "#f2c879",
        (2, _) => "#f5dca6",
        (_, "computes") => "#ef8354",
        (3, _) => "#8fb8de",
        _ => "#b9d3ec",
    }
}

impl Node {
    fn add(&mut self, frames: &[&str], count: u64) {
        self.count += count;
        if let Some((first, rest)) = frames.split_first() {
            self.above.entry((*first).to_owned()).or_default().add(rest, count);
        }
    }

    fn height(&self) -> usize {
        1 + self.above.values().map(Self::height).max().unwrap_or(0)
    }

    /// Draws it at a place, and those on it.
    fn draw(&self, name: &str, (x, level): (f64, usize), whole: &Whole, out: &mut String) {
        let width = self.count as f64 * whole.scale;
        if width < LEAST {
            return;
        }
        let y = (whole.rows - 1 - level) * ROW;
        let share = 100.0 * self.count as f64 / whole.all.max(1) as f64;
        let title = escaped(&format!("{name}: {} samples, {share:.1} %", self.count));
        let colour = colour(name, level);
        *out += &format!(
            "<g><title>{title}</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" \
             fill=\"{colour}\" stroke=\"#ffffff\"/>",
            ROW - 1
        );
        let letters = ((width - 6.0) / LETTER).max(0.0) as usize;
        if letters >= 3 {
            let text: String = match name.chars().count() <= letters {
                true => name.to_owned(),
                false => name.chars().take(letters - 2).chain("..".chars()).collect(),
            };
            *out += &format!("<text x=\"{:.1}\" y=\"{}\">{}</text>", x + 3.0, y + 15, escaped(&text));
        }
        *out += "</g>\n";
        let mut at = x;
        for (name, node) in &self.above {
            node.draw(name, (at, level + 1), whole, out);
            at += node.count as f64 * whole.scale;
        }
    }
}

/// What all boxes share.
struct Whole {
    rows: usize,
    all: u64,
    /// The width of a sample.
    scale: f64,
}

/// The graph of stacks.
pub(super) fn graph(stacks: &[Stack]) -> String {
    let mut root = Node::default();
    for stack in stacks {
        root.add(&stack.named().collect::<Vec<_>>(), stack.count);
    }
    let rows = root.height();
    let whole = Whole { rows, all: root.count, scale: WIDTH / root.count.max(1) as f64 };
    let mut boxes = String::new();
    root.draw("all", (0.0, 0), &whole, &mut boxes);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" width=\"{WIDTH}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n\
         <title>What threads of the daemon do: {} samples</title>\n{boxes}</svg>\n",
        rows * ROW,
        root.count
    )
}
