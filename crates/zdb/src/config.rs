//! `zdb -C`: the configuration of pools.

use super::ctx::{Ctx, Run, Stop};
use super::text;
use console::words;
use ondisk::config::ConfigFor;
use ondisk::{Nvlist, PoolConfig, Txg, Value};
use pool::Mos;

/// The default path of the cache file (`ZPOOL_CACHE`).
pub const ZPOOL_CACHE: &str = "/etc/zfs/zpool.cache";

/// The path of the cache file: `-U`, else `SPA_CONFIG_PATH`, else [`ZPOOL_CACHE`].
pub fn cachefile_path(cx: &Ctx<'_>) -> String {
    let by_env = || std::env::var("SPA_CONFIG_PATH").ok();
    cx.opts.cachefile.clone().or_else(by_env).unwrap_or_else(|| ZPOOL_CACHE.into())
}

/// Shows the cache file (`dump_cachefile`).
pub fn cachefile(cx: &mut Ctx<'_>) -> Run<i32> {
    let path = cachefile_path(cx);
    let raw = match std::fs::read(&path) {
        Ok(raw) => raw,
        Err(e) => {
            writeln!(cx.out, "cannot open '{path}': {}", words::io(&e));
            return Err(Stop::Exit(1));
        }
    };
    text::nvlist(cx.out, &Nvlist::decode(&raw)?, 0);
    Ok(0)
}

/// Shows the configuration for an import, made from the labels (`zpool_find_config`).
pub fn for_import(cx: &mut Ctx<'_>, found: &PoolConfig, txg: Option<Txg>) {
    /// The rewind policies `ZPOOL_NEVER_REWIND`, `ZPOOL_DO_REWIND` and `ZPOOL_EXTREME_REWIND`.
    const NEVER: u32 = 2;
    const DO: u32 = 8;
    const EXTREME: u32 = 16;
    let number = |n: u64| Value::Uint64(n);
    let guid = found.pool_guid.map_or(0, |guid| guid.0);
    let tops = found.vdev_tree.as_ref().map_or(&[][..], |root| &root.children);
    let text = |text: &Option<String>| text.clone().map(|text| Value::String(text.into_bytes()));
    let hostid = found.hostid.filter(|id| *id != 0);
    let mut config = Nvlist::new();
    config.set("vdev_children", number(tops.len() as u64));
    config.set("version", number(found.version));
    config.set("pool_guid", number(guid));
    for (name, value) in [
        ("name", text(&found.name)),
        ("comment", text(&found.comment)),
        ("compatibility", text(&found.compatibility)),
        ("state", Some(number(found.state as u64))),
        ("hostid", hostid.map(number)),
        ("hostname", hostid.and_then(|_| text(&found.hostname))),
    ] {
        if let Some(value) = value {
            config.set(name, value);
        }
    }
    let children = tops.iter().map(|top| paths_last(top.to_nvlist(ConfigFor::Label, true))).collect();
    let mut root = Nvlist::new();
    root.set("type", Value::String(b"root".to_vec()));
    root.set("id", number(0));
    root.set("guid", number(guid));
    root.set("children", Value::ListArray(children));
    config.set("vdev_tree", Value::List(root));
    let rewind = match (cx.opts.has('X'), cx.opts.has('F')) {
        (true, _) => DO | EXTREME,
        (false, true) => DO,
        (false, false) => NEVER,
    };
    let mut policy = Nvlist::new();
    policy.set("load-request-txg", number(txg.map_or(u64::MAX, |txg| txg.0)));
    policy.set("load-rewind-policy", Value::Uint32(rewind));
    config.set("load-policy", Value::List(policy));
    cx.out.put("\nConfiguration for import:\n");
    text::nvlist(cx.out, &config, 8);
}

/// Moves the path of each device to the end of its list, where the search for devices puts it.
fn paths_last(mut vdev: Nvlist) -> Nvlist {
    if let Some(path) = vdev.get("path").cloned() {
        vdev.remove("path");
        vdev.set("path", path);
    }
    if let Some(children) = vdev.lists("children").map(<[_]>::to_vec) {
        vdev.set("children", Value::ListArray(children.into_iter().map(paths_last).collect()));
    }
    vdev
}

/// Shows the configuration in the MOS (`dump_config`).
pub fn of_mos(cx: &mut Ctx<'_>, mos: &Mos) -> Run {
    let config = mos.config()?;
    cx.out.put("\nMOS Configuration:\n");
    text::nvlist(cx.out, &config, 8);
    Ok(())
}
