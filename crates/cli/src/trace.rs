//! `poolhouse trace`: counts events of the daemon, or prints them.
//!
//! # Theory
//! The daemon counts in a session ([`api::TraceQuery`]). This command begins one, reads it at least
//! twice a second so that it does not end, and prints what it has counted.
//!
//! # Absent
//! OpenZFS has no such command. DTrace's aggregations are the model, without its language.

mod chrome;
pub(crate) mod conditions;
mod print;

use api::{TraceQuery, Traced};
use console::getopt::{Found, Getopt, Long, Opt};
use std::time::Duration;

use crate::cx::{Cx, Outcome, Stop};
use crate::ops::no_daemon;
use crate::terminal::Keys;
use crate::top::table::{Form, interval, wrong_option};

/// The synopsis, for the manual page.
pub const SYNOPSIS: &str = "poolhouse trace [-e EVENT] [-w CONDITION]... [-k FIELD[,FIELD]...] [-a MEASURE] [-i SECONDS] [-n SECONDS] [-t ROWS] [-r] [-o FILE] [-l] [-j|-p]";

const USAGE: &str = "\
usage: poolhouse trace [-e EVENT] [-w CONDITION]... [-k FIELD[,FIELD]...] [-a MEASURE] [-i SECONDS]
                       [-n SECONDS] [-t ROWS] [-r] [-o FILE] [-l] [-j|-p]

Counts events of the daemon by their fields. On a terminal, q or Ctrl-C ends it and prints the
counts. Only for root and the daemon's own user.

    -l            list the events and their fields
    -e EVENT      which events: op_done, an operation of a user, if there is no -e
    -w CONDITION  only events with this: 'op=rmdir', 'ns>20ms and dataset~tank/db*'. Several must
                  all be met. = != > >= < <= compare; ~ and !~ are for texts, with * and ?
    -k FIELD      one row for each value of these fields
    -a MEASURE    count (if there is no -a), sum:FIELD, avg:FIELD, min:FIELD, max:FIELD,
                  quantize:FIELD (powers of two), lquantize:FIELD:FROM:TO:STEP
    -i SECONDS    print and count anew each SECONDS
    -n SECONDS    end after so long
    -t ROWS       at most so many rows, those with the most
    -r            print each event, with the fields of -k or the usual ones
    -o FILE       write each event to FILE, for Perfetto or chrome://tracing
    -p            one header, tabs between columns, and exact numbers
    -j            JSON
";

const HELP: &str = "\
\nTimes have units: ns, us, ms, s. Bytes: K, M, G. If the session would cost more than one percent of
the daemon's processor time, it takes only one of 2, 4, 8 ... operations, counts them for all, and
says so. Reads that the kernel's page cache answers don't reach the daemon.
";

const LONG: [Long; 3] = [
    Long { name: "parsable", val: Opt::Short('p'), arg: false },
    Long { name: "json", val: Opt::Short('j'), arg: false },
    Long { name: "help", val: Opt::Named("help"), arg: false },
];

/// The longest time between two readings, in seconds.
const PAUSE: f64 = 0.5;

/// How the measured numbers are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Count,
    Sum,
    Average,
    Least,
    Most,
    Distribution,
}

/// The request, from the command line.
#[derive(Debug)]
struct Asked {
    query: TraceQuery,
    measure: Measure,
    form: Form,
    lists: bool,
    interval: Option<f64>,
    seconds: Option<f64>,
    rows: usize,
    /// Where events are written.
    file: Option<String>,
}

/// Runs `trace` with the arguments after it. Returns the exit code.
pub fn run(cx: &mut Cx, args: &[String]) -> i32 {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        cx.out.put(USAGE);
        cx.out.put(HELP);
        return 0;
    }
    match read(args).and_then(|asked| show(cx, &asked)) {
        Ok(code) | Err(Stop::Fail(code)) => code,
        Err(Stop::Usage(message)) => {
            cx.err.put(&message);
            cx.err.put(USAGE);
            2
        }
    }
}

/// Parses the arguments.
fn read(args: &[String]) -> Result<Asked, Stop> {
    let query = TraceQuery { event: "op_done".to_owned(), ..TraceQuery::default() };
    let (measure, form, rows) = (Measure::Count, Form::Text, usize::MAX);
    let (interval_of, seconds, file) = (None, None, None);
    let mut asked = Asked { query, measure, form, lists: false, interval: interval_of, seconds, rows, file };
    let mut g = Getopt::new(args, "e:w:k:a:i:n:t:o:rlpj", &LONG);
    while let Some(found) = g.next() {
        match found {
            Found::Is(Opt::Short('l'), _) => asked.lists = true,
            Found::Is(Opt::Short('r'), _) => asked.query.raw = true,
            Found::Is(Opt::Short('p'), _) => asked.form = Form::Parsable,
            Found::Is(Opt::Short('j'), _) => asked.form = Form::Json,
            Found::Is(Opt::Short('e'), name) => asked.query.event = name,
            Found::Is(Opt::Short('w'), text) => {
                asked.query.conditions.extend(conditions::read(&text).map_err(Stop::usage)?);
            }
            Found::Is(Opt::Short('k'), names) => {
                asked.query.keys.extend(names.split(',').map(str::to_owned));
            }
            Found::Is(Opt::Short('a'), text) => {
                asked.measure = measure_of(&text)?;
                asked.query.measure = text;
            }
            Found::Is(Opt::Short('i'), text) => asked.interval = Some(interval(&text)?),
            Found::Is(Opt::Short('n'), text) => asked.seconds = Some(interval(&text)?),
            Found::Is(Opt::Short('t'), text) => {
                let wrong = || Stop::usage(format!("invalid number of rows '{text}'\n"));
                asked.rows = text.parse().ok().filter(|rows| *rows > 0).ok_or_else(wrong)?;
            }
            Found::Is(_, name) => asked.file = Some(name),
            Found::Invalid(_) => return Err(wrong_option(&g, false)),
            Found::Missing(_) => return Err(wrong_option(&g, true)),
        }
    }
    if !g.operands().is_empty() {
        return Err(Stop::usage("too many arguments\n"));
    }
    asked.query.raw |= asked.file.is_some();
    if asked.query.raw && (asked.measure != Measure::Count || asked.interval.is_some()) {
        return Err(Stop::usage("options '-r' and '-o' print events as they are: without '-a' and '-i'\n"));
    }
    asked.query.anew = asked.interval.is_some();
    Ok(asked)
}

