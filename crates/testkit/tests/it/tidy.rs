//! House rules that a test can check.
//!
//! The compiler and clippy check others: unused results, `unwrap`, missing documentation, `unsafe`
//! where it is forbidden. A list of exceptions may only shrink.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates, bottom to top. A crate may use only crates before it.
///
/// The last five are for development and are not shipped. `testkit`, `fuzzing` and `testpools` may
/// be dev-dependencies of any crate.
const ORDER: [&str; 37] = [
    "ondisk",
    "codec",
    "observe",
    "rx",
    "device",
    "vdev",
    "zio",
    "arc",
    "dmu",
    "pool",
    "dsl",
    "zil",
    "spa",
    "verify",
    "zpl",
    "zvol",
    "stream",
    "api",
    "poolhouse",
    "fuse",
    "nbd",
    "afs",
    "estimate",
    "mount-rules",
    "console",
    "zdb",
    "zstream",
    "rescue",
    "web",
    "server",
    "cli",
    "program",
    "bench",
    "testkit",
    "fuzzing",
    "testpools",
    "sim",
];

/// Crates that may have `unsafe` code, each block with a `SAFETY:` comment.
const UNSAFE_ALLOWED: [&str; 2] = ["device", "codec"];

/// Files that may have a thread-local: reused memory, shards of counters, counts of a test.
///
/// What a caller passes on travels as an argument. The last two entries are exceptions, and
/// `observe::work`, where nothing depends on it.
const THREAD_LOCAL: [&str; 11] = [
    "crates/codec/src/compress/gzip.rs",
    "crates/codec/src/compress/lz4.rs",
    "crates/codec/src/compress/zstd.rs",
    "crates/observe/src/clients/memory.rs",
    "crates/observe/src/counter.rs",
    "crates/observe/src/trace.rs",
    "crates/observe/src/work.rs",
    "crates/sim/src/open.rs",
    "crates/zio/src/write/prepare.rs",
    "crates/spa/src/discovery/probe.rs",
    "crates/spa/src/txg/caller.rs",
];

/// Files that may use locks which count no waits: the layer that counts, and what does not use it;
/// locks of each block in the cache, which must be small; a lock that a thread may take twice.
const PLAIN_LOCKS: [&str; 6] = [
    "crates/observe/src/",
    "crates/arc/src/sync.rs",
    "crates/dmu/src/live.rs",
    "crates/codec/src/",
    "crates/device/src/buf/recycle.rs",
    "crates/bench/src/",
];

/// The most lines of a source file, and the files that are longer for now. A number may only
/// decrease.
const MAX_LINES: usize = 800;
const LONGER: [(&str, usize); 0] = [];

/// Fixtures that only the whole set has. Tests look for them with `testkit::find`.
const NOT_BUNDLED: [&str; 10] = [
    "multi-vdev",
    "raidz1-3",
    "raidz1-3-broken",
    "raidz1-3-damaged",
    "raidz2-5",
    "send-partial",
    "send-src",
    "v5000-nofeat",
    "zil-crash",
    "zil-slog",
];

fn root() -> PathBuf {
    testkit::workspace_root()
}

