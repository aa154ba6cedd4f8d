//! Scripts that describe devices (`zpool iostat -c`, `zpool status -c`).
//!
//! # Theory
//! Each script runs once for each device, with the device's path in its environment. Its output
//! becomes columns: `NAME=VALUE` a column of that name, any other line a column named after the
//! script.
//!
//! Scripts have plain names, and are searched for in a list of folders. Root runs none unless
//! `ZPOOL_SCRIPTS_AS_ROOT` is set.
//!
//! # See
//! OpenZFS `zpool_iter.c` (`all_pools_for_each_vdev_run`), `zpool_main.c` (`print_cmd_columns`).

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use api::{Pool, Vdev};

use crate::cx::{Color, Cx, ScriptOutput, Stop};

/// Limit of a script's output for one device, in bytes.
const OUTPUT_MAX: u64 = 1 << 16;
/// Number of devices for which scripts run at a time.
const AT_A_TIME: usize = 16;

/// The scripts of one command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scripts {
    paths: Vec<(String, PathBuf)>,
}

/// The folders to search for scripts (`zpool_get_cmd_search_path`).
fn folders(cx: &Cx) -> Vec<PathBuf> {
    let path = (cx.env)("ZPOOL_SCRIPTS_PATH").unwrap_or_else(|| {
        let home = (cx.env)("HOME").map(|home| format!("{home}/.zpool.d:")).unwrap_or_default();
        format!("{home}/etc/zfs/zpool.d")
    });
    path.split(':').filter(|p| !p.is_empty()).map(PathBuf::from).collect()
}

impl Scripts {
    /// Finds the scripts of `zpool VERB -c LIST`. Without a list, it prints the available scripts.
    ///
    /// # Errors
    /// * [`Stop::Fail`] with 0: there is no list, and the scripts were printed.
    /// * [`Stop::Fail`] with 1: scripts are disabled, root may not run them, or one does not exist.
    pub(super) fn parse(cx: &mut Cx, verb: &str, list: Option<&str>) -> Result<Scripts, Stop> {
        let folders = folders(cx);
        let Some(list) = list else {
            tell(cx, verb, &folders);
            return Err(Stop::Fail(0));
        };
        if (cx.env)("ZPOOL_SCRIPTS_ENABLED").is_some() && !cx.env_is_set("ZPOOL_SCRIPTS_ENABLED") {
            cx.err.put("Can't run -c, disabled by ZPOOL_SCRIPTS_ENABLED.\n");
            return Err(Stop::Fail(1));
        }
        let root = rustix::process::getuid().is_root() || rustix::process::geteuid().is_root();
        if root && !cx.env_is_set("ZPOOL_SCRIPTS_AS_ROOT") {
            cx.err.put("Can't run -c with root privileges unless ZPOOL_SCRIPTS_AS_ROOT is set.\n");
            return Err(Stop::Fail(1));
        }
        let plain = |name: &str| {
            let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            !name.is_empty() && !name.starts_with('.') && name.chars().all(fine)
        };
        let mut paths = Vec::new();
        for name in list.split(',') {
            let found = folders.iter().map(|folder| folder.join(name)).find(|p| plain(name) && p.is_file());
            let Some(path) = found else {
                writeln!(cx.err, "Can't run '{name}': there is no such script");
                return Err(Stop::Fail(1));
            };
            paths.push((name.to_owned(), path));
        }
        Ok(Scripts { paths })
    }

    /// Runs the scripts for every device of these pools.
    pub(super) fn run(&self, pools: &[Pool]) -> ScriptOutput {
        let mut leaves: Vec<&Vdev> = Vec::new();
        for pool in pools {
            let beside = pool.l2cache.iter().chain(&pool.spares);
            std::iter::once(&pool.root).chain(beside).for_each(|v| gather(v, &mut leaves));
        }
        let mut said: Vec<Vec<(String, String)>> = Vec::new();
        for part in leaves.chunks(AT_A_TIME) {
            std::thread::scope(|scope| {
                let threads: Vec<_> = part.iter().map(|v| scope.spawn(|| self.about(v))).collect();
                said.extend(threads.into_iter().map(|t| t.join().expect("a panic ends the program")));
            });
        }
        let mut answers = ScriptOutput::default();
        for (v, pairs) in leaves.iter().zip(said) {
            let of = answers.values.entry(v.guid).or_default();
            for (name, value) in pairs {
                let width = value.chars().count().max(name.chars().count());
                match answers.columns.iter_mut().find(|(column, _)| *column == name) {
                    Some((_, widest)) => *widest = width.max(*widest),
                    None => answers.columns.push((name.clone(), width)),
                }
                of.insert(name, value);
            }
        }
        answers
    }

