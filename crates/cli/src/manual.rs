//! Manual pages: of the program, of its commands, and of each of their verbs.
//!
//! # Theory
//! `manual/*.txt` describe in our own words what a verb does. A verb's synopsis is its usage text,
//! so that the page and the program can't disagree.
//!
//! `poolhouse man` writes the pages as troff, where `man` and `zpool help VERB` find them. A verb
//! that this release lacks has no page.
//!
//! # Format
//! | line in `manual/*.txt` | meaning |
//! |---|---|
//! | `@VERB TITLE` | a page begins |
//! | text | a paragraph of the description |
//! | an option, a tab, text | the meaning of an option |
//! | the same, ending in ` !` | a property that is stored and has no effect |
//!
//! The pages of `concepts.txt` belong to section 7. For properties and features they hold only the
//! meaning. The values that may be set come from the tables that the commands use. The table of the
//! properties of datasets has their meaning too ([`dsl::prop::PROPS`]).

use std::io;
use std::path::Path;

use crate::props::{self, Edit, PropDesc};
use crate::{
    cost, estimate, histogram, lockstat, ops, profile, slower, status, top, trace, txgs, zfs, zpool,
};
use console::Out;
use dsl::prop::PROPS;
use ondisk::feature::Feature;

/// How `poolhouse bench` is called, in one line. The program has the command.
pub const BENCH: &str = "poolhouse bench mount [-Sj] [-g GROUPS] [-i SECONDS] [-l MS[,MS]...] [-n ROUNDS] [-q READS] [-t THREADS] [DIR]";
/// How `poolhouse web` is called. Another crate has the command.
pub const WEB: &str = "poolhouse web [-l [ADDRESS:]PORT]";
const ZPOOL: &str = include_str!("manual/zpool.txt");
const ZFS: &str = include_str!("manual/zfs.txt");
const MAIN: &str = include_str!("manual/poolhouse.txt");
const CONCEPTS: &str = include_str!("manual/concepts.txt");
/// The sentence that `!` stands for.
const KEPT: &str = "It is kept, and nothing is done by it.";
/// The commands that are links to the program. Each has a page of its own.
const LINKS: [&str; 3] = ["zpool", "zfs", "zdb"];

/// A manual page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its name: `zpool-list`.
    pub name: String,
    /// The section of the manual: 8 for commands, 7 for concepts and properties.
    pub section: u8,
    /// The command that the page describes, or whose verb it describes.
    pub command: &'static str,
    /// The verb, if the page describes one.
    pub verb: Option<String>,
    /// The title: what the subject does, in a few words.
    pub title: String,
    /// The description, a paragraph each.
    pub text: Vec<String>,
    /// The options, each with its meaning.
    pub options: Vec<(String, String)>,
    /// The synopsis: how the command is called.
    pub synopsis: Vec<String>,
}

/// The synopses in a usage text, with continued lines joined.
fn synopsis(command: &str, usage: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in usage.lines() {
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        match all.last_mut() {
            // Continuation lines are indented further.
            Some(last) if line.starts_with("\t ") => {
                last.push(' ');
                last.push_str(&words);
            }
            _ => all.push(format!("{command} {words}")),
        }
    }
    all
}

fn read(command: &'static str, text: &str, usage: &dyn Fn(&str) -> Vec<String>, into: &mut Vec<Page>) {
    for line in text.lines() {
        if let Some(head) = line.strip_prefix('@') {
            let (verb, title) = head.split_once(' ').unwrap_or((head, ""));
            let whole = verb == command || (command == "poolhouse" && LINKS.contains(&verb));
            into.push(Page {
                name: if whole { verb.to_owned() } else { format!("{command}-{verb}") },
                section: 8,
                command,
                verb: (!whole).then(|| verb.to_owned()),
                title: title.to_owned(),
                text: Vec::new(),
                options: Vec::new(),
                synopsis: usage(verb),
            });
            continue;
        }
        let Some(page) = into.last_mut() else { continue };
        match line.split_once('\t') {
            Some((option, means)) => page.options.push((option.to_owned(), means.to_owned())),
            None if line.is_empty() => {}
            None => page.text.push(line.to_owned()),
        }
    }
}

