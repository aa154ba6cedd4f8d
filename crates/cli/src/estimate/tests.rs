//! The grammar, the table, the JSON and the chart.

#![allow(clippy::unwrap_used, reason = "tests fail so")]

use super::*;
use std::cell::RefCell;
use std::rc::Rc;

/// An output that a test can read.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs a command line. Returns the exit code and both outputs.
fn ran(words: &[&str]) -> (i32, String, String) {
    let (out, err) = (Shared::default(), Shared::default());
    let args: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
    let code =
        run(&mut Out::terminal(Box::new(out.clone())), &mut Out::terminal(Box::new(err.clone())), &args);
    let text = |shared: Shared| String::from_utf8(shared.0.take()).unwrap();
    (code, text(out), text(err))
}

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("text"), "all work and no play\n".repeat(20_000)).unwrap();
    std::fs::write(dir.path().join("same"), "all work and no play\n".repeat(20_000)).unwrap();
    dir
}

/// Goal: wrong words are named, with exit code 2.
#[test]
fn grammar() {
    for (line, why) in [
        ("", "missing directory argument"),
        ("-z .", "invalid option '-z'"),
        ("-r", "missing argument for option '-r'"),
        ("-r 3K .", "bad record size '3K': choose a power of two from 4K to 16M"),
        ("-r 32M .", "bad record size '32M': choose a power of two from 4K to 16M"),
        ("-r x .", "bad size 'x'"),
        ("-c lz5 .", "bad compression 'lz5': see 'man zfsprops' for the values"),
        ("-c inherit .", "bad compression 'inherit': see 'man zfsprops' for the values"),
        ("--time soon .", "invalid value 'soon' of option '--time': a number is needed"),
        ("--sample lots .", "bad size 'lots'"),
    ] {
        let (code, out, err) = ran(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!((code, out.as_str()), (2, ""), "{line}");
        assert!(err.starts_with(&format!("{why}\nusage: poolhouse estimate")), "{line}: {err}");
    }
    assert_eq!(ran(&["--help"]), (0, USAGE.to_owned(), String::new()));
    let (code, _, err) = ran(&["-a", "30", "."]);
    assert_eq!((code, err.as_str()), (2, "cannot estimate: bad ashift 30: it must be from 9 to 16\n"));
    let (code, _, err) = ran(&["/nowhere/at\x1ball"]);
    assert_eq!(
        (code, err.as_str()),
        (1, "cannot estimate: '/nowhere/at\\033all': No such file or directory\n")
    );
}

/// Goal: the table has a line for each record size and compressor, in any order of the options.
#[test]
fn rows() {
    let dir = tree();
    let path = dir.path().to_str().unwrap();
    let (code, out, err) = ran(&["-r", "128K,16K", "-c", "off,lz4", "--dedup", path]);
    assert_eq!((code, err.as_str()), (0, ""));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[..3], ["820K in 2 files, 1 directories, 0 others", "everything was read", ""]);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words(lines[3]),
        ["RECORDSIZE", "COMPRESSION", "SIZE", "+/-", "SAVED", "RATIO", "DEDUP", "+/-", "DEDUPRATIO"]
    );
    let heads: Vec<_> = lines[4..].iter().map(|line| words(line)[..2].join(" ")).collect();
    assert_eq!(heads, ["16K off", "16K lz4", "128K off", "128K lz4"]);
    assert_eq!(words(lines[7])[8], "2.00x", "{out}");
    let (_, exact, _) = ran(&["-Hp", "-r", "16K", "-c", "lz4", path]);
    let cells: Vec<&str> = exact.trim_end().split('\t').collect();
    assert_eq!((cells.len(), cells[0], cells[1], cells[3]), (6, "16384", "lz4", "0"), "{exact}");
}

/// Goal: the JSON has the numbers of the table, by record size and compressor.
#[test]
fn objects() {
    let dir = tree();
    let path = dir.path().to_str().unwrap();
    let (_, table, _) = ran(&["-Hp", "-r", "16K", "-c", "lz4", path]);
    let (code, out, _) = ran(&["-j", "-r", "16K", "-c", "lz4", path]);
    let size = table.split('\t').nth(2).unwrap();
    assert_eq!(code, 0);
    assert!(
        out.contains(&format!("\"recordsizes\":{{\"16384\":{{\"lz4\":{{\"size\":{size},\"error\":0,")),
        "{out}"
    );
    assert!(out.contains("\"exact\":true") && out.contains("\"command\":\"poolhouse estimate\""), "{out}");
}

/// Goal: names can't leave the text of the chart, and the chart names nothing outside.
#[test]
fn chart_is_closed() {
    let dir = tree();
    let bad = dir.path().join("<script>&\"\u{1b}");
    std::fs::create_dir(&bad).unwrap();
    let file = dir.path().join("chart.svg");
    let (code, _, err) =
        ran(&["--svg", file.to_str().unwrap(), bad.to_str().unwrap(), dir.path().to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (0, ""));
    let svg = std::fs::read_to_string(file).unwrap();
    assert!(svg.contains("&lt;script&gt;&amp;&quot;\u{fffd}") && !svg.contains("<script"), "{svg}");
    assert_eq!(svg.matches("http").count(), 1, "only the name space: {svg}");
    assert_eq!(svg.matches("<rect x=").count(), 12 + 4, "twelve bars, four colours: {svg}");
    assert!(svg.ends_with("</svg>\n"));
    let (code, _, err) = ran(&["--svg", "/nowhere/x.svg", dir.path().to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (1, "cannot write '/nowhere/x.svg': No such file or directory\n"));
}
