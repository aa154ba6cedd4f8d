//! `zinject`: faults of devices and blocks on purpose, of the pools that the daemon holds.
//!
//! See OpenZFS `cmd/zinject`; what it can do beyond this is refused by name.

use std::path::Path;

use server::api::{DeviceFault, InjectRequest, Injected, Service};

use crate::clock::Clock;
use crate::cx::Out;
use crate::words;

const USAGE: &str = "\
usage:

	zinject
		List all active injection records.

	zinject -c <id|all>
		Clear the particular record (if given a numeric ID), or
		all records if 'all' is specified.

	zinject -d device -e errno [-T read|write|flush|free|probe|all]
	    [-f frequency] pool
		Let operations of a device fail: errno is io, nxio, dtl,
		decompress, decrypt, corrupt or noop.

	zinject -d device -D latency:lanes pool
		Let operations of a device take as many milliseconds,
		so many at a time.

	zinject -d device -A <degrade|fault> pool
		Have a device taken for failing.

	zinject -t data [-l level] [-r range] [-C dvas] [-e checksum|io]
	    [-f frequency] [-a] [-m] [-q] path
		Let blocks of a file be found wrong.

	zinject -P <import|export> -s <seconds> pool
		Let a pool's import or export take longer.

	zinject -a
		Forget all blocks that are in memory.
";

/// What the words ask for.
#[derive(Default)]
struct Asked {
    device: Option<String>,
    error: Option<String>,
    /// It is to be taken for failing, and faulted rather than degraded.
    verdict: Option<bool>,
    on: Option<String>,
    delay: Option<(u64, u32)>,
    often: Option<u32>,
    kind: Option<String>,
    level: u8,
    range: Option<(u64, u64)>,
    copies: u32,
    cancel: Option<String>,
    pass: Option<String>,
    seconds: u32,
    forget: bool,
    quiet: bool,
    rest: Vec<String>,
}

/// A sentence about what is wrong, and the exit code.
type Said<T> = Result<T, (String, i32)>;

fn bad<T>(what: impl Into<String>) -> Said<T> {
    Err((what.into(), 1))
}

/// Percent, as `zinject -f` takes them, in a hundred thousand.
fn frequency(text: &str) -> Said<u32> {
    match text.parse::<f64>() {
        Ok(percent) if (0.001..=100.0).contains(&percent) => Ok((percent * 1000.0).round() as u32),
        _ => bad("frequency must be in the range (0, 100.0]"),
    }
}

fn pair<A: std::str::FromStr, B: std::str::FromStr>(text: &str, by: char) -> Option<(A, B)> {
    let (one, other) = text.split_once(by)?;
    Some((one.parse().ok()?, other.parse().ok()?))
}

impl Asked {
    fn set(&mut self, letter: char, value: String) -> Said<()> {
        let number = |what: &str| value.parse().map_err(|_| (format!("invalid {what} '{value}'"), 1));
        match letter {
            'd' => self.device = Some(value),
            'e' => self.error = Some(value),
            'A' => match value.to_ascii_lowercase().as_str() {
                "degrade" => self.verdict = Some(false),
                "fault" => self.verdict = Some(true),
                _ => return bad(format!("invalid action '{value}': must be 'degrade' or 'fault'")),
            },
            'T' => self.on = Some(value),
            'D' => match pair(&value, ':') {
                Some((ms, lanes)) if lanes > 0 => self.delay = Some((ms, lanes)),
                _ => return bad(format!("invalid i/o delay value: '{value}'")),
            },
            'f' => self.often = Some(frequency(&value)?),
            't' => self.kind = Some(value),
            'l' => self.level = value.parse().map_err(|_| (format!("invalid level '{value}'"), 1))?,
            'r' => {
                let one = value.parse().ok().map(|at: u64| (at, at.saturating_add(1)));
                match pair(&value, ',').or(one) {
                    Some((from, to)) if from < to => self.range = Some((from, to)),
                    _ => return bad(format!("invalid range '{value}'")),
                }
            }
            'C' => {
                for copy in value.split(',') {
                    match copy.parse::<u32>() {
                        Ok(copy) if copy < 3 => self.copies |= 1 << copy,
                        _ => return bad(format!("invalid DVA list '{value}'")),
                    }
                }
            }
            'c' => self.cancel = Some(value),
            'P' => self.pass = Some(value),
            's' => self.seconds = number("duration")?,
            _ => unreachable!("only these take a value"),
        }
        Ok(())
    }
}

