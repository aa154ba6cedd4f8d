//! A pool's properties and features.

use std::collections::BTreeMap;

use dsl::prop::text::{nicebytes, nicenum, ratio};
use ondisk::feature::FEATURES;
use pool::metaslab::Class;
use pool::{ZapValue, string_of};
use spa::Spa;

use crate::view::vdevs::VdevFacts;
use api::{DdtSummary, Pool, Prop, Source, StatusReason};

/// The properties of an imported pool that are not on disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolFacts {
    /// The property `altroot`.
    pub altroot: Option<String>,
    /// The property `cachefile`, if it was set.
    pub cachefile: Option<String>,
    /// A random number of this import (`load_guid`).
    pub load_guid: u64,
    /// Whether the pool is read-only.
    pub readonly: bool,
}

/// The space of a pool: total and allocated bytes, and fragmentation in per cent. Log devices don't
/// count.
pub fn space(tree: &VdevFacts<'_>) -> (u64, u64, Option<u64>) {
    let (mut size, mut alloc) = (0u64, 0u64);
    let (mut weighted, mut normal) = (Some(0u128), 0u128);
    for (top, space, _) in tree.tops.values().filter(|t| t.0.class != Class::Log) {
        size = size.saturating_add(space.space);
        alloc = alloc.saturating_add(space.alloc);
        if top.class == Class::Normal {
            normal += u128::from(space.space);
            weighted =
                weighted.zip(space.fragmentation).map(|(w, f)| w + u128::from(f) * u128::from(space.space));
        }
    }
    let fragmentation = weighted.and_then(|w| w.checked_div(normal)).and_then(|f| u64::try_from(f).ok());
    (size, alloc, fragmentation)
}

/// The properties in a pool's ZAP.
struct Stored(BTreeMap<String, ZapValue>);

impl Stored {
    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(ZapValue::first)
    }

    /// An enumerated property. It has its default if nothing or an unknown value is stored.
    fn word(&self, name: &str, words: &[&str], default: u64) -> Prop {
        let n = self.number(name).unwrap_or(default);
        let known = usize::try_from(n).ok().and_then(|i| words.get(i));
        let source = if n == default { Source::Default } else { Source::Local };
        let mut p = Prop::new(name, known.map_or_else(|| n.to_string(), |w| (*w).to_owned()), source);
        p.number = Some(n);
        p
    }
}

fn fact(name: &str, text: String, n: u64) -> Prop {
    Prop::number(name, text, n, Source::None)
}

fn count(name: &str, n: u64) -> Prop {
    fact(name, nicenum(n), n)
}

fn percent(name: &str, n: Option<u64>) -> Prop {
    match n {
        Some(n) => fact(name, format!("{n}%"), n),
        None => Prop::new(name, "-", Source::None),
    }
}

/// A ratio of `n` per cent.
fn ratio_of(name: &str, n: u64) -> Prop {
    Prop { exact: Some(ratio(n, true)), ..fact(name, ratio(n, false), n) }
}

/// A size, or a dash for 0.
fn or_dash(name: &str, n: u64) -> Prop {
    if n == 0 { Prop::new(name, "-", Source::None) } else { fact(name, nicebytes(n), n) }
}

/// A text that is set on the pool, or its default.
fn kept(name: &str, text: &Option<String>, default: &str) -> Prop {
    match text {
        Some(text) => Prop::new(name, text, Source::Local),
        None => Prop::new(name, default, Source::Default),
    }
}

/// The properties of a pool, in OpenZFS's order: native, the user's, features, unsupported features
/// (`spa_prop_get`).
///
/// # Errors
/// * [`pool::Error`]: the pool's properties, block references or directories can't be read.
pub fn properties(
    spa: &Spa,
    pool: &Pool,
    tree: &VdevFacts<'_>,
    ddt: &DdtSummary,
    facts: &PoolFacts,
) -> pool::Result<Vec<Prop>> {
    const ON_OFF: [&str; 2] = ["off", "on"];
    let mos = spa.mos();
    let stored = Stored(mos.pool_props()?);
    let (size, alloc, fragmentation) = space(tree);
    // These two are in the config, and so in the labels.
    let config = spa.config();
    let capacity = (u128::from(alloc) * 100).checked_div(u128::from(size)).unwrap_or(0);
    let (saved, used) = clones(spa, tree)?;
    let dedup =
        (u128::from(ddt.total.ref_dsize) * 100).checked_div(u128::from(ddt.total.dsize)).unwrap_or(100);
    let cloned = (u128::from(used + saved) * 100).checked_div(u128::from(used)).unwrap_or(100);
    let narrow = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
    let mut out = vec![
        count("size", size),
        percent("capacity", Some(narrow(capacity))),
        kept("altroot", &facts.altroot, "-"),
        Prop::new("health", health(pool), Source::None),
        fact("guid", pool.guid.to_string(), pool.guid),
        version(pool.version),
        bootfs(spa, &stored),
        stored.word("delegation", &ON_OFF, 1),
        stored.word("autoreplace", &ON_OFF, 0),
        kept("cachefile", &facts.cachefile, "-"),
        stored.word("failmode", &["wait", "continue", "panic"], 0),
        stored.word("listsnapshots", &ON_OFF, 0),
        stored.word("autoexpand", &ON_OFF, 0),
        ratio_of("dedupratio", narrow(dedup)),
        count("free", size.saturating_sub(alloc)),
        count("allocated", alloc),
        Prop::new("readonly", if facts.readonly { "on" } else { "off" }, Source::None),
        ashift(&stored),
        kept("comment", &config.comment, "-"),
        crate::view::vdev_props::grows(
            pool.root.children.iter().filter(|top| !top.is_log).map(|top| top.stat.esize).sum(),
        ),
        count("freeing", directory_used(spa, "$FREE")?),
        percent("fragmentation", fragmentation),
        count("leaked", directory_used(spa, "$LEAK")?),
        stored.word("multihost", &ON_OFF, 0),
        or_dash("checkpoint", pool.root.stat.checkpoint_space),
        fact("load_guid", facts.load_guid.to_string(), facts.load_guid),
        stored.word("autotrim", &ON_OFF, 0),
        kept("compatibility", &config.compatibility, "off"),
        count("bcloneused", used),
        count("bclonesaved", saved),
        ratio_of("bcloneratio", narrow(cloned)),
        count("dedup_table_size", ddt.dspace),
        dedup_quota(&stored),
    ];
    let scrubbed = mos.last_scrubbed_txg()?.unwrap_or(0);
    out.push(fact("last_scrubbed_txg", scrubbed.to_string(), scrubbed));
    for (name, value) in stored.0.iter().filter(|(name, _)| name.contains(':')) {
        if let Some(text) = string_of(value) {
            out.push(Prop::new(name, text, Source::Local));
        }
    }
    features(spa, &mut out);
    Ok(out)
}

