//! The command lines of `poolhouse ls`, `cp`, `send`, `afs export`, `afs adopt` and `stream ls`.

use console::getopt::{Found, Getopt, Long, Opt};
use std::path::PathBuf;
use stream::Forms;

/// One of the commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// `poolhouse ls`.
    Ls,
    /// `poolhouse cp`.
    Cp,
    /// `poolhouse send`.
    Send,
    /// `poolhouse afs export`.
    AfsExport,
    /// `poolhouse afs adopt`.
    AfsAdopt,
    /// `poolhouse stream ls`.
    StreamLs,
}

const LS_USAGE: &str = "\
usage: poolhouse ls [-lR] [options] [POOL[/DATASET][@SNAPSHOT][:/PATH]] ...

Lists pools (no operand), datasets (no ':'), or the folder at a path.
    -l               mode, links, owner, group, size, time
    -R, -r           what is below, too
    --list-txgs      the transaction groups that the pool can be opened at
    --find PATTERN   datasets and snapshots whose name has PATTERN in it, or, if it
                     begins with '/', that have such a path
options:
    -d DEVICE        a device, image file, or folder of such; may be repeated
                     (default: where zpool import looks)
    -k [DATASET=]FILE  a file with the key or passphrase of an encrypted dataset
    -T, --txg N      the pool as it was at transaction group N
    --checkpoint     the pool as it was at its checkpoint
    -m               open without missing log devices
    -X, --extreme    go back as far as needed for a state that can be opened
    --peek           read a pool that is in use: nothing is claimed, and what is
                     read may change meanwhile
A POOL may be a name or a guid. Without -d, pools that this user's daemon holds
are read through it, whether their file systems are mounted or not.
";

const CP_USAGE: &str = "\
usage: poolhouse cp [-rv] [options] POOL/DATASET[@SNAPSHOT]:/PATH ... DESTINATION
       poolhouse cp [-rv] [options] FILE ... POOL/DATASET:/PATH

Copies files, or a volume (no path after the ':'), out of a pool. Unreadable parts are reported,
left as holes, and make the exit code 1. Or copies files into a file system. A pool
that is not imported is imported, written and exported for that. Pools that this
user's daemon holds are read and written through it.
    -r, -R, -a       folders, with all below them
    -v               name each file
    -q, --no-progress  no progress line
    --no-owner       files belong to the user who copies
    --numeric-owner  a file whose owner can't be kept, by number, is an error
                     (default: that is said once)
options: as for poolhouse ls
";

const SEND_USAGE: &str = "\
usage: poolhouse send [-Lecw] [-i SNAPSHOT] [--skip-unreadable] [options] POOL/DATASET@SNAPSHOT

Writes the stream of a snapshot of a pool that is not imported, as zfs send does.
    -i SNAPSHOT      only what changed since this earlier snapshot
    -L, -e, -c, -w   large, embedded, compressed, raw blocks: as for zfs send
    --skip-unreadable  leave out what can't be read: lost bytes are a hole. Each
                     loss is reported, and makes the exit code 1
options: as for poolhouse ls
";

const AFS_EXPORT_USAGE: &str = "\
usage: poolhouse afs export [-fq] [--since DATE] [options] POOL[/DATASET] FOLDER [VOLUME ...]

Writes dumps of AFS volumes, as 'vos restore' takes them, of a pool that is not imported, also of a
damaged one. Without a dataset, all partitions of the pool are exported. A VOLUME is a number or a
name; without any, all volumes and clones are exported. FOLDER gets:
    ID.dump          a whole volume
    ID.damaged.dump  what could be read of a damaged one; lost bytes are zeros
    ID.lost.txt      what that lacks. Each loss is reported, too, and makes the exit code 1
    index.txt        numbers, names and states of all of them
    -f               replace files that exist
    -q, --no-progress  no progress line
    --since DATE     increments (ID.increment.dump): what changed then or later. A DATE is
                     YYYY-MM-DD [HH:MM[:SS]] in local time, or seconds since 1970
options: as for poolhouse ls
";

const AFS_ADOPT_USAGE: &str = "\
usage: poolhouse afs adopt [-nq] VICEP POOL/DATASET [VOLUME ...]

