//! `poolhouse trace` and `poolhouse cost` say exactly what users did. The program has the probes
//! that the reference lists, and `bpftrace` counts what the daemon counts.
//!
//! Tests that need a mount print a message and do nothing without one.

use crate::client::Client;
use crate::daemon::command;
use crate::observed::Stand;
use observe::event::EVENTS;
use observe::ops::{Frontend, Op};
use observe::work::Wait;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// How often a test removes a directory that is not empty.
const TRIES: u64 = 7817;
const PROGRAM: &str = env!("CARGO_BIN_EXE_poolhouse");

/// A session that is under way.
struct Tracing(Child, BufReader<ChildStderr>);

impl Tracing {
    /// Begins a session of five seconds, and waits until it has begun.
    fn begin(stand: &Stand, line: &str) -> Self {
        let line = format!("trace -j -n 5 {line}");
        let mut command = command(stand.at("").as_path(), &line);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut said = String::new();
        lines.read_line(&mut said).expect("text");
        assert!(said.starts_with("tracing "), "{said}");
        Self(child, lines)
    }

    /// What it has counted, when it ends.
    fn end(mut self) -> Value {
        let (mut said, mut rest) = (String::new(), String::new());
        let mut out = self.0.stdout.take().expect("a pipe");
        out.read_to_string(&mut said).expect("text");
        self.1.read_to_string(&mut rest).expect("text");
        assert!(self.0.wait().expect("it ends").success(), "{rest}");
        serde_json::from_str(&said).expect("JSON")
    }
}

/// The counts of a document's groups, by their keys.
fn counts(document: &Value, keys: &[&str]) -> BTreeMap<String, u64> {
    let groups = document["groups"].as_array().expect("groups").iter();
    let name = |group: &Value| {
        let texts = keys.iter().map(|key| group[key].as_str().expect("a text").to_owned());
        texts.collect::<Vec<_>>().join(" ")
    };
    groups.map(|group| (name(group), group["count"].as_u64().expect("a count"))).collect()
}

fn expected(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    of.iter().map(|(keys, count)| ((*keys).to_owned(), *count)).collect()
}

/// A daemon whose sessions take all events.
fn exact() -> Option<Stand> {
    let stand = Stand::new(&[])?;
    stand.daemon.good("set tunable poolhouse_trace_cost_permille=1000");
    Some(stand)
}

/// Goal: failing operations of a known number are counted by errno and dataset, and by the process
/// that did them; with a condition, only those that meet it.
#[test]
fn counts_by_errno() {
    let Some(s) = exact() else { return };
    s.daemon.good("zfs create tank/a");
    fs::create_dir_all(s.at("mnt/a/full/inner")).expect("directories");
    let all = Tracing::begin(&s, "-k op,errno,dataset,process -w dataset~tank/* -w op=rmdir");
    let failed = Tracing::begin(&s, "-k file,op -w errno!=0");
    for _ in 0..TRIES {
        fs::remove_dir(s.at("mnt/a/full")).expect_err("it is not empty");
    }
    for n in 0..5 {
        fs::create_dir(s.at(&format!("mnt/a/{n}"))).expect("a directory");
        fs::remove_dir(s.at(&format!("mnt/a/{n}"))).expect("it is empty");
    }
    let all = all.end();
    let process = fs::read_to_string("/proc/thread-self/comm").expect("a name");
    let name = |errno: &str| format!("rmdir {errno} tank/a {}", process.trim_end());
    let (failing, good) = (name("ENOTEMPTY"), name("0"));
    let found = counts(&all, &["op", "errno", "dataset", "process"]);
    assert_eq!(found, expected(&[(failing.as_str(), TRIES), (good.as_str(), 5)]), "{all}");
    assert_eq!((all["sampled"].as_bool(), all["met"].as_u64()), (Some(false), Some(TRIES + 5)));
    assert_eq!(counts(&failed.end(), &["file", "op"]), expected(&[("/ rmdir", TRIES)]));
}

/// Goal: events of other layers are counted too, by device, class and dataset.
#[test]
fn other_events() {
    let Some(s) = exact() else { return };
    s.daemon.good("zfs create -V 64m -s tank/v");
    let socket = s.at("sock");
    s.daemon.good(&format!("export -l {} tank/v", socket.display()));
    let mut client = Client::of(&socket, "tank/v");
    client.write(0, &[3; 8192]);
    client.flush();
    let io = Tracing::begin(&s, "-e dev_io -k device,work,class -a sum:bytes -w class=log");
    let logs = Tracing::begin(&s, "-e zil_commit -k op,frontend,dataset");
    let waits = Tracing::begin(&s, "-e wait_done -k wait,what,op -w op=flush -w wait=flush");
    for n in 0..9u64 {
        client.write(n * 8192, &[n as u8 + 1; 8192]);
        client.flush();
    }
    let (io, logs, waits) = (io.end(), logs.end(), waits.end());
    client.bye();
    let device = s.at("d0").display().to_string();
    let of = counts(&io, &["device", "work", "class"]);
    assert_eq!(of.keys().collect::<Vec<_>>(), [&format!("{device} write log")], "{io}");
    let bytes = io["groups"][0]["sum"].as_u64().expect("a sum");
    assert!(bytes >= 9 * 4096, "{io}");
    assert_eq!(counts(&logs, &["op", "frontend", "dataset"]), expected(&[("flush nbd tank/v", 9)]));
    let waits = counts(&waits, &["wait", "what", "op"]);
    assert_eq!(waits, expected(&[(format!("flush {device} flush").as_str(), 9)]));
}

