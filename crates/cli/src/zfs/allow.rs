//! `zfs allow` and `zfs unallow`.

use std::collections::{BTreeMap, BTreeSet};

use api::accounts;
use api::{DatasetChange, Granted};

use super::open::{HEADS, ask, below, open};
use crate::cx::{Cx, Outcome, Stop};
use crate::props::{self, Edit};
use console::getopt::{Found, Getopt, Opt};

/// The permissions that are not properties: each with its kind and its text in the usage
/// (`zfs_deleg_perm_tab`).
const PERMISSIONS: [(&str, bool, &str); 31] = [
    ("allow", false, "Must also have the permission that is being\n\t\t\t\tallowed"),
    (
        "clone",
        false,
        "Must also have the 'create' ability and 'mount'\n\t\t\t\tability in the origin file system",
    ),
    ("create", false, "Must also have the 'mount' ability"),
    ("destroy", false, "Must also have the 'mount' ability"),
    (
        "diff",
        false,
        "Allows lookup of paths within a dataset;\n\t\t\t\tgiven an object number. Ordinary users need this\n\t\t\t\tin order to use zfs diff",
    ),
    ("hold", false, "Allows adding a user hold to a snapshot"),
    ("mount", false, "Allows mount/umount of ZFS datasets"),
    ("promote", false, "Must also have the 'mount'\n\t\t\t\tand 'promote' ability in the origin file system"),
    ("receive", false, "Must also have the 'mount' and 'create' ability"),
    ("release", false, "Allows releasing a user hold which\n\t\t\t\tmight destroy the snapshot"),
    ("rename", false, "Must also have the 'mount' and 'create'\n\t\t\t\tability in the new parent"),
    ("rollback", false, ""),
    ("send", false, ""),
    ("share", false, "Allows sharing file systems over NFS or SMB\n\t\t\t\tprotocols"),
    ("snapshot", false, ""),
    ("bookmark", false, ""),
    ("load-key", false, "Allows loading or unloading an encryption key"),
    ("change-key", false, "Allows changing or adding an encryption key"),
    ("groupquota", true, "Allows accessing any groupquota@... property"),
    ("groupused", true, "Allows reading any groupused@... property"),
    ("userprop", true, "Allows changing any user property"),
    ("userquota", true, "Allows accessing any userquota@... property"),
    ("userused", true, "Allows reading any userused@... property"),
    ("userobjquota", true, "Allows accessing any userobjquota@... property"),
    ("userobjused", true, "Allows reading any userobjused@... property"),
    ("groupobjquota", true, "Allows accessing any \n\t\t\t\tgroupobjquota@... property"),
    ("groupobjused", true, "Allows reading any groupobjused@... property"),
    ("projectused", true, "Allows reading any projectused@... property"),
    ("projectquota", true, "Allows accessing any projectquota@... property"),
    ("projectobjused", true, "Allows accessing any \n\t\t\t\tprojectobjused@... property"),
    ("projectobjquota", true, "Allows accessing any \n\t\t\t\tprojectobjquota@... property"),
];

/// The options of both commands. The last one is `unallow`'s alone.
const OPTIONS: [(&str, &str); 9] = [
    ("-h", "show this help message and exit"),
    ("-l", "set permission locally"),
    ("-d", "set permission for descents"),
    ("-u", "set permission for user"),
    ("-g", "set permission for group"),
    ("-e", "set permission for everyone"),
    ("-c", "set create time permission"),
    ("-s", "define permission set"),
    ("-r", "remove permissions recursively"),
];

/// The parsed command line.
#[derive(Default)]
struct Line {
    take_back: bool,
    local: bool,
    descend: bool,
    user: bool,
    group: bool,
    everyone: bool,
    create: bool,
    set: bool,
    recursive: bool,
    help: bool,
    who: Option<String>,
    /// The words, separated by commas. `None` takes back everything.
    words: Option<String>,
    dataset: String,
    /// Show the grants.
    print: bool,
}

