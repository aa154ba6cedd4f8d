//! The style rules that a program can measure.
//!
//! `ratchet.txt` lists what still breaks a rule: the rule, the file, and how often. A number there
//! may only go down. `RATCHET=write scripts/test.sh ratchet` lowers the numbers and drops the rows
//! that are met; it raises none.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Most columns of a line that has a comment.
const COLUMNS: usize = 100;
/// Most words of a paragraph.
const PARAGRAPH_WORDS: usize = 100;
/// Most lines of a function.
const FUNCTION_LINES: usize = 70;

/// Words and phrases that pages and comments do not use.
///
/// The field has a term for what they mean, or they hide who acts.
const BANNED: [&str; 28] = [
    "whoever",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "mended",
    "mends",
    "toil",
    "errands",
    "hearth",
    "heirs",
    "makes way",
    "make way",
    "is told",
    "are told",
    "was told",
    "is asked for",
    "are asked for",
    "is asked",
    "are asked",
    "lets go",
    "let go",
    "rooms",
    "this room",
    "he",
    "him",
    "his",
    "she",
];

/// Files by path below the workspace, with what they break of a rule.
type Counts = BTreeMap<(&'static str, String), usize>;

fn files(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target" && name != ".git") {
                files(&path, ending, found);
            }
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

/// The comment of a line, without its marker.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

/// Whether a line of a comment or page is no prose: a table, a heading.
fn is_layout(text: &str) -> bool {
    text.starts_with(['|', '#', '>', '<'])
}

/// Whether a line of a comment or page begins a paragraph of its own: an item of a list.
fn is_item(text: &str) -> bool {
    let marker = text.split(' ').next().unwrap_or("");
    matches!(marker, "*" | "-" | "+")
        || (marker.len() > 1 && marker.ends_with('.') && marker[..marker.len() - 1].parse::<u32>().is_ok())
}

/// Paragraphs of lines: `None` is a line that belongs to none.
fn paragraphs<'t>(lines: impl Iterator<Item = Option<&'t str>>) -> Vec<String> {
    let (mut all, mut current, mut code) = (Vec::new(), String::new(), false);
    for line in lines {
        let text = line.unwrap_or("");
        if text.starts_with("```") {
            code = !code;
        }
        let ends = code || line.is_none() || text.is_empty() || text.starts_with("```") || is_layout(text);
        if ends || is_item(text) {
            all.push(std::mem::take(&mut current));
        }
        if !ends {
            current.push_str(text);
            current.push(' ');
        }
    }
    all.push(current);
    all.retain(|paragraph| !paragraph.is_empty());
    all
}

/// How often banned words stand in a paragraph, outside of code spans.
fn banned(paragraph: &str) -> usize {
    let prose: String = paragraph.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let spaced: String =
        prose.to_lowercase().chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
    let words = format!(" {} ", spaced.split_whitespace().collect::<Vec<_>>().join(" "));
    BANNED.iter().map(|word| words.matches(&format!(" {word} ")).count()).sum()
}

/// Lines of each function that is too long: `rustfmt` puts its last brace below its first word.
fn long_functions(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &str| {
        let line = line.trim_start();
        let words: Vec<&str> = line.split(' ').take(5).collect();
        !line.starts_with("//") && words.contains(&"fn") && !line.ends_with(';') && !line.ends_with('}')
    };
    let mut count = 0;
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| begins(line)) {
        let indent = line.len() - line.trim_start().len();
        let end = format!("{}}}", " ".repeat(indent));
        let length = lines[at..].iter().take_while(|line| !line.starts_with(&end)).count() + 1;
        count += usize::from(length > FUNCTION_LINES);
    }
    count
}

