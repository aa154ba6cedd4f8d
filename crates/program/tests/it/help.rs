//! Help, and what is said of wrong command lines, of the program's own commands.

use crate::daemon::{command, said};

/// Goal: `poolhouse serve` says which word of its command line is wrong, and why.
#[test]
fn wrong_words_are_named() {
    let dir = tempfile::tempdir().expect("a folder");
    for (line, why) in [
        ("serve --nope", "invalid option '--nope'\n"),
        ("serve extra", "too many arguments: 'extra'\n"),
        ("serve --tree", "missing value of option '--tree'\n"),
        ("serve --metrics here", "invalid value 'here' of option '--metrics'\n"),
        ("serve --event-timeout 0", "invalid value '0' of option '--event-timeout'\n"),
        ("serve --tunable zfs_arc_max", "invalid value 'zfs_arc_max' of option '--tunable'\n"),
    ] {
        let ran = command(dir.path(), line).output().expect("poolhouse");
        assert_eq!(ran.status.code(), Some(2), "{line}");
        assert!(said(&ran).starts_with(&format!("{why}usage: poolhouse serve")), "{line}: {}", said(&ran));
    }
}

/// Goal: `poolhouse help COMMAND` prints the help of that command, for each command that the usage
/// text lists.
#[test]
fn help_of_each_command() {
    let dir = tempfile::tempdir().expect("a folder");
    let ran = |line: &str| command(dir.path(), line).output().expect("poolhouse");
    let usage = said(&ran("help"));
    let rows = usage.lines().filter(|line| line.starts_with("    "));
    let commands: Vec<&str> = rows
        .filter_map(|line| line.trim().split_once("  "))
        .flat_map(|(commands, _)| commands.split(", "))
        .chain(["exports"])
        .collect();
    assert!(commands.len() > 20 && commands.contains(&"zinject"), "{commands:?}");
    for name in commands {
        let help = ran(&format!("help {name}"));
        assert!(help.status.success() && help.stderr.is_empty(), "{name}: {}", said(&help));
        let text = said(&help).to_lowercase();
        assert!(text.starts_with("usage") && text.contains(name), "{name}: {text}");
    }
    let unknown = ran("help nope");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(said(&unknown).starts_with("unrecognized command 'nope'\nusage: poolhouse COMMAND"));
    let more = ran("help ls files");
    assert_eq!(
        (more.status.code(), said(&more)),
        (Some(2), "too many arguments\nusage: poolhouse help [COMMAND]\n".into())
    );
}

/// Goal: if manual pages can't be shown, the message says why and what to do next.
#[test]
fn help_without_man() {
    let dir = tempfile::tempdir().expect("a folder");
    let ran = command(dir.path(), "zpool help create").env("PATH", dir.path()).output().expect("poolhouse");
    let told = "couldn't run man program: No such file or directory\n\
                'zpool --help' lists the commands; 'poolhouse man FOLDER' writes the manual pages\n";
    assert_eq!((ran.status.code(), said(&ran).as_str()), (Some(255), told));
}

/// Goal: the program's own commands say what is wrong with a command line, before their usage text.
#[test]
fn usage_errors_have_reasons() {
    let dir = tempfile::tempdir().expect("a folder");
    for (line, why) in [
        ("ls --nope", "poolhouse ls: invalid option '--nope'\n"),
        ("ls --find", "poolhouse ls: missing argument for '--find' option\n"),
        ("get", "missing argument\n"),
        ("get nope", "cannot get 'nope': no such kind of value\n"),
        ("set tunable", "missing NAME=VALUE argument\n"),
        ("metrics x", "too many arguments\n"),
        ("doctor x", "too many arguments\n"),
        ("completion", "missing shell\n"),
        ("completion tcsh", "unknown shell 'tcsh'\n"),
        ("man --nope", "invalid option '--nope'\n"),
        ("man a b", "too many arguments\n"),
        ("bench", "missing benchmark\n"),
        ("bench nope", "unknown benchmark 'nope'\n"),
        ("bench mount -Z", "invalid option 'Z'\n"),
        ("bench mount -g 0", "invalid value '0' of option '-g'\n"),
        ("bench mount a b", "too many arguments\n"),
    ] {
        let ran = command(dir.path(), line).output().expect("poolhouse");
        assert_eq!(ran.status.code(), Some(2), "{line}");
        assert!(said(&ran).starts_with(&format!("{why}usage: poolhouse ")), "{line}: {}", said(&ran));
    }
}
