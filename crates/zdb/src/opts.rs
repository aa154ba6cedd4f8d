//! The command line of `zdb`.

use console::getopt::{Found, Getopt, Long, Opt};
use ondisk::Txg;

const SHORT: &str = "AbBcCdDeEFGhiI:kK:lLmMNo:Op:PqrRsSt:TuU:vVx:XYyZ";

macro_rules! long {
    ($($name:literal $c:literal $arg:literal;)*) => {
        &[$(Long { name: $name, val: Opt::Short($c), arg: $arg },)*]
    };
}

const LONG: &[Long] = long! {
    "ignore-assertions" 'A' false;
    "block-stats" 'b' false;
    "backup" 'B' false;
    "checksum" 'c' false;
    "config" 'C' false;
    "datasets" 'd' false;
    "dedup-stats" 'D' false;
    "exported" 'e' false;
    "embedded-block-pointer" 'E' false;
    "automatic-rewind" 'F' false;
    "dump-debug-msg" 'G' false;
    "history" 'h' false;
    "intent-logs" 'i' false;
    "inflight" 'I' true;
    "checkpointed-state" 'k' false;
    "key" 'K' true;
    "label" 'l' false;
    "disable-leak-tracking" 'L' false;
    "metaslabs" 'm' false;
    "metaslab-groups" 'M' false;
    "numeric" 'N' false;
    "option" 'o' true;
    "object-lookups" 'O' false;
    "path" 'p' true;
    "parseable" 'P' false;
    "skip-label" 'q' false;
    "copy-object" 'r' false;
    "read-block" 'R' false;
    "io-stats" 's' false;
    "simulate-dedup" 'S' false;
    "txg" 't' true;
    "brt-stats" 'T' false;
    "uberblock" 'u' false;
    "cachefile" 'U' true;
    "verbose" 'v' false;
    "verbatim" 'V' false;
    "dump-blocks" 'x' true;
    "extreme-rewind" 'X' false;
    "all-reconstruction" 'Y' false;
    "livelist" 'y' false;
    "zstd-headers" 'Z' false;
};

/// Options that choose a mode. Without any of them, all modes but [`NOT_IN_ALL`] run.
const CHOOSE: &str = "bBcCdDEGhilmMNOrRsSTuyZ";
/// Options that a run without a chosen mode leaves off.
const NOT_IN_ALL: &str = "ABeEFkKlLNOPrRSXy";
/// The first txg at which a pool can be opened (`TXG_INITIAL`).
const TXG_INITIAL: u64 = 4;

/// Options that zdb knows but this release lacks, with their tasks.
const ABSENT: &[(char, &str)] =
    &[('B', "backup streams"), ('S', "simulating dedup"), ('x', "dumping the blocks that are read")];

/// A parsed command line (`dump_opt`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opts {
    counts: Vec<(char, u32)>,
    /// Folders and devices to search (`-p`).
    pub paths: Vec<String>,
    /// Tunables to set (`-o`).
    pub tunables: Vec<(String, u64)>,
    /// The newest txg to open (`-t`).
    pub txg: Option<Txg>,
    /// The path of the cache file (`-U`).
    pub cachefile: Option<String>,
    /// The key of encrypted datasets (`-K`).
    pub key: Option<String>,
    /// How often `-v` was given; at least 1 if no mode was chosen.
    pub verbose: u32,
    /// The operands.
    pub operands: Vec<String>,
}

/// A command line that zdb refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The command line is wrong: a message, perhaps empty, before the usage text.
    Usage(String),
    /// The command line needs something that this release lacks: a message.
    Absent(String),
}