/// How a measure is shown. The daemon checks the rest.
fn measure_of(text: &str) -> Result<Measure, Stop> {
    match text.split(':').next().unwrap_or_default() {
        "count" => Ok(Measure::Count),
        "sum" => Ok(Measure::Sum),
        "avg" => Ok(Measure::Average),
        "min" => Ok(Measure::Least),
        "max" => Ok(Measure::Most),
        "quantize" | "lquantize" => Ok(Measure::Distribution),
        _ => Err(Stop::usage(format!(
            "unknown measure '{text}': choose count, sum, avg, min, max, quantize or lquantize\n"
        ))),
    }
}

/// Sends a request of a session.
pub(crate) fn ask(cx: &mut Cx, query: &TraceQuery) -> Result<Traced, Stop> {
    let service = cx.service()?;
    let traced = service.trace(query).map_err(|error| cx.fail("cannot trace", &error))?;
    if traced.process == api::process_id() {
        return Err(no_daemon(cx));
    }
    Ok(traced)
}

/// Begins two sessions. If the second is refused, the first ends.
pub(crate) fn begin_both(cx: &mut Cx, sessions: &mut [TraceQuery; 2]) -> Result<(), Stop> {
    let [first, second] = sessions;
    first.session = Some(ask(cx, first)?.session);
    match ask(cx, second) {
        Ok(traced) => second.session = Some(traced.session),
        Err(stop) => {
            // It has ended by itself if this fails.
            drop(ask(cx, &TraceQuery { end: true, ..first.clone() }));
            return Err(stop);
        }
    }
    Ok(())
}

fn show(cx: &mut Cx, asked: &Asked) -> Outcome {
    if asked.lists {
        let list = TraceQuery::default();
        let traced = ask(cx, &list)?;
        print::events(cx, asked.form, &traced.events);
        return Ok(0);
    }
    let has_keys = cx.secret.interactive();
    if asked.seconds.is_none() && asked.interval.is_none() && !asked.query.raw && !has_keys {
        let message = "without a terminal, nothing ends it: give '-n SECONDS' or '-i SECONDS'\n";
        return Err(Stop::usage(message));
    }
    let mut file = asked.file.as_deref().map(|name| chrome::Writer::new(cx, name)).transpose()?;
    let first = ask(cx, &asked.query)?;
    let ends = if has_keys { ": q or Ctrl-C ends it" } else { "" };
    writeln!(cx.err, "tracing {}{ends}", asked.query.event);
    cx.err.flush();
    let query = TraceQuery { session: Some(first.session), ..asked.query.clone() };
    let mut printer = print::Printer::new(asked);
    let mut watch = Watch { left: asked.seconds, until_print: asked.interval };
    loop {
        let is_over = watch.wait(cx, has_keys);
        let is_due = watch.is_due(asked.interval);
        let reading = TraceQuery { end: is_over, anew: query.anew && (is_due || is_over), ..query.clone() };
        let traced = ask(cx, &reading)?;
        if let Some(file) = &mut file {
            file.write(cx, &traced)?;
        } else if asked.query.raw {
            printer.kept(cx, &traced);
        } else if is_due || is_over {
            printer.groups(cx, &traced);
        }
        if is_over {
            if let Some(file) = file {
                file.end(cx)?;
            }
            printer.foot(cx, &traced);
            return Ok(0);
        }
        if !cx.out.flush() {
            return Ok(0);
        }
    }
}

/// The time of a command.
struct Watch {
    /// Seconds until its end.
    left: Option<f64>,
    /// Seconds until it prints again.
    until_print: Option<f64>,
}

impl Watch {
    /// Waits for the next reading. Returns whether it is the last one.
    fn wait(&mut self, cx: &Cx, has_keys: bool) -> bool {
        /// `q`, Ctrl-C, Ctrl-D.
        const ENDS: [u8; 4] = [b'q', b'Q', 3, 4];
        let times = [Some(PAUSE), self.left, self.until_print];
        let pause = times.into_iter().flatten().fold(PAUSE, f64::min);
        let keys = has_keys.then(|| Keys::new().ok().flatten()).flatten();
        let is_ended = match keys {
            Some(keys) => keys.wait(Duration::from_secs_f64(pause), |key| ENDS.contains(&key)),
            None => {
                (cx.sleep)(pause);
                false
            }
        };
        let less = |left: &mut f64| *left -= pause;
        self.left.iter_mut().for_each(less);
        self.until_print.iter_mut().for_each(less);
        is_ended || self.left.is_some_and(|left| left < 1e-6)
    }

    /// Whether an interval has passed. Then the next one begins.
    fn is_due(&mut self, interval: Option<f64>) -> bool {
        let is_due = self.until_print.is_some_and(|left| left < 1e-6);
        if is_due {
            self.until_print = interval;
        }
        is_due
    }
}

#[cfg(test)]
mod tests;
