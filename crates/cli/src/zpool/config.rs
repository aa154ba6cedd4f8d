//! The configuration tree of `zpool status` and `zpool import`.

use api::{Pool, RebuildStat, RebuildState, ScanFunc, ScanState, Vdev, VdevAux, VdevState, WorkState};

use super::info::state_name;
use super::list::{CLASSES, class};
use crate::cx::{Color, Cx};
use crate::vdev_name::{NameFlags, vdev_name};
use console::numbers;

/// The options of the tree (`status_cbdata_t`).
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    /// The form of vdev names.
    pub flags: NameFlags,
    /// The width of the column of names.
    pub width: usize,
    /// Whether numbers are exact (`-p`).
    pub exact: bool,
    /// Whether only unhealthy vdevs are shown (`-e`).
    pub unhealthy: bool,
    /// Whether there is a column of slow I/Os (`-s`).
    pub slow: bool,
    /// Whether there is a column of direct writes that failed verification (`-d`).
    pub dio: bool,
    /// Whether there is a column of power states (`--power`).
    pub power: bool,
    /// Whether initialization is shown (`-i`).
    pub init: bool,
    /// Whether TRIM is shown (`-t`).
    pub trim: bool,
}

/// The colour of a state (`health_str_to_color`).
pub fn color(health: &str) -> Option<Color> {
    match health {
        "FAULTED" | "SUSPENDED" | "UNAVAIL" => Some(Color::Red),
        "OFFLINE" | "DEGRADED" | "REMOVED" => Some(Color::Yellow),
        _ => None,
    }
}

/// Whether all leaves of a vdev are online without errors, and with `slow` also without slow I/Os.
pub fn healthy(v: &Vdev, slow: bool) -> bool {
    if v.children.is_empty() {
        let s = &v.stat;
        return s.checksum_errors == 0
            && s.read_errors == 0
            && s.write_errors == 0
            && s.state == VdevState::Healthy
            && !(slow && s.slow_ios != 0);
    }
    v.children.iter().all(|c| healthy(c, slow))
}

/// Shows the table of `zpool status`, without its header.
pub fn status(cx: &mut Cx, pool: &Pool, look: &Look) {
    vdev(cx, pool, &pool.root, &pool.name, look, 0, false, None);
    for name in CLASSES {
        let mut printed = false;
        for v in
            pool.root.children.iter().filter(|v| class(v) == Some(name) && (v.is_log || v.kind != "indirect"))
        {
            if !printed {
                writeln!(cx.out, "\t{name}\t");
                printed = true;
            }
            let title = vdev_name(Some(&pool.name), v, look.flags.with_id());
            vdev(cx, pool, v, &title, look, 2, false, None);
        }
    }
    for (title, list, spare) in [("cache", &pool.l2cache, false), ("spares", &pool.spares, true)] {
        if !list.is_empty() {
            writeln!(cx.out, "\t{title}");
        }
        for v in list {
            let title = vdev_name(Some(&pool.name), v, look.flags);
            vdev(cx, pool, v, &title, look, 2, spare, None);
        }
    }
}

/// Shows what is wrong with a vdev: it is missing, failed, or has another block size.
fn fault(cx: &mut Cx, v: &Vdev, spare: bool) {
    let s = &v.stat;
    if v.not_present {
        write!(cx.out, "  was {}", v.path.as_deref().unwrap_or_default());
    } else if s.aux != VdevAux::None {
        cx.out.put("  ");
        let text = aux_text(v);
        cx.colored(Some(Color::Red), &text);
    } else if v.children.is_empty()
        && !spare
        && (cx.env)("ZPOOL_STATUS_NON_NATIVE_ASHIFT_IGNORE").is_none()
        && s.configured_ashift < s.physical_ashift
        && s.physical_ashift < 64
    {
        write!(
            cx.out,
            "  block size: {}B configured, {}B native",
            1u64 << s.configured_ashift,
            1u64 << s.physical_ashift
        );
    }
}

