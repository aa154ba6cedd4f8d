//! The lines of `print_scan_scrub_resilver_status` and `print_rebuild_status_impl`, in the wording
//! of OpenZFS 2.3.2.

use std::io;

use api::Vdev;

use super::*;
use crate::sink::Sink;
use crate::terminal::Secrets;
use console::Clock;
use console::Out;

/// Sat Nov 21 22:26:40 2026.
const NOW: u64 = 1_795_300_000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

struct NoSecrets;

impl Secrets for NoSecrets {
    fn interactive(&self) -> bool {
        false
    }
    fn line(&mut self, _: &str) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
    fn bytes(&mut self, _: usize) -> io::Result<Vec<u8>> {
        self.line("")
    }
}

/// The printed lines of a pool.
fn said(pool: &Pool) -> String {
    let (out, err) = (Sink::default(), Sink::default());
    let sinks = (Out::new(Box::new(out.clone())), Out::new(Box::new(err)));
    let connect = Box::new(|| panic!("nobody is asked"));
    scan(&mut Cx::new(sinks.0, sinks.1, Clock::fixed(|| NOW), Box::new(NoSecrets), connect), pool);
    out.text()
}

fn of(stat: &ScanStat) -> String {
    said(&Pool { name: "tank".into(), scan: Some(stat.clone()), ..Pool::default() })
}

/// A scrub that has issued half of its bytes in 256 seconds.
fn half() -> ScanStat {
    ScanStat {
        func: ScanFunc::Scrub,
        state: ScanState::Scanning,
        start_time: NOW - 512,
        to_examine: 8 * GIB,
        examined: 5 * GIB,
        skipped: GIB,
        processed: 4096,
        pass_exam: 4 * GIB,
        pass_start: NOW - 256,
        pass_issued: 3 * GIB,
        issued: 7 * GIB / 2,
        ..ScanStat::default()
    }
}

/// Goal: a scrub in progress shows its progress, rate and remaining time.
///
/// The remaining time is missing below 10 MiB/s, and before anything is issued. Paused time doesn't
/// count.
#[test]
fn a_scrub_in_progress() {
    let want = "  scan: scrub in progress since Sat Nov 21 22:18:08 2026\n\
                \t5G / 8G scanned at 16M/s, 3.50G / 7G issued at 12M/s\n\
                \t4K repaired, 50.00% done, 00:04:58 to go\n";
    assert_eq!(of(&half()), want);
    let paused = ScanStat { pass_start: NOW - 1256, pass_scrub_spent_paused: 1000, ..half() };
    assert_eq!(of(&paused), want);
    let slow = ScanStat { pass_issued: 256 * (10 * MIB - 1), ..half() };
    assert_eq!(
        of(&slow),
        "  scan: scrub in progress since Sat Nov 21 22:18:08 2026\n\
         \t5G / 8G scanned at 16M/s, 3.50G / 7G issued at 10.0M/s\n\
         \t4K repaired, 50.00% done, no estimated completion time\n"
    );
    let begun = ScanStat {
        examined: 0,
        skipped: 0,
        processed: 0,
        pass_exam: 0,
        pass_start: NOW,
        pass_issued: 0,
        issued: 0,
        ..half()
    };
    assert_eq!(
        of(&begun),
        "  scan: scrub in progress since Sat Nov 21 22:18:08 2026\n\
         \t0B / 8G scanned, 0B / 8G issued\n\
         \t0B repaired, 0.00% done, no estimated completion time\n"
    );
}

/// Goal: a paused scrub shows since when, and its start, but no rate.
#[test]
fn a_paused_scrub() {
    let paused = ScanStat { pass_scrub_pause: NOW - 100, ..half() };
    assert_eq!(
        of(&paused),
        "  scan: scrub paused since Sat Nov 21 22:25:00 2026\n\
         \tscrub started on Sat Nov 21 22:18:08 2026\n\
         \t5G / 8G scanned, 3.50G / 7G issued\n\
         \t4K repaired, 50.00% done\n"
    );
}

/// Goal: a resilver in progress shows days if it takes that long, and the remaining time once it
/// has written something.
#[test]
fn a_resilver_in_progress() {
    let issued = 256 * 10 * MIB;
    let long = ScanStat {
        func: ScanFunc::Resilver,
        to_examine: 5 * 1024 * GIB + issued,
        skipped: 0,
        processed: 3 * GIB / 2,
        pass_issued: issued,
        issued,
        ..half()
    };
    assert_eq!(
        of(&long),
        "  scan: resilver in progress since Sat Nov 21 22:18:08 2026\n\
         \t5G / 5.00T scanned at 16M/s, 2.50G / 5.00T issued at 10M/s\n\
         \t1.50G resilvered, 0.05% done, 6 days 01:38:08 to go\n"
    );
    let nothing = ScanStat { processed: 0, ..long };
    assert!(of(&nothing).ends_with("\t0B resilvered, 0.05% done, no estimated completion time\n"));
}

/// Goal: a finished or cancelled scan shows its result.
#[test]
fn a_scan_that_is_over() {
    let over = ScanStat { state: ScanState::Finished, end_time: NOW, errors: 2, ..half() };
    assert_eq!(
        of(&over),
        "  scan: scrub repaired 4K in 00:08:32 with 2 errors on Sat Nov 21 22:26:40 2026\n"
    );
    let resilver = ScanStat { func: ScanFunc::Resilver, ..over };
    assert_eq!(
        of(&resilver),
        "  scan: resilvered 4K in 00:08:32 with 2 errors on Sat Nov 21 22:26:40 2026\n"
    );
    let canceled = ScanStat { state: ScanState::Canceled, ..resilver };
    assert_eq!(of(&canceled), "  scan: resilver canceled on Sat Nov 21 22:26:40 2026\n");
}

/// Goal: a sequential resilver names its vdev; its progress is what it has scanned.
#[test]
fn a_rebuild_in_progress() {
    let rebuild = RebuildStat {
        state: RebuildState::Active,
        start_time: NOW - 512,
        bytes_scanned: 2 * GIB,
        bytes_issued: GIB,
        bytes_rebuilt: GIB,
        bytes_est: 8 * GIB,
        pass_time_ms: 127_999,
        pass_bytes_scanned: 2 * GIB,
        pass_bytes_issued: GIB,
        pass_bytes_skipped: GIB,
        ..RebuildStat::default()
    };
    let top = Vdev { kind: "mirror".into(), rebuild: Some(rebuild), ..Vdev::default() };
    let root = Vdev { kind: "root".into(), children: vec![top], ..Vdev::default() };
    let text = said(&Pool { name: "tank".into(), root, ..Pool::default() });
    assert_eq!(
        text,
        "  scan: resilver (mirror-0) in progress since Sat Nov 21 22:18:08 2026\n\
         \t2G / 8G scanned at 16.0M/s, 1G / 7G issued at 8.00M/s\n\
         \t1G resilvered, 25.00% done, 00:06:24 to go\n"
    );
}