/// All files below `dir` whose names have one of these endings, except in `target` and `.git`.
fn files(dir: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name().into_string().unwrap();
            if path.is_dir() {
                if name != "target" && name != ".git" {
                    todo.push(path);
                }
            } else if endings.iter().any(|e| name.ends_with(e)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

fn crates() -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn assert_none(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

/// The dependencies in a manifest, as section and name.
fn dependencies(manifest: &str) -> Vec<(String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in manifest.lines() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').to_owned();
            // A section `[dependencies.NAME]`.
            if let Some((s, name)) = section.split_once("dependencies.") {
                found.push((format!("{s}dependencies"), name.to_owned()));
            }
        } else if section.ends_with("dependencies") && !line.starts_with('#') {
            let end = line.find(|c: char| !c.is_alphanumeric() && c != '-' && c != '_').unwrap_or(line.len());
            if end > 0 {
                found.push((section.clone(), line[..end].to_owned()));
            }
        }
    }
    found
}

/// Goal: a crate uses only crates before it in the order, and every crate is in the order.
#[test]
fn crate_edges_follow_the_order_of_rooms() {
    let rank = |name: &str| ORDER.iter().position(|o| *o == name);
    let mut broken = Vec::new();
    for name in crates() {
        let Some(own) = rank(&name) else {
            broken.push(format!("crates/{name} has no place in the order"));
            continue;
        };
        let manifest = fs::read_to_string(root().join("crates").join(&name).join("Cargo.toml")).unwrap();
        for (section, dependency) in dependencies(&manifest) {
            let Some(used) = rank(&dependency) else { continue };
            let for_tests = section == "dev-dependencies"
                && ["testkit", "fuzzing", "testpools"].contains(&dependency.as_str());
            if used >= own && !for_tests {
                broken.push(format!("{name} uses {dependency} ([{section}]), which is not above it"));
            }
        }
    }
    assert_none("crate edges against the order of rooms", &broken);
}

/// The packages of Cargo.lock, each with its dependencies.
fn locked() -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
    let package = |block: &str| {
        let name = block.lines().find_map(|line| line.strip_prefix("name = ").and_then(quoted))?;
        let list = block.split_once("dependencies = [").map_or("", |(_, list)| list);
        // An entry may name the version too.
        let names = list.lines().filter_map(quoted);
        Some((name, names.map(|name| name.split(' ').next().unwrap().to_owned()).collect()))
    };
    text.split("[[package]]").filter_map(package).collect()
}

/// The path of normal dependencies by which a program with this crate links a package.
fn way(from: &str, to: &str) -> Option<Vec<String>> {
    let locked = locked();
    let below = |name: &str| -> Vec<String> {
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        // Cargo.lock has the dev-dependencies of our own crates, too.
        match fs::read_to_string(manifest) {
            Ok(manifest) => (dependencies(&manifest).into_iter())
                .filter(|(section, _)| !section.starts_with("dev-") && !section.starts_with("build-"))
                .map(|(_, name)| name)
                .collect(),
            Err(_) => locked.get(name).cloned().unwrap_or_default(),
        }
    };
    let (mut seen, mut todo) = (BTreeSet::new(), VecDeque::from([vec![from.to_owned()]]));
    while let Some(path) = todo.pop_front() {
        let last = path.last().unwrap();
        if last == to {
            return Some(path);
        }
        for next in below(last) {
            if seen.insert(next.clone()) {
                todo.push_back([path.as_slice(), &[next]].concat());
            }
        }
    }
    None
}

/// Goal: commands, and the crate of their protocol, link no async runtime.
#[test]
fn commands_link_no_async_runtime() {
    let runtimes = ["tokio", "hyper"];
    for runtime in runtimes {
        assert!(way("server", runtime).is_some(), "the daemon has {runtime}, or this test sees nothing");
    }
    let ways = ["api", "console", "zdb", "zstream", "rescue", "cli"]
        .iter()
        .flat_map(|name| runtimes.map(|runtime| way(name, runtime)));
    assert_none("async runtimes", &ways.flatten().map(|way| way.join(" uses ")).collect::<Vec<_>>());
}

/// Goal: the integration tests of a crate are one program, so that its dependencies are linked
/// once.
#[test]
fn a_crate_has_one_program_of_tests() {
    // The tests of the server start their own program as a daemon.
    let allowed = |name: &str| if name == "server" { 2 } else { 1 };
    let mut broken = Vec::new();
    for name in crates() {
        let Ok(files) = fs::read_dir(root().join("crates").join(&name).join("tests")) else { continue };
        let paths = files.flatten().map(|file| file.path());
        let programs = paths
            .filter(|path| path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").is_file());
        let count = programs.count();
        if count > allowed(&name) {
            broken.push(format!(
                "{name}: {count} programs; a module of tests/it/main.rs is linked with the others"
            ));
        }
    }
    assert_none("test programs", &broken);
}

/// Goal: ARCHITECTURE.md describes the crates in this order.
#[test]
fn the_architecture_page_lists_the_rooms_in_order() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let listed: Vec<_> = page
        .lines()
        .filter_map(|l| l.strip_prefix("### `"))
        .filter_map(|l| l.split_once('`'))
        .map(|(n, _)| n)
        .collect();
    assert_eq!(listed, ORDER, "the headings of ARCHITECTURE.md");
}