/// Adds the pages of section 7.
fn concepts(into: &mut Vec<Page>) {
    let mut all = Vec::new();
    read("poolhouse", CONCEPTS, &|_| Vec::new(), &mut all);
    for mut page in all {
        (page.name, page.section) = (page.verb.take().unwrap_or_default(), 7);
        let table: &[PropDesc] = match page.name.as_str() {
            "zfsprops" => props::DATASET,
            "zpoolprops" => props::POOL,
            "vdevprops" => props::VDEV,
            _ => &[],
        };
        if page.name == "zfsprops" {
            page.options.extend(dataset_properties());
        }
        for (name, means) in &mut page.options {
            if let Some(kept) = means.strip_suffix(" !") {
                *means = format!("{kept} {KEPT}");
            }
            if let Some(desc) = table.iter().find(|desc| desc.name == *name) {
                (*name, *means) = property(desc, means);
            } else if let Some(feature) = Feature::by_name(name).filter(|_| page.name == "zpool-features") {
                *means = format!("{means} {}", about(feature));
            }
        }
        into.push(page);
    }
}

/// The visible properties of datasets, each with its meaning.
fn dataset_properties() -> impl Iterator<Item = (String, String)> {
    PROPS.iter().filter(|row| row.visible).map(|row| {
        let kept = if row.effective { "" } else { " !" };
        (row.name.to_owned(), format!("{}{kept}", row.help))
    })
}

/// A property with the values that it may be set to, and its meaning.
fn property(desc: &PropDesc, means: &str) -> (String, String) {
    let (name, values) = (desc.name, desc.values);
    match desc.edit {
        Edit::ReadOnly => (name.to_owned(), means.to_owned()),
        Edit::Own => (format!("{name} = {values}"), means.to_owned()),
        Edit::Inherited => (format!("{name} = {values}"), format!("{means} Inherited.")),
        Edit::Once | Edit::OnceOwn => {
            (format!("{name} = {values}"), format!("{means} Set when the dataset is made, and not later."))
        }
    }
}

/// The facts about a feature: its guid, its dependencies, and who can use a pool that has it.
fn about(feature: &Feature) -> String {
    let mut words = format!("Its guid is {}.", feature.guid);
    if !feature.depends.is_empty() {
        words += &format!(" It needs {}.", feature.depends.join(", "));
    }
    if feature.readonly_compatible() {
        words += " Who doesn't know it may read the pool.";
    }
    if !feature.can_write() {
        words += " A pool on which it is active is read here, and not written.";
    }
    words
}

/// All pages.
pub fn pages() -> Vec<Page> {
    let mut all = Vec::new();
    concepts(&mut all);
    let of = |command: &'static str, table: &'static [Option<(&'static str, &'static str)>]| {
        move |verb: &str| {
            let found = table.iter().flatten().find(|(name, _)| *name == verb);
            found.map(|(_, text)| synopsis(command, text)).unwrap_or_default()
        }
    };
    let main = |name: &str| match name {
        "zpool" => vec!["zpool COMMAND [ARGUMENT ...]".to_owned()],
        "zfs" => vec!["zfs COMMAND [ARGUMENT ...]".to_owned()],
        "zdb" => vec!["zdb [OPTIONS] [-e [-p PATH ...]] [POOL[/DATASET] [OBJECT | RANGE ...]]".to_owned()],
        "bench" => vec![BENCH.to_owned()],
        "web" => vec![WEB.to_owned()],
        "estimate" => vec![estimate::SYNOPSIS.to_owned()],
        "histogram" => vec![histogram::SYNOPSIS.to_owned()],
        "ops" => vec![ops::SYNOPSIS.to_owned()],
        "profile" => vec![profile::SYNOPSIS.to_owned()],
        "slower" => vec![slower::SYNOPSIS.to_owned()],
        "status" => vec![status::SYNOPSIS.to_owned()],
        "lockstat" => vec![lockstat::SYNOPSIS.to_owned()],
        "cost" => vec![cost::SYNOPSIS.to_owned()],
        "trace" => vec![trace::SYNOPSIS.to_owned()],
        "txgs" => vec![txgs::SYNOPSIS.to_owned()],
        "top" => vec![top::SYNOPSIS.to_owned()],
        _ => vec!["poolhouse COMMAND [ARGUMENT ...]".to_owned()],
    };
    read("poolhouse", MAIN, &main, &mut all);
    read("zpool", ZPOOL, &of("zpool", zpool::COMMANDS), &mut all);
    read("zfs", ZFS, &of("zfs", zfs::COMMANDS), &mut all);
    // The page of a command lists the pages of its verbs.
    let verbs: Vec<(&str, String, String)> = all
        .iter()
        .filter_map(|p| Some((p.command, p.verb.clone()?, p.title.clone())))
        .map(|(command, verb, title)| (command, format!("{command}-{verb}(8)"), title))
        .collect();
    for page in all.iter_mut().filter(|p| p.verb.is_none()) {
        let own = verbs.iter().filter(|(command, ..)| *command == page.name);
        page.options.extend(own.map(|(_, name, title)| (name.clone(), title.clone())));
    }
    all
}