/// `zfs allow ...`, or `zfs unallow ...` if `take_back` is set (`zfs_do_allow`, `zfs_do_unallow`).
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, args: &[String], take_back: bool) -> Outcome {
    let mut line = Line { take_back, ..Line::default() };
    let mut g = Getopt::new(args, if take_back { "ldugecsrh" } else { "ldugecsh" }, &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short(option), _) => match option {
                'l' => line.local = true,
                'd' => line.descend = true,
                'u' => line.user = true,
                'g' => line.group = true,
                'e' => line.everyone = true,
                'c' => line.create = true,
                's' => line.set = true,
                'r' => line.recursive = true,
                _ => line.help = true,
            },
            Found::Is(Opt::Named(_), _) => {}
            Found::Invalid(c) => return Err(Stop::invalid(c)),
            Found::Missing(c) => return Err(Stop::missing(c)),
        }
    }
    let operands = g.operands();
    if let Err(wrong) = line.read(&operands) {
        return match wrong {
            Wrong::Usage => Err(Stop::usage("-h is not allowed with other options or operands\n")),
            Wrong::Asked => Ok(usage(cx, take_back, None, true)),
            Wrong::Because(why) => Ok(usage(cx, take_back, Some(why), false)),
        };
    }
    if open(cx, &line.dataset, &HEADS, &[]).is_err() {
        writeln!(cx.err, "Failed to open dataset: {}", line.dataset);
        return Err(Stop::Fail(255));
    }
    if line.print {
        let service = cx.service()?;
        let granted = service
            .grants(&line.dataset)
            .map_err(|e| cx.fail(&format!("cannot get permissions on '{}'", line.dataset), &e))?;
        for at in &granted {
            cx.out.put(&shown(at));
        }
        return Ok(0);
    }
    let grants = match line.grants() {
        Ok(grants) => grants,
        // OpenZFS treats this as a request for its usage text.
        Err(why) => return Ok(usage(cx, take_back, Some(&why), true)),
    };
    let mut names = vec![line.dataset.clone()];
    if line.recursive {
        names.extend(below(cx, &line.dataset, None, &HEADS, &[])?.into_iter().map(|d| d.name));
        names.dedup();
    }
    for name in names {
        let what = format!("cannot set permissions on '{name}'");
        let change = DatasetChange::Allow { name, grants: grants.clone(), remove: take_back };
        ask(cx, &change, &what, &|_| None)?;
    }
    Ok(0)
}

/// Why a command line is wrong.
enum Wrong {
    /// Print the general usage text.
    Usage,
    /// The user requests the usage text.
    Asked,
    /// Print this after the long usage text.
    Because(&'static str),
}

impl Line {
    /// Parses the operands (`parse_allow_args`).
    fn read(&mut self, operands: &[String]) -> Result<(), Wrong> {
        let count = |flags: &[bool]| flags.iter().filter(|f| **f).count();
        let whom = count(&[self.user, self.group, self.everyone]);
        let kinds = whom + count(&[self.create, self.set]);
        let all = kinds + count(&[self.local, self.descend]);
        if whom > 1 {
            return Err(Wrong::Because("-u, -g, and -e are mutually exclusive\n"));
        }
        if self.help {
            let alone = operands.is_empty() && all == 0 && !self.recursive;
            return Err(if alone { Wrong::Asked } else { Wrong::Usage });
        }
        let mut rest = operands;
        if self.set {
            if kinds > 1 {
                return Err(Wrong::Because("invalid options combined with -s\n"));
            }
            self.words_and_dataset(rest, 3)?;
            if !rest[0].starts_with('@') {
                return Err(Wrong::Because("invalid set name: missing '@' prefix\n"));
            }
            self.who = Some(rest[0].clone());
        } else if self.create {
            if all > 1 {
                return Err(Wrong::Because("invalid options combined with -c\n"));
            }
            self.words_and_dataset(rest, 2)?;
        } else if self.everyone {
            if kinds > 1 {
                return Err(Wrong::Because("invalid options combined with -e\n"));
            }
            self.words_and_dataset(rest, 2)?;
        } else if whom == 0 && rest.first().is_some_and(|word| word == "everyone") {
            self.everyone = true;
            rest = &rest[1..];
            self.words_and_dataset(rest, 2)?;
        } else if rest.len() == 1 && !self.take_back {
            self.print = true;
            self.dataset.clone_from(&rest[0]);
        } else {
            self.words_and_dataset(rest, 3)?;
            self.who = Some(rest[0].clone());
        }
        if !self.local && !self.descend {
            (self.local, self.descend) = (true, true);
        }
        Ok(())
    }

