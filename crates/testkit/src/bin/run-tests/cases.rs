//! Test programs, and their tests.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A message from cargo about something that it built.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// A test program.
pub struct Program {
    /// The name of its package, and of its target if that is not the library.
    name: String,
    file: PathBuf,
    /// The directory of its package, in which its tests run.
    folder: PathBuf,
}

/// A test.
#[derive(Clone)]
pub struct Case {
    program: Arc<Program>,
    /// The path of the test in the program.
    path: String,
    /// Whether it is an ignored test, which runs only if a caller names it.
    pub ignored: bool,
}

/// Finds the test programs among the things that cargo built.
///
/// # Errors
/// A message: cargo's messages can't be read, or they have no test program.
pub fn programs(messages: impl BufRead) -> Result<Vec<Arc<Program>>, String> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let line = line.map_err(|e| format!("cargo's messages: {e}"))?;
        // Build scripts may print between the messages.
        let Ok(message) = serde_json::from_str::<Message>(&line) else { continue };
        let Message { reason, manifest_path, target, profile, executable } = message;
        let is_test = reason == "compiler-artifact" && profile.is_some_and(|profile| profile.test);
        let (true, Some(manifest), Some(target), Some(file)) = (is_test, manifest_path, target, executable)
        else {
            continue;
        };
        let folder = manifest.parent().unwrap_or(Path::new("/")).to_owned();
        let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_library = target.kind.iter().any(|kind| kind == "lib");
        let name = if is_library { package } else { format!("{package}::{}", target.name) };
        programs.push(Arc::new(Program { name, file, folder }));
    }
    if programs.is_empty() { Err("cargo built no test program".into()) } else { Ok(programs) }
}

impl Program {
    /// Lists the tests of the program.
    ///
    /// # Errors
    /// A message: the program can't be started or fails.
    pub fn cases(self: &Arc<Self>) -> Result<Vec<Case>, String> {
        let list = |more: &[&str]| {
            let failed = |why: String| format!("{}: its tests can't be listed: {why}", self.name);
            let mut command = self.command();
            command.args(["--list", "--format", "terse"]).args(more);
            let ran = command.output().map_err(|e| failed(e.to_string()))?;
            if !ran.status.success() {
                return Err(failed(String::from_utf8_lossy(&ran.stderr).into_owned()));
            }
            let text = String::from_utf8_lossy(&ran.stdout).into_owned();
            Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
        };
        let ignored: BTreeSet<String> = list(&["--ignored"])?;
        let all: BTreeSet<String> = list(&[])?;
        let case = |path: String| Case { program: Arc::clone(self), ignored: ignored.contains(&path), path };
        Ok(all.into_iter().map(case).collect())
    }

    /// A command that starts the program as cargo does.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

impl Case {
    /// The name of the test: its program, and its path there.
    pub fn name(&self) -> String {
        format!("{} {}", self.program.name, self.path)
    }

    /// A command that runs this test and no other.
    pub fn command(&self) -> Command {
        let mut command = self.program.command();
        command.args(["--exact", &self.path, "--test-threads=1"]);
        command
    }
}
