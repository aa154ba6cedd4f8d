//! What a client has done, by operation.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::op::{Measured, Op};
use crate::{Codes, Counter, Latency, LatencySnapshot};

const OPS: usize = Op::ALL.len();
/// The bits of a code that have the errno. The operation and 1 are above them.
const ERRNO_BITS: u32 = 16;

/// The counters of a client.
#[derive(Debug)]
pub(super) struct Counters {
    /// How many there were, and their nanoseconds. Reads and writes have distributions instead.
    ops: [(Counter, Counter); OPS],
    errors: [Counter; OPS],
    /// Failures by operation and errno.
    codes: Codes,
    /// The longest of all but reads and writes.
    max: AtomicU64,
    reads: OnceLock<Box<Latency>>,
    writes: OnceLock<Box<Latency>>,
    read: Counter,
    written: Counter,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            ops: [const { (Counter::new(), Counter::new()) }; OPS],
            errors: [const { Counter::new() }; OPS],
            codes: Codes::default(),
            max: AtomicU64::new(0),
            reads: OnceLock::new(),
            writes: OnceLock::new(),
            read: Counter::new(),
            written: Counter::new(),
        }
    }
}

impl Counters {
    pub(super) fn count(&self, ended: &Measured) {
        let ns = ended.ns;
        match ended.op {
            Op::Read => {
                self.reads.get_or_init(Box::default).record(ns);
                self.read.add(ended.bytes);
            }
            Op::Write => {
                self.writes.get_or_init(Box::default).record(ns);
                self.written.add(ended.bytes);
            }
            op => {
                let (count, sum) = &self.ops[op as usize];
                count.inc();
                sum.add(ns);
                // Most are shorter, and then no thread writes the cache line.
                if self.max.load(Relaxed) < ns {
                    self.max.fetch_max(ns, Relaxed);
                }
            }
        }
        if let Some(errno) = ended.failed {
            self.errors[ended.op as usize].inc();
            self.codes.count((ended.op as i32 + 1) << ERRNO_BITS | errno & ((1 << ERRNO_BITS) - 1));
        }
    }

    pub(super) fn done(&self) -> Done {
        // An operation counts here last. So there are never more failures than operations.
        let codes = self.codes.snapshot();
        let errors: Vec<u64> = self.errors.iter().map(Counter::get).collect();
        let times =
            |times: &OnceLock<Box<Latency>>| times.get().map(|all| all.snapshot()).unwrap_or_default();
        let (read, written) = (self.read.get(), self.written.get());
        let (reads, writes) = (times(&self.reads), times(&self.writes));
        let mut done = Done { read, written, max_ns: self.max.load(Relaxed), ..Done::default() };
        for ((op, errors), (count, sum)) in Op::ALL.iter().zip(errors).zip(&self.ops) {
            let (count, ns) = match op {
                Op::Read => (reads.count(), reads.sum),
                Op::Write => (writes.count(), writes.sum),
                _ => (count.get(), sum.get()),
            };
            if count > 0 {
                done.ops.push((*op, Counted { count, errors, ns }));
            }
        }
        let split = |(code, count): (i32, u64)| {
            let op = usize::try_from(code >> ERRNO_BITS).ok()?.checked_sub(1)?;
            Some((*Op::ALL.get(op)?, code & ((1 << ERRNO_BITS) - 1), count))
        };
        done.codes = codes.codes.into_iter().filter_map(split).collect();
        Done { reads, writes, other_codes: codes.others, ..done }
    }
}

/// Operations of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// How many there were, failed ones included.
    pub count: u64,
    /// How many failed.
    pub errors: u64,
    /// The sum of their times in nanoseconds.
    pub ns: u64,
}

/// What a client, or several, have done until now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// The operations, those that there were.
    pub ops: Vec<(Op, Counted)>,
    /// How often they failed, by operation and errno. Errno 0: a failure without one.
    pub codes: Vec<(Op, i32, u64)>,
    /// How often they failed in further ways.
    pub other_codes: u64,
    /// The longest time of an operation other than reads and writes, in nanoseconds.
    pub max_ns: u64,
    /// How long reads took.
    pub reads: LatencySnapshot,
    /// How long writes took.
    pub writes: LatencySnapshot,
    /// Bytes of data that were read.
    pub read: u64,
    /// Bytes of data that were written.
    pub written: u64,
}

impl Done {
    /// How many operations there were.
    pub fn count(&self) -> u64 {
        self.ops.iter().fold(0, |sum, (_, counted)| sum.saturating_add(counted.count))
    }

    /// Adds what others did.
    pub fn merge(&mut self, other: &Self) {
        for (op, more) in &other.ops {
            match self.ops.iter_mut().find(|(known, _)| known == op) {
                Some((_, sum)) => {
                    sum.count = sum.count.saturating_add(more.count);
                    sum.errors = sum.errors.saturating_add(more.errors);
                    sum.ns = sum.ns.saturating_add(more.ns);
                }
                None => self.ops.push((*op, *more)),
            }
        }
        for (op, errno, more) in &other.codes {
            match self.codes.iter_mut().find(|(known, code, _)| (known, code) == (op, errno)) {
                Some((.., count)) => *count = count.saturating_add(*more),
                None => self.codes.push((*op, *errno, *more)),
            }
        }
        self.other_codes = self.other_codes.saturating_add(other.other_codes);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.read = self.read.saturating_add(other.read);
        self.written = self.written.saturating_add(other.written);
    }
}