/// Everything that breaks a rule.
fn measured() -> Counts {
    let root = testkit::workspace_root();
    let mut counts = Counts::new();
    let mut count = |rule, path: &Path, n: usize| {
        if n > 0 {
            *counts.entry((rule, path.strip_prefix(&root).unwrap().display().to_string())).or_default() += n;
        }
    };
    let mut sources = Vec::new();
    files(&root.join("crates"), ".rs", &mut sources);
    files(&root.join("fuzz"), ".rs", &mut sources);
    // The list of words is no prose.
    sources.retain(|path| !path.ends_with("tests/it/ratchet.rs"));
    for path in sources {
        let text = fs::read_to_string(&path).unwrap();
        let wide =
            |line: &&str| line.contains("//") && line.chars().count() > COLUMNS && comment(line).is_some();
        count("comment-columns", &path, text.lines().filter(wide).count());
        let all = paragraphs(text.lines().map(comment));
        count(
            "paragraph-words",
            &path,
            all.iter().filter(|p| p.split_whitespace().count() > PARAGRAPH_WORDS).count(),
        );
        count("banned-words", &path, all.iter().map(|p| banned(p)).sum());
        count("function-lines", &path, long_functions(&text));
    }
    let mut pages = Vec::new();
    files(&root, ".md", &mut pages);
    for path in pages {
        let text = fs::read_to_string(&path).unwrap();
        let all = paragraphs(text.lines().map(|line| Some(line.trim())));
        count(
            "paragraph-words",
            &path,
            all.iter().filter(|p| p.split_whitespace().count() > PARAGRAPH_WORDS).count(),
        );
        count("banned-words", &path, all.iter().map(|p| banned(p)).sum());
    }
    counts
}

/// Goal: comments, paragraphs and functions keep to their lengths and words, but for what
/// `ratchet.txt` lists, and that list only gets shorter.
#[test]
fn style_does_not_get_worse() {
    let list = testkit::workspace_root().join("crates/testkit/tests/it/ratchet.txt");
    let text = fs::read_to_string(&list).unwrap();
    let mut listed = BTreeMap::new();
    for row in text.lines().filter(|row| !row.starts_with('#')) {
        let fields: Vec<&str> = row.split(' ').collect();
        let [rule, path, number] = fields[..] else { panic!("a row is a rule, a file and a number: {row}") };
        assert!(!path.ends_with(".md"), "pages have no exceptions: {row}");
        listed.insert((rule, path.to_owned()), number.parse::<usize>().unwrap());
    }
    let counts = measured();
    let mut worse = String::new();
    for ((rule, path), n) in &counts {
        let most = listed.get(&(*rule, path.clone())).copied().unwrap_or(0);
        if *n > most {
            writeln!(worse, "  {rule} {path}: {n}, and {most} is the most").unwrap();
        }
    }
    assert!(
        worse.is_empty(),
        "comments up to {COLUMNS} columns, paragraphs up to {PARAGRAPH_WORDS} words, functions up to {FUNCTION_LINES} lines, no banned words:\n{worse}"
    );
    let met = listed.iter().filter(|((rule, path), most)| {
        counts.iter().find(|((r, p), _)| r == rule && p == path).map_or(0, |(_, n)| *n) < **most
    });
    let met: Vec<_> = met.map(|((rule, path), _)| format!("{rule} {path}")).collect();
    if std::env::var("RATCHET").is_ok_and(|value| value == "write") {
        let mut new: String =
            text.lines().filter(|row| row.starts_with('#')).fold(String::new(), |mut all, row| {
                writeln!(all, "{row}").unwrap();
                all
            });
        for ((rule, path), n) in &counts {
            writeln!(new, "{rule} {path} {n}").unwrap();
        }
        fs::write(&list, new).unwrap();
        return;
    }
    assert!(
        met.is_empty(),
        "`RATCHET=write scripts/test.sh ratchet` shortens the list by:\n  {}",
        met.join("\n  ")
    );
}

/// Goal: each rule finds what breaks it, and nothing else.
#[test]
fn rules_find_what_breaks_them() {
    assert_eq!(banned("The writer waits. Whoever asks is told."), 2);
    assert_eq!(banned("`whoever` and the headroom of his"), 1);
    assert_eq!(comment("    /// text"), Some("text"));
    assert_eq!(comment("let a = 1; // text"), None);
    let lines = "//! One\n//! two.\n//!\n//! * three\n//! * four\n//!\n//! ```\n//! five\n//! ```";
    assert_eq!(paragraphs(lines.lines().map(comment)), ["One two. ", "* three ", "* four "]);
    let function =
        |lines: usize| format!("    pub fn f() {{\n{}    }}\n", "        g();\n".repeat(lines - 2));
    assert_eq!(
        (long_functions(&function(FUNCTION_LINES)), long_functions(&function(FUNCTION_LINES + 1))),
        (0, 1)
    );
}
