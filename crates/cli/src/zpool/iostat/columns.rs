//! The columns of `zpool iostat`: titles, widths, and the form of numbers.

use crate::cx::{Color, Cx};
use console::numbers;

/// A group of columns (`enum iostat_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Capacity, operations, bandwidth.
    Default,
    /// Average times.
    Latency,
    /// Queues.
    Queues,
    /// Histograms of times.
    Latencies,
    /// Histograms of sizes.
    Sizes,
}

/// Titles over several columns, each with the number of its columns.
type Labels = &'static [(&'static str, usize)];

impl Group {
    pub fn is_histogram(self) -> bool {
        matches!(self, Self::Latencies | Self::Sizes)
    }

    /// The width of a column (`default_column_width`).
    pub fn width(self, exact: bool) -> usize {
        match self {
            _ if !exact => 5,
            Self::Default => 15,
            Self::Latency | Self::Latencies => 10,
            Self::Queues | Self::Sizes => 6,
        }
    }

    fn top(self) -> Labels {
        match self {
            Self::Default => &[("capacity", 2), ("operations", 2), ("bandwidth", 2)],
            Self::Latency => &[
                ("total_wait", 2),
                ("disk_wait", 2),
                ("syncq_wait", 2),
                ("asyncq_wait", 2),
                ("scrub", 1),
                ("trim", 1),
                ("rebuild", 1),
            ],
            Self::Queues => &[
                ("syncq_read", 2),
                ("syncq_write", 2),
                ("asyncq_read", 2),
                ("asyncq_write", 2),
                ("scrubq_read", 2),
                ("trimq_write", 2),
                ("rebuildq_write", 2),
            ],
            Self::Latencies => &[("total_wait", 2), ("disk_wait", 2), ("syncq_wait", 2), ("asyncq_wait", 2)],
            Self::Sizes => &[
                ("sync_read", 2),
                ("sync_write", 2),
                ("async_read", 2),
                ("async_write", 2),
                ("scrub", 2),
                ("trim", 2),
                ("rebuild", 2),
            ],
        }
    }

    fn bottom(self) -> &'static [&'static str] {
        match self {
            Self::Default => &["alloc", "free", "read", "write", "read", "write"],
            Self::Latency => {
                &["read", "write", "read", "write", "read", "write", "read", "write", "wait", "wait", "wait"]
            }
            Self::Queues => &[
                "pend", "activ", "pend", "activ", "pend", "activ", "pend", "activ", "pend", "activ", "pend",
                "activ", "pend", "activ",
            ],
            Self::Latencies => &[
                "read", "write", "read", "write", "read", "write", "read", "write", "scrub", "trim",
                "rebuild",
            ],
            Self::Sizes => &[
                "ind", "agg", "ind", "agg", "ind", "agg", "ind", "agg", "ind", "agg", "ind", "agg", "ind",
                "agg",
            ],
        }
    }
}

/// The header of a table.
pub struct Head<'a> {
    pub groups: &'a [Group],
    pub exact: bool,
    pub title: &'static str,
    /// The width of the column of names.
    pub width: usize,
    /// The width of all other columns, instead of their own.
    pub forced: Option<usize>,
}

impl Head<'_> {
    fn width_of(&self, group: Group) -> usize {
        self.forced.unwrap_or_else(|| group.width(self.exact))
    }
}

/// Prints a title in the middle of its columns.
fn label(cx: &mut Cx, name: &str, columns: usize, width: usize) {
    let all = width * columns + 2 * (columns - 1);
    let start = (all / columns).saturating_sub(name.len() / columns);
    let rest = all.saturating_sub(start + name.len());
    write!(cx.out, "  {:start$}{name}{:rest$}", "", "");
}

/// Prints two lines of titles and the dashes below (`print_iostat_header`).
///
/// Over a histogram, the vdev's name is in the corner.
pub fn header(cx: &mut Cx, head: &Head<'_>, vdev: Option<&str>) {
    let width = head.width.max(head.title.len()).max(vdev.map_or(0, str::len));
    cx.start_color(Color::Bold);
    write!(cx.out, "{:<width$}", vdev.unwrap_or(""));
    for group in head.groups {
        for (name, columns) in group.top() {
            label(cx, name, *columns, head.width_of(*group));
        }
    }
    write!(cx.out, "\n{:<width$}", head.title);
    for group in head.groups {
        for name in group.bottom() {
            label(cx, name, 1, head.width_of(*group));
        }
    }
    if let Some(answers) = cx.scripts.clone() {
        answers.head(cx);
    }
    cx.out.put("\n");
    dashes(cx, head, None);
    cx.end_color();
    cx.out.put("\n");
}

/// Prints a line of dashes, or the line of a class of vdevs, which has no numbers.
pub fn dashes(cx: &mut Cx, head: &Head<'_>, name: Option<&str>) {
    let width = head.width.max(head.title.len()).max(name.map_or(0, str::len));
    match name {
        Some(name) => write!(cx.out, "{name:<width$}"),
        None => cx.out.put(&"-".repeat(width)),
    }
    for group in head.groups {
        // OpenZFS cuts the dashes from a string of this length.
        let (column, dashes) = (head.width_of(*group), "-".repeat(head.width_of(*group).min(20)));
        for _ in group.bottom() {
            match name {
                Some(_) => write!(cx.out, "  {:>column$}", "-"),
                None => write!(cx.out, "  {dashes}"),
            }
        }
    }
    if let Some(answers) = cx.scripts.clone().filter(|_| name.is_none()) {
        answers.dashes(cx);
    }
}

/// The unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    Count,
    Time,
}

/// The form of numbers in a row.
pub struct Row {
    pub exact: bool,
    pub scripted: bool,
    pub width: usize,
}

impl Row {
    pub fn number(&self, cx: &mut Cx, n: u64, what: Number) {
        let text = match what {
            Number::Time if n == 0 => "-".to_owned(),
            Number::Time if !self.exact => numbers::time_ns(n),
            Number::Count if !self.exact => numbers::num(n),
            Number::Count | Number::Time => n.to_string(),
        };
        if self.scripted {
            write!(cx.out, "\t{text}");
        } else {
            self.colored(cx, &text);
        }
    }

    /// Prints a cell that is no number.
    pub fn text(&self, cx: &mut Cx, text: &str) {
        let width = self.width;
        if self.scripted {
            write!(cx.out, "\t{text}");
        } else {
            write!(cx.out, "  {text:>width$}");
        }
    }

    /// Prints a number in the colour of its magnitude (`print_stat_color`).
    fn colored(&self, cx: &mut Cx, text: &str) {
        let pad = self.width.saturating_sub(text.len());
        write!(cx.out, "  {:pad$}", "");
        if text.starts_with('0') {
            cx.start_color(Color::Gray);
            cx.out.put("0");
        } else {
            for c in text.chars().take(self.width) {
                match c {
                    'K' => cx.start_color(Color::Green),
                    'M' => cx.start_color(Color::Yellow),
                    'G' => cx.start_color(Color::Red),
                    'T' => cx.start_color(Color::BoldBlue),
                    'P' => cx.start_color(Color::Magenta),
                    'E' => cx.start_color(Color::Cyan),
                    _ => {}
                }
                write!(cx.out, "{c}");
            }
        }
        cx.end_color();
    }
}