/// Escapes text, so that troff prints it unchanged.
fn plain(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

impl Page {
    /// The page as troff source, for `man`.
    pub fn troff(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let title = self.name.to_uppercase().replace('-', "\\-");
        let (section, is_command) = (self.section, self.section == 8);
        let kind = if is_command { "System Administration" } else { "Concepts" };
        let mut s = format!(".TH {title} {section} \"\" \"Poolhouse {version}\" \"{kind}\"\n");
        s += &format!(".SH NAME\n{} \\- {}\n", plain(&self.name), plain(&self.title));
        if is_command {
            s += ".SH SYNOPSIS\n.nf\n";
            for line in &self.synopsis {
                s += &format!("{}\n", plain(line));
            }
            s += ".fi\n";
        }
        s += ".SH DESCRIPTION\n";
        for paragraph in &self.text {
            s += &format!(".PP\n{}\n", plain(paragraph));
        }
        if self.text.is_empty() {
            s += &format!("{}.\n", plain(&capital(&self.title)));
        }
        if !self.options.is_empty() {
            s += match (self.name.as_str(), &self.verb) {
                (_, Some(_)) => ".SH OPTIONS\n",
                ("zpool-features", _) => ".SH FEATURES\n",
                ("zpoolconcepts", _) => ".SH VDEVS\n",
                _ if !is_command => ".SH PROPERTIES\n",
                _ => ".SH COMMANDS\n",
            };
            for (option, means) in &self.options {
                s += &format!(".TP\n.B {}\n{}\n", plain(option), plain(means));
            }
        }
        if self.verb.is_some() {
            s += ".SH EXIT STATUS\n0, 1 if something could not be done, 2 if the command line is wrong.\n";
        }
        s += &format!(".SH SEE ALSO\n{}\n", plain(&self.see_also()));
        s
    }

    fn see_also(&self) -> String {
        match (self.name.as_str(), &self.verb) {
            ("poolhouse", _) => "zpool(8), zfs(8), zdb(8)".to_owned(),
            ("zfs", None) => "zfsconcepts(7), zfsprops(7), zpool(8), poolhouse(8)".to_owned(),
            ("zpool", None) => {
                "zpoolconcepts(7), zpoolprops(7), vdevprops(7), zpool-features(7), zfs(8), poolhouse(8)"
                    .to_owned()
            }
            (name, None) if self.section == 7 && name.starts_with("zfs") => "zfs(8), poolhouse(8)".to_owned(),
            (_, None) if self.section == 7 => "zpool(8), poolhouse(8)".to_owned(),
            (_, Some(_)) if self.command != "poolhouse" => format!("{}(8), poolhouse(8)", self.command),
            _ => "poolhouse(8)".to_owned(),
        }
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Writes all pages below a folder, as `man8/NAME.8` and `man7/NAME.7`. Returns how many.
///
/// # Errors
/// Any [`io::Error`] of creating a folder or writing a file.
pub fn write(root: &Path) -> io::Result<usize> {
    let folder = |section: u8| root.join(format!("man{section}"));
    for section in [7, 8] {
        std::fs::create_dir_all(folder(section))?;
    }
    let all = pages();
    for page in &all {
        std::fs::write(folder(page.section).join(format!("{}.{}", page.name, page.section)), page.troff())?;
    }
    Ok(all.len())
}

const USAGE: &str = "usage: poolhouse man [FOLDER]\n\nWrites the manual pages below FOLDER, /usr/local/share/man if none is named.\n";

/// `poolhouse man [FOLDER]`: installs the pages. Returns the exit code.
pub fn run(words: &[String], out: &mut Out, err: &mut Out) -> i32 {
    let folder = match words {
        [] => "/usr/local/share/man",
        [folder] if !folder.starts_with('-') => folder,
        [help] if help == "--help" || help == "-h" => {
            out.put(USAGE);
            return 0;
        }
        _ => {
            match words {
                [option] => writeln!(err, "invalid option '{option}'"),
                _ => err.put("too many arguments\n"),
            }
            err.put(USAGE);
            return 2;
        }
    };
    match write(Path::new(folder)) {
        Ok(pages) => {
            writeln!(out, "{pages} pages below {folder}");
            0
        }
        Err(e) => {
            writeln!(err, "cannot write the manual below '{folder}': {}", console::words::io(&e));
            1
        }
    }
}

#[cfg(test)]
mod tests;
