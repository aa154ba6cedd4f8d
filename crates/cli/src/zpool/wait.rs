//! `zpool wait`: waits until the activities in a pool have ended.
//!
//! # Theory
//! The command queries the pool repeatedly, with growing pauses. It also waits for activities that
//! begin meanwhile, if they are among the chosen ones. If the pool disappears, the wait ends.

use api::{
    CheckpointState, LeafWork, Pool, PoolQuery, Reason, RebuildState, ScanFunc, ScanState, Vdev, WorkState,
};

use super::{Stamp, change, interval};
use crate::cx::{Cx, Outcome, Stop};
use console::getopt::{Found, Getopt, Opt};
use console::numbers;

/// The activities: name and column title (`zpool_wait_activity_t`).
const ACTIVITIES: [(&str, &str); 9] = [
    ("discard", "DISCARD"),
    ("free", "FREE"),
    ("initialize", "INITIALIZE"),
    ("replace", "REPLACE"),
    ("remove", "REMOVE"),
    ("resilver", "RESILVER"),
    ("scrub", "SCRUB"),
    ("trim", "TRIM"),
    ("raidz_expand", "RAIDZ_EXPAND"),
];

/// Index of `replace`.
pub(super) const REPLACE: usize = 3;
/// Index of `resilver`.
pub(super) const RESILVER: usize = 5;

/// Shortest and longest pause between two queries, in seconds.
const LOOKS: (f64, f64) = (0.05, 1.0);

/// Index of `scrub`.
pub(super) const SCRUB: usize = 6;

struct Look {
    scripted: bool,
    exact: bool,
    stamp: Stamp,
    wanted: [bool; ACTIVITIES.len()],
}

/// `zpool wait [-Hp] [-T d|u] [-t <activity>[,...]] <pool> [interval]` (`zpool_do_wait`).
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut look =
        Look { scripted: false, exact: false, stamp: Stamp::None, wanted: [true; ACTIVITIES.len()] };
    let mut g = Getopt::new(args, "HpT:t:", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('H'), _) => look.scripted = true,
            Found::Is(Opt::Short('p'), _) => look.exact = true,
            Found::Is(Opt::Short('T'), arg) => look.stamp = Stamp::parse(&arg)?,
            Found::Is(_, arg) => {
                look.wanted = [false; ACTIVITIES.len()];
                for word in arg.split(',') {
                    let at = ACTIVITIES.iter().position(|(name, _)| *name == word);
                    let at = at.ok_or_else(|| Stop::usage(format!("invalid activity '{word}'\n")))?;
                    look.wanted[at] = true;
                }
            }
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let mut names = g.operands();
    let (every, count) = interval(&mut names)?;
    if count != 0 {
        return Err(Stop::usage("too many arguments\n"));
    }
    let name = match &names[..] {
        [] => return Err(Stop::usage("missing 'pool' argument\n")),
        [name] => name.clone(),
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    let query = PoolQuery { props: true, ..PoolQuery::default() };
    let mut pool = change::open(cx, &name, query)?;
    let service = cx.service()?;
    let (mut pause, mut since_row, mut row) = (LOOKS.0, every, 0usize);
    loop {
        if every != 0.0 && since_row >= every {
            show(cx, &look, &pool, row);
            (since_row, row) = (0.0, row + 1);
        }
        let busy = under_way(&pool);
        if (!pool.stale || pool.suspended.is_some())
            && !busy.iter().zip(look.wanted).any(|(busy, wanted)| *busy && wanted)
        {
            return Ok(0);
        }
        (cx.sleep)(pause);
        since_row += pause;
        pause = (pause * 2.0).min(LOOKS.1).min(if every == 0.0 { LOOKS.1 } else { every });
        pool = match service.pool(&name, &query) {
            Ok(pool) => pool,
            Err(e) if matches!(e.reason, Reason::NoSuchPool) => return Ok(0),
            Err(e) => return Err(cx.fail(&format!("error waiting in pool '{name}'"), &e)),
        };
    }
}

/// Waits until one activity has ended, or the pool no longer exists.
///
/// # Errors
/// * [`Stop::Fail`]: a query of the pool fails for another reason, which is reported.
pub(super) fn until_over(cx: &mut Cx, name: &str, activity: usize) -> Result<(), Stop> {
    let service = cx.service()?;
    let mut pause = LOOKS.0;
    loop {
        match service.pool(name, &PoolQuery { props: true, ..PoolQuery::default() }) {
            Ok(pool) if (!pool.stale || pool.suspended.is_some()) && !under_way(&pool)[activity] => {
                return Ok(());
            }
            Ok(_) => {}
            Err(e) if matches!(e.reason, Reason::NoSuchPool) => return Ok(()),
            Err(e) => return Err(cx.fail(&format!("error waiting in pool '{name}'"), &e)),
        }
        (cx.sleep)(pause);
        pause = (pause * 2.0).min(LOOKS.1);
    }
}