fn parse(args: &[String]) -> Said<Asked> {
    let mut asked = Asked::default();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix('-').filter(|l| !l.is_empty()) else {
            asked.rest.push(word.clone());
            asked.rest.extend(words.cloned());
            break;
        };
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            match letter {
                'a' | 'm' => asked.forget = true,
                'q' => asked.quiet = true,
                'h' => return Err((USAGE.to_owned(), 0)),
                'A' | 'd' | 'e' | 'T' | 'D' | 'f' | 't' | 'l' | 'r' | 'C' | 'c' | 'P' | 's' => {
                    let joined = letters.as_str().to_owned();
                    let value = if joined.is_empty() { words.next().cloned() } else { Some(joined) };
                    let value =
                        value.ok_or_else(|| (format!("option -{letter} requires an operand\n{USAGE}"), 2))?;
                    asked.set(letter, value)?;
                    break;
                }
                'F' | 'I' | 'L' | 'b' | 'E' | 'g' | 'i' | 'n' | 'p' | 'S' | 'R' | 'u' => {
                    return bad(format!("-{letter} is not in this release of Poolhouse"));
                }
                other => return Err((format!("invalid option '{other}'\n{USAGE}"), 2)),
            }
        }
    }
    Ok(asked)
}

/// Runs `zinject`; the exit code.
pub fn run(out: &mut Out, err: &mut Out, service: &dyn Service, args: &[String]) -> i32 {
    let done = parse(args).and_then(|asked| ask(out, service, &asked, args.is_empty()));
    match done {
        Ok(()) => 0,
        Err((text, 0)) => {
            out.put(&text);
            0
        }
        Err((what, code)) => {
            writeln!(err, "{}", what.trim_end());
            code
        }
    }
}

fn told(service: &dyn Service, request: &InjectRequest) -> Said<Vec<Injected>> {
    let why = |e: server::api::Error| {
        (format!("failed to add handler: {}: {}", e.about, words::reason(&e.reason, &Clock::system())), 1)
    };
    service.inject(request).map_err(why)
}

fn ask(out: &mut Out, service: &dyn Service, asked: &Asked, list: bool) -> Said<()> {
    if list {
        let all = told(service, &InjectRequest::List)?;
        if all.is_empty() {
            out.put("No handlers registered.\nRun 'zinject -h' for usage information.\n");
        }
        for one in &all {
            writeln!(out, "{:>3}  {:<15}  {}  (struck {} times)", one.id, one.pool, one.what, one.hits);
        }
        return Ok(());
    }
    if let Some(which) = &asked.cancel {
        return cancel(out, service, which);
    }
    let request = match (&asked.pass, &asked.device, &asked.kind) {
        (Some(what), _, _) => pass(asked, what)?,
        (None, Some(device), _) => of_device(asked, device)?,
        (None, None, Some(kind)) => of_data(service, asked, kind)?,
        (None, None, None) if asked.forget && asked.rest.is_empty() => {
            for pool in service.pool_names().unwrap_or_default() {
                told(service, &InjectRequest::Forget { pool })?;
            }
            return Ok(());
        }
        _ => return Err((USAGE.to_owned(), 2)),
    };
    let added = told(service, &request)?;
    if let (true, InjectRequest::Data { dataset, .. }) = (asked.forget, &request) {
        let pool = dataset.split('/').next().unwrap_or(dataset).to_owned();
        told(service, &InjectRequest::Forget { pool })?;
        forget_pages(Path::new(&asked.rest[0]));
    }
    if let Some(one) = added.first() {
        if asked.quiet {
            writeln!(out, "{}", one.id);
            return Ok(());
        }
        writeln!(out, "Added handler {} with the following properties:", one.id);
        writeln!(out, "  pool: {}", one.pool);
        if !one.what.is_empty() {
            writeln!(out, "  {}", one.what);
        }
    }
    Ok(())
}

fn cancel(out: &mut Out, service: &dyn Service, which: &str) -> Said<()> {
    if which == "all" {
        told(service, &InjectRequest::Cancel { id: None })?;
        out.put("removed all registered handlers\n");
        return Ok(());
    }
    let Ok(id) = which.parse() else { return bad(format!("invalid id '{which}': must be an integer")) };
    if told(service, &InjectRequest::Cancel { id: Some(id) })?.is_empty() {
        return bad(format!("failed to remove handler {id}: No such file or directory"));
    }
    writeln!(out, "removed handler {id}");
    Ok(())
}

