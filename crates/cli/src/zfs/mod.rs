//! `zfs`: datasets, their properties, mounts and keys.

mod allow;
mod create;
mod datasets;
mod destroy;
mod diff;
mod get;
mod holds;
mod keys;
mod list;
mod mount;
mod mounting;
mod newkey;
mod open;
mod package;
mod project;
mod receive;
mod redact;
mod send;
mod set;
mod share;
mod snapshot;
mod space;
mod tree;
mod usage;
mod wait;

pub(crate) use keys::load_keys_below;
pub(crate) use mount::failures as mount_failures;
pub(crate) use newkey::new_key;
pub(crate) use usage::COMMANDS;

use crate::cx::{Cx, Outcome, Stop};
use crate::props::{self, Edit};
use crate::version;

/// Runs `zfs` with its arguments. Returns the exit code.
pub fn run(cx: &mut Cx, args: &[String]) -> i32 {
    let Some(verb) = args.first() else {
        cx.err.put("missing command\n");
        usage(cx, None, false);
        return 2;
    };
    let verb = match verb.as_str() {
        "-?" | "--help" => {
            usage(cx, None, true);
            return 0;
        }
        "-V" | "--version" => return version::print(cx),
        "help" => return version::man(cx, "zfs", &["concepts", "props"], args.get(1)),
        "umount" => "unmount",
        "recv" => "receive",
        "snap" => "snapshot",
        verb => verb,
    };
    cx.begin("zfs", args);
    // `zfs NAME=VALUE ...` means `zfs set` (`find_command_idx`).
    let (verb, rest) =
        if verb.contains('=') && !verb.starts_with('-') { ("set", args) } else { (verb, &args[1..]) };
    let outcome = match verb {
        "create" => create::run(cx, rest),
        "destroy" => destroy::run(cx, rest),
        "snapshot" => snapshot::snapshot(cx, rest),
        "rollback" => snapshot::rollback(cx, rest),
        "bookmark" => snapshot::bookmark(cx, rest),
        "hold" => snapshot::hold(cx, rest, true),
        "release" => snapshot::hold(cx, rest, false),
        "clone" => tree::clone(cx, rest),
        "promote" => tree::promote(cx, rest),
        "rename" => tree::rename(cx, rest),
        "set" => set::set(cx, rest),
        "inherit" => set::inherit(cx, rest),
        "upgrade" => set::upgrade(cx, rest),
        "change-key" => newkey::change(cx, rest),
        "list" => list::run(cx, rest),
        "get" => get::run(cx, rest),
        "mount" => mount::mount(cx, rest),
        "unmount" => mount::unmount(cx, rest),
        "share" => share::share(cx, rest),
        "unshare" => share::unshare(cx, rest),
        "load-key" => keys::run(cx, rest, true),
        "unload-key" => keys::run(cx, rest, false),
        "userspace" | "groupspace" | "projectspace" => space::run(cx, verb, rest),
        "diff" => diff::run(cx, rest),
        "send" => send::run(cx, rest),
        "receive" => receive::run(cx, rest),
        "redact" => redact::run(cx, rest),
        "project" => project::run(cx, rest),
        "wait" => wait::run(cx, rest),
        "holds" => holds::run(cx, rest),
        "allow" => allow::run(cx, rest, false),
        "unallow" => allow::run(cx, rest, true),
        "version" => version::run(cx, "zfs version", rest),
        other => other_verb(cx, other),
    };
    cx.finish(outcome, |cx| {
        let command = usage::COMMANDS.iter().flatten().find(|c| c.0 == verb);
        usage(cx, command.copied(), false);
    })
}

/// Reports a command of OpenZFS that this release lacks, or an unknown one.
fn other_verb(cx: &mut Cx, verb: &str) -> Outcome {
    if usage::COMMANDS.iter().flatten().any(|c| c.0 == verb) {
        writeln!(
            cx.err,
            "zfs {verb}: not in this release of Poolhouse; docs/reference lists the commands that it has"
        );
        return Ok(1);
    }
    Err(Stop::usage(format!("unrecognized command '{verb}'\n")))
}

/// The properties whose names have a parameter, in the order of the usage text.
const FAMILIES: [(&str, &str, &str, &str); 14] = [
    ("userused@...", " NO ", "   NO", "<size>"),
    ("groupused@...", " NO ", "   NO", "<size>"),
    ("projectused@...", " NO ", "   NO", "<size>"),
    ("userobjused@...", " NO ", "   NO", "<size>"),
    ("groupobjused@...", " NO ", "   NO", "<size>"),
    ("projectobjused@...", " NO ", "   NO", "<size>"),
    ("userquota@...", "YES ", "   NO", "<size> | none"),
    ("groupquota@...", "YES ", "   NO", "<size> | none"),
    ("projectquota@...", "YES ", "   NO", "<size> | none"),
    ("userobjquota@...", "YES ", "   NO", "<size> | none"),
    ("groupobjquota@...", "YES ", "   NO", "<size> | none"),
    ("projectobjquota@...", "YES ", "   NO", "<size> | none"),
    ("written@<snap>", " NO ", "   NO", "<size>"),
    ("written#<bookmark>", " NO ", "   NO", "<size>"),
];

/// Writes the usage text of one command or of all.
fn usage(cx: &mut Cx, command: Option<(&str, &str)>, requested: bool) {
    let mut s = String::new();
    match command {
        None => {
            s += "usage: zfs command args ...\nwhere 'command' is one of the following:\n\n";
            for c in usage::COMMANDS {
                s += c.map_or("\n", |c| c.1);
            }
            s += "\nEach dataset is of the form: pool/[dataset/]*dataset[@name]\n";
        }
        Some((_, text)) => {
            s += "usage:\n";
            s += text;
        }
    }
    if command.is_some_and(|c| ["set", "get", "inherit", "list"].contains(&c.0)) {
        s += "\nThe following properties are supported:\n";
        s += &format!("\n\t{:<21} {}  {}   {}\n\n", "PROPERTY", "EDIT", "INHERIT", "VALUES");
        for p in props::ordered(props::DATASET) {
            let edit = if matches!(p.edit, Edit::Own | Edit::Inherited) { "YES    " } else { " NO    " };
            let inherit =
                if matches!(p.edit, Edit::Inherited | Edit::Once) { "  YES   " } else { "   NO   " };
            s += &format!(
                "\t{:<22} {edit}{inherit}{}\n",
                p.name,
                if p.values.is_empty() { "-" } else { p.values }
            );
        }
        for (name, edit, inherit, values) in FAMILIES {
            s += &format!("\t{name:<22} {edit}   {inherit}   {values}\n");
        }
        s += "\nSizes are specified in bytes with standard units such as K, M, G, etc.\n";
        s += "\nUser-defined properties can be specified by using a name containing a colon (:).\n";
        s += "\nThe {user|group|project}[obj]{used|quota}@ properties must be appended with\na user|group|project specifier of one \
              of these forms:\n    POSIX name      (eg: \"matt\")\n    POSIX id        (eg: \"126829\")\n    SMB name@domain (eg: \
              \"matt@sun\")\n    SMB SID         (eg: \"S-1-234-567-89\")\n";
    } else {
        s += "\nFor the property list, run: zfs set|get\n";
        s += "\nFor the delegated permission list, run: zfs allow|unallow\n";
        s += "\nFor further help on a command or topic, run: zfs help [<topic>]\n";
    }
    if requested { cx.out.put(&s) } else { cx.err.put(&s) }
}