    /// Takes the dataset from the last operand, and the words from the one before it
    /// (`munge_args`).
    fn words_and_dataset(&mut self, rest: &[String], expected: usize) -> Result<(), Wrong> {
        self.words = match rest.len() {
            n if n == expected => Some(rest[n - 2].clone()),
            n if self.take_back && n + 1 == expected && n > 0 => None,
            _ => return Err(Wrong::Because("wrong number of parameters\n")),
        };
        self.dataset.clone_from(&rest[rest.len() - 1]);
        Ok(())
    }

    /// The grants to add or to take back (`construct_fsacl_list`).
    fn grants(&self) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
        let mut grants = BTreeMap::new();
        if self.set {
            self.store(&mut grants, 's', self.who.as_deref().unwrap_or_default());
        } else if self.create {
            self.store(&mut grants, 'c', "");
        } else if self.everyone {
            self.store(&mut grants, 'e', "");
        } else {
            for who in self.who.as_deref().unwrap_or_default().split(',').filter(|who| !who.is_empty()) {
                let (kind, id) = self.account(who)?;
                self.store(&mut grants, kind, &id.to_string());
            }
        }
        Ok(grants)
    }

    /// Finds a user or group by its name or number.
    ///
    /// A number without an account is valid if an option says whether it is a user's or a group's.
    /// Everything else without an account is an error.
    fn account(&self, who: &str) -> Result<(char, u32), String> {
        let number: Option<u32> = who.parse().ok();
        let user = || match number {
            Some(id) => accounts::user(id).map(|_| id),
            None => accounts::user_id(who),
        };
        let group = || match number {
            Some(id) => accounts::group(id).map(|_| id),
            None => accounts::group_id(who),
        };
        let (found, what) = match (self.user, self.group) {
            (true, _) => (user().or(number).map(|id| ('u', id)), "user"),
            (_, true) => (group().or(number).map(|id| ('g', id)), "group"),
            _ => (user().map(|id| ('u', id)).or_else(|| group().map(|id| ('g', id))), "user/group"),
        };
        found.ok_or_else(|| format!("invalid {what} {who}\n"))
    }

    /// Adds permissions under the letter of their receiver, and sets under the same letter in upper
    /// case (`store_allow_perm`).
    fn store(&self, grants: &mut BTreeMap<String, BTreeSet<String>>, kind: char, who: &str) {
        let reaches: Vec<char> = match kind {
            's' | 'c' => vec!['-'],
            _ => [(self.local, 'l'), (self.descend, 'd')]
                .iter()
                .filter(|(on, _)| *on)
                .map(|(_, c)| *c)
                .collect(),
        };
        let words: Option<Vec<&str>> =
            self.words.as_deref().map(|words| words.split(',').filter(|w| !w.is_empty()).collect());
        for reach in reaches {
            for (letter, sets) in [(kind, false), (kind.to_ascii_uppercase(), true)] {
                let whom = format!("{letter}{reach}${who}");
                match &words {
                    None => {
                        grants.insert(whom, BTreeSet::new());
                    }
                    Some(words) => {
                        let fitting: BTreeSet<String> = words
                            .iter()
                            .filter(|w| w.starts_with('@') == sets)
                            .map(|w| (*w).to_owned())
                            .collect();
                        if !fitting.is_empty() {
                            grants.entry(whom).or_default().extend(fitting);
                        }
                    }
                }
            }
        }
    }
}

/// The order of kinds in the tables: sets, creators' permissions, users, groups, everyone
/// (`who_type2weight`).
fn weight(kind: char) -> u8 {
    match kind.to_ascii_lowercase() {
        's' => 0,
        'c' => 1,
        'u' => 2,
        'g' => 3,
        _ => 4,
    }
}

