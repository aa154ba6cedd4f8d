//! Invalid command lines, with their messages and exit codes.

use std::rc::Rc;

use crate::common::paper::Paper;
use crate::common::{Ran, in_process, run};

fn ran(line: &str) -> Ran {
    run(line, in_process(Rc::new(Paper::default())))
}

/// Goal: an invalid line gives an error message and the command's usage on standard error, with
/// exit code 2.
#[test]
fn usage_errors() {
    for (line, message, usage) in [
        ("zpool import -Z", "invalid option 'Z'\n", "\timport [-d dir] [-D]\n"),
        ("zpool import -C", "invalid option 'C'\n", "\timport [-d dir] [-D]\n"),
        ("zpool import -E", "invalid option 'E'\n", "\timport [-d dir] [-D]\n"),
        (
            "zpool import -V x",
            "-V (verbatim import) is not in this release of Poolhouse\n",
            "\timport [-d dir] [-D]\n",
        ),
        ("zfs hold -t keep a@s", "invalid option 't'\n", "\thold [-r] <tag>"),
        ("zpool import -d", "missing argument for 'd' option\n", "\timport [-d dir] [-D]\n"),
        ("zpool import -n x", "-n or -X only meaningful with -F\n", "\timport [-d dir] [-D]\n"),
        ("zpool import -c a -d b", "-c is incompatible with -d\n", "\timport [-d dir] [-D]\n"),
        ("zpool import -a x", "too many arguments\n", "\timport [-d dir] [-D]\n"),
        ("zpool export", "missing pool argument\n", "\texport [-af] <pool> ...\n"),
        (
            "zpool get",
            "missing property argument\n",
            "\tget [-Hp] [-j [--json-int, --json-pool-key-guid]] ...\n",
        ),
        ("zpool list --json-int", "'--json-int' only works with '-j' option\n", "\tlist [-gHLpPv]"),
        ("zpool list -o nope", "bad property list: invalid property 'nope'\n", "\tlist [-gHLpPv]"),
        ("zpool list 0", "interval cannot be zero\n", "\tlist [-gHLpPv]"),
        ("zpool nope", "unrecognized command 'nope'\n", "usage: zpool command args ...\n"),
        ("zpool", "missing command\n", "usage: zpool command args ...\n"),
        ("zfs", "missing command\n", "usage: zfs command args ...\n"),
        ("zfs list -t nope", "invalid type 'nope'\n", "\tlist [-Hp] [-j [--json-int]]"),
        ("zfs list -d -1", "Depth can not be negative.\n", "\tlist [-Hp] [-j [--json-int]]"),
        ("zfs get", "missing property argument\n", "\tget [-rHp] [-j [--json-int]]"),
        ("zfs get -o nope all", "invalid column name 'nope'\n", "\tget [-rHp] [-j [--json-int]]"),
        ("zfs mount a b", "too many arguments\n", "\tmount [-j]\n"),
        ("zfs unmount", "missing filesystem argument\n", "\tunmount [-fu] <-a | filesystem|mountpoint>\n"),
        ("zfs load-key", "Missing dataset argument or -a option\n", "\tload-key [-rn]"),
        ("zfs projectspace -n x", "invalid option 'n'\n", "\tprojectspace [-Hp]"),
        ("zfs holds", "missing snapshot argument\n", "\tholds [-rHp] <snapshot> ...\n"),
        ("zfs hold", "missing tag argument\n", "\thold [-r] <tag>"),
        ("zfs release keep", "missing snapshot argument\n", "\trelease [-r] <tag>"),
        ("zfs snapshot a", "'a' is not the name of a snapshot: it has no '@'\n", "\tsnapshot [-r]"),
        ("zfs upgrade -r", "missing filesystem argument (specify -a for all)\n", "\tupgrade [-v]\n"),
        ("zfs upgrade -v a", "-v is not allowed with other options or operands\n", "\tupgrade [-v]\n"),
        ("zfs upgrade -a a", "too many arguments\n", "\tupgrade [-v]\n"),
        ("zfs userspace", "missing dataset name\n", "\tuserspace [-Hinp]"),
        ("zfs project", "missing file or directory target(s)\n", "\tproject [-d|-r]"),
        ("zfs diff @a", "a snapshot without a dataset needs another name after it\n", "\tdiff [-FHth]"),
        ("zpool status -T x", "invalid format of times 'x': it is 'u' or 'd'\n", "\tstatus [-"),
        (
            "zpool add -o comment=x t d",
            "invalid property 'comment': -o sets only ashift\n",
            "\tadd [-afgLnP]",
        ),
        (
            "zpool attach -o comment=x t a b",
            "invalid property 'comment': -o sets only ashift\n",
            "\tattach [-fsw]",
        ),
    ] {
        let r = ran(line);
        assert_eq!((r.code, r.out.as_str()), (2, ""), "{line}");
        assert!(r.err.starts_with(message), "{line}: {}", r.err);
        assert!(r.err[message.len()..].starts_with("usage:"), "{line}: {}", r.err);
        assert!(r.err.contains(usage), "{line}: {}", r.err);
    }
}

