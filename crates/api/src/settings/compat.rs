//! Sets of features, by files of names (`compatibility`, `zpool_load_compat`).
//!
//! # Theory
//! Other software that will open a pool knows only some features. Files in two folders list them,
//! one for each such software. The administrator's folder takes precedence. If there is no file of
//! a name, it may be a set that OpenZFS ships, which this program knows. Several files mean the
//! features that all of them name.

use ondisk::feature::{FEATURES, Feature};
use std::io::Read;
use std::path::{Path, PathBuf};

mod shipped;
#[cfg(test)]
mod tests;

/// Most bytes of a file (`ZPOOL_COMPAT_MAXSIZE`).
const FILE_MAX: u64 = 16 << 10;

/// The folders with files of names: the administrator's, then the distribution's.
#[derive(Debug, Clone)]
pub struct Folders {
    /// The administrator's (`ZPOOL_SYSCONF_COMPAT_D`). Unknown names are an error here.
    pub local: PathBuf,
    /// The distribution's (`ZPOOL_DATA_COMPAT_D`). Unknown names are a warning here, since the
    /// distribution may be newer.
    pub shared: PathBuf,
}

impl Default for Folders {
    fn default() -> Self {
        Self { local: "/etc/zfs/compatibility.d".into(), shared: "/usr/share/zfs/compatibility.d".into() }
    }
}

impl Folders {
    /// Whether one of them has a file of this name, valid or not.
    fn have(&self, file: &str) -> bool {
        [&self.local, &self.shared].into_iter().any(|folder| folder.join(file).exists())
    }
}

/// The features that may be enabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    names: Vec<&'static str>,
    /// What is odd in the files, in OpenZFS's words.
    pub warning: Option<String>,
}

impl Allowed {
    /// Whether a feature may be enabled.
    pub fn has(&self, feature: &Feature) -> bool {
        self.names.contains(&feature.name)
    }
}

fn everything() -> Vec<&'static str> {
    FEATURES.iter().map(|feature| feature.name).collect()
}

/// The features for a value of the property `compatibility` (`zpool_load_compat`).
///
/// # Errors
/// In OpenZFS's words: a file can't be read, no file is named, or the administrator's file has an
/// unknown name.
pub fn load(value: &str, folders: &Folders) -> Result<Allowed, String> {
    match value {
        "" | "off" => return Ok(Allowed { names: everything(), warning: None }),
        "legacy" => return Ok(Allowed { names: Vec::new(), warning: None }),
        _ => {}
    }
    let mut names = everything();
    let (mut bad_files, mut bad_words, mut odd_words) = (String::new(), String::new(), String::new());
    let mut read_any = false;
    for file in value.split(',').filter(|file| !file.is_empty()) {
        let local = read(&folders.local, file);
        let unknown_to = if local.is_some() { &mut bad_words } else { &mut odd_words };
        let text = local.or_else(|| read(&folders.shared, file));
        let listed = match (text, shipped::names(file)) {
            (Some(text), _) => {
                let mut listed = Vec::new();
                for word in text.lines().flat_map(words) {
                    match FEATURES.iter().find(|feature| feature.name == word) {
                        Some(feature) => listed.push(feature.name),
                        None => *unknown_to += &format!("{} ", harmless(word)),
                    }
                }
                listed
            }
            (None, Some(listed)) if !folders.have(file) => listed,
            (None, _) => {
                bad_files += &format!("{file} ");
                continue;
            }
        };
        read_any = true;
        names.retain(|name| listed.contains(name));
    }
    if !bad_files.is_empty() {
        return Err(format!("could not read/parse feature file(s): {bad_files}"));
    }
    if !read_any {
        return Err("no valid compatibility files specified".to_owned());
    }
    if !bad_words.is_empty() {
        return Err(format!("invalid feature name(s) in local compatibility files: {bad_words}"));
    }
    let warning = (!odd_words.is_empty())
        .then(|| format!("unrecognized feature name(s) in distribution compatibility files: {odd_words}"));
    Ok(Allowed { names, warning })
}

/// The names in a line, without its comment.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split('#').next().unwrap_or_default().split([',', ' ', '\t']).filter(|word| !word.is_empty())
}

/// A word that is safe to show on a terminal.
fn harmless(word: &str) -> String {
    word.chars().take(32).map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect()
}

/// The contents of a file of names, if it is valid: not empty, not large, and ending with a
/// newline.
fn read(folder: &Path, file: &str) -> Option<String> {
    let mut text = String::new();
    let open = std::fs::File::open(folder.join(file)).ok()?;
    open.take(FILE_MAX + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= FILE_MAX && text.ends_with('\n')).then_some(text)
}
