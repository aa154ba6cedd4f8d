//! `zpool upgrade`.

use api::{Pool, PoolChange, PoolQuery};
use ondisk::feature::FEATURES;

use super::change::{enabled, failed};
use super::create::allowed;
use crate::cx::{Cx, Outcome, Stop};
use api::settings::pool::may_enable;
use console::getopt::{Found, Getopt, Opt};

/// The version with feature flags (`SPA_VERSION_FEATURES`).
const FLAGS: u64 = 5000;
/// The last version before it (`SPA_VERSION_BEFORE_FEATURES`).
const LAST: u64 = 28;

const VERSIONS: [&str; 28] = [
    "Initial ZFS version",
    "Ditto blocks (replicated metadata)",
    "Hot spares and double parity RAID-Z",
    "zpool history",
    "Compression using the gzip algorithm",
    "bootfs pool property",
    "Separate intent log devices",
    "Delegated administration",
    "refquota and refreservation properties",
    "Cache devices",
    "Improved scrub performance",
    "Snapshot properties",
    "snapused property",
    "passthrough-x aclinherit",
    "user/group space accounting",
    "stmf property support",
    "Triple-parity RAID-Z",
    "Snapshot user holds",
    "Log device removal",
    "Compression using zle (zero-length encoding)",
    "Deduplication",
    "Received properties",
    "Slim ZIL",
    "System attributes",
    "Improved scrub stats",
    "Improved snapshot deletion performance",
    "Improved snapshot creation performance",
    "Multiple vdev replacements",
];

/// `zpool upgrade [-v | [-V version] <-a | pool ...>]` (`zpool_do_upgrade`).
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut all, mut show, mut version) = (false, false, None);
    let mut g = Getopt::new(args, ":avV:", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('a'), _) => all = true,
            Found::Is(Opt::Short('v'), _) => show = true,
            Found::Is(_, arg) => match arg.parse::<u64>() {
                Ok(n) if (1..=LAST).contains(&n) || n == FLAGS => version = Some(n),
                _ => return Err(Stop::usage(format!("invalid version '{arg}'\n"))),
            },
            Found::Missing(c) => return Err(Stop::missing(c)),
            Found::Invalid(c) => return Err(Stop::invalid(c)),
        }
    }
    let names = g.operands();
    if version.is_some() && !all && names.is_empty() {
        return Err(Stop::usage("-V option is incompatible with other arguments\n"));
    }
    if show && (all || !names.is_empty()) {
        return Err(Stop::usage("-v option is incompatible with other arguments\n"));
    }
    if all && !names.is_empty() {
        return Err(Stop::usage("-a option should not be used along with a pool name\n"));
    }
    cx.out.put("This system supports ZFS pool feature flags.\n\n");
    if show {
        versions(cx);
        return Ok(0);
    }
    let (pools, bad) = super::pools(cx, &names, PoolQuery { props: true, ..PoolQuery::default() })?;
    let version = version.unwrap_or(FLAGS);
    let mut code = i32::from(bad);
    if names.is_empty() && !all {
        list(cx, &pools);
        return Ok(code);
    }
    let mut changed_any = false;
    for pool in &pools {
        match one(cx, pool, version, all)? {
            Some(changed) => changed_any |= changed,
            None => code = 1,
        }
    }
    if all && !changed_any && code == 0 {
        match version {
            FLAGS => cx.out.put(
                "All pools are already formatted using feature flags.\n\nEvery feature flags pool already has all supported and requested features enabled.\n",
            ),
            version => writeln!(cx.out, "All pools are already formatted with version {version} or higher."),
        }
    }
    Ok(code)
}

fn versions(cx: &mut Cx) {
    cx.out.put("The following features are supported:\n\nFEAT DESCRIPTION\n");
    writeln!(cx.out, "{}", "-".repeat(61));
    for f in FEATURES.iter().filter(|f| may_enable(f)) {
        let compatible = if f.readonly_compatible() { " (read-only compatible)" } else { "" };
        writeln!(cx.out, "{:<37}{compatible}\n     {}", f.name, f.description);
    }
    cx.out.put("\nThe following legacy versions are also supported:\n\nVER  DESCRIPTION\n");
    writeln!(cx.out, "---  {}", "-".repeat(56));
    for (number, text) in (1..).zip(VERSIONS) {
        writeln!(cx.out, " {number:<2}  {text}");
    }
    cx.out.put(
        "\nFor more information on a particular version, including supported releases,\nsee the ZFS Administration Guide.\n\n",
    );
}

