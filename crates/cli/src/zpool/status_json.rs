//! `zpool status -j`.

use api::{
    CheckpointState, DdtSummary, DdtTotals, Pool, RebuildState, ScanFunc, ScanStat, ScanState, Vdev, VdevAux,
    VdevState, WorkState,
};

use super::info::{self, Role};
use super::list::{CLASSES, class};
use super::status::{Status, fine};
use super::{Stamp, config, reason};
use crate::cx::Cx;
use crate::json::{self, Json, Object};
use crate::vdev_name::{NameFlags, vdev_name};
use console::numbers;

/// The form of a number.
#[derive(Clone, Copy)]
enum Form {
    Count,
    Bytes,
    Date,
    Nanoseconds,
    /// Exact, with any options.
    Exact,
}

/// The context of the output: the options and the clock.
struct Writer<'a> {
    cx: &'a Cx,
    st: &'a Status,
}

impl Writer<'_> {
    fn number(&self, o: &mut Object, key: &str, value: u64, form: Form) {
        if self.st.as_int {
            return o.number(key, value);
        }
        let text = match form {
            Form::Exact => value.to_string(),
            _ if self.st.look.exact => value.to_string(),
            Form::Count => numbers::num(value),
            Form::Bytes => numbers::bytes(value),
            Form::Nanoseconds => numbers::time_ns(value),
            Form::Date if value == 0 => "-".into(),
            Form::Date => self.cx.clock.ctime(value),
        };
        o.text(key, text);
    }

    fn numbers(&self, o: &mut Object, form: Form, pairs: &[(&str, u64)]) {
        for (key, value) in pairs {
            self.number(o, key, *value, form);
        }
    }
}

/// The whole output (`status_callback_json`).
pub fn answer(cx: &mut Cx, found: &[Pool], st: &Status, stamp: Stamp) -> Object {
    let mut root = json::schema("zpool status");
    let mut list = Object::new();
    for pool in found.iter().filter(|p| !(st.explain && fine(p.status) && p.nameless.is_empty())) {
        let key = if st.key_guid { pool.guid.to_string() } else { pool.name.clone() };
        list.object(key, one(&Writer { cx, st }, pool));
    }
    root.object("pools", list);
    if let Some(text) = stamp.text(cx) {
        root.put("time", if st.as_int { Json::Number(cx.clock.now()) } else { Json::Text(text) });
    }
    root
}

fn one(w: &Writer<'_>, pool: &Pool) -> Object {
    let mut o = Object::new();
    info::pool_info(&mut o, pool, false, w.st.as_int);
    let (status, action) = reason::texts(w.cx, pool);
    for (key, text) in [("status", status), ("action", action)] {
        if !text.is_empty() {
            o.text(key, text);
        }
    }
    if let Some(id) = reason::message_id(pool.status) {
        o.text("msgid", id);
        o.text("moreinfo", format!("{}{id}", reason::MESSAGES));
    }
    let scan = scan(w, pool);
    if !scan.is_empty() {
        o.object("scan_stats", scan);
    }
    works(w, pool, &mut o);
    let mut vdevs = Object::new();
    vdev(w, pool, &pool.root, Role::Root, 0, None, &mut vdevs);
    if w.st.flat {
        groups(w, pool, &mut vdevs);
        o.object("vdevs", vdevs);
    } else {
        o.object("vdevs", vdevs);
        groups(w, pool, &mut o);
    }
    if let Some(ddt) = pool.ddt.as_ref().filter(|_| w.st.dedup > 0) {
        o.object("dedup_stats", dedup(w, ddt));
    }
    if let Some(n) = pool.error_count {
        w.number(&mut o, "error_count", n, Form::Count);
        if n != 0 && w.st.verbose {
            o.put("errlist", Json::Texts(pool.errors.clone()));
        }
    }
    o
}

fn scan_func(f: ScanFunc) -> &'static str {
    match f {
        ScanFunc::None => "NONE",
        ScanFunc::Scrub => "SCRUB",
        ScanFunc::Resilver => "RESILVER",
        ScanFunc::ErrorScrub => "ERRORSCRUB",
    }
}

fn scan_state(s: ScanState) -> &'static str {
    match s {
        ScanState::None => "NONE",
        ScanState::Scanning => "SCANNING",
        ScanState::Finished => "FINISHED",
        ScanState::Canceled => "CANCELED",
        ScanState::ErrorScrubbing => "ERRORSCRUBBING",
    }
}