fn leaves<'a>(v: &'a Vdev, into: &mut Vec<&'a Vdev>) {
    if v.children.is_empty() {
        into.push(v);
    }
    v.children.iter().for_each(|c| leaves(c, into));
}

/// The bytes left of initializations or TRIMs on all devices, if any is active.
fn work_left(pool: &Pool, work: impl Fn(&Vdev) -> &LeafWork) -> Option<u64> {
    let mut all = Vec::new();
    leaves(&pool.root, &mut all);
    let active = all.into_iter().map(work).filter(|w| w.state == WorkState::Active);
    active.map(|w| w.bytes_est.saturating_sub(w.bytes_done)).reduce(u64::saturating_add)
}

/// The bytes left of each active activity (`print_wait_status_row`, `spa_activity_in_progress`).
fn left(pool: &Pool) -> [Option<u64>; ACTIVITIES.len()] {
    let scan = pool.scan.as_ref().filter(|s| s.state == ScanState::Scanning && s.pass_scrub_pause == 0);
    let scanned =
        |func: ScanFunc| scan.filter(|s| s.func == func).map(|s| s.to_examine.saturating_sub(s.issued));
    let errors = pool.scan.as_ref().filter(|s| s.error_scrub_state == ScanState::ErrorScrubbing);
    // For an error scrub, only the number of blocks is known.
    let errors = errors.filter(|s| s.pass_error_scrub_pause == 0).map(|s| s.error_scrub_to_be_examined);
    let rebuilds = pool.root.children.iter().filter_map(|v| v.rebuild.as_ref());
    let rebuild = rebuilds
        .filter(|r| r.state == RebuildState::Active)
        .map(|r| r.bytes_est.saturating_sub(r.bytes_rebuilt))
        .reduce(u64::saturating_add);
    // A requested resilver counts as active, though its size is not known yet.
    let wanted = pool.resilver_wanted.then_some(0);
    let resilver = rebuild.or(scanned(ScanFunc::Resilver)).or(wanted);
    fn standing_in(v: &Vdev) -> bool {
        matches!(v.kind.as_str(), "replacing" | "spare" | "dspare") || v.children.iter().any(standing_in)
    }
    let discarding = pool.checkpoint.as_ref().filter(|c| c.state == CheckpointState::Discarding);
    let removal = pool.removal.as_ref().filter(|r| r.state == ScanState::Scanning);
    let expansion = pool.expand.as_ref().filter(|e| e.state == ScanState::Scanning);
    let freeing = pool.prop("freeing").and_then(|p| p.number).filter(|n| *n != 0);
    [
        discarding.map(|c| c.space),
        freeing,
        work_left(pool, |v| &v.stat.initialize),
        resilver.filter(|_| standing_in(&pool.root)),
        removal.map(|r| r.to_copy.saturating_sub(r.copied)),
        resilver,
        scanned(ScanFunc::Scrub).or(errors),
        work_left(pool, |v| &v.stat.trim),
        expansion.map(|e| e.to_reflow.saturating_sub(e.reflowed)),
    ]
}

fn under_way(pool: &Pool) -> [bool; ACTIVITIES.len()] {
    let mut all = left(pool).map(|left| left.is_some());
    // A replacement lasts until the old device is detached (`vdev_replace_in_progress`).
    fn replacing(v: &Vdev) -> bool {
        v.kind == "replacing" || v.kind == "spare" && v.children.len() > 2 || v.children.iter().any(replacing)
    }
    all[REPLACE] |= replacing(&pool.root);
    all
}

/// Prints a row with what is left of each activity.
fn show(cx: &mut Cx, look: &Look, pool: &Pool, row: usize) {
    if let Some(text) = look.stamp.text(cx) {
        writeln!(cx.out, "{text}");
    }
    let width = |head: &str| head.len().max(6) + 2;
    let wanted = || ACTIVITIES.iter().zip(look.wanted).filter(|(_, w)| *w).map(|((_, head), _)| *head);
    let again = (cx.screen)().is_some_and(|(rows, _)| rows > 1 && row.is_multiple_of(rows - 1));
    if !look.scripted && (row == 0 || again) {
        let heads: String = wanted().map(|head| format!("{head:>0$}", width(head))).collect();
        writeln!(cx.out, "{heads}");
    }
    for (i, ((_, head), left)) in ACTIVITIES.iter().zip(left(pool)).enumerate() {
        if !look.wanted[i] {
            continue;
        }
        let n = left.unwrap_or(0);
        let text = if look.exact { n.to_string() } else { numbers::num(n) };
        if look.scripted {
            // As in OpenZFS, the tab depends on the activity's place among all, not among those
            // shown.
            cx.out.put(if i == 0 { "" } else { "\t" });
            cx.out.put(&text);
        } else {
            write!(cx.out, " {text:>0$}", width(head) - 1);
        }
    }
    cx.out.put("\n");
    cx.out.flush();
}