/// Lists the pools that can be upgraded.
fn list(cx: &mut Cx, pools: &[Pool]) {
    let old: Vec<&Pool> = pools.iter().filter(|p| p.version < FLAGS).collect();
    if old.is_empty() {
        cx.out.put("All pools are formatted using feature flags.\n\n");
    } else {
        cx.out.put(
            "The following pools are formatted with legacy version numbers and can\nbe upgraded to use feature flags.  After \
             being upgraded, these pools\nwill no longer be accessible by software that does not support feature\nflags.\n\n\
             Note that setting a pool's 'compatibility' feature to 'legacy' will\ninhibit upgrades.\n\nVER  POOL\n---  ------------\n",
        );
        for p in &old {
            writeln!(cx.out, "{:2}   {}", p.version, p.name);
        }
        cx.out.put("\nUse 'zpool upgrade -v' for a list of available legacy versions.\n");
    }
    let mut first = true;
    for pool in pools.iter().filter(|p| p.version == FLAGS) {
        let missing: Vec<&str> =
            FEATURES.iter().filter(|f| may_enable(f) && !enabled(pool, f)).map(|f| f.name).collect();
        if missing.is_empty() {
            continue;
        }
        if std::mem::take(&mut first) {
            cx.out.put(
                "\nSome supported features are not enabled on the following pools. Once a\nfeature is enabled the pool may become \
                 incompatible with software\nthat does not support the feature. See zpool-features(7) for details.\n\n\
                 Note that the pool 'compatibility' feature can be used to inhibit\nfeature upgrades.\n\nPOOL  FEATURE\n---------------\n",
            );
        }
        writeln!(cx.out, "{}", pool.name);
        for name in missing {
            writeln!(cx.out, "      {name}");
        }
    }
    if first {
        cx.out.put("Every feature flags pool has all supported and requested features enabled.\n");
    } else {
        cx.out.put("\n");
    }
}

/// Upgrades one pool; returns whether that changed it (`upgrade_one`).
///
/// After a failure, which is reported, the result is `None`.
fn one(cx: &mut Cx, pool: &Pool, version: u64, all: bool) -> Result<Option<bool>, Stop> {
    let name = &pool.name;
    if !all && name == "log" {
        cx.err.put(
            "'log' is now a reserved word\nPool 'log' must be renamed using export and import to upgrade.\n",
        );
        return Ok(None);
    }
    if !all && pool.version > version {
        writeln!(
            cx.out,
            "Pool '{name}' is already formatted using more current version '{}'.\n",
            pool.version
        );
        return Ok(Some(false));
    }
    if !all && version != FLAGS && pool.version == version {
        writeln!(cx.out, "Pool '{name}' is already formatted using version {version}.\n");
        return Ok(Some(false));
    }
    let compatibility = pool.prop("compatibility").map_or("", |p| p.value(true)).to_owned();
    let mut changed = false;
    if pool.version < version {
        if compatibility == "legacy" {
            cx.err.put("Upgrade not performed because 'compatibility' property set to 'legacy'.\n");
            return Ok(None);
        }
        if let Err(e) = cx.service()?.change_pool(name, &PoolChange::Upgrade { version }) {
            failed(cx, &format!("cannot set property for '{name}'"), &e)?;
            return Ok(None);
        }
        let to = if version == FLAGS { "feature flags".to_owned() } else { format!("version {version}") };
        writeln!(cx.out, "Successfully upgraded '{name}' from version {} to {to}.", pool.version);
        changed = true;
    }
    if version == FLAGS {
        let Ok(set) = allowed(cx, &compatibility) else { return Ok(None) };
        let missing: Vec<&str> = FEATURES
            .iter()
            .filter(|f| may_enable(f) && !enabled(pool, f) && set.has(f))
            .map(|f| f.name)
            .collect();
        if !missing.is_empty() {
            let props = missing.iter().map(|f| (format!("feature@{f}"), "enabled".to_owned())).collect();
            if let Err(e) = cx.service()?.change_pool(name, &PoolChange::Set { props }) {
                failed(cx, &format!("cannot set property for '{name}'"), &e)?;
                return Ok(None);
            }
            writeln!(cx.out, "Enabled the following features on '{name}':");
            for feature in &missing {
                writeln!(cx.out, "  {feature}");
            }
            changed = true;
        } else if !all && pool.version == FLAGS {
            writeln!(cx.out, "Pool '{name}' already has all supported and requested features enabled.");
        }
    }
    if changed {
        cx.out.put("\n");
        cx.changed(name);
    }
    Ok(Some(changed))
}