/// Goal: usage texts contain what programs look for in them.
#[test]
fn usage_texts_that_programs_read() {
    assert!(ran("zfs get").err.contains("receive_resume_token"));
    assert!(ran("zfs --help").out.contains("<filesystem|volume>@<snap>[%<snap>][,...]"));
    assert_eq!(ran("zpool --help").code, 0);
    assert!(
        ran("zpool list -o x")
            .err
            .contains("\n\tPROPERTY             EDIT   VALUES\n\n\tallocated              NO   <size>\n")
    );
}

/// Goal: without imported pools, lists print what scripts expect.
#[test]
fn nothing_there() {
    let r = ran("zpool status");
    assert_eq!((r.code, r.out.as_str(), r.err.as_str()), (0, "", "no pools available\n"));
    let r = ran("zpool list");
    assert_eq!((r.code, r.out.as_str(), r.err.as_str()), (0, "no pools available\n", ""));
    assert_eq!(ran("zpool list -H").out, "");
    let r = ran("zfs list");
    assert_eq!((r.code, r.out.as_str(), r.err.as_str()), (0, "", "no datasets available\n"));
    let r = ran("zpool import");
    assert_eq!((r.code, r.out.as_str(), r.err.as_str()), (0, "", "no pools available to import\n"));
    let r = ran("zpool history");
    assert_eq!((r.code, r.err.as_str()), (0, "no pools available\n"));
}

/// Goal: unknown names are refused with OpenZFS's messages and exit code 1.
#[test]
fn missing_names() {
    for (line, err) in [
        ("zpool list x", "cannot open 'x': no such pool\n"),
        ("zpool status a/b", "cannot open 'a/b': invalid character '/' in pool name\n"),
        ("zpool get all x", "Cannot get properties of x: no such pool available.\n"),
        ("zpool import x", "cannot import 'x': no such pool available\n"),
        ("zpool export x", "cannot open 'x': no such pool\n"),
        ("zfs list x", "cannot open 'x': dataset does not exist\n"),
        ("zfs list x//y", "cannot open 'x//y': empty component or misplaced '@' or '#' delimiter in name\n"),
        ("zfs mount x@y", "cannot open 'x@y': snapshot delimiter '@' is not expected here\n"),
        ("zfs userspace x", "cannot open 'x': dataset does not exist\n"),
        ("zpool import -o nope=1 x", "property 'nope' is not a valid pool or vdev property\n"),
        ("zpool import -o readonly=on -o readonly=on x", "property 'readonly' specified multiple times\n"),
    ] {
        let r = ran(line);
        assert_eq!((r.code, r.out.as_str(), r.err.as_str()), (1, "", err), "{line}");
    }
}

/// Goal: a command of OpenZFS that this release lacks is recognized, and reported as missing.
#[test]
fn commands_of_later_releases() {
    let r = ran("zfs zone a b");
    assert_eq!((r.code, r.out.as_str()), (1, ""));
    assert!(r.err.contains(": not in this release of Poolhouse"), "{}", r.err);
}

/// Goal: the version has the two lines that tools test for.
#[test]
fn version() {
    for command in ["zfs", "zpool"] {
        let r = ran(&format!("{command} version"));
        assert_eq!((r.code, r.out.lines().count()), (0, 2));
        assert!(r.out.starts_with("zfs-2.3"));
        let r = ran(&format!("{command} version -j"));
        assert!(
            r.out.starts_with(&format!(r#"{{"output_version":{{"command":"{command} version","#)),
            "{}",
            r.out
        );
    }
}

/// Goal: each verb refuses unknown options and missing operands with the message, usage and exit
/// code of OpenZFS 2.3.2. Its output was recorded line by line.
///
/// Where OpenZFS gives no reason, Poolhouse may give one in a line.
#[test]
fn each_verb_is_used_as_openzfs_is() {
    for case in include_str!("../data/usage.txt").lines() {
        let (line, words) = case.split_once('\t').expect("a line and what is said");
        let words = words.replace("\\n", "\n").replace("\\0", "\0");
        let words = if words.is_empty() { words } else { words + "\n" };
        let r = ran(line);
        assert_eq!((r.code, r.out.as_str()), (2, ""), "{line}");
        let verb = line.split(' ').nth(1).expect("a verb");
        let (reason, rest) = r.err.split_at(r.err.find("usage:\n").expect("a usage text"));
        let own = words.is_empty() && reason.lines().count() == 1;
        assert!(reason == words || own, "{line}: {reason:?}, and not {words:?}");
        assert!(rest.starts_with(&format!("usage:\n\t{verb}")), "{line}: {rest:?}");
    }
}