fn scan(w: &Writer<'_>, pool: &Pool) -> Object {
    let mut o = Object::new();
    if let Some(s) = &pool.scan {
        o.text("function", scan_func(s.func));
        o.text("state", scan_state(s.state));
        w.numbers(&mut o, Form::Date, &[("start_time", s.start_time), ("end_time", s.end_time)]);
        let sizes = [
            ("to_examine", s.to_examine),
            ("examined", s.examined),
            ("skipped", s.skipped),
            ("processed", s.processed),
        ];
        w.numbers(&mut o, Form::Bytes, &sizes);
        w.number(&mut o, "errors", s.errors, Form::Count);
        w.number(&mut o, "bytes_per_scan", s.pass_exam, Form::Bytes);
        w.number(&mut o, "pass_start", s.pass_start, Form::Exact);
        w.number(&mut o, "scrub_pause", s.pass_scrub_pause, Form::Date);
        w.number(&mut o, "scrub_spent_paused", s.pass_scrub_spent_paused, Form::Exact);
        w.numbers(&mut o, Form::Bytes, &[("issued_bytes_per_scan", s.pass_issued), ("issued", s.issued)]);
        error_scrub(w, s, &mut o);
    }
    let mut rebuilds = Object::new();
    for v in &pool.root.children {
        let Some(r) = v.rebuild.as_ref().filter(|r| r.state != RebuildState::None) else { continue };
        let name = vdev_name(Some(&pool.name), v, NameFlags::default().with_id());
        let mut e = Object::new();
        info::vdev_info(&mut e, &name, v, Role::Below(&pool.root), false, w.st.as_int);
        let state = match r.state {
            RebuildState::None => "NONE",
            RebuildState::Active => "ACTIVE",
            RebuildState::Canceled => "CANCELED",
            RebuildState::Complete => "COMPLETE",
        };
        e.text("state", state);
        w.numbers(&mut e, Form::Date, &[("start_time", r.start_time), ("end_time", r.end_time)]);
        w.number(&mut e, "scan_time", r.scan_time_ms.saturating_mul(1_000_000), Form::Nanoseconds);
        let sizes = [
            ("scanned", r.bytes_scanned),
            ("issued", r.bytes_issued),
            ("rebuilt", r.bytes_rebuilt),
            ("to_scan", r.bytes_est),
        ];
        w.numbers(&mut e, Form::Bytes, &sizes);
        w.number(&mut e, "errors", r.errors, Form::Count);
        w.number(&mut e, "pass_time", r.pass_time_ms.saturating_mul(1_000_000), Form::Nanoseconds);
        let sizes = [
            ("pass_scanned", r.pass_bytes_scanned),
            ("pass_issued", r.pass_bytes_issued),
            ("pass_skipped", r.pass_bytes_skipped),
        ];
        w.numbers(&mut e, Form::Bytes, &sizes);
        rebuilds.object(name, e);
    }
    if !rebuilds.is_empty() {
        o.object("rebuild_stats", rebuilds);
    }
    o
}

fn error_scrub(w: &Writer<'_>, s: &ScanStat, o: &mut Object) {
    if s.error_scrub_func != ScanFunc::ErrorScrub || s.error_scrub_start <= s.start_time {
        return;
    }
    o.text("err_scrub_func", scan_func(s.error_scrub_func));
    o.text("err_scrub_state", scan_state(s.error_scrub_state));
    let times = [("err_scrub_start_time", s.error_scrub_start), ("err_scrub_end_time", s.error_scrub_end)];
    w.numbers(o, Form::Date, &times);
    let counts = [
        ("err_scrub_examined", s.error_scrub_examined),
        ("err_scrub_to_examine", s.error_scrub_to_be_examined),
    ];
    w.numbers(o, Form::Count, &counts);
    w.number(o, "err_scrub_pause", s.pass_error_scrub_pause, Form::Exact);
}

