//! `zdb -C`: the pool's configuration.

use super::{Ctx, Run, Stop, text};
use ondisk::Nvlist;
use pool::Mos;

/// Where OpenZFS keeps the pools that it imports at start (`ZPOOL_CACHE`).
pub const ZPOOL_CACHE: &str = "/etc/zfs/zpool.cache";

/// The cache file's path.
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
            let text = e.to_string();
            let why = text.split(" (os error").next().unwrap_or(&text).to_owned();
            writeln!(cx.out, "cannot open '{path}': {why}");
            return Err(Stop::Exit(1));
        }
    };
    text::nvlist(cx.out, &Nvlist::decode(&raw)?, 0);
    Ok(0)
}

/// Shows the configuration that the MOS holds (`dump_config`).
pub fn of_mos(cx: &mut Ctx<'_>, mos: &Mos) -> Run {
    let config = mos.config()?;
    cx.out.put("\nMOS Configuration:\n");
    text::nvlist(cx.out, &config, 8);
    Ok(())
}