/// Goal: `cost` counts the operations of its command and of the processes below it, and of no other
/// process. It passes on the output and the exit code.
#[test]
fn cost() {
    let Some(s) = exact() else { return };
    fs::create_dir_all(s.at("mnt/full/inner")).expect("directories");
    let script = "for n in 1 2 3; do mkdir $n; (rmdir $n; rmdir full 2>&-); done; mkdir stay; exit 7";
    let mut run = command(s.at("").as_path(), "cost -j -- sh -c");
    let mut other = Command::new("sh");
    other.args(["-c", "for n in 1 2 3 4 5 6 7 8; do mkdir other$n; done"]);
    assert!(other.current_dir(s.at("mnt")).status().expect("it runs").success());
    let output = run.arg(script).current_dir(s.at("mnt")).output().expect("it runs");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(7), 0), "{output:?}");
    let said = String::from_utf8(output.stderr).expect("text");
    let document: Value = serde_json::from_str(said.lines().last().expect("a line")).expect("JSON");
    let ops = document["ops"].as_array().expect("ops");
    let of = |op: &str, error: Option<&str>| {
        let found = ops.iter().find(|row| row["op"] == op && row["error"].as_str() == error);
        found.map_or(0, |row| row["count"].as_u64().expect("a count"))
    };
    let found = [of("mkdir", None), of("rmdir", None), of("rmdir", Some("ENOTEMPTY"))];
    assert_eq!(found, [4, 3, 3], "{document}");
}

/// The little-endian number at a place.
fn number(bytes: &[u8], at: usize, len: usize) -> usize {
    bytes[at..at + len].iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte))
}

/// The probes of a 64-bit ELF file: their names and the numbers of their arguments.
fn probes(path: &Path) -> BTreeSet<(String, usize)> {
    let file = fs::read(path).expect("the program");
    let (table, count, names) = (number(&file, 40, 8), number(&file, 60, 2), number(&file, 62, 2));
    let section = |n: usize| {
        let at = table + n * 64;
        (number(&file, at, 4), number(&file, at + 24, 8), number(&file, at + 32, 8))
    };
    let text = |at: usize| {
        let end = file[at..].iter().position(|byte| *byte == 0).expect("an end");
        String::from_utf8(file[at..at + end].to_vec()).expect("text")
    };
    let (_, strings, _) = section(names);
    let mut found = BTreeSet::new();
    for n in 0..count {
        let (name, begin, size) = section(n);
        if text(strings + name) != ".note.stapsdt" {
            continue;
        }
        let mut at = begin;
        while at < begin + size {
            let (owner, of) = (number(&file, at, 4).next_multiple_of(4), number(&file, at + 4, 4));
            // Three addresses, then the provider, the name, and the arguments.
            let provider = at + 12 + owner + 24;
            let probe = provider + text(provider).len() + 1;
            let arguments = probe + text(probe).len() + 1;
            if text(provider) == "poolhouse" {
                found.insert((text(probe), text(arguments).split_whitespace().count()));
            }
            at += 12 + owner + of.next_multiple_of(4);
        }
    }
    found
}

/// Goal: the program has exactly the probes of the reference, with their arguments. The page has
/// the numbers of operations and waits as they are.
#[test]
fn reference() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/reference/probes.md")).expect("the page");
    let mut documented = BTreeSet::new();
    for event in EVENTS {
        let fields: Vec<String> = event.fields.iter().map(|field| format!("`{}`", field.name)).collect();
        let row =
            format!("| `{}` | {} | {} |", event.name, event.about.trim_end_matches('.'), fields.join(", "));
        assert!(page.contains(&row), "docs/reference/probes.md lacks the row:\n{row}");
        documented.insert((event.name.to_owned(), event.fields.len()));
    }
    assert_eq!(probes(Path::new(PROGRAM)), documented);
    let numbered = |names: Vec<&str>| {
        let all = names.iter().enumerate().map(|(number, name)| format!("{number} {name}"));
        all.collect::<Vec<_>>().join(", ")
    };
    for (what, names) in [
        ("frontend", Frontend::ALL.iter().map(|one| one.name()).collect()),
        ("op", Op::ALL.iter().map(|one| one.name()).collect()),
        ("wait", Wait::ALL.iter().map(|one| one.name()).collect()),
        ("work", observe::event::DEVICE_WORK.to_vec()),
        ("class", observe::event::IO_CLASSES.to_vec()),
    ] {
        let row = format!("| `{what}` | {} |", numbered(names));
        assert!(page.contains(&row), "docs/reference/probes.md lacks the row:\n{row}");
    }
}

