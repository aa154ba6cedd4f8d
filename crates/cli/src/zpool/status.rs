//! `zpool status`.

use std::rc::Rc;

use api::{DdtSummary, DdtTotals, Pool, PoolQuery, StatusReason};

use super::config::{self, Look};
use super::scripts::Scripts;
use super::{Stamp, info, interval, list, pools, progress, reason, status_json};
use crate::cx::{Color, Cx, Outcome, Stop};
use console::getopt::{Found, Getopt, Long, Opt};
use console::numbers;

const LONG: &[Long] = &[
    Long { name: "power", val: Opt::Named("power"), arg: false },
    Long { name: "json", val: Opt::Short('j'), arg: false },
    Long { name: "json-int", val: Opt::Named("json-int"), arg: false },
    Long { name: "json-flat-vdevs", val: Opt::Named("json-flat-vdevs"), arg: false },
    Long { name: "json-pool-key-guid", val: Opt::Named("json-pool-key-guid"), arg: false },
];

/// The options (`status_cbdata_t`).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Status {
    pub look: Look,
    pub verbose: bool,
    pub explain: bool,
    pub dedup: u8,
    pub json: bool,
    pub as_int: bool,
    pub flat: bool,
    pub key_guid: bool,
}

/// What `zpool status` shows, of which pools, and how often.
struct Command {
    st: Status,
    stamp: Stamp,
    scripts: Option<Scripts>,
    names: Vec<String>,
    /// Seconds from one round to the next; 0 is one round only.
    every: f64,
    /// Number of rounds; 0 is without end.
    rounds: u64,
}

fn read(cx: &mut Cx, args: &[String]) -> Result<Command, Stop> {
    let mut st = Status::default();
    let mut stamp = Stamp::None;
    let mut scripts = None;
    let mut g = Getopt::new(args, "c:jdDegiLpPstT:vx", LONG);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('c'), list) => scripts = Some(Scripts::parse(cx, "status", Some(&list))?),
            Found::Missing('c') => scripts = Some(Scripts::parse(cx, "status", None)?),
            Found::Is(Opt::Short('d'), _) => st.look.dio = true,
            Found::Is(Opt::Short('D'), _) => st.dedup = (st.dedup + 1).min(2),
            Found::Is(Opt::Short('e'), _) => st.look.unhealthy = true,
            Found::Is(Opt::Short('g'), _) => st.look.flags.guid = true,
            Found::Is(Opt::Short('i'), _) => st.look.init = true,
            Found::Is(Opt::Short('L'), _) => st.look.flags.follow = true,
            Found::Is(Opt::Short('p'), _) => st.look.exact = true,
            Found::Is(Opt::Short('P'), _) => st.look.flags.path = true,
            Found::Is(Opt::Short('s'), _) => st.look.slow = true,
            Found::Is(Opt::Short('t'), _) => st.look.trim = true,
            Found::Is(Opt::Short('T'), arg) => stamp = Stamp::parse(&arg)?,
            Found::Is(Opt::Short('v'), _) => st.verbose = true,
            Found::Is(Opt::Short('j'), _) => st.json = true,
            Found::Is(Opt::Short(_), _) => st.explain = true,
            Found::Is(Opt::Named("power"), _) => st.look.power = true,
            Found::Is(Opt::Named("json-flat-vdevs"), _) => st.flat = true,
            Found::Is(Opt::Named("json-int"), _) => (st.as_int, st.look.exact) = (true, true),
            Found::Is(Opt::Named(_), _) => st.key_guid = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let mut names = g.operands();
    let (every, rounds) = interval(&mut names)?;
    if st.flat && !st.json {
        return Err(Stop::usage("'--json-flat-vdevs' only works with '-j' option\n"));
    }
    list::need_json(st.json, st.as_int, st.key_guid)?;
    st.look.flags = st.look.flags.with_env(cx);
    Ok(Command { st, stamp, scripts, names, every, rounds })
}

/// `zpool status [-dDegiLpPstvx] [-j ...] [-T d|u] [pool] [interval [count]]` (`zpool_do_status`).
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let Command { st, stamp, scripts, names, every, mut rounds } = read(cx, args)?;
    let mut first = true;
    let query = PoolQuery { errors: st.verbose, dedup_cached: st.dedup > 1, ..PoolQuery::default() };
    loop {
        if let Some(text) = stamp.text(cx).filter(|_| !st.json) {
            writeln!(cx.out, "{text}");
        }
        let (found, failed) = pools(cx, &names, query)?;
        // JSON output has no columns of scripts.
        cx.scripts =
            scripts.as_ref().filter(|_| !st.json).map(|scripts: &Scripts| Rc::new(scripts.run(&found)));
        if st.json {
            if !failed {
                let o = status_json::answer(cx, &found, &st, stamp);
                writeln!(cx.out, "{}", o.line());
            }
        } else {
            for pool in &found {
                one(cx, pool, &st, names.is_empty(), &mut first);
            }
            if names.is_empty() && found.is_empty() {
                cx.err.put("no pools available\n");
                cx.tell_whom_was_asked();
            } else if st.explain && first && names.is_empty() {
                cx.out.put("all pools are healthy\n");
            }
        }
        if failed {
            return Ok(1);
        }
        if every == 0.0 || rounds == 1 {
            return Ok(0);
        }
        rounds = rounds.saturating_sub(1);
        cx.out.flush();
        (cx.sleep)(every);
    }
}

/// Whether `-x` skips a pool with this status.
pub(super) fn fine(reason: StatusReason) -> bool {
    use StatusReason as S;
    matches!(reason, S::Ok | S::VersionOlder | S::FeatDisabled | S::CompatibilityErr | S::IncompatibleFeat)
}

