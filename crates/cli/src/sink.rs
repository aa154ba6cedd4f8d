//! Outputs that tests read.

use crate::cx::Cx;
use crate::terminal::Stdin;
use api::Requests;
use console::{Clock, Out};
use std::cell::RefCell;
use std::rc::Rc;

/// The time of a command, in seconds since 1970.
pub(crate) const NOW: u64 = 1_800_000_000;

/// Collects what is written.
#[derive(Clone, Default)]
pub(crate) struct Sink(Rc<RefCell<Vec<u8>>>);

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Sink {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.borrow().clone()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes()).expect("UTF-8")
    }
}

/// A command with these outputs, that does not sleep.
pub(crate) fn context(service: Rc<dyn Requests>, out: Out, err: &Sink) -> Cx {
    let connect = Box::new(move || Ok(service.clone()));
    let err = Out::new(Box::new(err.clone()));
    let mut cx = Cx::new(out, err, Clock::fixed(|| NOW), Box::new(Stdin), connect);
    cx.sleep = |_| ();
    cx.screen = || Some((12, 100));
    cx
}

/// Runs a line of a command. Returns the exit code and both outputs.
pub(crate) fn ran(
    service: Rc<dyn Requests>,
    line: &str,
    run: fn(&mut Cx, &[String]) -> i32,
) -> (i32, String, String) {
    let (out, err) = (Sink::default(), Sink::default());
    let mut cx = context(service, Out::new(Box::new(out.clone())), &err);
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let code = run(&mut cx, &words);
    (code, out.text(), err.text())
}