fn only(asked: &Asked, what: &str) -> Said<String> {
    match asked.rest.as_slice() {
        [one] => Ok(one.clone()),
        _ => Err((format!("{what} injection requires a single name\n{USAGE}"), 2)),
    }
}

fn pass(asked: &Asked, what: &str) -> Said<InjectRequest> {
    let pool = only(asked, "delay")?;
    let import = match what {
        "import" => true,
        "export" => false,
        other => return bad(format!("invalid command '{other}'")),
    };
    if asked.seconds == 0 {
        return bad("duration (-s) is missing");
    }
    Ok(InjectRequest::Pass { pool, import, seconds: asked.seconds })
}

fn of_device(asked: &Asked, device: &str) -> Said<InjectRequest> {
    let pool = only(asked, "device")?;
    if let Some(faulted) = asked.verdict {
        return Ok(InjectRequest::Verdict { pool, device: device.to_owned(), faulted });
    }
    let wrong = match (asked.delay, asked.error.as_deref()) {
        (Some((ms, lanes)), _) => DeviceFault::Delay(ms, lanes),
        // The numbers are those of Linux for what the kernel module takes these words to be.
        (None, None | Some("nxio")) => DeviceFault::Error(6),
        (None, Some("io")) => DeviceFault::Error(5),
        (None, Some("dtl")) => DeviceFault::Error(10),
        (None, Some("decompress")) => DeviceFault::Error(22),
        (None, Some("decrypt")) => DeviceFault::Error(13),
        (None, Some("corrupt")) => DeviceFault::Corrupt,
        (None, Some("noop")) => DeviceFault::Noop,
        (None, Some(other)) => return bad(format!("invalid error type '{other}' of a device")),
    };
    let on = match asked.on.as_deref() {
        None | Some("all") => None,
        Some(on @ ("read" | "write" | "flush" | "free" | "probe")) => Some(on.to_owned()),
        Some(other) => return bad(format!("invalid I/O type '{other}'")),
    };
    let often = asked.often.unwrap_or(100_000);
    Ok(InjectRequest::Device { pool, device: device.to_owned(), on, wrong, often })
}

fn of_data(service: &dyn Service, asked: &Asked, kind: &str) -> Said<InjectRequest> {
    use std::os::unix::fs::MetadataExt;
    let file = only(asked, "object")?;
    if kind != "data" {
        return bad(format!("-t {kind} is not in this release of Poolhouse"));
    }
    if !matches!(asked.on.as_deref(), None | Some("read" | "all")) {
        return bad("data is found wrong when it is read");
    }
    let checksum = match asked.error.as_deref() {
        None | Some("io") => false,
        Some("checksum") => true,
        Some(other) => return bad(format!("invalid error type '{other}' of data")),
    };
    let gone = |e: std::io::Error| (format!("cannot open '{file}': {e}"), 1);
    let path = std::fs::canonicalize(&file).map_err(gone)?;
    let found = std::fs::metadata(&path).map_err(gone)?;
    let mounts = service.mounts().map_err(|e| (format!("{}: no mounts", e.about), 1))?;
    let on = mounts.into_iter().filter(|m| path.starts_with(&m.mountpoint));
    let Some(mount) = on.max_by_key(|m| m.mountpoint.len()) else {
        return bad(format!("'{file}' is not in a mounted file system of a pool"));
    };
    // What another file system has below the mountpoint has other objects, and so have snapshots and what else is not in the tree itself.
    let at = Path::new(&mount.mountpoint);
    let of_it = std::fs::metadata(at).is_ok_and(|top| top.dev() == found.dev());
    if !of_it || path.strip_prefix(at).is_ok_and(|below| below.starts_with(".zfs")) {
        return bad(format!("'{file}' is not a file of {}", mount.dataset));
    }
    Ok(InjectRequest::Data {
        dataset: mount.dataset,
        object: found.ino(),
        level: asked.level,
        range: asked.range,
        copies: asked.copies,
        checksum,
        often: asked.often.unwrap_or(100_000),
    })
}

/// Has the kernel forget what it holds of a file.
fn forget_pages(path: &Path) {
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.sync_all();
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}
