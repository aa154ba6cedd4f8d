//! `zinject`: deliberate faults of devices and blocks, in pools that the daemon holds
//! (`zinject.c`).
//!
//! What OpenZFS's program can do beyond this is refused by name.

mod tables;

use std::path::Path;

use api::{DataFault, DeviceFault, InjectRequest, Injected, Requests, Spell};
use ondisk::DmuType;

use console::Clock;
use console::Out;
use console::words;

const USAGE: &str = "\
usage:

	zinject
		List all active injection records.

	zinject -c <id|all>
		Clear the particular record (if given a numeric ID), or
		all records if 'all' is specified.

	zinject -d device [-e errno] [-L <nvlist|uber|pad1|pad2>]
	    [-T read|write|flush|free|probe|all] [-f frequency] pool
		Let operations of a device fail, or with -L those of a part
		of all its labels: errno is nxio (the default), io, dtl,
		decompress, decrypt, corrupt (with -T read and -f) or noop.

	zinject -d device -D latency:lanes pool
		Let operations of a device take as many milliseconds,
		so many at a time.

	zinject -d device -A <degrade|fault> pool
		Have a device taken for failing.

	zinject -b objset:object:level:blkid [-e errno] [-a] [-q] pool
		Let one block be found wrong; all numbers are hexadecimal.

	zinject -t data [-l level] [-r range] [-C dvas] [-e errno]
	    [-f frequency] [-a] [-m] [-q] path
		Let blocks of a file be found wrong: errno is io (the
		default), checksum, decompress, or of a file decrypt.

	zinject -t dnode [-l level] [-C dvas] [-e errno]
	    [-f frequency] [-a] [-m] [-q] path
		The same of the block that has a file's or a directory's
		dnode.

	zinject -t <mos|mosdir|metaslab|config|bpobj|spacemap|errlog>
	    [-C dvas] [-e errno] [-f frequency] [-a] [-q] pool
		The same of blocks of the pool's own objects of a kind, or
		all of them.

	zinject -I [-s <seconds> | -g <txgs>] pool
		Let three of five writes of blocks be lost, unsaid, for 30
		seconds or as long as is asked for, from the next group on.
		After that the daemon ends when it is about to sync another
		group, as it can't tell what the pool lacks.

	zinject -P <import|export> -s <seconds> pool
		Let a pool's import or export take longer.

	zinject -a
		Forget all blocks that are in memory.
";

/// The kinds of MOS objects by their names here; none stands for all (`MOS_TYPE`).
const MOS_TYPES: [(&str, DmuType); 7] = [
    ("mos", DmuType::NONE),
    ("mosdir", DmuType::OBJECT_DIRECTORY),
    ("metaslab", DmuType::OBJECT_ARRAY),
    ("config", DmuType::PACKED_NVLIST),
    ("bpobj", DmuType::BPOBJ),
    ("spacemap", DmuType::SPACE_MAP),
    ("errlog", DmuType::ERROR_LOG),
];

/// The error of a device that disappeared (`ENXIO`).
const NXIO: i32 = 6;
/// Device errors by name. The numbers are those that OpenZFS's module uses for these words on
/// Linux.
const ERRORS: [(&str, i32); 5] =
    [("nxio", NXIO), ("io", 5), ("dtl", 10), ("decompress", 22), ("decrypt", 13)];

/// The request, from the command line.
#[derive(Default)]
struct Asked {
    device: Option<String>,
    error: Option<String>,
    /// The device is to count as failing: faulted if true, and otherwise degraded.
    verdict: Option<bool>,
    on: Option<String>,
    label: Option<String>,
    raw: Option<String>,
    delay: Option<(u64, u32)>,
    often: Option<u32>,
    kind: Option<String>,
    level: Option<u8>,
    range: Option<(u64, u64)>,
    copies: u32,
    cancel: Option<String>,
    pass: Option<String>,
    seconds: Option<u32>,
    groups: Option<u32>,
    /// Writes are to be lost.
    lossy: bool,
    forget: bool,
    quiet: bool,
    rest: Vec<String>,
}

/// The error is a sentence about what is wrong, and the exit code.
type Said<T> = Result<T, (String, i32)>;

fn bad<T>(what: impl Into<String>) -> Said<T> {
    Err((what.into(), 1))
}

/// Parses the percentage of `zinject -f` into a fraction of `u32::MAX`.
fn frequency(text: &str) -> Said<u32> {
    let range = "frequency value must be in the range [0.0001, 100.0]";
    match text.parse::<f64>() {
        Ok(percent) if (0.0001..=100.0).contains(&percent) => {
            Ok((percent / 100.0 * f64::from(u32::MAX)) as u32)
        }
        Ok(_) => bad(format!("out of range: {range}")),
        Err(_) => bad(format!("invalid value: {range}")),
    }
}

