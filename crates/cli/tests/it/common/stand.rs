//! A pool whose file systems are mounted below a folder of its own.

use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

use api::Requests;
use server::house::House;

use super::{Ran, run};

/// The pool `tank` of one device, and the folder that holds it.
pub struct Stand {
    pub house: Rc<dyn Requests>,
    pub dir: tempfile::TempDir,
}

impl Stand {
    /// Says why aloud and gives nothing where nothing can be mounted.
    pub fn new(options: &str) -> Option<Self> {
        Self::sized(256 << 20, options)
    }

    /// The same with a device of so many bytes.
    pub fn sized(bytes: u64, options: &str) -> Option<Self> {
        Self::over(Rc::new(House::new().in_process()), bytes, options)
    }

    /// The same of this house.
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

    /// The same, for what only root may do.
    #[allow(clippy::print_stderr, reason = "a helper says what it leaves out")]
    pub fn of_root() -> Option<Self> {
        let stand = Self::new("")?;
        if !Self::is_root() {
            eprintln!("only root may remount");
            return None;
        }
        Some(stand)
    }

    /// Whether this is root's own test run.
    pub fn is_root() -> bool {
        Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n")
    }

    pub fn ran(&self, line: &str) -> Ran {
        run(line, self.house.clone())
    }

    /// What a command prints that succeeds and complains of nothing.
    pub fn good(&self, line: &str) -> String {
        let ran = self.ran(line);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        ran.out
    }

    /// What a command says that fails.
    pub fn bad(&self, line: &str) -> String {
        let ran = self.ran(line);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{line}");
        ran.err
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("root").join(path)
    }

    /// What is mounted, and where, below that folder.
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