/// The pool's state in one word (`zpool_get_state_str`).
pub fn health(pool: &Pool) -> &'static str {
    use StatusReason as S;
    use api::{VdevAux as A, VdevState as V};
    match (pool.status, pool.root.stat.state, pool.root.stat.aux) {
        (S::IoFailureWait | S::IoFailureContinue | S::IoFailureMmp, ..) => "SUSPENDED",
        (_, V::Closed | V::Offline, _) => "OFFLINE",
        (_, V::Removed, _) => "REMOVED",
        (_, V::CantOpen, A::CorruptData | A::BadLog) | (_, V::Faulted, _) => "FAULTED",
        (_, V::CantOpen, A::SplitPool) => "SPLIT",
        (_, V::CantOpen, _) => "UNAVAIL",
        (_, V::Degraded, _) => "DEGRADED",
        (_, V::Healthy, _) => "ONLINE",
        (_, V::Unknown, _) => "UNKNOWN",
    }
}

fn version(n: u64) -> Prop {
    if n >= 5000 {
        Prop::new("version", "-", Source::Default)
    } else {
        Prop::number("version", n.to_string(), n, Source::Local)
    }
}

/// The property stores the object of a dataset, and shows its name.
fn bootfs(spa: &Spa, stored: &Stored) -> Prop {
    let object = stored.number("bootfs").filter(|n| *n != 0);
    let name = object.map(|n| dataset_name(spa, n).unwrap_or_else(|| format!("<0x{n:x}>")));
    match name {
        Some(name) => Prop::new("bootfs", name, Source::Local),
        None => Prop::new("bootfs", "-", Source::Default),
    }
}

/// The name of a dataset by its object, if it can be found.
pub fn dataset_name(spa: &Spa, object: u64) -> Option<String> {
    let options = dsl::Options { pool_name: spa.name().to_owned(), space: spa.space().ok()?, altroot: None };
    let dsl = dsl::Dsl::open(spa.mos().clone(), options).ok()?;
    dsl.by_object(ondisk::ObjNum(object)).ok().map(|d| d.name())
}

fn ashift(stored: &Stored) -> Prop {
    let n = stored.number("ashift").unwrap_or(0);
    Prop::number("ashift", n.to_string(), n, if n == 0 { Source::Default } else { Source::Local })
}

fn dedup_quota(stored: &Stored) -> Prop {
    const NAME: &str = "dedup_table_quota";
    match stored.number(NAME) {
        None | Some(u64::MAX) => Prop::new(NAME, "auto", Source::Default),
        Some(0) => Prop::number(NAME, "none", 0, Source::Local),
        Some(n) => Prop::number(NAME, nicenum(n), n, Source::Local),
    }
}

/// The bytes saved by block cloning, and the bytes of cloned blocks.
fn clones(spa: &Spa, tree: &VdevFacts<'_>) -> pool::Result<(u64, u64)> {
    let top = tree.tops.keys().max().map_or(0, |id| id + 1);
    let brt = spa.mos().brt(u32::try_from(top).unwrap_or(u32::MAX))?;
    Ok((pool::brt::saved(&brt), pool::brt::used(&brt)))
}

/// The bytes of an internal directory of the pool; 0 if there is none.
fn directory_used(spa: &Spa, name: &str) -> pool::Result<u64> {
    let options = dsl::Options { pool_name: spa.name().to_owned(), space: spa.space()?, altroot: None };
    let found = dsl::Dsl::open(spa.mos().clone(), options).and_then(|dsl| {
        let root = dsl.root()?;
        Ok(root.child(name)?.map_or(0, |d| d.phys().used_bytes))
    });
    Ok(found.unwrap_or(0))
}

fn features(spa: &Spa, out: &mut Vec<Prop>) {
    let have = spa.features();
    for f in FEATURES {
        let state = match have.refcount(f.guid) {
            None => "disabled",
            Some(0) => "enabled",
            Some(_) => "active",
        };
        out.push(Prop::new(format!("feature@{}", f.name), state, Source::Local));
    }
    let unknown =
        have.for_read.iter().chain(&have.for_write).filter(|(g, _)| FEATURES.iter().all(|f| f.guid != *g));
    for (guid, refs) in unknown {
        let state = if *refs == 0 { "inactive" } else { "readonly" };
        out.push(Prop::new(format!("unsupported@{guid}"), state, Source::Local));
    }
}
