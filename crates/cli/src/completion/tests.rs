//! Completions: what the tables provide, and what shells offer.

use super::*;
use std::io::Write;
use std::process::{Command as Process, Stdio};

/// Goal: usage texts provide each option once, and nothing else.
#[test]
fn from_usage() {
    let usage = "\tlist [-Hp] [-j [--json-int]] [-r|-d max] [-o property[,...]] <filesystem|a-b> -t\n";
    assert_eq!(options(usage), ["--json-int", "-H", "-d", "-j", "-o", "-p", "-r", "-t"]);
}

/// What bash offers for a line whose last word is being typed; `None` if bash is not installed.
fn offered(line: &str) -> Option<Vec<String>> {
    let words: Vec<&str> = line.split(' ').collect();
    let function =
        if words[0] == "poolhouse" { "_poolhouse".to_owned() } else { format!("_poolhouse_{}", words[0]) };
    let quoted: Vec<String> = words.iter().map(|w| format!("'{w}'")).collect();
    let script = format!(
        "zpool() {{ echo tank; }}; zfs() {{ echo tank/home; }}; compopt() {{ :; }}\n{}\nCOMP_WORDS=({})\nCOMP_CWORD={}\n{function} {} {} {}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        bash(),
        quoted.join(" "),
        words.len() - 1,
        // The arguments are those of `complete -F`.
        quoted[0],
        quoted[quoted.len() - 1],
        quoted[quoted.len() - 2],
    );
    let mut shell = Process::new("bash")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    shell.stdin.take().expect("it was asked for").write_all(script.as_bytes()).expect("it reads");
    let ran = shell.wait_with_output().expect("it ends");
    assert!(ran.stderr.is_empty(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
    Some(String::from_utf8(ran.stdout).expect("text").lines().map(str::to_owned).collect())
}

/// Goal: bash runs its script, and offers verbs, options, properties and names, also after
/// `poolhouse`.
#[test]
fn in_bash() {
    for (line, wanted) in [
        ("zfs snap", vec!["snapshot"]),
        ("zpool im", vec!["import"]),
        ("zfs get compressr", vec!["compressratio"]),
        ("zfs set recordsi", vec!["recordsize="]),
        ("zfs destroy ta", vec!["tank/home"]),
        ("zpool status ta", vec!["tank"]),
        ("zfs list -o usedbys", vec!["usedbysnapshots"]),
        ("zfs list --js", vec!["--json-int"]),
        ("poolhouse doc", vec!["doctor"]),
        ("poolhouse est", vec!["estimate"]),
        ("poolhouse unexp", vec!["unexport"]),
        ("poolhouse get tun", vec!["tunable"]),
        ("poolhouse completion z", vec!["zsh"]),
        ("poolhouse detach ta", vec!["tank/home"]),
        ("poolhouse zfs snap", vec!["snapshot"]),
    ] {
        let Some(mut got) = offered(line) else { return };
        got.sort();
        assert_eq!(got, wanted, "{line}");
    }
}

/// Goal: zsh and fish can parse their scripts, if they are installed, and every verb is in them.
#[test]
fn in_other_shells() {
    for (shell, script) in [("zsh", zsh()), ("fish", fish())] {
        for c in commands() {
            assert!(c.verbs.iter().all(|v| script.contains(v.name)), "{shell}");
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &script).expect("room");
        if let Ok(ran) = Process::new(shell).arg("-n").arg(file.path()).output() {
            assert!(ran.status.success(), "{shell}: {}", String::from_utf8_lossy(&ran.stderr));
        }
    }
}
