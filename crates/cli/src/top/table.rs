//! Tables of numbers: for people, for scripts, and as JSON.
//!
//! A name is hostile text: another user chose it. So a cell of text has no control characters,
//! whatever it is printed to.

use api::{Top, TopTimes};
use console::escaped;
use console::getopt::Getopt;

use crate::cx::{Cx, Outcome, Stop};
use crate::json::{Json, Object};

/// How numbers are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Form {
    /// Columns for people.
    #[default]
    Text,
    /// Tabs and exact numbers.
    Parsable,
    Json,
}

/// What a column has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Text.
    Text,
    /// A number that is shown as it is.
    Number,
    /// A count, which becomes one per second in an interval.
    Rate,
    /// Bytes, which become MB per second in an interval.
    Bytes,
    /// Nanoseconds.
    Time,
    /// A share in hundredths of a percent.
    Share,
    /// Bytes of one thing, which people see in KB.
    Size,
    /// Text or a number that only scripts get.
    Detail,
}

/// A column.
#[derive(Debug)]
pub(crate) struct Column {
    /// Its head.
    pub(crate) name: &'static str,
    /// Its name in JSON.
    pub(crate) key: &'static str,
    pub(crate) unit: Unit,
    pub(crate) help: &'static str,
}

/// A column, for a list of them.
pub(crate) const fn column(name: &'static str, key: &'static str, unit: Unit, help: &'static str) -> Column {
    Column { name, key, unit, help }
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    Text(String),
    Number(u64),
    /// Not known.
    Nothing,
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(escaped(text).into_owned())
    }
}

/// The time to which numbers belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its nanoseconds.
    pub(crate) ns: u64,
    /// It is all since the start.
    pub(crate) is_total: bool,
    /// When it began, if it is all, in seconds since 1970.
    pub(crate) began: u64,
}

impl Span {
    /// All since the start.
    pub(crate) fn total(now: &Top) -> Self {
        Self { ns: now.clock_ns.saturating_sub(now.began_ns), is_total: true, began: now.began }
    }

    /// The time between two readings.
    pub(crate) fn between(before: &Top, now: &Top) -> Self {
        Self { ns: now.clock_ns.saturating_sub(before.clock_ns), is_total: false, began: now.began }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.ns as f64 / 1e9
    }

    /// A count, or how many that are per second.
    fn rate(&self, n: u64) -> f64 {
        if self.is_total { n as f64 } else { n as f64 / self.seconds().max(1e-9) }
    }
}

/// Rows under their columns.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) columns: &'static [Column],
    pub(crate) rows: Vec<Vec<Cell>>,
    /// The sum over all rows, also over those that are not here. Its first cell says so.
    pub(crate) sum: Option<Vec<Cell>>,
    /// A line before the table, for people.
    pub(crate) about: Option<String>,
}

impl Table {
    /// A table of these rows.
    pub(crate) fn new(columns: &'static [Column], rows: Vec<Vec<Cell>>) -> Self {
        Self { columns, rows, sum: None, about: None }
    }

    /// Leaves out the rows behind so many.
    pub(crate) fn limit(&mut self, most: usize) {
        self.rows.truncate(most);
    }

    /// The rows below a line: what the sum has beyond the rows, and the sum.
    fn foot(&self) -> Vec<Vec<Cell>> {
        let Some(sum) = &self.sum else { return Vec::new() };
        let number = |row: &Vec<Cell>, at: usize| match row[at] {
            Cell::Number(number) => number,
            Cell::Text(_) | Cell::Nothing => 0,
        };
        let beyond = |(at, cell): (usize, &Cell)| match (cell, self.columns[at].unit) {
            (Cell::Number(sum), Unit::Rate | Unit::Bytes | Unit::Number) => {
                let here = self.rows.iter().fold(0u64, |all, row| all.saturating_add(number(row, at)));
                sum.saturating_sub(here).into()
            }
            _ if at == 0 => "others".into(),
            _ => Cell::Nothing,
        };
        let others: Vec<Cell> = sum.iter().enumerate().map(beyond).collect();
        let is_empty = others.iter().all(|cell| !matches!(cell, Cell::Number(1..)));
        if is_empty { vec![sum.clone()] } else { vec![others, sum.clone()] }
    }

