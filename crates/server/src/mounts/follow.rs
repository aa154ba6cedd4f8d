//! How changed properties take effect in mounted file systems.

use crate::mounts::{MountedFs, Mounts, to_be_written};
use crate::replies::{of_dsl, of_fuse};
use api::{Error, Reason};
use fuse::dataset::Stale;
use fuse::tree::FileTree;
use mount_rules::Plan;
use poolhouse::Pool;
use rustix::io::Errno;

impl MountedFs {
    /// Whether it is nested in the mount of another, directly or not.
    pub(crate) fn is_within(&self, outer: &Self) -> bool {
        let places = self.mount.is_nested() && !outer.mount.is_nested();
        places && self.target().starts_with(outer.target())
    }

    /// Makes a plan take effect, as far as possible while this is mounted.
    fn adopt(&self, pool: &Pool, mut plan: Plan) -> Result<(), Reason> {
        // What the kernel learned at the mount, and can't change, stays until the next mount.
        let acls = plan.options.posix_acl && !self.posix_acl;
        plan.options.posix_acl = self.posix_acl;
        plan.policy.posix_acl = self.posix_acl;
        // While the kernel can't learn of the change, it keeps writers out. To open the dataset for
        // writing then would only keep other users from it.
        let told = rustix::process::geteuid().is_root() || self.mount.is_nested();
        if told && !plan.options.read_only && pool.spa().writer().is_some() {
            self.open_for_writing(pool, &plan)?;
        }
        plan.rest_if_read_only(self.is_read_only());
        self.policies.set(plan.policy);
        pool.spa().cache().set_policy(plan.dataset.object().0, plan.cache);
        if let Some(shown) = self.files.get() {
            shown.show_xattrs(plan.xattrs);
            if self.snapdir.set(plan.snapdir) {
                // The kernel has cached its listing, and whether it found the name.
                let root = shown.root();
                self.mount.tell(&[Stale::Name(root, b".zfs".to_vec()), Stale::File(root)]);
            }
        }
        let shut = !told && self.is_read_only() && !plan.options.read_only && pool.spa().writer().is_some();
        let Err(error) = self.tell(&plan) else {
            return match self.mount.refuses_acls() {
                _ if shut => Err(with_the_next_mount("readonly=off")),
                Some(error) if acls => Err(of_fuse(&error)),
                _ => Ok(()),
            };
        };
        // Only a process that may mount can change the kernel's options.
        let by_daemon = match error {
            fuse::Error::Mount { source, .. } => source == Errno::PERM,
            fuse::Error::Holds { .. } => !rustix::process::geteuid().is_root(),
            _ => false,
        };
        if by_daemon && !self.mount.is_nested() {
            return self.adopt_untold(&plan, shut);
        }
        if matches!(error, fuse::Error::Inside { .. }) {
            // This has taken effect.
            self.note_read_only(plan.options.read_only);
        }
        Err(of_fuse(&error))
    }

    /// Makes those parts of a plan take effect that the daemon controls, and refuses the kernel's.
    ///
    /// A user's mounts have no set-user-ID and no devices, whatever the plan says.
    fn adopt_untold(&self, plan: &Plan, shut: bool) -> Result<(), Reason> {
        let read_only = plan.options.read_only;
        let mut waits = Vec::new();
        let noexec = self.options.lock().split(',').any(|word| word == "noexec");
        match (plan.options.noexec, noexec) {
            (true, false) => waits.push("exec=off"),
            (false, true) => waits.push("exec=on"),
            _ => {}
        }
        if shut {
            waits.push("readonly=off");
        } else if !self.is_read_only() {
            if self.mount.keep_unchanged(read_only) {
                self.note_read_only(read_only);
            } else if read_only {
                waits.push("readonly=on");
            }
        }
        if waits.is_empty() { Ok(()) } else { Err(with_the_next_mount(&waits.join(", "))) }
    }

    /// Changes `ro` and `rw` in its options.
    fn note_read_only(&self, read_only: bool) {
        let mut now = self.options.lock();
        let rest = now.strip_prefix("ro").or(now.strip_prefix("rw")).unwrap_or_default();
        *now = format!("{}{rest}", if read_only || self.is_read_only() { "ro" } else { "rw" });
    }

