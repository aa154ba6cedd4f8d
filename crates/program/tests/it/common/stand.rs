//! A pool with its file systems mounted below a test directory.

use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

use api::Requests;
use server::service::LocalService;

use super::{Ran, run};

/// The pool `tank` on one device, and its directory.
pub struct Stand {
    pub house: Rc<dyn Requests>,
    pub dir: tempfile::TempDir,
}

impl Stand {
    /// Returns `None`, with a message, if mounting is not possible.
    pub fn new(options: &str) -> Option<Self> {
        Self::sized(256 << 20, options)
    }

    /// As `new`, with a device of this many bytes.
    pub fn sized(bytes: u64, options: &str) -> Option<Self> {
        Self::over(Rc::new(LocalService::new().in_process()), bytes, options)
    }

    /// As `sized`, with this service.
    #[allow(clippy::print_stderr, reason = "a helper says what it leaves out")]
    pub fn over(house: Rc<dyn Requests>, bytes: u64, options: &str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        let image = dir.path().join("d0.img");
        std::fs::File::create(&image).expect("an image").set_len(bytes).expect("room");
        let root = dir.path().join("root");
        let line = format!("zpool create {options} -R {} tank {}", root.display(), image.display());
        let made = run(&line, house.clone());
        if made.code != 0 {
            eprintln!("nothing can be mounted here: {}", made.err);
            return None;
        }
        Some(Self { house, dir })
    }

    /// As `new`, for tests that need root.
    #[allow(clippy::print_stderr, reason = "a helper says what it leaves out")]
    pub fn of_root() -> Option<Self> {
        let stand = Self::new("")?;
        if !Self::is_root() {
            eprintln!("only root may remount");
            return None;
        }
        Some(stand)
    }

    /// True if the test runs as root.
    pub fn is_root() -> bool {
        Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n")
    }

    pub fn ran(&self, line: &str) -> Ran {
        run(line, self.house.clone())
    }

    /// Runs a command that must succeed without error output. Returns its output.
    pub fn good(&self, line: &str) -> String {
        let ran = self.ran(line);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        ran.out
    }

    /// Runs a command that must fail. Returns its error output.
    pub fn bad(&self, line: &str) -> String {
        let ran = self.ran(line);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{line}");
        ran.err
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("root").join(path)
    }

    /// The mounted datasets and their mount points relative to that directory.
    pub fn mounted(&self) -> Vec<(String, String)> {
        let root = format!("{}/", self.dir.path().join("root").display());
        let lines = self.good("zfs mount");
        let pair = |line: &str| {
            let (name, at) = line.split_once(char::is_whitespace).expect("a name and a place");
            (name.to_owned(), at.trim().replace(&root, ""))
        };
        lines.lines().map(pair).collect()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.ran("zpool export -f tank");
    }
}