Takes volumes from a partition of OpenAFS's file server into a partition that the daemon serves, with
their numbers, names, types, files, access lists, versions, quotas and dates. VICEP is the folder of
that partition, mounted anywhere; its file server is stopped. Nothing changes there. A VOLUME is a
number or a name; without any, all volumes and clones are taken. What is there already is left as
it is, so the command can be run again. A volume that is in use or damaged is not taken: that is
reported, and makes the exit code 1.
    -n               only list what would be taken, with sizes
    -q, --no-progress  no progress line
";

const STREAM_LS_USAGE: &str = "\
usage: poolhouse stream ls [-lR] FILE [[SNAPSHOT][:/PATH]]

Lists what the receiver of a stored send stream would get, with no pool: the folder at a path
of the snapshot, or the size of a volume. FILE is a file, or - for standard input. If
it has several streams, as after zfs send -R, their names are listed; SNAPSHOT is one
of them. Raw streams of encrypted datasets can't be listed.
    -l               mode, links, owner, group, size, time
    -R, -r           what is below, too
An increment can be listed after what it builds on, in the same file. Temporary files take as much
space as the metadata of the stream: names, owners and the like ($TMPDIR).
";

impl Command {
    /// The command's name, as a user types it.
    pub fn name(self) -> &'static str {
        match self {
            Command::Ls => "ls",
            Command::Cp => "cp",
            Command::Send => "send",
            Command::AfsExport => "afs export",
            Command::AfsAdopt => "afs adopt",
            Command::StreamLs => "stream ls",
        }
    }

    /// The usage text.
    pub fn usage(self) -> &'static str {
        match self {
            Command::Ls => LS_USAGE,
            Command::Cp => CP_USAGE,
            Command::Send => SEND_USAGE,
            Command::AfsExport => AFS_EXPORT_USAGE,
            Command::AfsAdopt => AFS_ADOPT_USAGE,
            Command::StreamLs => STREAM_LS_USAGE,
        }
    }

    fn letters(self) -> &'static str {
        match self {
            Command::Ls => "lRrd:k:T:mXh",
            Command::Cp => "rRavqd:k:T:mXh",
            Command::Send => "Leci:wd:k:T:mXh",
            Command::AfsExport => "fqd:k:T:mXh",
            Command::AfsAdopt => "nqh",
            Command::StreamLs => "lRrh",
        }
    }
}

/// Why there are no arguments.
#[derive(Debug, PartialEq, Eq)]
pub enum Usage {
    /// The user requests help.
    Help,
    /// The command line is wrong. Holds the reason.
    Bad(String),
}

/// What becomes of the owners of copied files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Owners {
    /// Kept if this user may set them. Otherwise that is reported once.
    #[default]
    IfAllowed,
    /// Kept by number (`--numeric-owner`). Each file whose owner can't be set is an error.
    Numeric,
    /// Not kept: the copying user owns everything (`--no-owner`).
    No,
}

/// A parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Args {
    /// What to list or copy; for `cp` the last one is the destination.
    pub operands: Vec<String>,
    /// Devices, images and folders in which to look for the pool.
    pub devices: Vec<PathBuf>,
    /// Files with keys, and the encryption root of each, if given.
    pub keys: Vec<(Option<String>, PathBuf)>,
    /// Use the long format.
    pub long: bool,
    /// Include folders and everything below them.
    pub recursive: bool,
    /// Print the name of each file.
    pub verbose: bool,
    /// Show no progress line.
    pub quiet: bool,
    /// The newest transaction group that may be opened.
    pub txg: Option<u64>,
    /// Open the checkpoint.
    pub checkpoint: bool,
    /// Open the pool although logs are missing.
    pub missing_log: bool,
    /// Go back to an older state as far as needed.
    pub extreme: bool,
    /// Lock nothing.
    pub peek: bool,
    /// What becomes of owners.
    pub owners: Owners,
    /// List transaction groups.
    pub list_txgs: bool,
    /// Find datasets by this pattern.
    pub find: Option<String>,
    /// The snapshot that a stream builds on.
    pub from: Option<String>,
    /// The forms that blocks may have in a stream.
    pub forms: Forms,
    /// Leave out of a stream what can't be read.
    pub skip_unreadable: bool,
    /// Replace files that exist.
    pub force: bool,
    /// Change nothing.
    pub dry_run: bool,
    /// Only what changed at this time or later, in seconds since 1970.
    pub since: Option<u32>,
}

