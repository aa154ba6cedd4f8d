//! `version` and `help`, which `zpool` and `zfs` share.

use crate::cx::{Cx, Outcome, Stop};
use crate::json;
use console::getopt::{Found, Getopt, Long, Opt};
use console::words;

/// The OpenZFS release whose format, grammar and output this program has.
///
/// Tools test that `zfs version` prints two lines. Some read the release from the first one.
const USERLAND: &str = "zfs-2.3.2-poolhouse";

/// Our own version, in the form of the modules' (`/sys/module/zfs/version`).
pub fn module() -> String {
    format!("2.3.2-poolhouse-{}", env!("CARGO_PKG_VERSION"))
}

fn kernel() -> String {
    format!("zfs-kmod-{}", module())
}

const LONG: &[Long] = &[Long { name: "json", val: Opt::Short('j'), arg: false }];

/// Prints both versions (`-V`, `--version`).
pub fn print(cx: &mut Cx) -> i32 {
    write!(cx.out, "{USERLAND}\n{}\n", kernel());
    0
}

/// `version [-j]` (`zfs_do_version`).
///
/// # Errors
/// * [`Stop::Usage`]: there is an unknown option or an operand.
pub fn run(cx: &mut Cx, command: &str, args: &[String]) -> Outcome {
    let mut g = Getopt::new(args, "j", LONG);
    let mut as_json = false;
    for found in g.by_ref() {
        match found {
            Found::Is(..) => as_json = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    if !g.operands().is_empty() {
        return Err(Stop::usage("too many arguments\n"));
    }
    if !as_json {
        return Ok(print(cx));
    }
    let mut v = json::Object::new();
    v.text("userland", USERLAND);
    v.text("kernel", kernel());
    let mut o = json::schema(command);
    o.object("zfs_version", v);
    writeln!(cx.out, "{}", o.line());
    Ok(0)
}

/// `help [TOPIC]`: shows the manual page (`zfs_do_help`). Returns the exit code.
pub fn man(cx: &mut Cx, command: &str, sections: &[&str], topic: Option<&String>) -> i32 {
    let page = match topic.map(String::as_str) {
        None => command.to_owned(),
        Some(t) if t == command => command.to_owned(),
        Some(t) if sections.contains(&t) => format!("{command}{t}"),
        Some(t) => format!("{command}-{t}"),
    };
    cx.out.flush();
    let code = match std::process::Command::new("man").arg(page).status() {
        Ok(status) => status.code().unwrap_or(1),
        Err(e) => {
            writeln!(cx.err, "couldn't run man program: {}", words::io(&e));
            255
        }
    };
    if code != 0 {
        writeln!(
            cx.err,
            "'{command} --help' lists the commands; 'poolhouse man FOLDER' writes the manual pages"
        );
    }
    code
}