/// Goal: each crate uses the workspace's lints, has a description, and begins with module
/// documentation.
#[test]
fn each_crate_is_furnished() {
    let mut broken = Vec::new();
    for name in crates() {
        let dir = root().join("crates").join(&name);
        let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
        if !manifest.contains("description = ") {
            broken.push(format!("{name}: no description"));
        }
        let own_lints = UNSAFE_ALLOWED.contains(&name.as_str()) && manifest.contains("[lints.rust]");
        if !manifest.contains("[lints]\nworkspace = true") && !own_lints {
            broken.push(format!("{name}: not the workspace's lints"));
        }
        for main in ["src/lib.rs", "src/main.rs"] {
            if let Ok(text) = fs::read_to_string(dir.join(main))
                && !text.starts_with("//!")
            {
                broken.push(format!("{name}: {main} does not open with its theory (//!)"));
            }
        }
    }
    assert_none("crates not furnished", &broken);
}

/// Goal: source files stay short.
#[test]
fn source_files_keep_to_their_length() {
    let mut broken = Vec::new();
    for file in files(&root().join("crates"), &[".rs"]) {
        let (name, lines) = (relative(&file), fs::read_to_string(&file).unwrap().lines().count());
        let allowed = LONGER.iter().find(|(f, _)| *f == name).map_or(MAX_LINES, |(_, n)| *n);
        if lines > allowed {
            broken.push(format!("{name}: {lines} lines, {allowed} allowed"));
        }
    }
    assert_none("files too long", &broken);
    for (name, _) in LONGER {
        let lines = fs::read_to_string(root().join(name)).map_or(0, |t| t.lines().count());
        assert!(lines > MAX_LINES, "{name} is short again or gone: take it off the list");
    }
}

/// Goal: only the listed crates have `unsafe` code, and each use gives its reason.
#[test]
fn unsafe_stays_in_its_crates_and_gives_reasons() {
    let word = "unsafe ";
    let mut broken = Vec::new();
    for file in files(&root().join("crates"), &[".rs"]) {
        let (name, text) = (relative(&file), fs::read_to_string(&file).unwrap());
        let lines: Vec<_> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap();
            let used = ["{", "fn", "impl", "extern"].iter().any(|k| code.contains(&format!("{word}{k}")));
            if !used {
                continue;
            }
            if !UNSAFE_ALLOWED.iter().any(|c| name.starts_with(&format!("crates/{c}/"))) {
                broken.push(format!("{name}:{}: this crate has no unsafe code", i + 1));
            }
            let above = &lines[i.saturating_sub(8)..=i];
            if !above.iter().any(|l| l.contains("SAFETY:") || l.contains("# Safety")) {
                broken.push(format!("{name}:{}: no SAFETY: above it", i + 1));
            }
        }
    }
    assert_none("unsafe code", &broken);
}

/// Goal: what a caller passes on travels as an argument, not in its thread.
#[test]
fn arguments_are_not_kept_in_threads() {
    let word = ["thread_", "local!"].concat();
    let mut broken = Vec::new();
    let mut unused: Vec<&str> = THREAD_LOCAL.to_vec();
    for file in files(&root().join("crates"), &[".rs"]) {
        let (name, text) = (relative(&file), fs::read_to_string(&file).unwrap());
        if text.contains(&word) {
            if THREAD_LOCAL.contains(&name.as_str()) {
                unused.retain(|allowed| *allowed != name);
            } else {
                broken.push(name);
            }
        }
    }
    assert_none("these files keep something for each thread: pass it as an argument", &broken);
    assert!(unused.is_empty(), "{unused:?} keep nothing for a thread: take them off the list");
}