fn pair<A: std::str::FromStr, B: std::str::FromStr>(text: &str, by: char) -> Option<(A, B)> {
    let (one, other) = text.split_once(by)?;
    Some((one.parse().ok()?, other.parse().ok()?))
}

impl Asked {
    fn set(&mut self, letter: char, value: String) -> Said<()> {
        let duration = || match value.parse() {
            Ok(many) if many > 0 => Ok(Some(many)),
            _ => bad(format!("invalid duration '{value}': must be a positive integer")),
        };
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
            'L' if matches!(value.as_str(), "nvlist" | "uber" | "pad1" | "pad2") => self.label = Some(value),
            'L' => return bad(format!("invalid label type '{value}'\n{USAGE}")),
            'b' => self.raw = Some(value),
            'l' => match value.parse() {
                Ok(level) => self.level = Some(level),
                Err(_) => return bad(format!("invalid level '{value}': must be an integer")),
            },
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
            's' => self.seconds = duration()?,
            'g' => self.groups = duration()?,
            _ => unreachable!("only these take a value"),
        }
        Ok(())
    }
}

impl Asked {
    /// Refuses arguments without a meaning for this request, so that none is ignored silently.
    fn is_consistent(&self) -> Said<()> {
        let blocks = self.level.is_some() || self.range.is_some() || self.copies != 0;
        let of_mos = self.kind.as_deref().is_some_and(|kind| !matches!(kind, "data" | "dnode"));
        let wrong = match (&self.device, &self.raw) {
            (Some(_), _) if blocks || self.kind.is_some() || self.raw.is_some() => {
                "device (-d) incompatible with data error injection"
            }
            (Some(_), _) if self.label.is_some() && (self.delay.is_some() || self.verdict.is_some()) => {
                "labels (-L) incompatible with -D and -A"
            }
            (None, Some(_)) if blocks || self.kind.is_some() || self.often.is_some() => {
                "raw (-b) format with any other options"
            }
            (None, _) if self.label.is_some() => "labels (-L) are a device's (-d)",
            (None, _) if of_mos && (self.level.is_some() || self.range.is_some()) => {
                "objects of the pool itself are found wrong whole, without -l and -r"
            }
            (device, raw) if self.lossy => {
                let alone = device.is_none() && raw.is_none() && !blocks && self.kind.is_none();
                if alone && self.often.is_none() && self.pass.is_none() {
                    return Ok(());
                }
                "hardware failure (-I) incompatible with other options"
            }
            _ if self.groups.is_some() || self.seconds.is_some() && self.pass.is_none() => {
                "-s or -g meaningless without -I (ignore writes)"
            }
            _ => return Ok(()),
        };
        Err((format!("{wrong}\n{USAGE}"), 2))
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
                'I' => asked.lossy = true,
                'h' => return Err((USAGE.to_owned(), 0)),
                'A' | 'd' | 'e' | 'T' | 'D' | 'f' | 't' | 'l' | 'r' | 'C' | 'c' | 'P' | 's' | 'L' | 'b'
                | 'g' => {
                    let joined = letters.as_str().to_owned();
                    let value = if joined.is_empty() { words.next().cloned() } else { Some(joined) };
                    let value =
                        value.ok_or_else(|| (format!("option -{letter} requires an operand\n{USAGE}"), 2))?;
                    asked.set(letter, value)?;
                    break;
                }
                'F' | 'E' | 'i' | 'n' | 'p' | 'S' | 'R' | 'u' => {
                    return bad(format!("-{letter} is not in this release of Poolhouse"));
                }
                other => return Err((format!("invalid option '{other}'\n{USAGE}"), 2)),
            }
        }
    }
    Ok(asked)
}

