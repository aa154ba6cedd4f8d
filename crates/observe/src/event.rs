//! Events: what happens, for those who want to see it as it happens.
//!
//! # Theory
//! An event has a name and fields, which are numbers. Code that makes one passes a closure, which
//! returns the fields. It runs only if there is a reader:
//!
//! * a session of [`crate::trace`], which counts events or keeps them;
//! * a program outside, such as `bpftrace`, that uses the event's static probe (USDT).
//!
//! Without a reader an event costs two loads of variables that do not change.
//!
//! The names of events and the order of their fields are an interface: scripts use them. A field
//! that is no longer known stays, as 0. `bpftrace` shows the first six alone.
//! docs/reference/probes.md lists them, and a test compares that page with the probes of the
//! program.
//!
//! # See
//! `probe_lazy!` of the crate `probe`; DTrace's static probes. OpenZFS has `DTRACE_PROBE`, which is
//! empty on Linux unless the kernel's tracepoints are built.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What sessions do with an event.
type Reader = fn(&'static Event, &[u64]);

/// Set by [`crate::trace`] before its first session.
static READER: OnceLock<Reader> = OnceLock::new();

/// Has sessions read events with this.
pub(crate) fn read_with(reader: Reader) {
    READER.get_or_init(|| reader);
}

named! {
    /// What the number of a field means.
    Meaning {
        /// A plain number.
        Number "number",
        /// Nanoseconds.
        Time "time",
        /// Bytes.
        Bytes "bytes",
        /// A [`crate::ops::Frontend`], by its place in `ALL`.
        Frontend "frontend",
        /// A [`crate::ops::Op`], by its place in `ALL`.
        Op "op",
        /// An errno; 0: no failure.
        Errno "errno",
        /// A [`crate::work::Wait`], by its place in `ALL`; [`crate::work::WAITS`]: none.
        Wait "wait",
        /// The guid of a device.
        Device "device",
        /// What a wait was for: see [`crate::work::wait`].
        What "what",
        /// A [`crate::ops::DatasetOps`], by its number.
        Dataset "dataset",
        /// A word, by its place in the list of the field's event.
        Word "word",
    }
}

/// A field of an event.
#[derive(Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// What its number means.
    pub meaning: Meaning,
    /// The words of [`Meaning::Word`].
    pub words: &'static [&'static str],
}

/// A kind of events.
#[derive(Debug)]
pub struct Event {
    /// Its name.
    pub name: &'static str,
    /// What happened.
    pub about: &'static str,
    /// Its fields, in order.
    pub fields: &'static [Field],
    /// How many sessions want it.
    pub(crate) sessions: AtomicU32,
}

impl Event {
    /// Whether a session wants it.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.sessions.load(Relaxed) != 0
    }

    /// The place of a field.
    pub fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }
}

/// Defines events.
macro_rules! events {
    ($(
        $about:literal
        $name:ident $event:ident $fields:ident {
            $($(#[$doc:meta])* $field:ident $meaning:ident $($words:expr)?,)*
        }
    )*) => {
        /// All events, in the order of docs/reference/probes.md.
        pub const EVENTS: &[&Event] = &[$(&$event),*];

        $(
            #[doc = $about]
            pub static $event: Event = Event {
                name: stringify!($name),
                about: $about,
                fields: &[$(Field {
                    name: stringify!($field),
                    meaning: Meaning::$meaning,
                    words: events!(@words $($words)?),
                }),*],
                sessions: AtomicU32::new(0),
            };

            #[doc = concat!("The fields of [`", stringify!($name), "`].")]
            #[derive(Debug, Clone, Copy)]
            pub struct $fields { $($(#[$doc])* pub $field: u64,)* }

            #[doc = $about]
            #[inline]
            pub fn $name(fields: impl Fn() -> $fields) {
                let mut seen = None;
                probe::probe_lazy!(
                    poolhouse, $name, $(seen.get_or_insert_with(&fields).$field),*
                );
                if $event.is_wanted() {
                    let seen = seen.unwrap_or_else(&fields);
                    if let Some(see) = READER.get() {
                        see(&$event, &[$(seen.$field),*]);
                    }
                }
            }
        )*
    };
    (@words) => { &[] };
    (@words $words:expr) => { $words };
}

/// The classes of I/O: `vdev::Priority`, whose test compares them. The last one is that of flushes,
/// which have none.
pub const IO_CLASSES: &[&str] = &[
    "sync_read",
    "sync_write",
    "async_read",
    "async_write",
    "scrub",
    "resilver",
    "rebuild",
    "trim",
    "initialize",
    "prefetch",
    "log",
    "none",
];
/// What devices do: `vdev::IoType`, whose test compares them, and flushes.
pub const DEVICE_WORK: &[&str] = &["read", "write", "trim", "flush"];

events! {
    "An operation of a user has ended."
    op_done OP_DONE OpDone {
        /// The operation.
        op Op,
        /// The errno with which it failed.
        errno Errno,
        /// Bytes of data that it read or wrote.
        bytes Bytes,
        /// How long it took.
        ns Time,
        /// The thread that sent it; 0: unknown.
        pid Number,
        /// The user of that thread.
        uid Number,
        /// The front end.
        frontend Frontend,
        /// The number of the dataset's counters.
        dataset Dataset,
    }
    "A wait of a thread has ended."
    wait_done WAIT_DONE WaitDone {
        /// The kind of the wait.
        wait Wait,
        /// What exactly it waited for.
        what What,
        /// How long it took.
        ns Time,
    }
    "A device has done an I/O."
    dev_io DEV_IO DevIo {
        /// The device.
        device Device,
        /// What it did.
        work Word DEVICE_WORK,
        /// The class of the I/O.
        class Word IO_CLASSES,
        /// How many bytes.
        bytes Bytes,
        /// How long it took.
        ns Time,
        /// The errno with which it failed.
        errno Errno,
        /// Where on the device.
        offset Bytes,
    }
    "A commit to an intent log has ended: an fsync, or a write that had to be durable."
    zil_commit ZIL_COMMIT ZilCommit {
        /// How long it took.
        ns Time,
    }
    "Blocks of an intent log have been written together."
    zil_write ZIL_WRITE ZilWrite {
        /// How many blocks.
        blocks Number,
        /// How long it took until they were durable.
        ns Time,
    }
    "A transaction group is on disk."
    txg_synced TXG_SYNCED TxgSynced {
        /// Its number.
        txg Number,
        /// Bytes that were dirtied in it.
        dirty Bytes,
        /// How long it was open.
        open_ns Time,
        /// How long its sync took.
        ns Time,
    }
    "A block left the cache to make room."
    arc_evict ARC_EVICT ArcEvict {
        /// Its size.
        bytes Bytes,
    }
    "A range of an object was freed."
    free_range FREE_RANGE FreeRange {
        /// The object.
        object Number,
        /// Its first block in the range.
        first Number,
        /// How many blocks of the object are in it.
        blocks Number,
        /// How long it took, until the group holds the change.
        ns Time,
    }
    "A thread was seen at work. Sessions look 99 times a second."
    sample SAMPLE Sample {
        /// The kind of the wait; the number after the last: it computes.
        wait Wait,
        /// What exactly it waits for.
        what What,
        /// How long it has done that, or has worked if it computes.
        ns Time,
        /// The thread.
        thread Number,
    }
}
