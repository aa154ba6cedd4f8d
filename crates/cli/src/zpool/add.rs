//! `zpool add`.

use api::{Pool, PoolChange, PoolQuery, Reason, Settings};

use super::device_life::not_ashift;
use super::devices::{self, Lenience};
use super::settings::{self, Of};
use crate::cx::{Cx, Outcome, Stop};
use crate::vdev_name::NameFlags;
use console::getopt::{Found, Getopt, Long, Opt};
use console::words;

const LONG: &[Long] = &[
    Long { name: "allow-in-use", val: Opt::Named("in-use"), arg: false },
    Long { name: "allow-replication-mismatch", val: Opt::Named("replication"), arg: false },
    Long { name: "allow-ashift-mismatch", val: Opt::Named("ashift"), arg: false },
];

/// The options and operands of `zpool add`.
struct Add {
    dry_run: bool,
    flags: NameFlags,
    let_pass: Lenience,
    any_ashift: bool,
    props: Settings,
    pool: String,
    vdevs: Vec<String>,
}

impl Add {
    fn read(cx: &mut Cx, args: &[String]) -> Result<Self, Stop> {
        let (mut force, mut dry_run, mut flags) = (false, false, NameFlags::default());
        let (mut let_pass, mut any_ashift) = (Lenience { in_use: false, replication: false }, false);
        let mut props = Settings::new();
        let mut g = Getopt::new(args, "fgLno:P", LONG);
        for found in g.by_ref() {
            match found {
                Found::Is(Opt::Short('f'), _) => force = true,
                Found::Is(Opt::Short('g'), _) => flags.guid = true,
                Found::Is(Opt::Short('L'), _) => flags.follow = true,
                Found::Is(Opt::Short('n'), _) => dry_run = true,
                Found::Is(Opt::Short('P'), _) => flags.path = true,
                Found::Is(Opt::Short(_), arg) => match arg.split_once('=') {
                    None => return Err(Stop::usage("missing '=' for -o option\n")),
                    Some(("ashift", value)) => settings::add(cx, &mut props, Of::Pool, "ashift", value)
                        .map_err(|_| Stop::usage(""))?,
                    Some((name, _)) => return Err(not_ashift(name)),
                },
                Found::Is(Opt::Named("in-use"), _) => let_pass.in_use = true,
                Found::Is(Opt::Named("replication"), _) => let_pass.replication = true,
                Found::Is(Opt::Named(_), _) => any_ashift = true,
                Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
            }
        }
        let operands = g.operands();
        let [pool, vdevs @ ..] = &operands[..] else {
            return Err(Stop::usage("missing pool name argument\n"));
        };
        if vdevs.is_empty() {
            return Err(Stop::usage("missing vdev specification\n"));
        }
        if force {
            if let_pass.in_use || let_pass.replication || any_ashift {
                return Err(Stop::usage(
                    "'-f' option is not allowed with '--allow-replication-mismatch', '--allow-ashift-mismatch', or '--allow-in-use'\n",
                ));
            }
            (let_pass, any_ashift) = (Lenience { in_use: true, replication: true }, true);
        }
        let (pool, vdevs) = (pool.clone(), vdevs.to_vec());
        Ok(Self { dry_run, flags, let_pass, any_ashift, props, pool, vdevs })
    }
}

/// `zpool add [-fgLnP] [-o property=value] <pool> <vdev> ...` (`zpool_do_add`).
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let options = Add::read(cx, args)?;
    let name = &options.pool;
    let pool = super::open(cx, name, PoolQuery { props: true, ..PoolQuery::default() })?;
    // Without the option, the pool's own setting applies.
    let own = pool.prop("ashift").filter(|p| p.source == api::Source::Local).map(|p| p.value(true));
    let ashift = devices::ashift(&options.props).or(own).map(str::to_owned);
    let layout = devices::read(cx, Some(&pool), &options.vdevs, ashift.as_deref(), options.let_pass)?;
    if options.dry_run {
        writeln!(cx.out, "would update '{name}' to the following configuration:\n");
        show(cx, &pool, &layout, options.flags);
        return Ok(0);
    }
    let change = PoolChange::Add {
        layout,
        ashift: ashift.and_then(|text| text.parse().ok()).filter(|n| *n != 0),
        check_ashift: !options.any_ashift,
        force: options.let_pass.in_use,
    };
    match cx.service()?.change_pool(name, &change) {
        Ok(()) => {
            cx.changed(name);
            Ok(0)
        }
        Err(e) => {
            let why = match &e.reason {
                Reason::DeviceTwice => "one or more vdevs refer to the same device".to_owned(),
                Reason::DeviceTooSmall => "device is less than the minimum size (64M)".to_owned(),
                reason => words::reason(reason, &cx.clock),
            };
            writeln!(cx.err, "cannot add to '{name}': {why}");
            Ok(1)
        }
    }
}

/// Shows the future pool: for each class the present vdevs, then the new ones.
fn show(cx: &mut Cx, pool: &Pool, new: &api::Layout, flags: NameFlags) {
    let old = &pool.root.children;
    for (title, class) in
        [(pool.name.as_str(), ""), ("dedup", "dedup"), ("special", "special"), ("logs", "log")]
    {
        let of = |v: &&api::Vdev| {
            !v.is_hole && (if v.is_log { "log" } else { v.alloc_bias.as_deref().unwrap_or("") }) == class
        };
        let had = old.iter().any(|v| of(&v));
        // OpenZFS shows the numbers of normal vdevs, but not those of the other classes.
        let shown = if class.is_empty() { flags.with_id() } else { flags };
        devices::show(cx, Some(title), old, class, shown);
        devices::show(cx, (!had).then_some(title), &new.tops, class, flags);
    }
    for (title, old, new) in [("cache", &pool.l2cache, &new.cache), ("spares", &pool.spares, &new.spares)] {
        let all: Vec<_> = old.iter().chain(new).cloned().collect();
        devices::show_aside(cx, title, &all, flags);
    }
}
