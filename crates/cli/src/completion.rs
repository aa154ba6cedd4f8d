//! Completions for shells: `poolhouse completion bash|zsh|fish`.
//!
//! # Theory
//! The tables of the commands provide what can be completed. Verbs and options come from the usage
//! texts, properties from the table of properties.
//!
//! The completion script runs the commands to get the names of pools and datasets.
//!
//! # Absent
//! The script does not know which operand of a verb is which. It offers:
//!
//! * after a verb: names of pools or datasets;
//! * after `-o`, or for `get` and `set`: names of properties.

use crate::props::{self, Edit};
use crate::{zfs, zpool};
use console::Out;

/// A verb with its options.
#[derive(Debug, PartialEq, Eq)]
struct Verb {
    name: &'static str,
    options: Vec<String>,
}

/// The verbs of a usage table.
fn verbs(commands: &'static [Option<(&'static str, &'static str)>]) -> Vec<Verb> {
    commands.iter().flatten().map(|(name, usage)| Verb { name, options: options(usage) }).collect()
}

/// The options in a usage text: the letters of `[-abc]` and `-x`, and words with two hyphens.
fn options(usage: &str) -> Vec<String> {
    let mut options = Vec::new();
    for word in usage.split(|c: char| c.is_whitespace() || "[]|,<>=()".contains(c)) {
        if word.len() > 2 && word.starts_with("--") {
            options.push(word.to_owned());
        } else if let Some(letters) = word.strip_prefix('-')
            && letters.chars().all(|c| c.is_ascii_alphanumeric())
        {
            options.extend(letters.chars().map(|c| format!("-{c}")));
        }
    }
    options.sort();
    options.dedup();
    options
}

/// Verbs whose first operands are properties.
const OF_PROPERTIES: [&str; 3] = ["get", "set", "inherit"];

struct Command {
    name: &'static str,
    verbs: Vec<Verb>,
    properties: Vec<&'static str>,
    settable: Vec<&'static str>,
    /// The command line that prints names for operands.
    names: &'static str,
}

fn commands() -> [Command; 2] {
    let visible = |table: &'static [props::PropDesc]| props::ordered(table);
    let names = |table| visible(table).iter().map(|p| p.name).collect();
    let settable =
        |table| visible(table).iter().filter(|p| p.edit != Edit::ReadOnly).map(|p| p.name).collect();
    [
        Command {
            name: "zpool",
            verbs: verbs(zpool::COMMANDS),
            properties: names(props::POOL),
            settable: settable(props::POOL),
            names: "zpool list -H -o name 2>/dev/null",
        },
        Command {
            name: "zfs",
            verbs: verbs(zfs::COMMANDS),
            properties: names(props::DATASET),
            settable: settable(props::DATASET),
            names: "zfs list -H -o name -t all 2>/dev/null",
        },
    ]
}

/// The commands of the program under its own name.
pub(crate) const OWN: &str = "zpool zfs zdb zstream ls cp send stream export unexport exports afs attach detach man bench serve get set arcstat status top ops slower trace profile cost lockstat txgs arc_summary web metrics histogram estimate doctor completion help version";
/// The operands of some commands, if they are not files.
const THEN: [(&str, &str); 6] = [
    ("get", "tunable kstat"),
    ("set", "tunable"),
    ("completion", "bash zsh fish"),
    ("top", "-v datasets ops clients vms calls afs-clients volumes attach locks promises threads"),
    (
        "afs",
        "enable disable status volumes report clients locks export adopt $(zfs list -H -o name -t filesystem 2>/dev/null)",
    ),
    ("export|unexport|attach|detach", "$(zfs list -H -o name -t volume,snapshot 2>/dev/null)"),
];

fn bash() -> String {
    let mut s = String::from("# Completions of zpool, zfs and poolhouse for bash.\n");
    for c in commands() {
        let verbs: Vec<&str> = c.verbs.iter().map(|v| v.name).collect();
        s += &format!(
            "_poolhouse_{name}() {{\n  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} at=1 words=\n  \
             [ \"$1\" != poolhouse ] || at=2\n  \
             if [ \"$COMP_CWORD\" -le \"$at\" ]; then\n    words='{verbs} help'\n  else\n    case ${{COMP_WORDS[at]}}:$cur in\n",
            name = c.name,
            verbs = verbs.join(" "),
        );
        for verb in c.verbs.iter().filter(|v| !v.options.is_empty()) {
            s += &format!("      {}:-*) words='{}' ;;\n", verb.name, verb.options.join(" "));
        }
        s += &format!(
            "      get:*|inherit:*) words='{all}'\" $({names})\" ;;\n      set:*) words='{set}'\" $({names})\" ;;\n      *) words=$({names}) ;;\n    esac\n    \
             [ \"$prev\" != -o ] || words='{all}'\n  fi\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n",
            all = c.properties.join(" "),
            set = c.settable.iter().map(|p| format!("{p}=")).collect::<Vec<_>>().join(" "),
            names = c.names,
        );
        s += &format!(
            "  # Devices and images are files.\n  [ ${{#COMPREPLY[@]}} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n  [[ ${{COMPREPLY[0]-}} != *= ]] || compopt -o nospace\n}}\ncomplete -F _poolhouse_{name} {name}\n",
            name = c.name
        );
    }
    let then: String = THEN
        .iter()
        .map(|(verb, words)| {
            let verbs = verb.replace('|', "|*:");
            format!("    *:{verbs}) mapfile -t COMPREPLY < <(compgen -W \"{words}\" -- \"${{COMP_WORDS[COMP_CWORD]}}\") ;;\n")
        })
        .collect();
    s += &format!(
        "_poolhouse() {{\n  case $COMP_CWORD:${{COMP_WORDS[1]}} in\n    1:*) mapfile -t COMPREPLY < <(compgen -W '{OWN}' -- \"${{COMP_WORDS[1]}}\") ;;\n    \
         *:zpool) _poolhouse_zpool poolhouse ;;\n    *:zfs) _poolhouse_zfs poolhouse ;;\n{then}    *) mapfile -t COMPREPLY < <(compgen -f -- \"${{COMP_WORDS[COMP_CWORD]}}\") ;;\n  esac\n}}\ncomplete -F _poolhouse poolhouse\n"
    );
    s
}

