//! What the system knows of a process.

use std::fmt::Debug;

/// A thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Thread {
    /// Its name; of a process's first thread, the process's.
    pub(super) name: String,
    /// When it began, in clock ticks after the system.
    pub(super) start: u64,
}

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Process {
    /// Its number. 0: unknown.
    pub(super) pid: u32,
    /// When it began, in clock ticks after the system.
    pub(super) start: u64,
    pub(super) name: String,
    pub(super) cgroup: String,
}

/// What looks processes up.
pub(super) trait Look: Send + Sync {
    /// The thread with this number.
    fn thread(&self, tid: u32) -> Option<Thread>;

    /// The process of a thread. `None`: it has ended.
    fn process(&self, tid: u32, thread: Thread) -> Option<Process>;

    /// The process with this number, or of the thread with it.
    fn process_of(&self, tid: u32) -> Option<Process> {
        self.process(tid, self.thread(tid)?)
    }
}

/// The system's `/proc`.
pub(super) struct Proc;

impl Look for Proc {
    fn thread(&self, tid: u32) -> Option<Thread> {
        parse_stat(&std::fs::read(format!("/proc/{tid}/stat")).ok()?)
    }

    fn process(&self, tid: u32, thread: Thread) -> Option<Process> {
        let pid = parse_tgid(&std::fs::read(format!("/proc/{tid}/status")).ok()?)?;
        let first = if pid == tid { thread } else { self.thread(pid)? };
        let cgroup = std::fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        Some(Process { pid, start: first.start, name: first.name, cgroup: parse_cgroup(&cgroup) })
    }
}

/// The name and the begin in `/proc/PID/stat`. Any bytes but a null may be in a name.
fn parse_stat(stat: &[u8]) -> Option<Thread> {
    /// The place of the begin behind the name: field 22, and the name is field 2.
    const START: usize = 22 - 3;
    let begin = stat.iter().position(|byte| *byte == b'(')?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let name = String::from_utf8_lossy(stat.get(begin + 1..end)?).into_owned();
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    Some(Thread { name, start: rest.split_ascii_whitespace().nth(START)?.parse().ok()? })
}

/// The process in `/proc/TID/status`.
fn parse_tgid(status: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(status);
    text.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// The control group in `/proc/PID/cgroup`: that of version 2, or else the first one.
fn parse_cgroup(groups: &[u8]) -> String {
    let text = String::from_utf8_lossy(groups);
    let unified = text.lines().find_map(|line| line.strip_prefix("0::"));
    let any = || text.lines().find_map(|line| line.splitn(3, ':').nth(2));
    unified.or_else(any).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a name may have any bytes, also those that separate fields.
    #[test]
    fn names_are_hostile() {
        let line = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 12 3\n";
        let found = Thread { name: "a) b (c".to_owned(), start: 4711 };
        assert_eq!(parse_stat(line.as_bytes()), Some(found));
        for wrong in ["", "7 (a", "7 )a( S 1", "7 (a) S 1", "7 a S 1"] {
            assert_eq!(parse_stat(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(parse_tgid(b"Name:\tTgid:\nTgid:\t12\nPid:\t13\n"), Some(12));
        assert_eq!(parse_cgroup(b"1:cpu:/a\n0::/user.slice/b:c\n"), "/user.slice/b:c");
        assert_eq!(parse_cgroup(b"1:cpu:/a:b\n"), "/a:b");
        assert_eq!(parse_cgroup(b""), "");
    }

    /// Goal: a thread of this program is one of this process, and has the process's begin.
    #[test]
    fn threads_belong_to_a_process() {
        let own = std::process::id();
        let mine = Proc.process_of(own).unwrap();
        assert_eq!((mine.pid, Proc.thread(own).unwrap().start), (own, mine.start));
        std::thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            assert_ne!(tid, own);
            assert_eq!(Proc.process_of(tid), Some(mine));
        })
        .join()
        .unwrap();
    }
}
