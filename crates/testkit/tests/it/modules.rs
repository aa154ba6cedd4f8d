//! The order of modules inside crates: no cycle of imports.
//!
//! An import is a `use` or a path that begins with `crate`, `super` or `self`. Calls of methods
//! need no import, so a method that lies in another module is not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Most modules of one cycle, for each crate that has a larger one than [`MOST`] for now. A number
/// may only go down.
const LARGER: [(&str, usize); 7] =
    [("vdev", 11), ("dsl", 7), ("dmu", 6), ("pool", 5), ("testkit", 5), ("nbd", 3), ("ondisk", 3)];
/// Most modules of one cycle: two files may be halves of one thing.
const MOST: usize = 2;

type Graph = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

/// The modules of a crate by their paths, with their text. Modules of tests are left out.
fn modules(dir: &Path, path: &[String], found: &mut BTreeMap<Vec<String>, String>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let file = entry.path();
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "tests" {
            continue;
        }
        let below = [path, std::slice::from_ref(&name)].concat();
        if file.is_dir() {
            modules(&file, &below, found);
        } else if file.extension().is_some_and(|end| end == "rs") {
            let own = if ["lib", "main", "mod"].contains(&name.as_str()) { path.to_vec() } else { below };
            found.insert(own, fs::read_to_string(&file).unwrap());
        }
    }
}

/// The paths of a `use`: `a::{b, c::d}` is two.
fn paths(tree: &str) -> Vec<Vec<String>> {
    let names = |text: &str| -> Vec<String> {
        let text = text.split(" as ").next().unwrap();
        text.split("::").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
    };
    let Some((head, rest)) = tree.split_once('{') else { return vec![names(tree)] };
    let body = &rest[..rest.rfind('}').unwrap_or(rest.len())];
    let (mut depth, mut part, mut parts) = (0, String::new(), Vec::new());
    for c in body.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    parts.push(part);
    let below = parts.iter().filter(|part| !part.trim().is_empty()).flat_map(|part| paths(part));
    below.map(|path| [names(head), path].concat()).collect()
}

/// A text without comments and without its module of tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    text.lines()
        .map(|line| line.split("//").next().unwrap())
        .fold(String::new(), |all, line| all + line + "\n")
}

/// What a text imports from its own crate.
fn imports(text: &str) -> Vec<Vec<String>> {
    let (mut all, mut rest, code) = (Vec::new(), String::new(), code(text));
    for (n, statement) in code.split(';').enumerate() {
        let begin =
            statement.rfind("\nuse ").map(|at| at + 5).or_else(|| statement.rfind(" use ").map(|at| at + 5));
        let begin = begin.or((n == 0 && statement.starts_with("use ")).then_some(4));
        match begin {
            Some(at) if !statement[at..].contains('(') => all.extend(paths(&statement[at..])),
            _ => rest.push_str(statement),
        }
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for word in rest.split(|c: char| !is_word(c)) {
        if ["crate::", "super::"].iter().any(|begin| word.starts_with(begin)) {
            all.extend(paths(word));
        }
    }
    all.retain(|path| path.first().is_some_and(|name| ["crate", "super", "self"].contains(&name.as_str())));
    all
}

fn graph(name: &str) -> Graph {
    let mut texts = BTreeMap::new();
    modules(&testkit::workspace_root().join("crates").join(name).join("src"), &[], &mut texts);
    let module_of = |path: Vec<String>| -> Option<Vec<String>> {
        (0..=path.len()).rev().map(|n| path[..n].to_vec()).find(|path| texts.contains_key(path))
    };
    let edges = |own: &[String], text: &str| -> BTreeSet<Vec<String>> {
        let absolute = |path: Vec<String>| -> Vec<String> {
            let up = path.iter().filter(|name| *name == "super").count();
            let base = if path[0] == "crate" { &[] } else { &own[..own.len().saturating_sub(up)] };
            let rest = path.into_iter().filter(|name| !["crate", "super", "self"].contains(&name.as_str()));
            base.iter().cloned().chain(rest).collect()
        };
        let found = imports(text).into_iter().filter_map(|path| module_of(absolute(path)));
        found.filter(|module| module != own).collect()
    };
    texts.iter().map(|(own, text)| (own.clone(), edges(own, text))).collect()
}

/// Modules that a module reaches.
fn reached(graph: &Graph, from: &[String]) -> BTreeSet<Vec<String>> {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![from.to_vec()]);
    while let Some(module) = todo.pop() {
        for next in &graph[&module] {
            if seen.insert(next.clone()) {
                todo.push(next.clone());
            }
        }
    }
    seen
}

/// The largest set of modules that all reach each other.
fn largest_cycle(graph: &Graph) -> Vec<String> {
    let all: BTreeMap<_, _> = graph.keys().map(|module| (module, reached(graph, module))).collect();
    let cycle = |module| -> Vec<String> {
        let both = all[module].iter().filter(|other| all[*other].contains(module));
        both.map(|path| path.join("::")).collect()
    };
    graph.keys().map(cycle).max_by_key(Vec::len).unwrap_or_default()
}

/// Goal: modules have an order. What cycles there are get smaller only.
#[test]
fn modules_have_an_order() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(testkit::workspace_root().join("crates")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let most = LARGER.iter().find(|(known, _)| *known == name).map_or(MOST, |(_, most)| *most);
        let cycle = largest_cycle(&graph(&name));
        if cycle.len() > most || (most > MOST && cycle.len() < most) {
            wrong.push(format!(
                "{name}: a cycle of {}, and the list has {most}: {}",
                cycle.len(),
                cycle.join(", ")
            ));
        }
    }
    assert!(wrong.is_empty(), "invert an import with a trait of the lower module:\n  {}", wrong.join("\n  "));
}

/// Goal: imports of every form are found.
#[test]
fn imports_are_found() {
    let text =
        "use crate::a::{B, c::{D, E as F}};\nuse std::io;\n// crate::not::this\nfn f() { super::g::h(); }\n";
    let found: Vec<String> = imports(text).iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["crate::a::B", "crate::a::c::D", "crate::a::c::E", "super::g::h"]);
    let edge = |to: &str| BTreeSet::from([vec![to.to_owned()]]);
    let name = |name: &str| vec![name.to_owned()];
    let ring = Graph::from([
        (name("a"), edge("b")),
        (name("b"), edge("c")),
        (name("c"), edge("a")),
        (name("d"), edge("a")),
    ]);
    assert_eq!(largest_cycle(&ring), ["a", "b", "c"]);
}