    fn about(&self, v: &Vdev) -> Vec<(String, String)> {
        self.paths.iter().flat_map(|(name, path)| ask(name, path, v)).collect()
    }
}

/// Lists the available scripts with their folders (`print_zpool_script_list`).
fn tell(cx: &mut Cx, verb: &str, folders: &[PathBuf]) {
    writeln!(cx.out, "Available 'zpool {verb} -c' commands:");
    for folder in folders {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|e| e.file_name().into_string().ok())
            .filter(|n| !n.starts_with('.'))
            .collect();
        names.sort();
        for name in names {
            writeln!(cx.out, "\t{name:<14}  {}", folder.display());
        }
    }
}

fn gather<'a>(v: &'a Vdev, into: &mut Vec<&'a Vdev>) {
    if v.children.is_empty() && v.path.is_some() {
        into.push(v);
    }
    v.children.iter().for_each(|c| gather(c, into));
}

/// Runs one script for one device (`vdev_run_cmd`).
fn ask(name: &str, script: &PathBuf, v: &Vdev) -> Vec<(String, String)> {
    let path = v.path.clone().unwrap_or_default();
    let real = std::fs::canonicalize(&path).map_or_else(|_| path.clone(), |p| p.display().to_string());
    let mut command = Command::new(script);
    command.env_clear().env("PATH", "/bin:/sbin:/usr/bin:/usr/sbin");
    command.env("VDEV_PATH", &path).env("VDEV_UPATH", &real);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut text = Vec::new();
    if let Ok(mut child) = command.spawn() {
        if let Some(out) = child.stdout.take() {
            // After the limit the pipe is closed, which ends a script that prints forever.
            let _ = out.take(OUTPUT_MAX).read_to_end(&mut text);
        }
        let _ = child.wait();
    }
    columns(name, &String::from_utf8_lossy(&text))
}

/// The columns of a script's output; at least one (`vdev_process_cmd_output`).
fn columns(script: &str, text: &str) -> Vec<(String, String)> {
    let clean = |t: &str| -> String {
        let kept: String = t.trim().chars().filter(|c| !c.is_control()).collect();
        if kept.is_empty() { "-".to_owned() } else { kept }
    };
    let mut all: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter(|l| !l.trim().is_empty()) {
        match line.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => all.push((clean(name), clean(value))),
            _ => all.push((script.to_owned(), clean(line))),
        }
    }
    if all.is_empty() {
        all.push((script.to_owned(), "-".to_owned()));
    }
    all
}

impl ScriptOutput {
    /// Prints the titles of the columns, after those of the table itself.
    pub(super) fn head(&self, cx: &mut Cx) {
        for (name, width) in &self.columns {
            cx.colored(Some(Color::Bold), &format!("  {name:>width$}"));
        }
    }

    /// Prints the dashes below the titles.
    pub(super) fn dashes(&self, cx: &mut Cx) {
        self.columns.iter().for_each(|(_, width)| write!(cx.out, "  {}", "-".repeat(*width)));
    }

    /// Prints the columns of a device; nothing for an interior vdev.
    pub(super) fn row(&self, cx: &mut Cx, v: &Vdev, scripted: bool) {
        let Some(values) = self.values.get(&v.guid) else { return };
        for (name, width) in &self.columns {
            let value = values.get(name).map_or("-", String::as_str);
            match scripted {
                true => write!(cx.out, "\t{value}"),
                false => write!(cx.out, "  {value:>width$}"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
