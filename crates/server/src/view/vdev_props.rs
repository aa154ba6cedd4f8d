//! Properties of vdevs.

use dsl::prop::text::nicenum;
use ondisk::{ObjNum, VdevConfig};
use pool::{ZapValue, string_of};
use spa::Spa;

use crate::view::vdevs::LABELS;
use api::{Pool, Prop, Source, Vdev};

/// Fills in the properties of each vdev of the tree, in the order of `vdev_prop_t`, user properties
/// last.
///
/// # Errors
/// * [`pool::Error`]: the ZAP of a vdev can't be read.
pub fn fill(spa: &Spa, pool: &mut Pool) -> pool::Result<()> {
    let Some(config) = &spa.config().vdev_tree else { return Ok(()) };
    let name = pool.name.clone();
    one(spa, &mut pool.root, config, None, &name)
}

fn one(spa: &Spa, v: &mut Vdev, config: &VdevConfig, parent: Option<&str>, pool: &str) -> pool::Result<()> {
    v.props = list(spa, v, config, parent, pool)?;
    let own = kernel_name(v, pool);
    for (child, config) in v.children.iter_mut().zip(&config.children) {
        one(spa, child, config, Some(&own), pool)?;
    }
    Ok(())
}

/// The kernel module's name of a vdev: its path, or its kind and number without the parity
/// (`vdev_name`).
fn kernel_name(v: &Vdev, pool: &str) -> String {
    match (&v.path, v.kind.as_str()) {
        (_, "root") => pool.to_owned(),
        (Some(path), _) => path.clone(),
        (None, kind) => format!("{kind}-{}", v.id),
    }
}

fn count(name: &str, n: u64) -> Prop {
    Prop::number(name, nicenum(n), n, Source::None)
}

fn plain(name: &str, n: u64) -> Prop {
    Prop::number(name, n.to_string(), n, Source::None)
}

fn text(name: &str, value: Option<&str>) -> Prop {
    match value {
        Some(value) => Prop::new(name, value, Source::None),
        None => Prop::new(name, "-", Source::Default),
    }
}

fn on_off(name: &str, on: bool) -> Prop {
    Prop::new(name, if on { "on" } else { "off" }, Source::None)
}

fn list(
    spa: &Spa,
    v: &Vdev,
    config: &VdevConfig,
    parent: Option<&str>,
    pool: &str,
) -> pool::Result<Vec<Prop>> {
    // A vdev without a ZAP has no properties, not even those that are stored elsewhere.
    let Some(zap) = config.root_zap.or(config.top_zap).or(config.leaf_zap) else {
        return Ok(Vec::new());
    };
    let mut out = space_of(v, config, parent.is_some());
    out.push(stored_text(spa, zap, "comment")?);
    out.extend(described(v, parent, pool));
    out.extend(counted(v));
    out.extend(settings(spa, v, config, zap, (parent, pool))?);
    for e in spa.mos().entries(zap)? {
        let e = e?;
        let name = e.name_lossy();
        if let Some(value) = string_of(&e.value).filter(|_| name.contains(':')) {
            out.push(Prop::new(name, value, Source::Local));
        }
    }
    Ok(out)
}

/// The state and the space of a vdev. `inner` says that it is not the root.
fn space_of(v: &Vdev, config: &VdevConfig, inner: bool) -> Vec<Prop> {
    let s = &v.stat;
    let leaf = v.children.is_empty() && inner;
    let asize = if leaf { s.pspace.saturating_sub(LABELS) } else { config.asize.unwrap_or(0) };
    let capacity = u128::from(s.alloc) * 100 / u128::from(s.dspace.max(1));
    let capacity = u64::try_from(capacity).unwrap_or(u64::MAX);
    let mut state = Prop::new("state", state_word(s.state as u64), Source::None);
    (state.exact, state.number) = (Some((s.state as u64).to_string()), Some(s.state as u64));
    vec![
        Prop::number("capacity", format!("{capacity}%"), capacity, Source::None),
        state,
        plain("guid", v.guid),
        count("asize", asize),
        count("psize", if leaf { s.pspace } else { 0 }),
        plain("ashift", if inner { s.configured_ashift } else { 0 }),
        count("size", s.dspace),
        count("free", s.dspace.saturating_sub(s.alloc)),
        count("allocated", s.alloc),
    ]
}

