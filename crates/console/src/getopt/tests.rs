//! The grammar, compared with what glibc does.

use super::Found::{Invalid, Is, Missing};
use super::Opt::{Named, Short};
use super::*;

const LONG: &[Long] = &[
    Long { name: "json", val: Short('j'), arg: false },
    Long { name: "json-int", val: Named("json-int"), arg: false },
    Long { name: "rewind-to-checkpoint", val: Named("rewind-to-checkpoint"), arg: false },
];

fn read(words: &[&str]) -> (Vec<Found>, Vec<String>) {
    let args: Vec<String> = words.iter().map(|s| (*s).to_owned()).collect();
    let mut g = Getopt::new(&args, ":aHo:j", LONG);
    let found: Vec<Found> = g.by_ref().collect();
    (found, g.operands())
}

/// Goal: clusters, joined and separate arguments, and options after operands are read.
#[test]
fn ordinary_lines() {
    let (f, ops) = read(&["-Ha", "pool", "-oname,size", "-o", "x", "--", "-z"]);
    let is = |c, s: &str| Is(Short(c), s.into());
    assert_eq!(f, [is('H', ""), is('a', ""), is('o', "name,size"), is('o', "x")]);
    assert_eq!(ops, ["pool", "-z"]);
}

/// Goal: a unique prefix stands for a long name; an exact name wins over longer ones.
#[test]
fn long_names() {
    let (f, _) = read(&["--json", "--rewind", "--json-i"]);
    assert_eq!(
        f,
        [
            Is(Short('j'), String::new()),
            Is(Named("rewind-to-checkpoint"), String::new()),
            Is(Named("json-int"), String::new())
        ]
    );
    assert_eq!(read(&["--js"]).0, [Invalid('\0')]);
    assert_eq!(read(&["--nope"]).0, [Invalid('\0')]);
}

/// Goal: an error carries the letter that OpenZFS prints.
#[test]
fn errors() {
    assert_eq!(read(&["-z"]).0, [Invalid('z')]);
    assert_eq!(read(&["-o"]).0, [Missing('o')]);
    assert_eq!(read(&["-:"]).0, [Invalid(':')]);
    assert_eq!(read(&["-"]).1, ["-"]);
}

/// Goal: with `POSIXLY_CORRECT`, everything after the first operand is an operand.
#[test]
fn operands_end_options() {
    let args: Vec<String> = ["-H", "all", "-a", "--"].iter().map(|s| (*s).to_owned()).collect();
    let mut g = Getopt { ordered: true, ..Getopt::new(&args, ":aHo:j", LONG) };
    assert_eq!(g.by_ref().collect::<Vec<_>>(), [Is(Short('H'), String::new())]);
    assert_eq!(g.operands(), ["all", "-a", "--"]);
}
