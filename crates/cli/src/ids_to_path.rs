//! `zfs_ids_to_path`: the path of an object, from the numbers of its object set and its own
//! (`zfs_ids_to_path.c`).

use api::Requests;

use console::Clock;
use console::Out;
use console::getopt::{Found, Getopt, Opt};
use console::words;

/// Runs the command. Returns the exit code.
///
/// If the file system is mounted, prints the path in the whole system. With `-v`, or if it is not
/// mounted, prints the dataset and the path in it.
pub fn run(out: &mut Out, err: &mut Out, service: &dyn Requests, args: &[String]) -> i32 {
    let mut verbose = false;
    let mut g = Getopt::new(args, "v", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('v'), _) => verbose = true,
            Found::Invalid(c) | Found::Missing(c) => {
                writeln!(err, "zfs_ids_to_path: invalid option -- '{c}'")
            }
            Found::Is(..) => {}
        }
    }
    let operands = g.operands();
    let usage = |err: &mut Out, code| {
        err.put("Usage: zfs_ids_to_path [-v] <pool> <objset id> <object id>\n");
        code
    };
    let [pool, objset, object] = &operands[..] else {
        writeln!(err, "Incorrect number of arguments: {}", operands.len());
        return usage(err, 1);
    };
    let Ok(objset_id) = objset.parse::<u64>() else {
        writeln!(err, "Invalid objset id: {objset}");
        return usage(err, 2);
    };
    let Ok(object_id) = object.parse::<u64>() else {
        writeln!(err, "Invalid object id: {object}");
        return usage(err, 3);
    };
    let found = match service.object_path(pool, &objset_id, &object_id) {
        Ok(found) => found,
        Err(e) => {
            let why = words::reason(&e.reason, &Clock::system());
            writeln!(err, "Could not open pool {pool}: {why}");
            return 5;
        }
    };
    match (found.dataset, found.path, found.mountpoint) {
        (Some(_), Some(path), Some(at)) if !verbose => writeln!(out, "{}{path}", at.trim_end_matches('/')),
        (Some(dataset), Some(path), _) => writeln!(out, "{dataset}:{path}"),
        (Some(dataset), None, _) => writeln!(out, "{dataset}:<0x{object_id:x}>"),
        (None, ..) if objset_id == 0 => writeln!(out, "<metadata>:<0x{object_id:x}>"),
        (None, ..) => writeln!(out, "<0x{objset_id:x}>:<0x{object_id:x}>"),
    }
    0
}
