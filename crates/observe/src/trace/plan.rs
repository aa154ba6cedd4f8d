//! What a session wants to see.

use std::fmt;

use crate::event::{Event, Meaning};
use crate::work::Wait;

/// The most keys of a session that counts.
pub const KEYS: usize = 4;
/// The most columns of a session that keeps events.
pub const COLUMNS: usize = 10;
/// The most further numbers that a session adds up.
pub const SUMS: usize = 16;
/// The most conditions of a session.
pub const CONDITIONS: usize = 16;

/// Numbers of [`Source::Op`] from here on are tasks.
pub const TASKS: u64 = 1000;

/// Where a number of an event comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The event's field at this place.
    Field(usize),
    /// The operation of the thread, by its place in `ALL`, and 1; of a task, its place and
    /// [`TASKS`]; 0: none.
    Op,
    /// Its front end, by its place in `ALL`, and 1; 0: none.
    Frontend,
    /// The thread that sent it.
    Pid,
    /// The user of that thread.
    Uid,
    /// The name of that thread, a text.
    Process,
    /// The event's field with the dataset, a text.
    Dataset,
    /// The dataset of the thread's operation, by the node that it is about. What a node belongs to
    /// is looked up when the session is read: an event may happen while its thread has locks.
    Home,
    /// The file or directory, a node.
    File,
    /// Nanoseconds of the waits of this kind of the operation until now.
    Waited(Wait),
    /// Nanoseconds of the operation that were no waits.
    Cpu,
    /// The kind of the operation's longest wait and 1; 0: it did not wait.
    Longest,
    /// 1 if a process with this number, or a descendant of it, sent the operation.
    Under(u32),
    /// The number of the thread that does it.
    Thread,
}

/// The names of sources that every event has.
pub const COMMON: [(&str, Source); 9] = [
    ("op", Source::Op),
    ("frontend", Source::Frontend),
    ("pid", Source::Pid),
    ("uid", Source::Uid),
    ("process", Source::Process),
    ("dataset", Source::Home),
    ("file", Source::File),
    ("longest", Source::Longest),
    ("thread", Source::Thread),
];

impl Source {
    /// The source of this name in an event.
    pub fn named(event: &Event, name: &str) -> Option<Self> {
        if let Some(at) = event.field(name) {
            return Some(match event.fields[at].meaning {
                Meaning::Dataset => Self::Dataset,
                _ => Self::Field(at),
            });
        }
        let common = COMMON.iter().find(|(known, _)| *known == name).map(|(_, source)| *source);
        common.or_else(|| {
            let is_op = name == "cpu" && event.field("op").is_some();
            let wait = || Wait::ALL.iter().find(|wait| wait.name() == name);
            if is_op { Some(Self::Cpu) } else { wait().map(|wait| Self::Waited(*wait)) }
        })
    }

    /// Whether its numbers stand for texts.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Process | Self::Dataset)
    }
}

/// What a number must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// This number.
    Is(u64),
    /// Not this number.
    IsNot(u64),
    /// This or more.
    AtLeast(u64),
    /// Less than this.
    Below(u64),
    /// A text.
    Text {
        /// The text.
        text: String,
        /// Whether `*` in it stands for any text, and `?` for any character.
        is_pattern: bool,
        /// Whether it must fit, or must not.
        wanted: bool,
    },
}

/// A condition of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Of which number.
    pub source: Source,
    /// What it must be.
    pub test: Test,
}

/// How the measured numbers are distributed over buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buckets {
    /// They are not.
    None,
    /// A bucket for each power of two, as `quantize` of DTrace.
    Powers,
    /// Buckets of equal width, as `lquantize` of DTrace. There is one below `from`, and one from
    /// `to` on.
    Linear {
        /// Where the first one begins.
        from: u64,
        /// Where the last one ends.
        to: u64,
        /// Their width.
        step: u64,
    },
}

/// The most buckets of equal width.
pub const LINEAR: u64 = 1000;

impl Buckets {
    /// The bucket of a value.
    pub(super) fn of(self, value: u64) -> u64 {
        match self {
            Self::None => 0,
            Self::Powers if value == 0 => 0,
            Self::Powers => 1 << value.ilog2(),
            Self::Linear { from, .. } if value < from => 0,
            Self::Linear { to, .. } if value >= to => to,
            Self::Linear { from, step, .. } => from + (value - from) / step * step,
        }
    }
}

/// What a session wants.
#[derive(Debug, Clone)]
pub struct Plan {
    /// These events.
    pub event: &'static Event,
    /// Those that meet all of these.
    pub conditions: Vec<Condition>,
    /// How they are grouped, or what is kept of each.
    pub keys: Vec<Source>,
    /// The number that is measured. `None`: they are counted.
    pub measure: Option<Source>,
    /// How that number is distributed.
    pub buckets: Buckets,
    /// Further numbers that are added up.
    pub sums: Vec<Source>,
    /// Whether events are kept, rather than counted.
    pub is_raw: bool,
}

/// Why there is no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There are [`super::SESSIONS`] already.
    TooMany,
    /// A limit of this module is exceeded.
    TooLarge,
    /// The system has no thread for samples.
    NoThread,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "there are {} sessions already", super::SESSIONS),
            Self::TooLarge => write!(f, "too many keys, conditions or buckets"),
            Self::NoThread => write!(f, "the system has no thread for samples"),
        }
    }
}

impl Plan {
    /// The process whose descendants alone count, if a condition says so.
    pub(super) fn under(&self) -> Option<u32> {
        self.conditions.iter().find_map(|condition| match condition.source {
            Source::Under(pid) => Some(pid),
            _ => None,
        })
    }

    /// Whether it keeps the limits.
    pub(super) fn is_valid(&self) -> bool {
        let keys = if self.is_raw { COLUMNS } else { KEYS };
        let buckets = match self.buckets {
            Buckets::None | Buckets::Powers => true,
            Buckets::Linear { from, to, step } => step > 0 && to > from && (to - from) / step <= LINEAR,
        };
        let has_room = self.keys.len() <= keys && self.sums.len() <= SUMS;
        has_room && self.conditions.len() <= CONDITIONS && buckets
    }
}

/// Whether a text fits a pattern.
pub(super) fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut here, mut star) = (0, 0, None);
    while here < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, here));
                at += 1;
            }
            Some(one) if *one == '?' || *one == text[here] => (at, here) = (at + 1, here + 1),
            _ => {
                // The last star takes one character more.
                let Some((of, from)) = star else { return false };
                star = Some((of, from + 1));
                (at, here) = (of + 1, from + 1);
            }
        }
    }
    pattern[at..].iter().all(|one| *one == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each value has its bucket: those below the first, those from the last limit on, and
    /// the others by equal widths.
    #[test]
    fn buckets() {
        let linear = Buckets::Linear { from: 1, to: 10, step: 3 };
        let of = [0, 1, 3, 4, 9, 10, 11, u64::MAX].map(|value| linear.of(value));
        assert_eq!(of, [0, 1, 1, 4, 7, 10, 10, 10]);
        assert_eq!([0, 1, 2, 3, 4, 1023].map(|value| Buckets::Powers.of(value)), [0, 1, 2, 2, 4, 512]);
    }
}
