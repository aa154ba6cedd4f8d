//! `zpool ddtprune`.

use api::{PoolChange, PoolQuery};

use super::change;
use crate::cx::{Cx, Outcome, Stop};
use console::getopt::{Found, Getopt, Opt};

/// Exit code after an error: libzfs returns -1.
const FAILED: i32 = 255;
const DAY: u64 = 86_400;

/// Parses a number as `strtoull` does with base 0: decimal, octal or hexadecimal.
fn number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(&text[1..], 8).ok(),
        None => text.parse().ok(),
    }
}

/// `zpool ddtprune -d|-p <amount> <pool>` (`zpool_do_ddt_prune`).
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut older, mut percent) = (None, None);
    let mut g = Getopt::new(args, "d:p:", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('d'), _) if percent.is_some() => {
                return Err(Stop::usage("-d cannot be combined with -p option\n"));
            }
            Found::Is(Opt::Short('d'), days) => {
                let days = number(&days).filter(|days| *days != 0);
                let days = days.ok_or_else(|| Stop::usage("invalid days value\n"))?;
                older = Some(days.saturating_mul(DAY));
            }
            Found::Is(..) if older.is_some() => {
                return Err(Stop::usage("-p cannot be combined with -d option\n"));
            }
            Found::Is(_, part) => {
                let part = number(&part).filter(|part| (1..=100).contains(part));
                percent = Some(part.ok_or_else(|| Stop::usage("invalid percentage value\n"))?);
            }
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let operands = g.operands();
    let name = match &operands[..] {
        _ if older.is_none() && percent.is_none() => {
            return Err(Stop::usage("missing amount option (-d|-p <value>)\n"));
        }
        [] => return Err(Stop::usage("missing pool argument\n")),
        [name] => name,
        _ => return Err(Stop::usage("too many arguments\n")),
    };
    match change::open(cx, name, PoolQuery::default()) {
        Err(Stop::Fail(_)) => return Ok(FAILED),
        open => drop(open?),
    }
    match cx.service()?.change_pool(name, &PoolChange::PruneDdt { older, percent }) {
        Ok(()) => {
            cx.changed(name);
            Ok(0)
        }
        Err(e) => {
            change::failed(cx, &format!("cannot prune dedup table on '{name}'"), &e)?;
            Ok(FAILED)
        }
    }
}