/// Removal, checkpoint and expansion.
fn works(w: &Writer<'_>, pool: &Pool, o: &mut Object) {
    let child = |n: u64| usize::try_from(n).ok().and_then(|n| pool.root.children.get(n));
    if let Some(r) = pool.removal.as_ref().filter(|r| r.state != ScanState::None) {
        let mut e = Object::new();
        if let Some(v) = child(r.removing_vdev) {
            let name = vdev_name(Some(&pool.name), v, NameFlags { path: true, ..NameFlags::default() });
            info::vdev_info(&mut e, &name, v, Role::Below(&pool.root), false, w.st.as_int);
        }
        e.text("state", scan_state(r.state));
        w.number(&mut e, "removing_vdev", r.removing_vdev, Form::Exact);
        w.numbers(&mut e, Form::Date, &[("start_time", r.start_time), ("end_time", r.end_time)]);
        let sizes = [("to_copy", r.to_copy), ("copied", r.copied), ("mapping_memory", r.mapping_memory)];
        w.numbers(&mut e, Form::Bytes, &sizes);
        o.object("removal_stats", e);
    }
    if let Some(c) = &pool.checkpoint {
        let mut e = Object::new();
        let state = match c.state {
            CheckpointState::None => "NONE",
            CheckpointState::Exists => "EXISTS",
            CheckpointState::Discarding => "DISCARDING",
        };
        e.text("state", state);
        w.number(&mut e, "start_time", c.start_time, Form::Date);
        w.number(&mut e, "space", c.space, Form::Bytes);
        o.object("checkpoint_stats", e);
    }
    if let Some(x) = &pool.expand {
        let mut e = Object::new();
        if let Some(v) = child(x.expanding_vdev) {
            let name = vdev_name(Some(&pool.name), v, NameFlags::default());
            info::vdev_info(&mut e, &name, v, Role::Below(&pool.root), false, w.st.as_int);
        }
        e.text("state", scan_state(x.state));
        w.number(&mut e, "expanding_vdev", x.expanding_vdev, Form::Exact);
        w.numbers(&mut e, Form::Date, &[("start_time", x.start_time), ("end_time", x.end_time)]);
        w.numbers(&mut e, Form::Bytes, &[("to_reflow", x.to_reflow), ("reflowed", x.reflowed)]);
        w.number(&mut e, "waiting_for_resilver", u64::from(x.waiting_for_resilver), Form::Exact);
        o.object("raidz_expand_stats", e);
    }
}

/// The classes, cache devices and spares, each as an object of its own, or flat.
fn groups(w: &Writer<'_>, pool: &Pool, into: &mut Object) {
    let normal = |name: &str, v: &Vdev| class(v) == Some(name) && (v.is_log || v.kind != "indirect");
    for name in CLASSES {
        let members = pool.root.children.iter().filter(|v| normal(name, v));
        group(w, pool, name, members, Role::Below(&pool.root), into);
    }
    group(w, pool, "l2cache", pool.l2cache.iter(), Role::Cache, into);
    group(w, pool, "spares", pool.spares.iter(), Role::Spare, into);
}

fn group<'a>(
    w: &Writer<'_>,
    pool: &Pool,
    key: &str,
    members: impl Iterator<Item = &'a Vdev>,
    role: Role<'_>,
    into: &mut Object,
) {
    if w.st.flat {
        members.for_each(|v| vdev(w, pool, v, role, 2, None, into));
        return;
    }
    let mut inner = Object::new();
    members.for_each(|v| vdev(w, pool, v, role, 2, None, &mut inner));
    if !inner.is_empty() {
        into.object(key, inner);
    }
}

/// A vdev and its children (`vdev_stats_nvlist`).
fn vdev(
    w: &Writer<'_>,
    pool: &Pool,
    v: &Vdev,
    role: Role<'_>,
    depth: usize,
    parent: Option<&str>,
    into: &mut Object,
) {
    if v.kind == "indirect" || (w.st.look.unhealthy && depth > 0 && config::healthy(v, w.st.look.slow)) {
        return;
    }
    let name = vdev_name(Some(&pool.name), v, w.st.look.flags.with_id());
    let mut o = Object::new();
    info::vdev_info(&mut o, &name, v, role, false, w.st.as_int);
    if let (true, Some(parent)) = (w.st.flat, parent) {
        o.text("parent", parent);
    }
    stats(w, v, role, &mut o);
    if v.children.is_empty() {
        if w.st.look.init {
            work(
                w,
                &mut o,
                &v.stat.initialize,
                ["init_state", "initialized", "to_initialize", "init_time", "init_errors"],
                "UNINITIALIZED",
            );
        }
        if w.st.look.trim {
            if !v.stat.trim_notsup {
                work(
                    w,
                    &mut o,
                    &v.stat.trim,
                    ["trim_state", "trimmed", "to_trim", "trim_time", "trim_errors"],
                    "UNTRIMMED",
                );
            }
            w.number(&mut o, "trim_notsup", u64::from(v.stat.trim_notsup), Form::Exact);
        }
    }
    let mut below = Object::new();
    for c in v.children.iter().filter(|c| !c.is_log && !c.is_hole && c.alloc_bias.is_none()) {
        let role = if matches!(role, Role::Spare) { Role::Spare } else { Role::Below(v) };
        if w.st.flat {
            vdev(w, pool, c, role, depth + 2, Some(&name), into);
        }
        vdev(w, pool, c, role, depth + 2, Some(&name), &mut below);
    }
    if !below.is_empty() {
        o.object("vdevs", below);
    }
    into.object(name, o);
}