fn zsh() -> String {
    let mut s =
        String::from("#compdef zpool zfs poolhouse\n# Completions of zpool, zfs and poolhouse for zsh.\n");
    for c in commands() {
        let verbs: Vec<&str> = c.verbs.iter().map(|v| v.name).collect();
        s += &format!(
            "_poolhouse_{name}() {{\n  if (( CURRENT == 2 )); then\n    compadd -- {verbs} help\n    return\n  fi\n  case $words[2]:$PREFIX in\n",
            name = c.name,
            verbs = verbs.join(" ")
        );
        for verb in c.verbs.iter().filter(|v| !v.options.is_empty()) {
            s += &format!("    {}:-*) compadd -- {} ;;\n", verb.name, verb.options.join(" "));
        }
        s += &format!(
            "    (get|inherit):*) compadd -- {all}; compadd -- ${{(f)\"$({names})\"}} ;;\n    set:*) compadd -S= -- {set}; compadd -- ${{(f)\"$({names})\"}} ;;\n    \
             *) compadd -- ${{(f)\"$({names})\"}}; _files ;;\n  esac\n}}\n",
            all = c.properties.join(" "),
            set = c.settable.join(" "),
            names = c.names,
        );
    }
    s += &format!(
        "_poolhouse() {{\n  case $service in\n    zpool) _poolhouse_zpool ;;\n    zfs) _poolhouse_zfs ;;\n    *)\n      if (( CURRENT == 2 )); then\n        compadd -- {OWN}\n        return\n      fi\n      \
         case $words[2] in\n        zpool|zfs) local command=$words[2]; shift words; (( CURRENT-- )); _poolhouse_$command ;;\n        *) _files ;;\n      esac ;;\n  esac\n}}\n_poolhouse \"$@\"\n"
    );
    s
}

fn fish() -> String {
    let mut s = String::from("# Completions of zpool, zfs and poolhouse for fish.\n");
    for c in commands() {
        let name = c.name;
        let verbs: Vec<&str> = c.verbs.iter().map(|v| v.name).collect();
        s += &format!("complete -c {name} -n __fish_use_subcommand -f -a '{} help'\n", verbs.join(" "));
        s += &format!("complete -c {name} -n 'not __fish_use_subcommand' -a '({})'\n", c.names);
        for verb in &c.verbs {
            let seen = format!("-n '__fish_seen_subcommand_from {}'", verb.name);
            for option in &verb.options {
                match option.strip_prefix("--") {
                    Some(long) => s += &format!("complete -c {name} {seen} -l {long}\n"),
                    None => s += &format!("complete -c {name} {seen} -s {}\n", &option[1..]),
                }
            }
            if OF_PROPERTIES.contains(&verb.name) {
                let words = if verb.name == "set" {
                    c.settable.iter().map(|p| format!("{p}=")).collect::<Vec<_>>().join(" ")
                } else {
                    c.properties.join(" ")
                };
                s += &format!("complete -c {name} {seen} -f -a '{words}'\n");
            }
        }
    }
    s += &format!("complete -c poolhouse -n __fish_use_subcommand -f -a '{OWN}'\n");
    for c in commands() {
        let verbs: Vec<&str> = c.verbs.iter().map(|v| v.name).collect();
        let seen = format!("-n '__fish_seen_subcommand_from {}'", c.name);
        s += &format!("complete -c poolhouse {seen} -f -a '{} help ({})'\n", verbs.join(" "), c.names);
    }
    for (verbs, words) in THEN {
        let (verbs, words) = (verbs.replace('|', " "), words.replace("$(", "("));
        s += &format!("complete -c poolhouse -n '__fish_seen_subcommand_from {verbs}' -f -a '{words}'\n");
    }
    s
}

const USAGE: &str = "usage: poolhouse completion bash|zsh|fish\n";

/// `poolhouse completion bash|zsh|fish`. Returns the exit code.
pub fn run(out: &mut Out, err: &mut Out, args: &[String]) -> i32 {
    let script = match args {
        [shell] if shell == "bash" => bash(),
        [shell] if shell == "zsh" => zsh(),
        [shell] if shell == "fish" => fish(),
        [help] if help == "--help" || help == "-h" => {
            out.put(&format!("{USAGE}\nbash: source <(poolhouse completion bash)\n"));
            return 0;
        }
        _ => {
            match args {
                [] => err.put("missing shell\n"),
                [shell] => writeln!(err, "unknown shell '{shell}'"),
                _ => err.put("too many arguments\n"),
            }
            err.put(USAGE);
            return 2;
        }
    };
    out.put(&script);
    0
}

#[cfg(test)]
mod tests;