    /// The lines for people.
    pub(crate) fn lines(&self, span: &Span) -> Vec<String> {
        let is_shown = |column: &&Column| column.unit != Unit::Detail;
        let columns: Vec<&Column> = self.columns.iter().filter(is_shown).collect();
        let heads: Vec<String> = columns.iter().map(|column| head(column, span)).collect();
        let text = |row: &Vec<Cell>| -> Vec<String> {
            let cells = self.columns.iter().zip(row).filter(|(column, _)| is_shown(column));
            cells.map(|(column, cell)| shown(column.unit, cell, span)).collect()
        };
        let (rows, foot): (Vec<_>, Vec<_>) =
            (self.rows.iter().map(text).collect(), self.foot().iter().map(text).collect());
        let all = || std::iter::once(&heads).chain(&rows).chain(&foot);
        let width = |at: usize| all().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cell = |(at, cell): (usize, &String)| match columns[at].unit {
                Unit::Text => format!("{cell:<0$}", widths[at]),
                _ => format!("{cell:>0$}", widths[at]),
            };
            row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let mut lines: Vec<String> = self.about.iter().cloned().collect();
        lines.push(line(&heads));
        lines.extend(rows.iter().map(line));
        if !foot.is_empty() {
            lines.push(widths.iter().map(|width| "=".repeat(*width)).collect::<Vec<_>>().join("  "));
            lines.extend(foot.iter().map(line));
        }
        lines
    }

    /// The lines for scripts. `with_head`: the names of the columns come first.
    pub(crate) fn parsable(&self, span: &Span, time: u64, with_head: bool) -> String {
        let mut lines = String::new();
        if with_head {
            let names: Vec<&str> =
                std::iter::once("TIME").chain(self.columns.iter().map(|column| column.name)).collect();
            lines = names.join("\t") + "\n";
        }
        for row in self.rows.iter().chain(&self.foot()) {
            let cells = self.columns.iter().zip(row).map(|(column, cell)| exact(column.unit, cell, span));
            lines += &std::iter::once(time.to_string()).chain(cells).collect::<Vec<_>>().join("\t");
            lines.push('\n');
        }
        lines
    }

    /// Adds the rows to a JSON object: exact numbers, not per second.
    pub(crate) fn json(&self, root: &mut Object) {
        let object = |row: &Vec<Cell>| object(self.columns, row);
        root.put("rows", Json::Objects(self.rows.iter().map(object).collect()));
        if self.sum.is_some() {
            root.put("sums", Json::Objects(self.foot().iter().map(object).collect()));
        }
    }
}

/// A row in JSON, with exact numbers.
pub(crate) fn object(columns: &[Column], row: &[Cell]) -> Object {
    let mut object = Object::new();
    for (column, cell) in columns.iter().zip(row) {
        match cell {
            Cell::Text(text) => object.push(column.key, Json::Text(text.clone())),
            Cell::Number(number) => object.push(column.key, Json::Number(*number)),
            Cell::Nothing => {}
        }
    }
    object
}

/// A command that prints one table.
pub(crate) struct Command {
    /// Its name in JSON.
    pub(crate) name: &'static str,
    /// The name of its rows in JSON.
    pub(crate) rows: &'static str,
    pub(crate) usage: &'static str,
    pub(crate) columns: &'static [Column],
    /// What stands below the columns in its help.
    pub(crate) note: &'static str,
}

/// Numbers that belong to no interval.
pub(crate) const NO_SPAN: Span = Span { ns: 0, is_total: true, began: 0 };

impl Command {
    /// Runs it: prints its help if the arguments say so, and its usage if they are wrong.
    pub(crate) fn run(&self, cx: &mut Cx, args: &[String], work: impl FnOnce(&mut Cx) -> Outcome) -> i32 {
        if args.iter().any(|arg| arg == "--help" || arg == "-h") {
            cx.out.put(self.usage);
            cx.out.put("\nThe columns:\n");
            self.columns
                .iter()
                .for_each(|column| writeln!(cx.out, "    {:<12} {}", column.name, column.help));
            cx.out.put(self.note);
            return 0;
        }
        match work(cx) {
            Ok(code) | Err(Stop::Fail(code)) => code,
            Err(Stop::Usage(message)) => {
                cx.err.put(&message);
                cx.err.put(self.usage);
                2
            }
        }
    }