impl Opts {
    /// Parses a command line, without the command's name.
    ///
    /// # Errors
    /// * [`Refused::Usage`]: an option is unknown, lacks its argument, or has an invalid one; `-p`
    ///   comes without `-e`; or the number of operands is wrong.
    /// * [`Refused::Absent`]: an option needs something that this release lacks.
    pub fn parse(args: &[String]) -> Result<Self, Refused> {
        let mut o = Self::default();
        let mut chosen = false;
        let mut verbose = 0;
        let mut getopt = Getopt::new(args, SHORT, LONG);
        for found in getopt.by_ref() {
            let (c, arg) = match found {
                Found::Is(Opt::Short(c), arg) => (c, arg),
                Found::Is(Opt::Named(_), _) => return Err(Refused::Usage(String::new())),
                Found::Invalid(c) => return Err(Refused::Usage(unknown("invalid option", c))),
                Found::Missing(c) => return Err(Refused::Usage(unknown("option requires an argument", c))),
            };
            chosen |= CHOOSE.contains(c);
            match c {
                'v' => verbose += 1,
                // Limits of inflight I/O and of trust in unverified data: neither has an effect
                // here.
                'I' => {
                    let why = "maximum number of inflight bytes must be greater than 0\n";
                    number(&arg).filter(|n| *n > 0).ok_or_else(|| Refused::Usage(why.into()))?;
                }
                'Y' | 'V' => {}
                'o' => o.tunables.push(tunable(&arg)?),
                'p' => o.paths.push(arg),
                't' => {
                    let txg = number(&arg).filter(|n| *n >= TXG_INITIAL);
                    let bad = || Refused::Usage(format!("incorrect txg specified: {arg}\n"));
                    o.txg = Some(Txg(txg.ok_or_else(bad)?));
                }
                'U' if !arg.starts_with('/') => {
                    let why = "cachefile must be an absolute path (i.e. start with a slash)\n";
                    return Err(Refused::Usage(why.into()));
                }
                'U' => o.cachefile = Some(arg),
                c => {
                    if c == 'K' {
                        o.key = Some(arg);
                    }
                    o.add(c, 1);
                }
            }
        }
        o.operands = getopt.operands();
        o.finish(chosen, verbose)
    }

    fn finish(mut self, chosen: bool, mut verbose: u32) -> Result<Self, Refused> {
        if self.count('e') == 0 && !self.paths.is_empty() {
            return Err(Refused::Usage("-p option requires use of -e\n".into()));
        }
        if let Some((c, what)) = ABSENT.iter().find(|(c, _)| self.count(*c) > 0) {
            return Err(Refused::Absent(format!("-{c} is not supported: {what}")));
        }
        if !chosen {
            verbose = verbose.max(1);
            for c in CHOOSE.chars().filter(|c| !NOT_IN_ALL.contains(*c)) {
                self.add(c, 1);
            }
        }
        for (_, n) in &mut self.counts {
            *n += verbose;
        }
        self.verbose = verbose;
        if self.has('N') && !self.has('d') {
            self.set_count('d', self.count('N'));
        }
        let operands = match () {
            () if self.has('O') => self.operands.len() == 2,
            () if self.has('r') => self.operands.len() == 3,
            () if self.has('R') => self.operands.len() >= 2,
            () => true,
        };
        if !operands {
            return Err(Refused::Usage(String::new()));
        }
        Ok(self)
    }

    fn add(&mut self, c: char, n: u32) {
        match self.counts.iter_mut().find(|(o, _)| *o == c) {
            Some((_, count)) => *count += n,
            None => self.counts.push((c, n)),
        }
    }

    /// Sets how often an option counts as given.
    pub fn set_count(&mut self, c: char, n: u32) {
        self.counts.retain(|(o, _)| *o != c);
        self.counts.push((c, n));
    }

    /// How often an option was given, plus how often `-v` was; 0 without the option.
    pub fn count(&self, c: char) -> u32 {
        self.counts.iter().find(|(o, _)| *o == c).map_or(0, |(_, n)| *n)
    }

    /// Whether an option was given.
    pub fn has(&self, c: char) -> bool {
        self.count(c) > 0
    }
}

fn unknown(what: &str, c: char) -> String {
    if c == '\0' { String::new() } else { format!("zdb: {what} -- '{c}'\n") }
}

/// Parses `NAME=VALUE` of `-o`.
fn tunable(arg: &str) -> Result<(String, u64), Refused> {
    let (name, value) =
        arg.split_once('=').ok_or_else(|| Refused::Usage(format!("no value in '{arg}'\n")))?;
    let value = number(value).ok_or_else(|| Refused::Usage(format!("bad number in '{arg}'\n")))?;
    Ok((name.to_owned(), value))
}

/// Parses a number as C does: decimal, hexadecimal after `0x`, octal after `0` (`strtoull`).
pub fn number(s: &str) -> Option<u64> {
    if let Some(hex) = s.strip_prefix("0x").or_else(|| s.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    match s.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => s.parse().ok(),
    }
}

/// The usage text.
pub const USAGE: &str = include_str!("usage.txt");