/// Shows what happens to a vdev now: removal, scrub, resilver.
fn activity(cx: &mut Cx, v: &Vdev, pool: &Pool, rebuild: Option<&RebuildStat>) {
    let s = &v.stat;
    if s.removing {
        cx.out.put("  (removing)");
    } else if s.noalloc {
        cx.out.put("  (non-allocating)");
    }
    let leaf = v.children.is_empty() && s.state == VdevState::Healthy;
    if let Some(scan) = pool.scan.as_ref().filter(|p| leaf && p.state == ScanState::Scanning) {
        if s.scan_processed != 0 {
            cx.out.put(if scan.func == ScanFunc::Resilver { "  (resilvering)" } else { "  (repairing)" });
        } else if s.resilver_deferred {
            cx.out.put("  (awaiting resilver)");
        }
    }
    if leaf && rebuild.is_some_and(|r| r.state == RebuildState::Active && r.bytes_rebuilt != 0) {
        cx.out.put("  (resilvering)");
    }
}

/// Shows the row of a vdev, and those of its children (`print_status_config`).
#[allow(clippy::too_many_arguments, reason = "one recursion, whose arguments all vary")]
fn vdev(
    cx: &mut Cx,
    pool: &Pool,
    v: &Vdev,
    name: &str,
    look: &Look,
    depth: usize,
    spare: bool,
    rebuild: Option<&RebuildStat>,
) {
    if v.kind == "indirect" || (look.unhealthy && depth > 0 && healthy(v, look.slow)) {
        return;
    }
    let s = &v.stat;
    let state = match (spare, s.state) {
        (true, _) if s.aux == VdevAux::Spared => "INUSE",
        (true, VdevState::Healthy) => "AVAIL",
        _ => state_name(s.state, s.aux),
    };
    let width = look.width.saturating_sub(depth);
    let name = cx.out.cell(name);
    cx.colored(color(state), &format!("\t{:depth$}{name:<width$}  {state:<8}", ""));
    if !spare {
        counters(cx, v, look);
    }
    fault(cx, v, spare);
    activity(cx, v, pool, rebuild);
    if let Some(answers) = cx.scripts.clone() {
        answers.row(cx, v, false);
    }
    if v.children.is_empty() {
        initialized(cx, v, look.init);
        trimmed(cx, v, look.trim);
    }
    cx.out.put("\n");
    for c in &v.children {
        if c.is_log || c.is_hole || c.alloc_bias.is_some() {
            continue;
        }
        let title = vdev_name(Some(&pool.name), c, look.flags.with_id());
        vdev(cx, pool, c, &title, look, depth + 2, spare, rebuild.or(v.rebuild.as_ref()));
    }
}

fn counters(cx: &mut Cx, v: &Vdev, look: &Look) {
    let s = &v.stat;
    let text = |n: u64| if look.exact { n.to_string() } else { numbers::num_cut(n, 5) };
    for n in [s.read_errors, s.write_errors, s.checksum_errors] {
        cx.out.put(" ");
        cx.colored((n != 0).then_some(Color::Red), &format!("{:>5}", text(n)));
    }
    if look.slow {
        let n = if v.children.is_empty() || look.exact { text(s.slow_ios) } else { "-".into() };
        cx.colored((s.slow_ios != 0).then_some(Color::Blue), &format!(" {n:>5}"));
    }
    if look.power {
        write!(cx.out, " {:>5}", "-");
    }
    if look.dio {
        write!(cx.out, " {:>5}", text(s.dio_verify_errors));
    }
}

/// The text after a vdev of an imported pool that has a problem.
fn aux_text(v: &Vdev) -> String {
    let s = &v.stat;
    if let (VdevAux::Spared, Some(pool)) = (s.aux, &v.spared_by) {
        return format!("in use by pool '{pool}'");
    }
    let text = match s.aux {
        VdevAux::Spared => "currently in use",
        VdevAux::ErrExceeded
            if s.read_errors + s.write_errors + s.checksum_errors == 0
                && v.children.is_empty()
                && s.slow_ios > 0 =>
        {
            "too many slow I/Os"
        }
        VdevAux::AshiftTooBig => "unsupported minimum blocksize",
        VdevAux::IoFailure => "experienced I/O failures",
        VdevAux::BadLog => "bad intent log",
        VdevAux::External => "external device fault",
        VdevAux::SplitPool => "split into new pool",
        aux => import_aux_text(aux),
    };
    text.to_owned()
}