    /// Opens a dataset for writing that was read-only.
    fn open_for_writing(&self, pool: &Pool, plan: &Plan) -> Result<(), Reason> {
        let Some(shown) = self.files.get().filter(|_| self.is_read_only()) else { return Ok(()) };
        shown.make_writable(to_be_written(pool, plan, &self.policies)?);
        Ok(())
    }

    /// Gives the kernel the options of a plan, if they differ from the present ones.
    fn tell(&self, plan: &Plan) -> Result<(), fuse::Error> {
        let read_only = self.is_read_only() || plan.options.read_only;
        let words = plan.words(read_only);
        let mut now = self.options.lock();
        if *now == words {
            return Ok(());
        }
        self.mount.remount(&fuse::Options { read_only, ..plan.options.clone() })?;
        *now = words;
        Ok(())
    }
}

impl Mounts {
    /// Makes the present properties take effect, unless options of `-o` override them.
    ///
    /// # Errors
    /// * [`Reason::NoSuchDataset`]: the dataset was destroyed.
    /// * [`Reason::NotInEffect`]: the property takes effect with the next mount. Only root may
    ///   change this mount, or it shares its options with the mount around it.
    /// * [`Reason::Busy`], [`Reason::System`], [`Reason::Daemon`]: the system refuses the options.
    ///   For example, a file is open for writing.
    /// * [`Reason::Io`], [`Reason::Corrupt`]: the properties can't be read.
    pub fn follow(&self, pool: &Pool, live: &MountedFs) -> Result<(), Error> {
        let _turn = live.turn.lock();
        let name = live.name();
        let plan = pool.dsl().dataset(&name).and_then(Plan::of);
        let plan = plan.map_err(|error| Error::new(&name, of_dsl(&error)))?;
        let Some(mut plan) = plan else { return Ok(()) };
        let given = live.given.lock().clone();
        if let Err(option) = plan.apply(&given) {
            tracing::warn!(dataset = name, option, "it was known when this was mounted");
        }
        live.adopt(pool, plan).map_err(|reason| Error::new(&name, reason))
    }

    /// Changes the options of a mount (`-o remount`).
    ///
    /// # Errors
    /// * [`Reason::BadMountOption`]: an option is unknown, or can't be changed.
    /// * [`Reason::PoolReadonly`]: the pool, the snapshot or the file system's version is
    ///   read-only.
    /// * [`Reason::System`] (`EPERM`): only root may make this mount writable.
    /// * All others: see [`Mounts::follow`].
    pub fn remount(
        &self,
        pool: &Pool,
        live: &MountedFs,
        mut plan: Plan,
        options: &[String],
    ) -> Result<(), Error> {
        let fail = |reason| Error::new(live.name(), reason);
        let _turn = live.turn.lock();
        let mut given = live.given.lock().clone();
        given.extend(options.iter().filter(|option| *option != "remount").cloned());
        plan.apply(&given).map_err(|option| fail(Reason::BadMountOption { option }))?;
        // Which users may use the mount is fixed when it is mounted.
        let lets_in = |options: &[String]| options.iter().any(|option| option == "allow_other");
        if lets_in(options)
            && !lets_in(&live.given.lock())
            && !self.others
            && !rustix::process::geteuid().is_root()
        {
            return Err(fail(Reason::BadMountOption { option: "allow_other".into() }));
        }
        let never = plan.dataset.is_snapshot() || live.files.are_served();
        if never && options.iter().any(|option| option == "rw") {
            return Err(fail(Reason::PoolReadonly));
        }
        let to_write = !plan.options.read_only;
        if to_write && live.is_read_only() {
            if pool.spa().writer().is_none() {
                return Err(fail(Reason::PoolReadonly));
            }
            if !rustix::process::geteuid().is_root() && !live.mount.is_nested() {
                return Err(fail(Reason::System { errno: Errno::PERM.raw_os_error() }));
            }
        }
        live.adopt(pool, plan).map_err(fail)?;
        if to_write && live.is_read_only() {
            // Its version is too old.
            return Err(fail(Reason::PoolReadonly));
        }
        *live.given.lock() = given;
        self.write_down(live);
        Ok(())
    }
}

/// The reason for a property that takes effect with the next mount.
fn with_the_next_mount(setting: &str) -> Reason {
    let what = format!(
        "{setting} takes effect when it is mounted again ('zfs unmount' and 'zfs mount'): only root may change it in place"
    );
    Reason::NotInEffect { setting: setting.to_owned(), what }
}