/// Whether `bpftrace` can be used here; otherwise says why not.
fn has_bpftrace() -> bool {
    let has =
        rustix::process::getuid().is_root() && Command::new("bpftrace").arg("--version").output().is_ok();
    if !has {
        eprintln!("SKIPPED bpftrace: it needs root and the program bpftrace");
    }
    has
}

/// Starts `bpftrace` on a daemon.
fn bpftrace(stand: &Stand, words: &[&str]) -> Child {
    let mut command = Command::new("bpftrace");
    command.args(["-B", "line", "-p", &stand.daemon.child.id().to_string()]).args(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// Does `work` until `bpftrace` has printed a line with this text. Returns its output from there
/// on. `None`: it can't attach here.
fn attached(
    child: &mut Child,
    text: &'static str,
    mut work: impl FnMut(),
) -> Option<(BufReader<std::process::ChildStdout>, String)> {
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let seen = std::thread::spawn(move || {
        let mut said = String::new();
        while lines.read_line(&mut said).expect("text") > 0 && !said.contains(text) {}
        (lines, said)
    });
    while !seen.is_finished() {
        work();
        std::thread::yield_now();
    }
    let found = seen.join().expect("it reads");
    if found.1.contains(text) {
        return Some(found);
    }
    let mut why = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut why).expect("text");
    child.wait().expect("it ends");
    assert!(!why.contains(": ERROR: "), "the script is wrong: {why}");
    eprintln!("SKIPPED bpftrace: it can't attach here: {why}");
    None
}

/// Goal: `bpftrace` counts what the daemon counts.
#[test]
fn counts_of_bpftrace() {
    let Some(s) = Stand::new(&[]).filter(|_| has_bpftrace()) else { return };
    fs::create_dir_all(s.at("mnt/full/inner")).expect("directories");
    let (ready, end) = (Op::Mkdir as usize, Op::Symlink as usize);
    let script = format!(
        "usdt:{PROGRAM}:poolhouse:op_done {{ @[arg0, arg1] = count(); \
         if (arg0 == {ready}) {{ printf(\"ready\\n\"); }} if (arg0 == {end}) {{ exit(); }} }}"
    );
    let mut child = bpftrace(&s, &["-e", &script]);
    let mut n = 0;
    let mut work = || {
        n += 1;
        fs::create_dir(s.at(&format!("mnt/n{n}"))).expect("a directory");
    };
    let Some((mut lines, mut said)) = attached(&mut child, "ready", &mut work) else { return };
    for _ in 0..57 {
        fs::remove_dir(s.at("mnt/full")).expect_err("it is not empty");
    }
    std::os::unix::fs::symlink("x", s.at("mnt/end")).expect("a link");
    lines.read_to_string(&mut said).expect("text");
    child.wait().expect("it ends");
    assert!(said.contains(&format!("@[{}, 39]: 57\n", Op::Rmdir as usize)), "{said}");
}

/// Goal: the scripts run, and have the names of operations as they are.
#[test]
fn scripts_of_bpftrace() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    let mut scripts: Vec<_> =
        fs::read_dir(&folder).expect("the folder").map(|entry| entry.expect("a file").path()).collect();
    scripts.sort();
    assert_eq!(scripts.len(), 6);
    let names: Vec<String> =
        Op::ALL.iter().enumerate().map(|(n, op)| format!("  @op[{n}] = \"{}\";\n", op.name())).collect();
    for script in &scripts {
        let text = fs::read_to_string(script).expect("text");
        assert!(!text.contains("@op[") || text.contains(&names.concat()), "{}", script.display());
        let name = script.file_name().expect("a name").to_string_lossy();
        assert!(text.contains(&format!("* {name}: ")) && text.contains("Usage"), "{name} has no legend");
    }
    let Some(s) = Stand::new(&[]).filter(|_| has_bpftrace()) else { return };
    // Each prints this once it works: a head, a name, or what it says at the start.
    for (name, text) in [
        ("phslower", "errno"),
        ("phtop", "mkdir"),
        ("phtxg", "0."),
        ("phdist", "Ctrl-C"),
        ("phlock", "Ctrl-C"),
    ] {
        let path = folder.join(format!("{name}.bt"));
        let mut child = bpftrace(&s, &[path.to_str().expect("a path"), "0"]);
        let mut n = 0;
        let found = attached(&mut child, text, || {
            n += 1;
            fs::create_dir(s.at(&format!("mnt/{name}{n}"))).expect("a directory");
            if n % 50 == 0 {
                s.daemon.good("zpool sync tank");
            }
        });
        if found.is_none() {
            return;
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
            .expect("it runs");
        child.wait().expect("it ends");
    }
}
