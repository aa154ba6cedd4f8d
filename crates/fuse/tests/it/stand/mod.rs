//! A pool in a file, mounted through the real kernel.

#![allow(dead_code)]

#[path = "../../../../zpl/tests/it/rig/mod.rs"]
pub mod rig;

use fuse::dataset::{Dataset, Shown};
use fuse::tree::Statfs;
use fuse::{Detach, Mount, Options, Workers};
use rig::Rig;
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zpl::{NewFileSystem, Policy};

/// Whether this machine can mount. Prints a note if not.
pub fn can_mount() -> bool {
    let can = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        println!("skipped: /dev/fuse can't be opened here");
    }
    can
}

/// A mounted pool.
pub struct Stand {
    pub rig: Option<Rig>,
    mount: Option<Mount>,
    dir: tempfile::TempDir,
    policy: Policy,
}

impl Stand {
    pub fn new(policy: Policy) -> Stand {
        Self::over(Rig::with(&NewFileSystem::new((1_000_000, 0)), policy), policy)
    }

    pub fn over(rig: Rig, policy: Policy) -> Stand {
        let dir = tempfile::tempdir().unwrap();
        let workers = Arc::new(Workers::start("fuse-test", 3).unwrap());
        let posix_acl = policy.posix_acl;
        let shown = Shown { name: "tank".into(), posix_acl, xattrs: true, sizes: Statfs::default() };
        let tree = Arc::new(Dataset::new(rig.fs.clone(), shown));
        let allow_other = rustix::process::geteuid().is_root();
        let options = Options { source: "tank".into(), posix_acl, allow_other, ..Options::default() };
        let mount = Mount::new(&workers, tree, dir.path(), &options).unwrap();
        Stand { rig: Some(rig), mount: Some(mount), dir, policy }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Unmounts, exports, has OpenZFS check the pool, and mounts it again.
    pub fn again(mut self) -> Stand {
        self.mount.take().unwrap().unmount(Detach::Normal).unwrap();
        let rig = self.rig.take().unwrap().again(self.policy);
        Stand::over(rig, self.policy)
    }

    /// Unmounts, exports, and has OpenZFS check the pool.
    pub fn end(mut self) {
        self.mount.take().unwrap().unmount(Detach::Normal).unwrap();
        let rig = self.rig.take().unwrap();
        assert!(rig.fs.unlinked().unwrap().is_empty(), "what was removed is freed");
        let dir = rig.export();
        rig::judge(dir.path());
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            mount.unmount(Detach::Lazy).unwrap();
        }
    }
}

pub fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Errno {
    Errno::from_io_error(&result.unwrap_err()).unwrap()
}

pub fn list(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