/// The permissions of one receiver. The flags say whether each applies to this dataset, and to
/// those below.
type Reach = BTreeMap<String, (bool, bool)>;

/// The grants at a dataset, as `zfs allow` shows them (`print_fs_perms`).
fn shown(at: &Granted) -> String {
    let head = format!("---- Permissions on {} ", at.dataset);
    let mut s = format!("{head}{}\n", "-".repeat(70usize.saturating_sub(head.len())));
    let mut all: BTreeMap<(u8, String), Reach> = BTreeMap::new();
    for (whom, words) in &at.grants {
        let mut letters = whom.chars();
        let (Some(kind), Some(reach)) = (letters.next(), letters.next()) else { continue };
        let entry = all.entry((weight(kind), whom.get(3..).unwrap_or_default().to_owned())).or_default();
        for word in words {
            let holds = entry.entry(word.clone()).or_default();
            match reach {
                'l' => holds.0 = true,
                'd' => holds.1 = true,
                _ => {}
            }
        }
    }
    let titles = ["Permission sets:\n", "Create time permissions:\n"];
    for (kind, title) in (0u8..).zip(titles) {
        let mut title = Some(title);
        for ((_, name), words) in all.iter().filter(|((k, _), _)| *k == kind) {
            s += title.take().unwrap_or_default();
            let words: Vec<&str> = words.keys().map(String::as_str).collect();
            let name = if name.is_empty() { String::new() } else { format!("{name} ") };
            s += &format!("\t{name}{}\n", words.join(","));
        }
    }
    let tables = [
        ("Local permissions:\n", (true, false)),
        ("Descendent permissions:\n", (false, true)),
        ("Local+Descendent permissions:\n", (true, true)),
    ];
    for (title, wanted) in tables {
        let mut title = Some(title);
        for ((kind, id), words) in all.iter().filter(|((kind, _), _)| *kind > 1) {
            let words: Vec<&str> =
                words.iter().filter(|(_, holds)| **holds == wanted).map(|(word, _)| word.as_str()).collect();
            if words.is_empty() {
                continue;
            }
            s += title.take().unwrap_or_default();
            s += &format!("\t{} {}\n", name_of(*kind, id), words.join(","));
        }
    }
    s
}

fn name_of(kind: u8, id: &str) -> String {
    let number: Option<u32> = id.parse().ok();
    let unknown = || format!("(unknown: {id})");
    match kind {
        2 => format!("user {}", number.and_then(accounts::user).unwrap_or_else(unknown)),
        3 => format!("group {}", number.and_then(accounts::group).unwrap_or_else(unknown)),
        _ => "everyone".to_owned(),
    }
}

/// Prints the long usage text (`allow_usage`). Returns the exit code.
fn usage(cx: &mut Cx, take_back: bool, why: Option<&str>, requested: bool) -> i32 {
    let name = if take_back { "unallow" } else { "allow" };
    let own = super::usage::COMMANDS.iter().flatten().find(|c| c.0 == name).map_or("", |c| c.1);
    let mut s = format!("Usage: {own}\nOptions:\n");
    for (option, does) in OPTIONS.iter().take(if take_back { 9 } else { 8 }) {
        s += &format!("  {option:<10}  {does}\n");
    }
    s += "\nThe following permissions are supported:\n\n";
    let mut row = |name: &str, kind: &str, notes: &str| s += &format!("{name:<16} {kind:<14}\t{notes}\n");
    row("NAME", "TYPE", "NOTES");
    for (name, other, notes) in PERMISSIONS {
        row(name, if other { "other" } else { "subcommand" }, notes);
    }
    let mut settable: Vec<&str> =
        props::DATASET.iter().filter(|p| p.edit != Edit::ReadOnly && !p.hidden).map(|p| p.name).collect();
    settable.sort_unstable();
    for name in settable {
        row(name, "property", "");
    }
    if let Some(why) = why {
        s += &format!("\nzfs: error: {why}");
    }
    if requested {
        cx.out.put(&s)
    } else {
        cx.err.put(&s)
    }
    if requested { 0 } else { 2 }
}
