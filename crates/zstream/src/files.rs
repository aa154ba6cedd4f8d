//! `poolhouse stream`: whether stored streams are whole.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read};

use console::Out;
use console::getopt::{Found, Getopt, Long, Opt};
use stream::check::{Checked, check};

use crate::Io;

const USAGE: &str = "\
usage: poolhouse stream verify [-q] [--chain] FILE ...
       poolhouse stream ls [-lR] FILE [[SNAPSHOT][:/PATH]]

verify reads stored send streams, and verifies all of their checksums and their order of records. It
needs no pool and no key. Of each stream, it prints the snapshot, and what the stream builds on. ls
lists what is in a stream: poolhouse stream ls --help says more.

    -q, --quiet  print only what is wrong
    --chain      each increment must build on a snapshot of a file before it; only the first file may
                 build on what the receiving pool has

FILE is a file, or - for standard input. The exit code is 1 if a stream is damaged, cut, or does not
continue the chain, and if a file can't be read.
";

const LONG: [Long; 3] = [
    Long { name: "quiet", val: Opt::Short('q'), arg: false },
    Long { name: "chain", val: Opt::Named("chain"), arg: false },
    Long { name: "help", val: Opt::Short('h'), arg: false },
];

/// Runs `poolhouse stream` with its arguments. Returns the exit code.
pub fn run(io: &mut Io<'_>, args: &[String]) -> i32 {
    let wrong = |err: &mut Out, why: String| {
        err.put(&why);
        err.put(USAGE);
        2
    };
    let Some((verb, rest)) = args.split_first() else {
        return wrong(io.err, "missing command\n".to_owned());
    };
    match verb.as_str() {
        "verify" => {}
        "-h" | "--help" => {
            io.out.put(USAGE);
            return 0;
        }
        other => return wrong(io.err, format!("unrecognized command '{other}'\n")),
    }
    let (mut quiet, mut chain) = (false, false);
    let mut g = Getopt::new(rest, "qh", &LONG);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('q'), _) => quiet = true,
            Found::Is(Opt::Named("chain"), _) => chain = true,
            Found::Is(..) => {
                io.out.put(USAGE);
                return 0;
            }
            Found::Invalid(c) | Found::Missing(c) => return wrong(io.err, format!("invalid option '{c}'\n")),
        }
    }
    let files = g.operands();
    if files.is_empty() {
        return wrong(io.err, "missing file\n".to_owned());
    }
    let mut made = HashSet::new();
    let mut code = 0;
    for (number, file) in files.iter().enumerate() {
        let must_follow = chain && number > 0;
        if !verify(io, file, quiet, must_follow, &mut made) {
            code = 1;
        }
    }
    code
}

/// Verifies one file. Returns whether it is whole.
fn verify(io: &mut Io<'_>, file: &str, quiet: bool, must_follow: bool, made: &mut HashSet<u64>) -> bool {
    let input: Box<dyn Read + '_> = if file == "-" {
        std::mem::replace(&mut io.input, Box::new(std::io::empty()))
    } else {
        match File::open(file) {
            Ok(file) => Box::new(BufReader::with_capacity(1 << 20, file)),
            Err(e) => {
                writeln!(io.err, "{file}: {}", console::words::io(&e));
                return false;
            }
        }
    };
    let mut follows = true;
    let (out, err) = (&mut *io.out, &mut *io.err);
    let read = check(input, |one| {
        let known = one.from_guid == 0 || made.contains(&one.from_guid);
        if must_follow && !known {
            follows = false;
            writeln!(
                err,
                "{file}: {} builds on the snapshot with the guid {}, which no file before has",
                name(&one),
                one.from_guid
            );
        } else if !quiet {
            show(out, file, &one, known);
        }
        made.insert(one.to_guid);
    });
    let whole = read.is_ok();
    if let Err(error) = read {
        writeln!(io.err, "{file}: {:#}", anyhow::Error::new(error));
    }
    whole && follows
}

fn name(one: &Checked) -> String {
    String::from_utf8_lossy(&one.name).into_owned()
}

fn show(out: &mut Out, file: &str, one: &Checked, known: bool) {
    let kind = match one.from_guid {
        0 => "full".to_owned(),
        _ if known => "increment".to_owned(),
        guid => format!("increment on the snapshot with the guid {guid}"),
    };
    writeln!(out, "{file}: {}: {kind}, {} records, {} bytes: ok", name(one), one.records, one.bytes);
}