/// Goal: locks of the engine and of front ends count the waits for them.
#[test]
fn locks_count_waits() {
    let mut broken = Vec::new();
    for file in files(&root().join("crates"), &[".rs"]) {
        let (name, text) = (relative(&file), fs::read_to_string(&file).unwrap());
        let is_of_tests = [
            "/tests/",
            "tests.rs",
            "/benches/",
            "crates/testkit",
            "crates/testpools",
            "crates/sim",
            "crates/fuzzing",
        ]
        .iter()
        .any(|part| name.contains(part));
        let may = is_of_tests || PLAIN_LOCKS.iter().any(|allowed| name.starts_with(allowed));
        if !may && (text.contains("parking_lot") || text.contains("std::sync::Mutex")) {
            broken.push(name);
        }
    }
    assert_none("use the locks of `observe::lock`", &broken);
}

/// Goal: the code has no unfinished parts, no test sleeps, and no test is ignored without a reason.
#[test]
fn nothing_is_left_open() {
    let open = ["to", "do!("].concat();
    let unimplemented = ["unimple", "mented!("].concat();
    let sleep = ["thread::", "sleep"].concat();
    let ignored = ["#[ign", "ore]"].concat();
    let mut broken = Vec::new();
    for file in files(&root().join("crates"), &[".rs"]) {
        let (name, text) = (relative(&file), fs::read_to_string(&file).unwrap());
        let is_test = name.contains("/tests/") || name.ends_with("tests.rs");
        for (i, line) in text.lines().enumerate() {
            if line.contains(&open) || line.contains(&unimplemented) {
                broken.push(format!("{name}:{}: unfinished", i + 1));
            }
            if is_test && line.contains(&sleep) {
                broken.push(format!("{name}:{}: a test that sleeps", i + 1));
            }
            if line.contains(&ignored) {
                broken.push(format!("{name}:{}: ignored without a reason", i + 1));
            }
        }
    }
    assert_none("left open", &broken);
}

/// Goal: every fixture that a test names exists: bundled if it is required, known if it is
/// optional.
#[test]
fn every_fixture_named_in_a_test_exists() {
    let bundled: Vec<_> = fs::read_dir(testkit::bundled_dir())
        .unwrap()
        .flatten()
        .filter(|e| e.path().join("pool.json").is_file())
        .map(|e| e.file_name().into_string().unwrap())
        .collect();
    let mut broken = Vec::new();
    for file in files(&root().join("crates"), &[".rs"]) {
        let (name, text) = (relative(&file), fs::read_to_string(&file).unwrap());
        for (call, demanded) in [("fixture", true), ("fixture_copy", true), ("load", true), ("find", false)] {
            for (at, _) in text.match_indices(&format!("testkit::{call}(\"")) {
                let literal = text[at..].split('"').nth(1).unwrap();
                let known =
                    bundled.iter().any(|b| b == literal) || (!demanded && NOT_BUNDLED.contains(&literal));
                if !known {
                    broken.push(format!("{name}: testkit::{call}(\"{literal}\")"));
                }
            }
        }
    }
    assert_none("fixtures that are not there", &broken);
}

/// Goal: the tree names no path of the machine on which it was written.
#[test]
fn the_tree_names_no_foreign_place() {
    let words = [
        ["/wo", "rk/"].concat(),
        ["/tmp/", "helpers"].concat(),
        ["/tmp/", "fx"].concat(),
        ["/tmp/", "zfs-2"].concat(),
        [".lib", "rary/"].concat(),
    ];
    let mut broken = Vec::new();
    for file in files(&root(), &[".rs", ".md", ".toml", ".sh", ".yml", "Makefile", "run"]) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for (i, line) in text.lines().enumerate() {
            if words.iter().any(|w| line.contains(w.as_str())) {
                broken.push(format!("{}:{}: {line}", relative(&file), i + 1));
            }
        }
    }
    assert_none("foreign places", &broken);
}

/// Goal: each link from one page of the tree to another has a target.
#[test]
fn links_between_pages_lead_somewhere() {
    let mut broken = Vec::new();
    for page in files(&root(), &[".md"]) {
        let text = fs::read_to_string(&page).unwrap();
        for (at, _) in text.match_indices("](") {
            let link = text[at + 2..].split([')', '#', ' ']).next().unwrap();
            if link.is_empty() || link.contains("://") {
                continue;
            }
            if !page.parent().unwrap().join(link).exists() {
                broken.push(format!("{}: {link}", relative(&page)));
            }
        }
    }
    assert_none("links that lead nowhere", &broken);
}
