//! A bar chart of the sizes, as SVG. It refers to nothing outside of its file.

use console::numbers;
use estimate::Report;
use std::fmt::Write;

const HEIGHT: f64 = 420.0;
/// Margins around the bars, and their area.
const LEFT: f64 = 80.0;
const ABOVE: f64 = 56.0;
const TALL: f64 = HEIGHT - ABOVE - 60.0;
const RIGHT: f64 = 150.0;
const BAR: f64 = 26.0;
const GAP: f64 = 30.0;
/// The colours of Okabe and Ito, which colour-blind readers can tell apart.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#000000"];

/// Text that XML allows.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Neither control characters nor the two that are no characters.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = escape(words);
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn line(out: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), rest: &str) {
    let _ = writeln!(out, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {rest}/>");
}

/// A size that divides the axis into four to eight steps: a power of two, or half of it more.
fn step(top: f64) -> f64 {
    let power = 2f64.powf((top / 8.0).max(1.0).log2().floor());
    [1.0, 1.5, 2.0, 3.0].map(|m| m * power).into_iter().find(|s| top / s <= 8.0).unwrap_or(4.0 * power)
}

/// Draws the sizes of a report about `of`, in groups by record size, with their errors.
pub(super) fn draw(of: &str, report: &Report) -> String {
    let groups: Vec<_> = report.rows.chunk_by(|a, b| a.record == b.record).collect();
    let each = groups.first().map_or(1, |group| group.len()) as f64;
    let wide = groups.len() as f64 * (each * BAR + GAP) + GAP;
    let width = LEFT + wide + RIGHT;
    let bytes = report.walked.bytes as f64;
    let highest = report.rows.iter().map(|row| (row.size + row.error) as f64).fold(bytes, f64::max);
    let step = step(highest);
    let top = (highest / step).ceil().max(1.0) * step;
    let y = |n: f64| ABOVE + TALL - n / top * TALL;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    text(&mut out, LEFT, 20.0, "start", &format!("Estimated space of {of}"));
    for i in 0..=(top / step).round() as u32 {
        let n = f64::from(i) * step;
        line(&mut out, (LEFT, y(n)), (LEFT + wide, y(n)), "stroke=\"#ddd\"");
        text(&mut out, LEFT - 8.0, y(n) + 4.0, "end", &numbers::bytes(n as u64));
    }
    for (g, group) in groups.iter().enumerate() {
        let left = LEFT + GAP + g as f64 * (each * BAR + GAP);
        for (i, row) in group.iter().enumerate() {
            let (x, size, error) = (left + i as f64 * BAR, row.size as f64, row.error as f64);
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{}</title></rect>",
                y(size),
                BAR - 4.0,
                TALL - (y(size) - ABOVE),
                COLOURS[i % COLOURS.len()],
                escape(&format!("{} {}", row.compressor, numbers::bytes(row.size))),
            );
            if row.error > 0 {
                let middle = x + (BAR - 4.0) / 2.0;
                let (high, low) = (y(size + error), y((size - error).max(0.0)));
                line(&mut out, (middle, high), (middle, low), "stroke=\"#222\"");
            }
        }
        let middle = left + (each * BAR - 4.0) / 2.0;
        text(&mut out, middle, ABOVE + TALL + 18.0, "middle", &numbers::bytes(group[0].record.into()));
    }
    line(&mut out, (LEFT, y(bytes)), (LEFT + wide, y(bytes)), "stroke=\"#222\" stroke-dasharray=\"5 4\"");
    text(&mut out, LEFT + wide + 8.0, y(bytes) + 4.0, "start", "bytes of the files");
    for (i, row) in groups.first().into_iter().flat_map(|group| group.iter()).enumerate() {
        let (x, y) = (LEFT + wide + 12.0, ABOVE + TALL - 18.0 * (each - i as f64));
        let colour = COLOURS[i % COLOURS.len()];
        let _ =
            writeln!(out, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
        text(&mut out, x + 18.0, y + 10.0, "start", &row.compressor);
    }
    text(&mut out, LEFT + wide / 2.0, HEIGHT - 16.0, "middle", "record size");
    out.push_str("</svg>\n");
    out
}