fn one(cx: &mut Cx, pool: &Pool, st: &Status, all: bool, first: &mut bool) {
    if st.explain && fine(pool.status) && pool.nameless.is_empty() {
        if !all {
            writeln!(cx.out, "pool '{}' is healthy", pool.name);
            *first = false;
        }
        return;
    }
    if !std::mem::replace(first, false) {
        cx.out.put("\n");
    }
    let health = info::pool_state_name(pool);
    cx.out.put("  ");
    cx.colored(Some(Color::Bold), "pool:");
    write!(cx.out, " {}\n ", pool.name);
    cx.colored(Some(Color::Bold), "state: ");
    cx.colored(config::color(health), health);
    cx.out.put("\n");
    let (status, action) = reason::texts(cx, pool);
    for (label, text) in [("status: ", status), ("action: ", action)] {
        if !text.is_empty() {
            cx.colored(Some(Color::Bold), label);
            cx.colored(Some(Color::Yellow), &text);
        }
    }
    if let Some(id) = reason::message_id(pool.status) {
        cx.out.put("   ");
        cx.colored(Some(Color::Bold), "see:");
        writeln!(cx.out, " {}{id}", reason::MESSAGES);
    }
    progress::scan(cx, pool);
    if let Some(r) = &pool.removal {
        progress::removal(cx, pool, r);
    }
    if let Some(c) = &pool.checkpoint {
        progress::checkpoint(cx, c);
    }
    if let Some(e) = &pool.expand {
        progress::expansion(cx, pool, e);
    }
    table(cx, pool, st);
    errors(cx, pool, st.verbose);
    if let Some(ddt) = pool.ddt.as_ref().filter(|_| st.dedup > 0) {
        dedup(cx, ddt, st.look.exact);
    }
}

fn table(cx: &mut Cx, pool: &Pool, st: &Status) {
    let width = list::max_width(Some(&pool.name), pool, 0, st.look.flags.with_id()).max(10);
    let look = Look { width, ..st.look };
    let title = format!(
        "config:\n\n\t{:<width$}  {:<8} {:>5} {:>5} {:>5}",
        "NAME", "STATE", "READ", "WRITE", "CKSUM"
    );
    cx.colored(Some(Color::Bold), &title);
    for (on, name) in [(look.slow, "SLOW"), (look.power, "POWER"), (look.dio, "DIO")] {
        if on {
            cx.colored(Some(Color::Bold), &format!(" {name:>5}"));
        }
    }
    if let Some(answers) = cx.scripts.clone() {
        answers.head(cx);
    }
    cx.out.put("\n");
    config::status(cx, pool, &look);
}

fn errors(cx: &mut Cx, pool: &Pool, verbose: bool) {
    match pool.error_count {
        None => {}
        Some(0) => cx.out.put("\nerrors: No known data errors\n"),
        Some(n) if !verbose => {
            cx.out.put("\n");
            cx.colored(Some(Color::Red), &format!("errors: {n} data errors, use '-v' for a list\n"));
        }
        Some(_) if pool.stale => {
            cx.out.put("\nerrors: List of errors unavailable: the pool does not answer\n");
        }
        // Only the owner of the daemon may see the names.
        Some(_) if pool.errors_withheld => {
            cx.out.put("\nerrors: List of errors unavailable: permission denied\n");
        }
        Some(_) => {
            cx.out.put("\nerrors: Permanent errors have been detected in the following files:\n\n");
            for path in &pool.errors {
                let path = cx.out.cell(path);
                writeln!(cx.out, "{:>7} {path}", "");
            }
        }
    }
}

/// Shows the statistics of the dedup tables (`print_dedup_stats`).
fn dedup(cx: &mut Cx, ddt: &DdtSummary, exact: bool) {
    cx.out.put("\n dedup: ");
    if ddt.count == 0 {
        return cx.out.put("no DDT entries\n");
    }
    let number = |n: u64| if exact { n.to_string() } else { numbers::num(n) };
    write!(
        cx.out,
        "DDT entries {}, size {} on disk, {} in core",
        ddt.count,
        number(ddt.dspace),
        number(ddt.mspace)
    );
    if let Some(cached) = ddt.cached {
        let cached = cached.min(ddt.mspace);
        let share = cached as f64 / ddt.mspace as f64 * 100.0;
        write!(cx.out, ", {} cached ({share:.2}%)", number(cached));
    }
    cx.out.put("\n");
    cx.out.put("\nbucket              allocated                       referenced          \n");
    cx.out.put("______   ______________________________   ______________________________\n");
    cx.out.put("refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE\n");
    cx.out.put("------   ------   -----   -----   -----   ------   -----   -----   -----\n");
    for (power, totals) in &ddt.histogram {
        let refs = numbers::num(1u64.checked_shl(*power).unwrap_or(0));
        bucket(cx, &refs, totals);
    }
    bucket(cx, "Total", &ddt.total);
    cx.out.put("\n");
}

fn bucket(cx: &mut Cx, name: &str, t: &DdtTotals) {
    if t.blocks == 0 {
        return;
    }
    let (n, b) = (|n: u64| numbers::num_cut(n, 5), |n: u64| numbers::bytes(n));
    writeln!(
        cx.out,
        "{name:>6}   {:>6}   {:>5}   {:>5}   {:>5}   {:>6}   {:>5}   {:>5}   {:>5}",
        n(t.blocks),
        b(t.lsize),
        b(t.psize),
        b(t.dsize),
        n(t.ref_blocks),
        b(t.ref_lsize),
        b(t.ref_psize),
        b(t.ref_dsize)
    );
}