const LONG: &[Long] = &[
    Long { name: "txg", val: Opt::Short('T'), arg: true },
    Long { name: "checkpoint", val: Opt::Named("checkpoint"), arg: false },
    Long { name: "extreme", val: Opt::Short('X'), arg: false },
    Long { name: "peek", val: Opt::Named("peek"), arg: false },
    Long { name: "list-txgs", val: Opt::Named("list-txgs"), arg: false },
    Long { name: "find", val: Opt::Named("find"), arg: true },
    Long { name: "no-progress", val: Opt::Named("no-progress"), arg: false },
    Long { name: "no-owner", val: Opt::Named("no-owner"), arg: false },
    Long { name: "numeric-owner", val: Opt::Named("numeric-owner"), arg: false },
    Long { name: "skip-unreadable", val: Opt::Named("skip-unreadable"), arg: false },
    Long { name: "since", val: Opt::Named("since"), arg: true },
    Long { name: "large-block", val: Opt::Short('L'), arg: false },
    Long { name: "embed", val: Opt::Short('e'), arg: false },
    Long { name: "compressed", val: Opt::Short('c'), arg: false },
    Long { name: "raw", val: Opt::Short('w'), arg: false },
    Long { name: "help", val: Opt::Short('h'), arg: false },
];

impl Args {
    /// Parses the arguments after the command's name.
    ///
    /// # Errors
    /// * [`Usage::Help`]: `-h` is present.
    /// * [`Usage::Bad`]: an option is unknown, lacks its argument or has an invalid one. Or a
    ///   command lacks operands.
    pub fn parse(command: Command, words: &[String]) -> Result<Args, Usage> {
        let mut args = Args::default();
        let mut getopt = Getopt::new(words, command.letters(), LONG);
        while let Some(found) = getopt.next() {
            match found {
                Found::Is(opt, value) => args.set(command, opt, value)?,
                Found::Invalid('\0') => {
                    return Err(Usage::Bad(format!("invalid option '{}'", getopt.word())));
                }
                Found::Missing('\0') => {
                    return Err(Usage::Bad(format!("missing argument for '{}' option", getopt.word())));
                }
                Found::Invalid(c) => return Err(Usage::Bad(format!("invalid option '{c}'"))),
                Found::Missing(c) => return Err(Usage::Bad(format!("missing argument for '{c}' option"))),
            }
        }
        args.operands = getopt.operands();
        match (command, args.operands.len()) {
            (Command::Cp, 0) => Err(Usage::Bad("missing source and destination".into())),
            (Command::Cp, 1) => Err(Usage::Bad("missing destination".into())),
            (Command::Send, 0) => Err(Usage::Bad("missing snapshot".into())),
            (Command::AfsExport, 0) => Err(Usage::Bad("missing pool and folder".into())),
            (Command::AfsExport, 1) => Err(Usage::Bad("missing folder".into())),
            (Command::AfsAdopt, 0) => Err(Usage::Bad("missing partition and file system".into())),
            (Command::AfsAdopt, 1) => Err(Usage::Bad("missing file system".into())),
            (Command::StreamLs, 0) => Err(Usage::Bad("missing file".into())),
            (Command::StreamLs, 3..) | (Command::Send, 2..) => Err(Usage::Bad("too many arguments".into())),
            _ => Ok(args),
        }
    }

