//! The manual pages agree with the program.

use super::*;
use crate::cx::Cx;
use crate::terminal::Stdin;
use api::{FakeService, InProcess};
use console::Clock;

/// A service that refuses every request.
struct RefusesAll;

impl FakeService for RefusesAll {}

/// The exit code of a verb that gets an option of no grammar.
fn with_nonsense(command: &str, verb: &str) -> i32 {
    let connect = Box::new(|| Ok(std::rc::Rc::new(InProcess::new(&RefusesAll)) as std::rc::Rc<_>));
    let sink = || Out::new(Box::new(io::sink()));
    let mut cx = Cx::new(sink(), sink(), Clock::system(), Box::new(Stdin), connect);
    let words = [verb.to_owned(), "--no-such-option".to_owned()];
    if command == "zpool" { zpool::run(&mut cx, &words) } else { zfs::run(&mut cx, &words) }
}

/// Goal: each verb of this release has a page, and no other verb has one. Each page has its verb's
/// synopsis.
#[test]
fn each_verb_has_a_page() {
    let pages = pages();
    for (command, table) in [("zpool", zpool::COMMANDS), ("zfs", zfs::COMMANDS)] {
        for (verb, _) in table.iter().flatten() {
            let page = pages.iter().find(|p| p.command == command && p.verb.as_deref() == Some(verb));
            // A verb that this release lacks reports that, and exits with 1.
            let there = with_nonsense(command, verb) == 2;
            assert_eq!(page.is_some(), there, "{command} {verb}");
            assert!(page.is_none_or(|p| !p.synopsis.is_empty() && !p.title.is_empty()), "{command} {verb}");
        }
    }
    for page in pages.iter().filter(|p| p.verb.is_some()) {
        assert!(page.synopsis.iter().all(|l| l.starts_with(page.command)), "{}", page.name);
    }
}

/// Goal: each property and feature that commands show is in the manual, and nothing else is.
#[test]
fn each_property_and_feature_is_told() {
    let pages = pages();
    let told = |page: &str| {
        let page = pages.iter().find(|p| p.name == page).expect("a page");
        assert!(page.options.iter().all(|(_, means)| means.ends_with('.')), "{}", page.name);
        let name = |(option, _): &(String, String)| option.split(" = ").next().unwrap_or_default().to_owned();
        page.options.iter().map(name).collect::<Vec<_>>()
    };
    for (page, table) in
        [("zfsprops", props::DATASET), ("zpoolprops", props::POOL), ("vdevprops", props::VDEV)]
    {
        let shown = table.iter().filter(|desc| !desc.hidden).map(|desc| desc.name);
        assert_eq!(told(page), shown.collect::<Vec<_>>(), "{page}");
    }
    assert_eq!(told("zpool-features"), ondisk::feature::FEATURES.iter().map(|f| f.name).collect::<Vec<_>>());
}

/// Goal: docs/reference has each command, and each property that commands show. Those of datasets
/// have one row each, in the order of their table.
#[test]
fn the_reference_has_each_command_and_property() {
    let page = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
        std::fs::read_to_string(path).expect("a page of the reference")
    };
    for (name, table) in [("zpool.md", zpool::COMMANDS), ("zfs.md", zfs::COMMANDS)] {
        let text = page(name);
        for (verb, _) in table.iter().flatten() {
            assert!(text.contains(&format!("`{verb}`")), "{name}: {verb}");
        }
    }
    let text = page("properties.md");
    let datasets = text.split("\n## ").find(|part| part.starts_with("Datasets\n")).expect("its section");
    let table = datasets.split("\n### ").next().unwrap_or_default();
    let rows: Vec<&str> =
        table.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    let named = |desc: &&props::PropDesc| !desc.hidden || desc.name == "name";
    assert_eq!(rows, props::DATASET.iter().filter(named).map(|desc| desc.name).collect::<Vec<_>>());
    for desc in [props::POOL, props::VDEV].into_iter().flatten().filter(|desc| !desc.hidden) {
        assert!(text.contains(&format!("`{}`", desc.name)), "properties.md: {}", desc.name);
    }
}

/// Goal: the usage text of a verb has each option of its page, except for a few that OpenZFS's text
/// lacks.
#[test]
fn pages_tell_of_options_that_there_are() {
    const UNTOLD: [(&str, &str); 10] = [
        ("create", "-t"),
        ("import", "-t"),
        ("import", "-s"),
        ("import", "-T"),
        ("import", "-X"),
        ("import", "-d"),
        ("export", "-a"),
        ("receive", "-c"),
        ("status", "-e"),
        ("upgrade", "-a"),
    ];
    for page in pages().iter().filter(|p| p.verb.is_some()) {
        let verb = page.verb.as_deref().unwrap_or_default();
        let usage = page.synopsis.join(" ");
        for (option, _) in &page.options {
            let word = option.split(' ').next().unwrap_or_default();
            let told = match word.strip_prefix("--") {
                Some(_) => usage.contains(word),
                None => {
                    let letter = word.trim_start_matches('-');
                    let groups = usage.split(|c: char| !(c.is_alphanumeric() || c == '-'));
                    groups.filter_map(|g| g.strip_prefix('-')).any(|g| g.contains(letter))
                }
            };
            assert!(told || UNTOLD.contains(&(verb, word)), "{} {option}: {usage}", page.name);
        }
    }
}

/// Goal: troff finds only real requests and escapes in a page, and all pages are where `man` looks.
#[test]
fn pages_are_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let count = write(dir.path()).expect("written");
    let folder = |name: &str| std::fs::read_dir(dir.path().join(name)).expect("a folder").count();
    assert_eq!((folder("man7"), folder("man7") + folder("man8")), (6, count));
    let page = std::fs::read_to_string(dir.path().join("man7/zfsprops.7")).expect("a page");
    assert!(page.contains("\n.TP\n.B atime = on | off\nWhether reading"), "{page}");
    let page = std::fs::read_to_string(dir.path().join("man8/zpool-list.8")).expect("a page");
    assert!(page.starts_with(".TH ZPOOL\\-LIST 8 "), "{page}");
    assert!(page.contains("\n.SH NAME\nzpool\\-list \\- list pools\n"), "{page}");
    const REQUESTS: [&str; 8] = ["TH", "SH", "PP", "TP", "B", "nf", "fi", "br"];
    for page in pages() {
        for line in page.troff().lines() {
            let request = line.strip_prefix('.').map(|l| l.split(' ').next().unwrap_or_default());
            assert!(request.is_none_or(|r| REQUESTS.contains(&r)), "{}: {line}", page.name);
            let escapes: Vec<&str> = line.split('\\').skip(1).collect();
            assert!(escapes.iter().all(|e| e.starts_with(['-', 'e', '&'])), "{}: {line}", page.name);
        }
    }
}

/// Goal: the manual names each command of the program.
#[test]
fn each_command_is_named() {
    let pages = pages();
    let main = pages.iter().find(|page| page.name == "poolhouse").expect("a page");
    let named: Vec<&str> = main.options.iter().flat_map(|(names, _)| names.split(", ")).collect();
    // Of 'send', the pages of zfs tell. 'bench' measures, for developers.
    let others = ["send", "bench", "help", "version"];
    for command in crate::completion::OWN.split(' ').filter(|command| !others.contains(command)) {
        assert!(named.contains(&command), "{command}");
    }
}