/// Runs `zinject`. Returns the exit code.
pub fn run(out: &mut Out, err: &mut Out, service: &dyn Requests, args: &[String]) -> i32 {
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

fn told(service: &dyn Requests, request: &InjectRequest) -> Said<Vec<Injected>> {
    let why = |e: api::Error| {
        (format!("failed to add handler: {}: {}", e.about, words::reason(&e.reason, &Clock::system())), 1)
    };
    service.inject(request).map_err(why)
}

fn ask(out: &mut Out, service: &dyn Requests, asked: &Asked, list: bool) -> Said<()> {
    if list {
        tables::list(out, &told(service, &InjectRequest::List)?);
        return Ok(());
    }
    if let Some(which) = &asked.cancel {
        return cancel(out, service, which);
    }
    asked.is_consistent()?;
    let request = match (&asked.pass, &asked.device, &asked.raw, &asked.kind) {
        (Some(what), ..) => pass(asked, what)?,
        (None, ..) if asked.lossy => lose(asked)?,
        (None, Some(device), ..) => of_device(asked, device)?,
        (None, None, Some(raw), _) => of_block(asked, raw)?,
        (None, None, None, Some(kind)) => of_kind(service, asked, kind)?,
        (None, None, None, None) if asked.forget && asked.rest.is_empty() => {
            return forget(service, service.pool_names().unwrap_or_default(), true);
        }
        _ => return Err((USAGE.to_owned(), 2)),
    };
    // Pending writes reach the disk before any of them can fail, and nothing that was read
    // meanwhile stays cached.
    let pools: Vec<String> = pool_of(&request).filter(|_| asked.forget).into_iter().collect();
    forget(service, pools.clone(), true)?;
    let added = told(service, &request)?;
    forget(service, pools, false)?;
    if asked.forget && matches!(request, InjectRequest::Data { .. }) {
        forget_pages(Path::new(&asked.rest[0]));
    }
    if let Some(one) = added.first() {
        match asked.quiet {
            true => writeln!(out, "{}", one.id),
            false => tables::added(out, one),
        }
    }
    Ok(())
}

/// The pool whose blocks a fault affects.
fn pool_of(request: &InjectRequest) -> Option<String> {
    match request {
        InjectRequest::Device { pool, .. }
        | InjectRequest::Block { pool, .. }
        | InjectRequest::LoseWrites { pool, .. }
        | InjectRequest::Mos { pool, .. } => Some(pool.clone()),
        InjectRequest::Data { dataset, .. } => dataset.split('/').next().map(str::to_owned),
        InjectRequest::List
        | InjectRequest::Cancel { .. }
        | InjectRequest::Verdict { .. }
        | InjectRequest::Pass { .. }
        | InjectRequest::Forget { .. } => None,
    }
}

fn forget(service: &dyn Requests, pools: Vec<String>, sync: bool) -> Said<()> {
    pools.into_iter().try_for_each(|pool| told(service, &InjectRequest::Forget { pool, sync }).map(drop))
}

fn cancel(out: &mut Out, service: &dyn Requests, which: &str) -> Said<()> {
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
    let Some(seconds) = asked.seconds else { return bad("duration (-s) is missing") };
    Ok(InjectRequest::Pass { pool, import, seconds })
}

/// The request to lose writes.
fn lose(asked: &Asked) -> Said<InjectRequest> {
    let pool = only(asked, "ignore writes (-I)")?;
    let spell = match (asked.seconds, asked.groups) {
        (Some(_), Some(_)) => {
            let both = "choose a duration either in seconds (-s) or a number of txgs (-g) but not both";
            return Err((format!("{both}\n{USAGE}"), 2));
        }
        (None, Some(groups)) => Spell::Groups(groups),
        (seconds, None) => Spell::Seconds(seconds.unwrap_or(30)),
    };
    Ok(InjectRequest::LoseWrites { pool, spell })
}

fn of_device(asked: &Asked, device: &str) -> Said<InjectRequest> {
    let pool = only(asked, "device")?;
    if let Some(faulted) = asked.verdict {
        return Ok(InjectRequest::Verdict { pool, device: device.to_owned(), faulted });
    }
    let wrong = match (asked.delay, asked.error.as_deref()) {
        (Some((ms, lanes)), _) => DeviceFault::Delay(ms, lanes),
        (None, None) => DeviceFault::Error(NXIO),
        (None, Some("checksum")) => return bad("device error type must be 'io', 'nxio' or 'corrupt'"),
        (None, Some("corrupt")) if asked.often.is_none() || asked.on.as_deref() != Some("read") => {
            return bad("device corrupt errors require io type read and a frequency value");
        }
        (None, Some("corrupt")) => DeviceFault::Corrupt,
        (None, Some("noop")) => DeviceFault::Noop,
        (None, Some(word)) => match ERRORS.iter().find(|(name, _)| *name == word) {
            Some((_, code)) => DeviceFault::Error(*code),
            None => return bad(format!("invalid error type '{word}' of a device")),
        },
    };
    let on = match asked.on.as_deref() {
        None | Some("all") => None,
        Some(on @ ("flush" | "free")) if asked.label.is_some() => {
            return bad(format!("labels are read, written and probed, and '{on}' is neither"));
        }
        Some(on @ ("read" | "write" | "flush" | "free" | "probe")) => Some(on.to_owned()),
        Some(other) => return bad(format!("invalid I/O type '{other}'")),
    };
    let (label, often) = (asked.label.clone(), asked.often.unwrap_or(u32::MAX));
    Ok(InjectRequest::Device { pool, device: device.to_owned(), label, on, wrong, often })
}

/// How the affected blocks are wrong.
fn wrong(asked: &Asked) -> Said<DataFault> {
    let how = match asked.error.as_deref() {
        None | Some("io") => return Ok(DataFault::Io),
        Some("checksum") => return Ok(DataFault::Checksum),
        Some("decompress") => DataFault::Decompress,
        Some("decrypt") if asked.kind.as_deref() == Some("data") => DataFault::Decrypt,
        Some("decrypt") => return bad("decryption errors may only be injected for 'data' types"),
        Some(_) => return bad("data error type must be 'checksum' or 'io'"),
    };
    if asked.copies != 0 {
        return bad("the '-C' option may not be used with logical data errors 'decrypt' and 'decompress'");
    }
    Ok(how)
}

/// The request for a block by its numbers (`zbookmark_phys_t`).
fn of_block(asked: &Asked, raw: &str) -> Said<InjectRequest> {
    let pool = only(asked, "raw (-b)")?;
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok();
    let numbers: Option<Vec<u64>> = raw.split(':').map(hex).collect();
    let Some([objset, object, level, blkid]) = numbers.and_then(|n| <[u64; 4]>::try_from(n).ok()) else {
        return bad(format!("bad raw spec '{raw}': must be of the form 'objset:object:level:blkid'"));
    };
    let Ok(level) = u8::try_from(level) else {
        return bad(format!("bad raw spec '{raw}': no object has so many levels"));
    };
    Ok(InjectRequest::Block { pool, objset, object, level, blkid, how: wrong(asked)? })
}

/// The request for blocks of a kind.
fn of_kind(service: &dyn Requests, asked: &Asked, kind: &str) -> Said<InjectRequest> {
    if !matches!(asked.on.as_deref(), None | Some("read" | "all")) {
        return bad("data is found wrong when it is read");
    }
    if kind == "data" || kind == "dnode" {
        return of_data(service, asked, kind == "dnode");
    }
    let Some((_, kind)) = MOS_TYPES.iter().find(|(name, _)| *name == kind) else {
        return bad(format!("invalid type '{kind}'\n{USAGE}"));
    };
    let often = asked.often.unwrap_or(u32::MAX);
    let (kind, copies) = (kind.to_disk(), asked.copies);
    Ok(InjectRequest::Mos { pool: only(asked, "object")?, kind, copies, how: wrong(asked)?, often })
}

fn of_data(service: &dyn Requests, asked: &Asked, dnode: bool) -> Said<InjectRequest> {
    use std::os::unix::fs::MetadataExt;
    let file = only(asked, "object")?;
    if dnode && asked.range.is_some() {
        return bad("range cannot be specified when type is 'dnode'");
    }
    let how = wrong(asked)?;
    let gone = |e: std::io::Error| (format!("cannot open '{file}': {}", words::io(&e)), 1);
    let path = std::fs::canonicalize(&file).map_err(gone)?;
    let found = std::fs::metadata(&path).map_err(gone)?;
    let mounts = service.mounts().map_err(|e| (format!("{}: no mounts", e.about), 1))?;
    let on = mounts.into_iter().filter(|m| path.starts_with(&m.mountpoint));
    let Some(mount) = on.max_by_key(|m| m.mountpoint.len()) else {
        return bad(format!("'{file}' is not in a mounted file system of a pool"));
    };
    // A path may lead to another file system below the mountpoint, to a snapshot, or into `.zfs`.
    // Their objects are not this dataset's.
    let at = Path::new(&mount.mountpoint);
    let of_it = std::fs::metadata(at).is_ok_and(|top| top.dev() == found.dev());
    if !of_it || path.strip_prefix(at).is_ok_and(|below| below.starts_with(".zfs")) {
        return bad(format!("'{file}' is not a file of {}", mount.dataset));
    }
    Ok(InjectRequest::Data {
        dataset: mount.dataset,
        object: found.ino(),
        dnode,
        level: asked.level.unwrap_or(0),
        range: asked.range,
        copies: asked.copies,
        how,
        often: asked.often.unwrap_or(u32::MAX),
    })
}

/// Makes the kernel drop its cached pages of a file.
fn forget_pages(path: &Path) {
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.sync_all();
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}