/// What a vdev is, and its place in the tree.
fn described(v: &Vdev, parent: Option<&str>, pool: &str) -> Vec<Prop> {
    let names: Vec<String> = v.children.iter().map(|c| kernel_name(c, pool)).collect();
    // A percentage that is not known has no exact text.
    let fragmentation = Prop { exact: None, ..Prop::number("fragmentation", "0%", 0, Source::None) };
    vec![
        grows(v.stat.esize),
        fragmentation,
        Prop::number("bootsize", "0", 0, Source::Default),
        plain("parity", if v.kind == "raidz" || v.kind == "draid" { v.nparity } else { 0 }),
        text("path", v.path.as_deref()),
        text("devid", v.devid.as_deref()),
        text("physpath", v.phys_path.as_deref()),
        text("encpath", v.enc_path.as_deref()),
        text("fru", v.fru.as_deref()),
        text("parent", parent),
        text("children", (!names.is_empty()).then(|| names.join(",")).as_deref()),
        plain("numchildren", names.len() as u64),
    ]
}

/// The counters of a vdev: errors, operations, bytes.
fn counted(v: &Vdev) -> Vec<Prop> {
    let s = &v.stat;
    let mut out = vec![
        count("read_errors", s.read_errors),
        count("write_errors", s.write_errors),
        count("checksum_errors", s.checksum_errors),
        count("initialize_errors", s.initialize_errors),
    ];
    let kinds = ["null", "read", "write", "free", "claim", "trim"];
    out.extend(kinds.iter().zip(s.ops).map(|(k, n)| count(&format!("{k}_ops"), n)));
    out.extend(kinds.iter().zip(s.bytes).map(|(k, n)| count(&format!("{k}_bytes"), n)));
    out
}

/// What is stored for a vdev, and what stands among it in OpenZFS's order.
fn settings(
    spa: &Spa,
    v: &Vdev,
    config: &VdevConfig,
    zap: ObjNum,
    (parent, pool): (Option<&str>, &str),
) -> pool::Result<Vec<Prop>> {
    let s = &v.stat;
    let leaf = v.children.is_empty() && parent.is_some();
    let mut out = vec![on_off("removing", s.removing)];
    out.push(match parent {
        Some(name) if name != pool => Prop::new("allocating", "-", Source::None),
        _ => stored_flag(spa, zap, "allocating")?,
    });
    out.push(stored_flag(spa, zap, "failfast")?);
    for name in ["checksum_n", "checksum_t", "io_n", "io_t"] {
        out.push(stored_limit(spa, zap, name)?);
    }
    if v.kind == "raidz" {
        out.push(on_off("raidz_expanding", config.raidz_expanding));
    }
    for name in ["slow_io_n", "slow_io_t"] {
        out.push(stored_limit(spa, zap, name)?);
    }
    out.push(match leaf {
        true => on_off("trim_support", !s.trim_notsup),
        false => Prop::new("trim_support", "-", Source::None),
    });
    out.push(count("trim_errors", s.trim.errors));
    out.push(count("slow_ios", s.slow_ios));
    Ok(out)
}

/// The space by which a vdev or pool could grow.
pub(super) fn grows(by: u64) -> Prop {
    match by {
        0 => Prop::new("expandsize", "-", Source::None),
        by => Prop::number("expandsize", nicenum(by), by, Source::None),
    }
}

/// The word for a vdev's state, without the reason.
fn state_word(n: u64) -> &'static str {
    match n {
        1 | 2 => "OFFLINE",
        3 => "REMOVED",
        4 => "UNAVAIL",
        5 => "FAULTED",
        6 => "DEGRADED",
        7 => "ONLINE",
        _ => "UNKNOWN",
    }
}

fn stored(spa: &Spa, zap: ObjNum, name: &str) -> pool::Result<Option<ZapValue>> {
    spa.mos().value(zap, name)
}

fn stored_text(spa: &Spa, zap: ObjNum, name: &str) -> pool::Result<Prop> {
    Ok(match stored(spa, zap, name)?.as_ref().and_then(string_of) {
        Some(text) => Prop::new(name, text, Source::Local),
        None => Prop::new(name, "-", Source::Default),
    })
}

/// A flag that is on unless it was switched off.
fn stored_flag(spa: &Spa, zap: ObjNum, name: &str) -> pool::Result<Prop> {
    Ok(match stored(spa, zap, name)?.as_ref().and_then(ZapValue::first) {
        Some(0) => Prop::new(name, "off", Source::Local),
        _ => Prop::new(name, "on", Source::Default),
    })
}

fn stored_limit(spa: &Spa, zap: ObjNum, name: &str) -> pool::Result<Prop> {
    Ok(match stored(spa, zap, name)?.as_ref().and_then(ZapValue::first) {
        None | Some(u64::MAX) => Prop::new(name, "-", Source::Default),
        Some(n) => Prop::number(name, n.to_string(), n, Source::Local),
    })
}
