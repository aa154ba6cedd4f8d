//! The commands, on streams that OpenZFS's kernel module made, and on damaged ones.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail and speak as tests do")]

mod judge;
mod made;
mod verbs;

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use console::Out;
use testkit::{Fixture, find};
use zstream::Io;

/// Output that a test reads.
#[derive(Clone, Default)]
struct Sink(Rc<RefCell<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a command printed, and its exit code.
#[derive(Debug, PartialEq, Eq)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

type Command = fn(&mut Io<'_>, &[String]) -> i32;

fn run(command: Command, args: &[&str], input: &[u8]) -> Ran {
    let (code, out, err) = run_bytes(command, args, input);
    Ran { code, out: String::from_utf8_lossy(&out).into_owned(), err }
}

/// The exit code of a command, the bytes that it wrote, and its messages.
fn run_bytes(command: Command, args: &[&str], input: &[u8]) -> (i32, Vec<u8>, String) {
    let (out, err) = (Sink::default(), Sink::default());
    let args: Vec<String> = args.iter().map(|s| (*s).to_owned()).collect();
    let code = command(
        &mut Io {
            out: &mut Out::new(Box::new(out.clone())),
            err: &mut Out::new(Box::new(err.clone())),
            input: Box::new(input),
            terminal: false,
        },
        &args,
    );
    (code, out.0.take(), String::from_utf8_lossy(&err.0.take()).into_owned())
}

fn streams() -> Option<Fixture> {
    find("send-src")
}

/// Goal: the dump of each stream is that of OpenZFS's `zstream`, without and with `-v`.
#[test]
fn dumps_of_real_streams() {
    let Some(pool) = streams() else { return };
    let names = pool.streams();
    let mut compared = 0;
    for name in names {
        let bytes = pool.stream(&format!("{name}.zsend")).unwrap();
        for (option, suffix) in [(&[][..], "dump"), (&["-v"][..], "dumpv")] {
            let Some(want) = pool.stream(&format!("{name}.zsend.{suffix}")) else { continue };
            let want = String::from_utf8_lossy(&want).into_owned();
            let ran = run(zstream::run, &[&["dump"], option].concat(), &bytes);
            let line = want.lines().zip(ran.out.lines()).position(|(want, have)| want != have);
            assert_eq!(line, None, "{name} {suffix}: line of the first difference");
            assert!(ran.out == want && ran.code == 0 && ran.err.is_empty(), "{name} {suffix}: {}", ran.err);
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared}");
}

/// Goal: `-vv` adds a checksum to each record, and `-d` its payload, in OpenZFS's form.
#[test]
fn checksums_and_data() {
    let Some(pool) = streams() else { return };
    let bytes = pool.stream("incr-a-b.zsend").unwrap();
    let plain = run(zstream::run, &["dump", "-v"], &bytes).out;
    let more = run(zstream::run, &["dump", "-vv"], &bytes).out;
    let sums = more.lines().filter(|line| line.starts_with("    checksum = ")).count();
    assert_eq!(more.lines().count(), plain.lines().count() + sums);
    assert!(sums > 100);
    let all = run(zstream::run, &["dump", "-d"], &bytes).out;
    let data = all.lines().find(|line| line.starts_with(" 0")).expect("a line of data");
    assert_eq!(data.as_bytes()[13], b' ', "{data}");
    assert_eq!(data.len(), 54 + 19, "{data}");
}

/// Goal: tokens are shown in OpenZFS's form, and wrong ones refused in its words.
#[test]
fn tokens() {
    let Some(pool) = streams() else { return };
    let token = String::from_utf8(pool.stream("resume-token.txt").unwrap()).unwrap();
    let ran = run(zstream::run, &["token", token.trim()], &[]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.ends_with("     toname: 'send-src/fs@a'\n"), "{}", ran.out);
    let ran = run(zstream::run, &["token", "1-2"], &[]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.err, "Unable to parse resume token: resume token is corrupt (invalid format)\n");
}

/// Goal: wrong command lines are named, and change nothing.
#[test]
fn wrong_lines() {
    for args in [&[][..], &["x"], &["dump", "-x"], &["token"]] {
        let ran = run(zstream::run, args, &[]);
        assert_eq!(ran.code, 1, "{args:?}");
        assert!(ran.err.contains("usage: zstream command args ..."), "{args:?}: {}", ran.err);
    }
    let ran = run(zstream::run, &["dump", "/nonexistent/stream"], &[]);
    assert_eq!(ran.err, "Error while opening file '/nonexistent/stream': No such file or directory\n");
    let ran = run(zstream::run, &["dump"], &[0; 400]);
    assert_eq!((ran.code, ran.err.as_str()), (1, "Invalid stream (bad magic number)\n"));
    for args in [&[][..], &["x"], &["verify"], &["verify", "-x", "f"]] {
        assert_eq!(run(zstream::files::run, args, &[]).code, 2, "{args:?}");
    }
}

/// Goal: a chain of increments is verified file by file: a damaged or missing link is named, and
/// the exit code tells.
#[test]
fn chains() {
    let Some(pool) = streams() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let full = file("full", &pool.stream("full-a.zsend").unwrap());
    let incr = file("incr", &pool.stream("incr-a-b.zsend").unwrap());
    let verify = |args: &[&str]| run(zstream::files::run, &[&["verify"], args].concat(), &[]);
    let ran = verify(&["--chain", &full, &incr]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("send-src/fs@b: increment, "), "{}", ran.out);
    assert_eq!(verify(&["-q", &full, &incr]), Ran { code: 0, out: String::new(), err: String::new() });
    let alone = verify(&[&incr]);
    assert!(
        alone.code == 0 && alone.out.contains("increment on the snapshot with the guid 3253"),
        "{alone:?}"
    );
    let other = file("other", &pool.stream("vol-full.zsend").unwrap());
    let gap = verify(&["--chain", &other, &incr]);
    assert!(gap.code == 1 && gap.err.contains("which no file before has"), "{gap:?}");
    let mut bytes = pool.stream("full-a.zsend").unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let bad = file("bad", &bytes);
    let ran = verify(&[&bad, &incr]);
    assert!(ran.code == 1 && ran.err.contains(" has a wrong checksum"), "{ran:?}");
    assert!(ran.out.contains("send-src/fs@b"), "the other files are verified: {}", ran.out);
}