/// The text after a vdev of an importable pool that has a problem.
fn import_aux_text(aux: VdevAux) -> &'static str {
    match aux {
        VdevAux::OpenFailed => "cannot open",
        VdevAux::BadGuidSum => "missing device",
        VdevAux::NoReplicas => "insufficient replicas",
        VdevAux::VersionNewer => "newer version",
        VdevAux::UnsupFeat => "unsupported feature(s)",
        VdevAux::ErrExceeded => "too many errors",
        VdevAux::Active => "currently in use",
        VdevAux::ChildrenOffline => "all children offline",
        VdevAux::BadLabel => "invalid label",
        _ => "corrupted data",
    }
}

fn initialized(cx: &mut Cx, v: &Vdev, verbose: bool) {
    match (verbose, done(cx, v, &v.stat.initialize)) {
        (true, Some((percent, when))) => write!(cx.out, "  ({percent}% initialized{when})"),
        (true, None) => cx.out.put("  (uninitialized)"),
        (false, _) if v.stat.initialize.state == WorkState::Active => cx.out.put("  (initializing)"),
        (false, _) => {}
    }
}

fn trimmed(cx: &mut Cx, v: &Vdev, verbose: bool) {
    match (verbose, done(cx, v, &v.stat.trim)) {
        (true, Some((percent, when))) => write!(cx.out, "  ({percent}% trimmed{when})"),
        (true, None) if v.stat.trim_notsup => cx.out.put("  (trim unsupported)"),
        (true, None) => cx.out.put("  (untrimmed)"),
        (false, _) if v.stat.trim.state == WorkState::Active => cx.out.put("  (trimming)"),
        (false, _) => {}
    }
}

/// The progress of a leaf's initialization or TRIM in percent, and its time.
///
/// `None` if the work never began or was cancelled, or if the device is being removed.
fn done(cx: &Cx, v: &Vdev, w: &api::LeafWork) -> Option<(u64, String)> {
    let text = match w.state {
        WorkState::Suspended => "suspended, started at",
        WorkState::Active => "started at",
        WorkState::Complete => "completed at",
        WorkState::None | WorkState::Canceled => return None,
    };
    if v.stat.removing {
        return None;
    }
    let share = u128::from(w.bytes_done) * 100 / (u128::from(w.bytes_est) + 1);
    let percent = if w.state == WorkState::Complete { 100 } else { u64::try_from(share).unwrap_or(u64::MAX) };
    Some((percent, format!(", {text} {}", cx.clock.ctime(w.action_time))))
}

/// Shows the tree of an importable pool (`print_import_config`).
pub fn candidate(cx: &mut Cx, pool: &Pool, width: usize) {
    import_vdev(cx, &pool.root, &pool.name, width, 0);
    for (title, list) in [("cache", &pool.l2cache), ("spares", &pool.spares)] {
        if !list.is_empty() {
            writeln!(cx.out, "\t{title}");
        }
        for v in list {
            writeln!(cx.out, "\t  {}", vdev_name(None, v, NameFlags::default()));
        }
    }
    for name in CLASSES {
        let mut printed = false;
        for v in
            pool.root.children.iter().filter(|v| class(v) == Some(name) && (v.is_log || v.kind != "indirect"))
        {
            if !printed {
                writeln!(cx.out, "\t{name}\t");
                printed = true;
            }
            let title = vdev_name(None, v, NameFlags::default().with_id());
            import_vdev(cx, v, &title, width, 2);
        }
    }
}

fn import_vdev(cx: &mut Cx, v: &Vdev, name: &str, width: usize, depth: usize) {
    if v.kind == "missing" || v.kind == "hole" {
        return;
    }
    let s = &v.stat;
    let room = width.saturating_sub(depth);
    write!(cx.out, "\t{:depth$}{name:<room$}  {}", "", state_name(s.state, s.aux));
    if s.aux != VdevAux::None {
        write!(cx.out, "  {}", import_aux_text(s.aux));
    }
    cx.out.put("\n");
    for c in v.children.iter().filter(|c| !c.is_log && c.alloc_bias.is_none()) {
        let title = vdev_name(None, c, NameFlags::default().with_id());
        import_vdev(cx, c, &title, width, depth + 2);
    }
}

/// Shows a list of missing devices, indented (`print_vdev_tree`).
pub fn missing(cx: &mut Cx, list: &[Vdev], indent: usize) {
    for v in list {
        let name = vdev_name(None, v, NameFlags::default().with_id());
        writeln!(cx.out, "\t{:indent$}{name}", "");
        missing(cx, &v.children, indent + 2);
    }
}
