//! Runs a command in this process, with any service, and captures its output.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod live;
pub mod paper;
pub mod stand;

use std::cell::RefCell;
use std::io::{self, Write};
use std::ops::Deref;
use std::path::Path;
use std::rc::Rc;

use api::{InProcess, Requests, Service};
use cli::cx::Cx;
use cli::terminal::Secrets;
use console::Clock;
use console::Out;
use server::service::LocalService;

/// A sink that the test can read.
#[derive(Clone, Default)]
struct Sink(Rc<RefCell<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keys to enter when prompted, in order. There is no terminal.
pub struct Keys(pub Vec<Vec<u8>>);

impl Secrets for Keys {
    fn interactive(&self) -> bool {
        false
    }
    fn line(&mut self, _: &str) -> io::Result<Vec<u8>> {
        if self.0.is_empty() { Ok(Vec::new()) } else { Ok(self.0.remove(0)) }
    }
    fn bytes(&mut self, _: usize) -> io::Result<Vec<u8>> {
        self.line("")
    }
}

/// The result of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Runs `zpool …` or `zfs …`, in UTC, with an empty environment.
pub fn run(line: &str, service: Rc<dyn Requests>) -> Ran {
    run_with(line, service, Vec::new())
}

/// As `run`, with keys to enter.
pub fn run_with(line: &str, service: Rc<dyn Requests>, keys: Vec<Vec<u8>>) -> Ran {
    let (out, err) = (Sink::default(), Sink::default());
    let connect = Box::new(move || Ok(service.clone()));
    let sinks = (Out::new(Box::new(out.clone())), Out::new(Box::new(err.clone())));
    let mut cx = Cx::new(sinks.0, sinks.1, Clock::fixed(|| 1_795_300_000), Box::new(Keys(keys)), connect);
    cx.env = |_| None;
    cx.screen = || None;
    cx.sleep = |_| ();
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let code = match words[0].as_str() {
        "zpool" => cli::zpool::run(&mut cx, &words[1..]),
        "zfs" => cli::zfs::run(&mut cx, &words[1..]),
        "poolhouse" => cli::exports::run(&mut cx, &words[1], &words[2..]),
        other => panic!("no command {other}"),
    };
    let text = |s: &Sink| String::from_utf8(s.0.borrow().clone()).expect("commands print UTF-8");
    Ran { code, out: text(&out), err: text(&err) }
}

/// Requests of this process to a service in it.
pub fn in_process<S: Deref<Target: Service> + 'static>(service: S) -> Rc<dyn Requests> {
    Rc::new(InProcess::new(service))
}

/// A pool on one device of this many bytes, created with these options, with nothing mounted.
pub fn pool(dir: &Path, bytes: u64, options: &str) -> Rc<dyn Requests> {
    let image = dir.join("d0.img");
    std::fs::File::create(&image).expect("an image").set_len(bytes).expect("room");
    let house: Rc<dyn Requests> = Rc::new(LocalService::new().in_process());
    good(&format!("zpool create -m none {options} tank {}", image.display()), &house);
    house
}

/// Runs a command that must succeed without error output. Returns its output.
pub fn good(line: &str, house: &Rc<dyn Requests>) -> String {
    let ran = run(line, house.clone());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    ran.out
}

/// Fails with the first lines that differ, rather than with two long texts.
pub fn same(what: &str, got: &str, want: &str) {
    if got == want {
        return;
    }
    let (mut g, mut w) = (got.lines(), want.lines());
    let mut shown = 0;
    let mut report = String::new();
    for n in 1.. {
        let (a, b) = (g.next(), w.next());
        if a.is_none() && b.is_none() {
            break;
        }
        if a != b {
            report +=
                &format!("line {n}\n   got {:?}\n  want {:?}\n", a.unwrap_or("<end>"), b.unwrap_or("<end>"));
            shown += 1;
            if shown == 8 {
                break;
            }
        }
    }
    panic!("{what} differs from OpenZFS's:\n{report}");
}