    fn set(&mut self, command: Command, opt: Opt, value: String) -> Result<(), Usage> {
        // It opens no pool itself.
        let opens_none = command == Command::AfsAdopt;
        match opt {
            Opt::Short(c @ ('T' | 'X')) if opens_none => {
                return Err(Usage::Bad(format!("invalid option '{c}'")));
            }
            Opt::Named(name @ ("checkpoint" | "peek")) if opens_none => {
                return Err(Usage::Bad(format!("invalid option '--{name}'")));
            }
            Opt::Short('L') if command == Command::Send => self.forms.large_blocks = true,
            Opt::Short('e') if command == Command::Send => self.forms.embedded = true,
            Opt::Short('c') if command == Command::Send => self.forms.compressed = true,
            Opt::Short('w') if command == Command::Send => self.forms.raw = true,
            Opt::Short('i') if command == Command::Send => self.from = Some(value),
            Opt::Named("skip-unreadable") if command == Command::Send => self.skip_unreadable = true,
            Opt::Named("since") if command == Command::AfsExport => {
                let wrong = || Usage::Bad(format!("invalid date '{value}'"));
                self.since = Some(date(&value).ok_or_else(wrong)?);
            }
            Opt::Short('n') => self.dry_run = true,
            Opt::Short('f') => self.force = true,
            Opt::Short('l') => self.long = true,
            Opt::Short('R' | 'r' | 'a') => self.recursive = true,
            Opt::Short('v') => self.verbose = true,
            Opt::Short('q') | Opt::Named("no-progress") => self.quiet = true,
            Opt::Short('d') => self.devices.push(value.into()),
            Opt::Short('k') => self.keys.push(match value.split_once('=') {
                Some((dataset, file)) => (Some(dataset.to_owned()), file.into()),
                None => (None, value.into()),
            }),
            Opt::Short('T') => {
                let txg = value.parse().map_err(|_| Usage::Bad(format!("invalid txg '{value}'")))?;
                self.txg = Some(txg);
            }
            Opt::Short('m') => self.missing_log = true,
            Opt::Short('X') => self.extreme = true,
            Opt::Named("checkpoint") => self.checkpoint = true,
            Opt::Named("peek") => self.peek = true,
            Opt::Named("list-txgs") if command == Command::Ls => self.list_txgs = true,
            Opt::Named("find") if command == Command::Ls => self.find = Some(value),
            Opt::Named("no-owner") if command == Command::Cp => self.owners = Owners::No,
            Opt::Named("numeric-owner") if command == Command::Cp => self.owners = Owners::Numeric,
            Opt::Short('h') => return Err(Usage::Help),
            Opt::Short(c) => return Err(Usage::Bad(format!("invalid option '{c}'"))),
            Opt::Named(n) => return Err(Usage::Bad(format!("invalid option '--{n}'"))),
        }
        Ok(())
    }
}

/// A date in seconds since 1970, or as local time. 0 would be no increment.
fn date(text: &str) -> Option<u32> {
    let seconds = match text.parse::<i64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let local: jiff::civil::DateTime = text.parse().ok()?;
            local.to_zoned(jiff::tz::TimeZone::system()).ok()?.timestamp().as_second()
        }
    };
    u32::try_from(seconds).ok().filter(|seconds| *seconds != 0)
}

#[cfg(test)]
mod tests {
    //! Command lines mean what their usage says.

    use super::*;

    fn parse(command: Command, line: &str) -> Result<Args, Usage> {
        Args::parse(command, &line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    /// Goal: options may appear anywhere, combined, and repeatedly.
    #[test]
    fn options() {
        let a = parse(Command::Cp, "-rv p/a:/x -d /img -d d1 -k p/a=key out --txg=7").unwrap();
        assert!(a.recursive && a.verbose);
        assert_eq!(a.operands, ["p/a:/x", "out"]);
        assert_eq!(a.devices, [PathBuf::from("/img"), PathBuf::from("d1")]);
        assert_eq!((a.keys, a.txg), (vec![(Some("p/a".into()), PathBuf::from("key"))], Some(7)));
    }

    /// Goal: a date is seconds, a day, or a day with a time. All are local.
    #[test]
    fn dates() {
        let day = date("2026-11-29").unwrap();
        assert_eq!(date("2026-11-29 01:00"), Some(day + 3600));
        assert_eq!(date("2026-11-29T01:00:07"), Some(day + 3607));
        assert_eq!(date("1700000000"), Some(1_700_000_000));
    }

    /// Goal: options of the other command, and incomplete lines, are refused.
    #[test]
    fn refusals() {
        for (command, line) in [
            (Command::Cp, "only"),
            (Command::Cp, "--list-txgs a b"),
            (Command::Ls, "-v a"),
            (Command::Ls, "--no-owner a"),
            (Command::Ls, "--txg=x a"),
            (Command::Ls, "-d"),
            (Command::Ls, "-i a b"),
            (Command::Cp, "--raw a b"),
            (Command::Send, ""),
            (Command::Send, "p@a p@b"),
            (Command::Send, "-l p@a"),
            (Command::AfsExport, "p"),
            (Command::AfsExport, "--since=yesterday p out"),
            (Command::AfsExport, "--since=0 p out"),
            (Command::AfsExport, "--since=2200-01-01 p out"),
            (Command::Ls, "--since=1 p"),
        ] {
            assert!(matches!(parse(command, line), Err(Usage::Bad(_))), "{line} was accepted");
        }
        assert_eq!(parse(Command::Ls, "--help"), Err(Usage::Help));
    }
}
