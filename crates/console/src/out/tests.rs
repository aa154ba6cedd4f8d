//! What a terminal gets.

use super::*;
use std::cell::RefCell;
use std::rc::Rc;

#[derive(Clone, Default)]
struct Sink(Rc<RefCell<Vec<u8>>>);

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Goal: on a terminal, a value with newlines and tabs stays in its cell of a table. Other outputs
/// get it unchanged.
#[test]
fn cells() {
    let value = "on\tlocal\ntank\tsetuid\toff\t-";
    let terminal = Out::terminal(Box::new(Sink::default()));
    assert_eq!(terminal.cell(value), r"on\011local\012tank\011setuid\011off\011-");
    assert_eq!(terminal.cell("tank/ä"), "tank/ä");
    assert_eq!(Out::new(Box::new(Sink::default())).cell(value), value);
}

/// Goal: no name or property can control a terminal. Other outputs get every byte unchanged.
#[test]
fn terminals() {
    let title = "\x1b]0;owned\x07\rok\u{9b}2J";
    let write = |out: &mut Out| {
        writeln!(out, "tank/{title}\tä");
        out.put(title);
        out.put_bytes(b"\x9b\xc3\n");
        out.put_raw(b"\x1b[0m");
    };
    let sink = Sink::default();
    write(&mut Out::terminal(Box::new(sink.clone())));
    let shown = r"\033]0;owned\007\015ok\302\2332J";
    let all = format!("tank/{shown}\tä\n{shown}\\233\\303\n\x1b[0m");
    assert_eq!(String::from_utf8_lossy(&sink.0.borrow()), all);
    let sink = Sink::default();
    write(&mut Out::new(Box::new(sink.clone())));
    let mut all = format!("tank/{title}\tä\n{title}").into_bytes();
    all.extend_from_slice(b"\x9b\xc3\n\x1b[0m");
    assert_eq!(*sink.0.borrow(), all);
}