    /// Prints rows. `with_head`: those before had no head.
    pub(crate) fn print(&self, cx: &mut Cx, form: Form, rows: Vec<Vec<Cell>>, with_head: bool) {
        match form {
            Form::Json => {
                let mut root = crate::json::schema(self.name);
                root.number("time", cx.clock.now());
                let objects = rows.iter().map(|row| object(self.columns, row)).collect();
                root.put(self.rows, Json::Objects(objects));
                writeln!(cx.out, "{}", root.line());
            }
            Form::Parsable => {
                let time = cx.clock.now();
                cx.out.put(&Table::new(self.columns, rows).parsable(&NO_SPAN, time, with_head));
            }
            Form::Text => {
                let lines = Table::new(self.columns, rows).lines(&NO_SPAN);
                let skipped = usize::from(!with_head);
                lines.iter().skip(skipped).for_each(|line| writeln!(cx.out, "{line}"));
            }
        }
    }
}

/// The message for an option of no grammar, or without its argument.
pub(crate) fn wrong_option(g: &Getopt<'_>, is_missing: bool) -> Stop {
    match is_missing {
        true => Stop::usage(format!("missing argument for option '{}'\n", g.word())),
        false => Stop::usage(format!("invalid option '{}'\n", g.word())),
    }
}

/// The interval between two readings, in seconds.
///
/// # Errors
/// [`Stop::Usage`]: this is none.
pub(crate) fn interval(word: &str) -> Result<f64, Stop> {
    let interval = word.parse::<f64>().ok().filter(|s| (0.1..=86_400.0).contains(s));
    interval.ok_or_else(|| Stop::usage(format!("invalid interval '{word}': choose 0.1 to 86400 seconds\n")))
}

/// How many times.
///
/// # Errors
/// [`Stop::Usage`]: this is no number from 1 on.
pub(crate) fn count(word: &str) -> Result<u64, Stop> {
    let count = word.parse::<u64>().ok().filter(|count| *count > 0);
    count.ok_or_else(|| Stop::usage(format!("invalid count '{word}'\n")))
}

/// The head of a column for people, with its unit.
fn head(column: &Column, span: &Span) -> String {
    let per = if span.is_total { "" } else { "/s" };
    match column.unit {
        Unit::Text | Unit::Number | Unit::Detail => column.name.to_owned(),
        Unit::Rate => format!("{}{per}", column.name),
        Unit::Bytes => format!("{} MB{per}", column.name),
        Unit::Time => format!("{} ms", column.name),
        Unit::Share => format!("{} %", column.name),
        Unit::Size => format!("{} KB", column.name),
    }
}

/// A number with about three digits.
fn short(n: f64) -> String {
    match n {
        0.0 => "0".to_owned(),
        n if n < 0.995 => format!("{n:.3}"),
        n if n < 9.995 => format!("{n:.2}"),
        n if n < 99.95 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}

/// A cell for people.
pub(crate) fn shown(unit: Unit, cell: &Cell, span: &Span) -> String {
    let number = match cell {
        Cell::Text(text) => return text.clone(),
        Cell::Nothing => return "-".to_owned(),
        Cell::Number(number) => *number,
    };
    match unit {
        Unit::Text | Unit::Number | Unit::Detail => number.to_string(),
        Unit::Rate => {
            let rate = span.rate(number);
            // Of rare events, half of one in a second is not none.
            if rate.fract() == 0.0 || rate >= 9.95 { format!("{rate:.0}") } else { format!("{rate:.1}") }
        }
        Unit::Bytes => format!("{:.1}", span.rate(number) / 1_048_576.0),
        Unit::Time => short(number as f64 / 1e6),
        Unit::Share => short(number as f64 / 100.0),
        Unit::Size => short(number as f64 / 1024.0),
    }
}

/// A cell for scripts.
pub(crate) fn exact(unit: Unit, cell: &Cell, span: &Span) -> String {
    match (cell, unit) {
        (Cell::Text(text), _) => text.clone(),
        (Cell::Nothing, _) => "-".to_owned(),
        (Cell::Number(n), Unit::Rate | Unit::Bytes) if !span.is_total => format!("{:.3}", span.rate(*n)),
        (Cell::Number(n), _) => n.to_string(),
    }
}

/// The times that were added between two readings.
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) sum: u64,
    pub(crate) max: u64,
    pub(crate) buckets: Vec<(u64, u64)>,
}