fn stats(w: &Writer<'_>, v: &Vdev, role: Role<'_>, o: &mut Object) {
    let s = &v.stat;
    if matches!(role, Role::Spare) {
        if s.aux == VdevAux::Spared {
            o.text("state", "INUSE");
        } else if s.state == VdevState::Healthy {
            o.text("state", "AVAIL");
        }
    } else {
        let sizes = [
            ("alloc_space", s.alloc),
            ("total_space", s.space),
            ("def_space", s.dspace),
            ("rep_dev_size", s.rsize),
            ("ex_dev_size", s.esize),
            ("self_healed", s.self_healed),
            ("phys_space", s.pspace),
        ];
        for (key, n) in sizes.into_iter().filter(|s| s.1 != 0) {
            w.number(o, key, n, Form::Bytes);
        }
        let counts = [
            ("read_errors", s.read_errors),
            ("write_errors", s.write_errors),
            ("checksum_errors", s.checksum_errors),
        ];
        w.numbers(o, Form::Count, &counts);
        for (key, n) in [("scan_processed", s.scan_processed), ("checkpoint_space", s.checkpoint_space)] {
            if n != 0 {
                w.number(o, key, n, Form::Bytes);
            }
        }
        if s.resilver_deferred {
            w.number(o, "resilver_deferred", 1, Form::Exact);
        }
        if v.children.is_empty() {
            w.number(o, "slow_ios", s.slow_ios, Form::Count);
        }
        if w.st.look.power {
            o.text("power_state", "-");
        }
    }
    if w.st.look.dio {
        w.number(o, "dio_verify_errors", s.dio_verify_errors, Form::Count);
    }
    if v.not_present {
        w.number(o, "not_present", 1, Form::Exact);
        o.text("was", v.path.clone().unwrap_or_default());
    } else if s.aux != VdevAux::None {
        o.text("aux", info::aux_word(s.aux));
    } else if v.children.is_empty() && !matches!(role, Role::Spare) && s.configured_ashift < s.physical_ashift
    {
        w.number(o, "configured_ashift", s.configured_ashift, Form::Exact);
        w.number(o, "physical_ashift", s.physical_ashift, Form::Exact);
    }
    if s.removing {
        w.number(o, "removing", 1, Form::Exact);
    } else if s.noalloc {
        w.number(o, "noalloc", 1, Form::Exact);
    }
}

fn work(w: &Writer<'_>, o: &mut Object, l: &api::LeafWork, keys: [&str; 5], never: &str) {
    let state = match l.state {
        WorkState::None => return o.text(keys[0], never),
        WorkState::Active => "ACTIVE",
        WorkState::Canceled => "CANCELED",
        WorkState::Suspended => "SUSPENDED",
        WorkState::Complete => "COMPLETE",
    };
    o.text(keys[0], state);
    w.number(o, keys[1], l.bytes_done, Form::Bytes);
    w.number(o, keys[2], l.bytes_est, Form::Bytes);
    w.number(o, keys[3], l.action_time, Form::Date);
    w.number(o, keys[4], l.errors, Form::Count);
}

fn dedup(w: &Writer<'_>, d: &DdtSummary) -> Object {
    let mut o = Object::new();
    w.number(&mut o, "obj_count", d.count, Form::Count);
    if d.count == 0 {
        o.object("ddt_object_stats", Object::new());
        return o;
    }
    let cached = d.cached.unwrap_or(0).min(d.mspace);
    w.numbers(&mut o, Form::Count, &[("dspace", d.dspace), ("mspace", d.mspace), ("cspace", cached)]);
    let mut stats = Object::new();
    let mut total = Object::new();
    if d.total.blocks == 0 {
        total.text("blocks", "0");
    } else {
        totals(w, &d.total, &mut total);
    }
    stats.object("total", total);
    let mut histogram = Object::new();
    for (power, t) in d.histogram.iter().filter(|h| h.1.blocks != 0) {
        let mut e = Object::new();
        totals(w, t, &mut e);
        histogram.object(power.to_string(), e);
    }
    if !histogram.is_empty() {
        stats.object("histogram", histogram);
    }
    o.object("ddt_stats", stats);
    o
}

fn totals(w: &Writer<'_>, t: &DdtTotals, o: &mut Object) {
    w.number(o, "blocks", t.blocks, Form::Count);
    w.numbers(
        o,
        Form::Bytes,
        &[("logical_size", t.lsize), ("physical_size", t.psize), ("deflated_size", t.dsize)],
    );
    w.number(o, "ref_blocks", t.ref_blocks, Form::Count);
    w.numbers(
        o,
        Form::Bytes,
        &[("ref_lsize", t.ref_lsize), ("ref_psize", t.ref_psize), ("ref_dsize", t.ref_dsize)],
    );
}