impl Times {
    /// The times of `now` without those of `before`.
    ///
    /// The longest is exact if it is the longest of all. Otherwise it is the end of its bucket, at
    /// most a quarter too large.
    pub(crate) fn between(before: Option<&TopTimes>, now: &TopTimes) -> Self {
        let (none, mut at) = (TopTimes::default(), 0);
        let before = before.unwrap_or(&none);
        let mut buckets = Vec::new();
        for (top, count) in &now.buckets {
            while before.buckets.get(at).is_some_and(|(other, _)| other < top) {
                at += 1;
            }
            let old = before.buckets.get(at).filter(|(other, _)| other == top).map_or(0, |(_, count)| *count);
            if *count > old {
                buckets.push((*top, count - old));
            }
        }
        let last = buckets.last().map_or(0, |(top, _)| *top);
        let max = if now.max > before.max { now.max } else { last.min(now.max) };
        let count = buckets.iter().map(|(_, count)| count).sum();
        Self { count, sum: now.sum.saturating_sub(before.sum), max, buckets }
    }

    /// The cells mean, p50, p99, longest.
    pub(crate) fn cells(&self) -> [Cell; 4] {
        if self.count == 0 {
            return [const { Cell::Nothing }; 4];
        }
        [self.sum / self.count, self.quantile(50), self.quantile(99), self.max].map(Cell::Number)
    }

    /// So many percent of the times are at most this long.
    fn quantile(&self, percent: u64) -> u64 {
        let goal = (u128::from(self.count) * u128::from(percent)).div_ceil(100).max(1);
        let mut seen = 0u128;
        for (top, count) in &self.buckets {
            seen += u128::from(*count);
            if seen >= goal {
                return (*top).min(self.max);
            }
        }
        self.max
    }
}

/// The columns of one call's or operation's times.
const OF_ONE: [Column; 4] = [
    column("FROM", "from_ns", Unit::Time, "times above this"),
    column("TO", "to_ns", Unit::Time, "and up to this"),
    column("COUNT", "count", Unit::Number, "how many took so long"),
    column("", "bar", Unit::Text, "a bar of that length"),
];
/// The longest bar.
const BAR: u64 = 40;

/// How the times of one call or operation are distributed, by powers of two.
pub(crate) struct Distribution {
    octaves: [u64; 65],
    about: Vec<String>,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { octaves: [0; 65], about: Vec::new() }
    }
}

impl Distribution {
    /// Adds times of what `name` says.
    pub(crate) fn add(&mut self, name: &str, times: &Times) {
        for (top, count) in &times.buckets {
            self.octaves[(u64::BITS - top.leading_zeros()) as usize] += count;
        }
        self.about.push(format!("{}: {}", escaped(name), times.count));
    }

    /// The table. `name`: what is said to be absent if nothing was added.
    pub(crate) fn table(&self, name: &str) -> Table {
        let used = |n: &u64| *n > 0;
        let (first, last) = (self.octaves.iter().position(used), self.octaves.iter().rposition(used));
        let most = self.octaves.iter().copied().max().unwrap_or(0).max(1);
        let row = |octave: usize| {
            let below = |octave: usize| if octave == 0 { 0 } else { u64::MAX >> (64 - octave) };
            let count = self.octaves[octave];
            let length = (u128::from(count) * u128::from(BAR)).div_ceil(u128::from(most)) as usize;
            let from = octave.checked_sub(1).map_or(0, below);
            vec![from.into(), below(octave).into(), count.into(), Cell::Text("@".repeat(length))]
        };
        let rows = first.zip(last).map(|(first, last)| (first..=last).map(row).collect());
        let about = match self.about.is_empty() {
            true => format!("no {} was counted", escaped(name)),
            false => self.about.join(", "),
        };
        Table { about: Some(about), ..Table::new(&OF_ONE, rows.unwrap_or_default()) }
    }
}

/// Errors by their codes, and how many had further codes.
type Errors<'a> = (&'a [(String, u64)], u64);

/// What was added to errors: the codes with their counts, the most frequent first, and how many in
/// all.
pub(crate) fn errors(before: Option<Errors<'_>>, now: Errors<'_>) -> (String, u64) {
    let (old, old_others) = before.unwrap_or((&[], 0));
    let base = |code: &String| old.iter().find(|(known, _)| known == code).map_or(0, |(_, count)| *count);
    let added = now.0.iter().map(|(code, count)| (code.as_str(), count.saturating_sub(base(code))));
    let mut all: Vec<(&str, u64)> = added.filter(|(_, count)| *count > 0).collect();
    all.sort_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
    let others = now.1.saturating_sub(old_others);
    let sum = all.iter().fold(others, |sum, (_, count)| sum.saturating_add(*count));
    if others > 0 {
        all.push(("others", others));
    }
    let words: Vec<String> = all.iter().map(|(code, count)| format!("{code} {count}")).collect();
    (words.join(", "), sum)
}
