//! Volumes as block devices of this machine.
//!
//! # Theory
//! Some programs need a block device. For them the daemon serves the volume as a file through FUSE
//! and makes a loop device over it. `/dev/zvol/POOL/VOLUME` is a link to that device, as with the
//! kernel module. This works wherever there are loop devices and FUSE. It costs two more layers on
//! the I/O path, and needs root.
//!
//! The file is the volume: a discard frees its blocks, and a flush commits its intent log.
//!
//! # Life
//! An attached volume has a user, just as with an NBD client.
//!
//! * Before its pool or dataset disappears, a device that is not open is flushed and detached.
//! * A device in use makes the pool and the dataset busy. Each process that has it open uses it,
//!   mounted or not.
//! * At the daemon's end, and if detaching is forced, a device in use is flushed and detached. Its
//!   users get errors.
//! * Devices that a dead daemon left are detached by the next daemon.
//!
//! # Locks
//! The lock of a pool's table of files is held for look-ups and inserts. It is never held while a
//! device is created, since the kernel reads from a new device at once.
//!
//! # Absent
//! ublk, and the kernel's own NBD client: neither could be tried.

pub(crate) mod device;
mod every;

use device::{Device, Taken, link_of};
pub(crate) use device::{detach_dead, losetup};

use crate::pools::imported::Imported;
use crate::pools::table::PoolTable;
use crate::replies::of_fuse;
use api::{Caller, Error, Reason};
use fuse::tree::{Allocate, Attr, Entry, FileTree, Flags, Node, Seek, SetAttr, Statfs, Time};
use fuse::{Detach, Mount, Options};
use nbd::{Code, Disk, Extent, Lease};
use observe::clients::{Connection, Key, Kind, Who};
use observe::lock::{Mutex, RwLock};
use observe::ops::{Ended, Frontend};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The folder of files. The node number of a volume's file is its dataset's object number, which is
/// never 1.
const ROOT: Node = Node(1);

/// The attached volumes.
#[derive(Default)]
pub(crate) struct Attachments {
    /// The folder for the mounts of pools' volumes; none without a daemon.
    folder: Mutex<Option<PathBuf>>,
    /// The attached volumes of each pool. Held for look-ups, never across a mount or a device
    /// operation.
    pools: Mutex<BTreeMap<String, Arc<Files>>>,
    /// One lock for each pool, held while its files are mounted.
    gates: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
    /// Whether every volume gets a device.
    every: AtomicBool,
}

impl Attachments {
    fn of(&self, pool: &str) -> Option<Arc<Files>> {
        self.pools.lock().get(pool).cloned()
    }
}

/// The files of a pool's attached volumes, and their mount.
struct Files {
    tree: Arc<Volumes>,
    mount: Mount,
    /// The devices by the names of their datasets.
    devices: Mutex<BTreeMap<String, Device>>,
}

/// A folder of volumes, as files that are named by number.
#[derive(Default)]
struct Volumes(RwLock<BTreeMap<u64, Arc<Attached>>>);

struct Attached {
    lease: Lease,
    /// The kernel, which sends the requests of the block device.
    client: Connection,
    read_only: bool,
}

impl Volumes {
    fn file(&self, node: Node) -> Result<Arc<Attached>, Errno> {
        if node == ROOT {
            return Err(Errno::ISDIR);
        }
        self.0.read().get(&node.0).cloned().ok_or(Errno::NOENT)
    }

    fn folder(&self, node: Node) -> Result<(), Errno> {
        if node == ROOT { Ok(()) } else { Err(Errno::NOTDIR) }
    }
}

/// The number of NBD clients, as text.
fn clients(count: usize) -> String {
    if count == 1 { "an NBD client".to_owned() } else { format!("{count} NBD clients") }
}

fn errno(written: bool) -> impl Fn(nbd::Error) -> Errno {
    move |error| match error.code(written) {
        Code::Perm => Errno::ROFS,
        Code::Io | Code::Shutdown => Errno::IO,
        Code::Inval => Errno::INVAL,
        Code::NoSpc => Errno::NOSPC,
        Code::Overflow => Errno::FBIG,
        Code::NotSup => Errno::OPNOTSUPP,
    }
}

impl Attached {
    fn disk(&self) -> &dyn Disk {
        self.lease.disk()
    }

    fn written(&self) -> Result<&dyn Disk, Errno> {
        if self.read_only || self.disk().is_read_only() { Err(Errno::ROFS) } else { Ok(self.disk()) }
    }
}

impl FileTree for Volumes {
    fn root(&self) -> Node {
        ROOT
    }

    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Attr, Errno> {
        self.folder(dir)?;
        let number = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
        self.attr(Node(number.filter(|n| *n != ROOT.0).ok_or(Errno::NOENT)?))
    }

    fn attr(&self, node: Node) -> Result<Attr, Errno> {
        let (mode, nlink, size) = match node {
            ROOT => (0o040_700, 2, 2),
            _ => {
                let file = self.file(node)?;
                (if file.written().is_ok() { 0o100_600 } else { 0o100_400 }, 1, file.disk().size())
            }
        };
        let time = Time::default();
        Ok(Attr {
            node,
            ino: node.0,
            generation: 0,
            parent: ROOT,
            mode,
            nlink,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: (0, 0),
            size,
            blocks: size / 512,
            blksize: 4096,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            // Its size may change without the kernel's knowledge.
            settled: false,
        })
    }

    fn readlink(&self, _: Node) -> Result<Vec<u8>, Errno> {
        Err(Errno::INVAL)
    }

    fn read(&self, node: Node, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let file = self.file(node)?;
        let left = file.disk().size().saturating_sub(offset).min(buf.len() as u64) as usize;
        file.disk().read(offset, &mut buf[..left]).map_err(errno(false))?;
        Ok(left)
    }

    fn readdir(&self, dir: Node, cookie: u64, limit: usize) -> Result<Vec<Entry>, Errno> {
        self.folder(dir)?;
        let entry = |object: &u64| Entry {
            name: object.to_string().into_bytes(),
            node: Some(Node(*object)),
            ino: *object,
            kind: 8,
            cookie: *object,
        };
        Ok(self.0.read().range(cookie + 1..).map(|(object, _)| entry(object)).take(limit).collect())
    }

    fn xattr(&self, _: Node, _: &[u8]) -> Result<Vec<u8>, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn xattr_names(&self, _: Node) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(Vec::new())
    }

    fn statfs(&self, _: Node) -> Result<Statfs, Errno> {
        Ok(Statfs { unit: 512, transfer: 4096, name_max: 20, ..Statfs::default() })
    }

    fn seek(&self, node: Node, offset: u64, what: Seek) -> Result<u64, Errno> {
        let file = self.file(node)?;
        let (size, want) = (file.disk().size(), if what == Seek::Data { Extent::Data } else { Extent::Hole });
        if offset >= size {
            return Err(Errno::NXIO);
        }
        match (file.disk().next(offset, want).map_err(errno(false))?, what) {
            (at, Seek::Data) if at >= size => Err(Errno::NXIO),
            (at, _) => Ok(at),
        }
    }

    fn flags(&self, _: Node) -> Result<Flags, Errno> {
        Ok(Flags::default())
    }

    fn writable(&self) -> bool {
        true
    }

    fn write(&self, node: Node, offset: u64, data: &[u8], _: bool) -> Result<(), Errno> {
        self.file(node)?.written()?.write(offset, data).map_err(errno(true))
    }

    fn set_attr(&self, node: Node, set: &SetAttr) -> Result<Attr, Errno> {
        // Times mean nothing here. All other attributes are the volume's.
        let now = self.attr(node)?;
        match set {
            SetAttr { mode: None, uid: None, gid: None, size, .. } if size.is_none_or(|s| s == now.size) => {
                Ok(now)
            }
            _ => Err(Errno::PERM),
        }
    }

    fn allocate(&self, node: Node, offset: u64, len: u64, what: Allocate) -> Result<(), Errno> {
        let file = self.file(node)?;
        let disk = file.written()?;
        let inside = len.min(disk.size().saturating_sub(offset));
        match what {
            Allocate::Punch | Allocate::Zero if inside > 0 => disk.punch(offset, inside).map_err(errno(true)),
            // There is nothing to do: blocks take space when they are written.
            Allocate::Punch | Allocate::Zero | Allocate::Keep => Ok(()),
            Allocate::Extend if inside == len => Ok(()),
            Allocate::Extend => Err(Errno::FBIG),
        }
    }

    fn fsync(&self, node: Node) -> Result<(), Errno> {
        if node == ROOT {
            return Ok(());
        }
        self.file(node)?.disk().flush().map_err(errno(true))
    }

    fn frontend(&self) -> Frontend {
        Frontend::Block
    }

    fn dataset_of(&self, node: Node) -> Option<(String, Option<u64>)> {
        Some((self.file(node).ok()?.lease.name(), None))
    }

    fn count(&self, node: Node, ended: &Ended) {
        if let Ok(file) = self.file(node) {
            file.lease.count(&file.client, Frontend::Block, ended);
        }
    }
}

impl Files {
    fn mount(imported: &Imported, folder: &Path) -> Result<Files, Reason> {
        let target = folder.join(imported.pool.name());
        let target = std::fs::create_dir_all(&target)
            .and_then(|()| std::fs::canonicalize(&target))
            .map_err(|e| Reason::System { errno: e.raw_os_error().unwrap_or(Errno::IO.raw_os_error()) })?;
        let tree = Arc::<Volumes>::default();
        let options = Options {
            source: "zvol".to_owned(),
            nodev: true,
            nosuid: true,
            noexec: true,
            ..Options::default()
        };
        let mount = Mount::new(imported.mounts.workers(), tree.clone(), &target, &options);
        let mount = mount.map_err(|error| of_fuse(&error))?;
        Ok(Files { tree, mount, devices: Mutex::default() })
    }

    fn attach(&self, imported: &Imported, name: &str, read_only: bool) -> Result<PathBuf, Reason> {
        let about = |error: nbd::Error| crate::replies::of_nbd(&error);
        let dataset = imported.pool.dsl().dataset(name).map_err(|e| crate::replies::of_dsl(&e))?;
        let object = dataset.object().0;
        let lease = imported.volumes.open(name).map_err(about)?;
        let read_only = read_only || lease.disk().is_read_only();
        let export = Some(Arc::from(lease.name()));
        let client = Connection::new(Key { kind: Kind::Block, who: Who::Kernel, export, subject: None });
        {
            let mut table = self.tree.0.write();
            if table.contains_key(&object) {
                return Err(Reason::AlreadyAttached { at: link_of(name).display().to_string() });
            }
            table.insert(object, Arc::new(Attached { lease, client, read_only }));
        }
        let file = self.mount.target().join(object.to_string());
        let made = Device::make(object, &file, read_only, link_of(name));
        match made {
            Ok(device) => {
                let link = device.link.clone();
                self.devices.lock().insert(name.to_owned(), device);
                Ok(link)
            }
            Err(reason) => {
                self.tree.0.write().remove(&object);
                Err(reason)
            }
        }
    }

    /// Detaches a device; with `force` even one that is in use.
    fn detach(&self, name: &str, force: bool) -> Result<(), Reason> {
        let mut devices = self.devices.lock();
        let device = devices.get(name).ok_or(Reason::NotAttached)?;
        match device.release() {
            Ok(()) => {}
            Err(reason) if !force => return Err(reason),
            Err(_) => {
                device.settle();
                device.remove()?;
            }
        }
        let object = device.object;
        devices.remove(name);
        drop(devices);
        self.tree.0.write().remove(&object);
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        self.devices.lock().keys().cloned().collect()
    }

    /// All names, and whether their devices are read-only.
    fn all(&self) -> Vec<(String, bool)> {
        let devices = self.devices.lock();
        let tree = self.tree.0.read();
        let read_only = |d: &Device| tree.get(&d.object).is_some_and(|file| file.read_only);
        devices.iter().map(|(name, d)| (name.clone(), read_only(d))).collect()
    }

    /// A volume whose device is in use, as far as that is visible, and its users as text.
    fn used(&self) -> Option<(String, String)> {
        let devices = self.devices.lock();
        if !Device::any_used(devices.values()) {
            return None;
        }
        let users = |device: &Device| Some(device.users()).filter(|users| !users.is_empty());
        let named = devices.iter().find_map(|(name, device)| Some((name.clone(), users(device)?.join(", "))));
        // Its user may have closed it since.
        named.or_else(|| Some((devices.keys().next()?.clone(), "a program".to_owned())))
    }

    /// The users of a volume's device, as text.
    fn users_of(&self, name: &str) -> Option<String> {
        let users = self.devices.lock().get(name)?.users();
        (!users.is_empty()).then(|| users.join(", "))
    }

    /// Renames devices with their volumes, even those in use (`zvol_rename_minors`).
    fn renamed(&self, from: &str, to: &str) {
        let mut devices = self.devices.lock();
        let moved = |name: &String| {
            let tail = name.strip_prefix(from).filter(|tail| tail.is_empty() || tail.starts_with(['/', '@']));
            tail.map(|tail| (name.clone(), format!("{to}{tail}")))
        };
        let names: Vec<(String, String)> = devices.keys().filter_map(moved).collect();
        for (old, new) in names {
            let mut device = devices.remove(&old).expect("it was just there");
            if let Err(error) = device.link_as(link_of(&new)) {
                tracing::warn!(volume = new, %error, "its device has no link");
            }
            devices.insert(new, device);
        }
    }
}

impl Attachments {
    /// Sets the folder where the files of attached volumes are mounted.
    pub(crate) fn attach_in(&self, folder: &Path) {
        *self.folder.lock() = Some(folder.to_owned());
    }

    /// Makes a volume a block device and returns its path.
    ///
    /// # Errors
    /// * [`Reason::Permission`]: the caller does not own the daemon.
    /// * All others: see [`Attachments::attach_again`].
    pub(crate) fn attach(
        &self,
        caller: &Caller,
        pools: &PoolTable,
        name: &str,
        read_only: bool,
    ) -> Result<String, Error> {
        caller.must_own(name)?;
        self.attach_again(pools, name, read_only)
    }

    /// The same on the daemon's own behalf: for a volume that is to have a device.
    ///
    /// # Errors
    /// * [`Reason::NoSuchPool`], [`Reason::NoSuchDataset`]: there is no such volume.
    /// * [`Reason::BadValue`]: the daemon is not root's.
    /// * [`Reason::NotSupported`]: there is no daemon.
    /// * [`Reason::AlreadyAttached`]: the volume has a device.
    /// * [`Reason::Program`]: `losetup` failed, with its error output.
    /// * [`Reason::System`]: a folder, mount or link can't be created.
    /// * [`Reason::Io`], [`Reason::Corrupt`]: the volume can't be opened.
    fn attach_again(&self, pools: &PoolTable, name: &str, read_only: bool) -> Result<String, Error> {
        let fail = |reason| Error::new(name, reason);
        let imported = pools.pool_of(name)?;
        if !rustix::process::geteuid().is_root() {
            let what = "only root's daemon makes block devices; a user's own serves volumes over NBD: see poolhouse exports";
            return Err(fail(Reason::BadValue { what: what.to_owned() }));
        }
        let folder = self.folder.lock().clone();
        let folder = folder
            .ok_or_else(|| fail(Reason::NotSupported { what: "attaching without a daemon".to_owned() }))?;
        let files = {
            let pool = imported.pool.name();
            let gate = Arc::clone(self.gates.lock().entry(pool.to_owned()).or_default());
            let _one_at_a_time = gate.lock();
            match self.of(pool) {
                Some(files) => files,
                None => {
                    let files = Arc::new(Files::mount(&imported, &folder).map_err(fail)?);
                    self.pools.lock().insert(pool.to_owned(), Arc::clone(&files));
                    files
                }
            }
        };
        let link = files.attach(&imported, name, read_only).map_err(fail)?;
        Ok(link.display().to_string())
    }

    /// Detaches a volume's block device; with `force` even one that is in use.
    ///
    /// # Errors
    /// * [`Reason::Permission`]: the caller does not own the daemon.
    /// * [`Reason::NoSuchPool`]: the pool is not imported.
    /// * [`Reason::NotAttached`]: the volume has no device.
    /// * [`Reason::HeldOpen`]: the device is in use, and `force` is not set.
    /// * [`Reason::System`]: the device can't be opened, flushed or released.
    /// * [`Reason::Program`]: `losetup` failed, with its error output.
    pub(crate) fn detach(
        &self,
        caller: &Caller,
        pools: &PoolTable,
        name: &str,
        force: bool,
    ) -> Result<(), Error> {
        caller.must_own(name)?;
        let imported = pools.pool_of(name)?;
        let files = self.of(imported.pool.name());
        let files = files.ok_or_else(|| Error::new(name, Reason::NotAttached))?;
        files.detach(name, force).map_err(|reason| Error::new(name, reason))
    }

    /// The volume that makes a pool busy, and its users.
    ///
    /// A volume whose block device is in use always does. One with NBD clients does unless `force`
    /// disconnects them.
    pub(crate) fn volume_in_use(&self, imported: &Imported, force: bool) -> Option<Error> {
        let files = self.of(imported.pool.name());
        if let Some((name, by)) = files.as_ref().and_then(|files| files.used()) {
            return Some(Error::new(name, Reason::HeldOpen { by }));
        }
        let attached = files.map_or_else(Vec::new, |files| files.names());
        // A block device is a client of its own volume.
        let others = |user: &nbd::User| user.connections - usize::from(attached.contains(&user.name));
        let user = imported.volumes.users().into_iter().find(|user| !force && others(user) > 0)?;
        Some(Error::new(&user.name, Reason::HeldOpen { by: clients(others(&user)) }))
    }

    /// The users of a volume, as text: programs that have its block device open, or NBD clients.
    pub(crate) fn users_of_volume(&self, imported: &Imported, name: &str) -> Option<String> {
        let files = self.of(imported.pool.name());
        let programs = files.and_then(|files| files.users_of(name));
        programs.or_else(|| {
            let user = imported.volumes.users().into_iter().find(|user| user.name == name)?;
            Some(clients(user.connections))
        })
    }

    /// Detaches and closes all volumes of a pool that is about to be exported or destroyed.
    ///
    /// `force` disconnects their NBD clients. Returns the devices that were detached.
    ///
    /// # Errors
    /// A volume is still in use. The error has the devices that were detached, for
    /// [`Attachments::devices_back`] when the pool is available again.
    pub(crate) fn release_volumes(&self, imported: &Imported, force: bool) -> Result<Taken, Taken> {
        if self.volume_in_use(imported, force).is_some() {
            return Err(Taken::new());
        }
        let taken = self.detach_all(imported.pool.name(), false);
        if self.attached(imported.pool.name()) == 0 && imported.volumes.close(force) {
            return Ok(taken);
        }
        Err(taken)
    }

    /// The same at the daemon's end, also for volumes in use. What their users have written is
    /// flushed first. Returns false if a volume could not be closed.
    pub(crate) fn take_volumes(&self, imported: &Imported) -> bool {
        self.detach_all(imported.pool.name(), true);
        imported.volumes.close(true)
    }

    /// Renames the devices of a renamed dataset and of those below it.
    pub(crate) fn devices_renamed(&self, pool: &str, from: &str, to: &str) {
        if let Some(files) = self.of(pool) {
            files.renamed(from, to);
        }
    }

    /// The number of attached volumes of a pool.
    fn attached(&self, pool: &str) -> usize {
        self.of(pool).map_or(0, |files| files.names().len())
    }

    /// Detaches all unused block devices of a pool; with `force` also those in use. Returns the
    /// detached ones.
    fn detach_all(&self, pool: &str, force: bool) -> Taken {
        let Some(files) = self.of(pool) else { return Taken::new() };
        let mut taken = files.all();
        taken.retain(|(name, _)| match files.detach(name, force) {
            Ok(()) => true,
            Err(reason) => {
                tracing::info!(volume = name, ?reason, "it stays attached");
                false
            }
        });
        if !files.names().is_empty() {
            return taken;
        }
        self.pools.lock().remove(pool);
        let how = if force { Detach::Lazy } else { Detach::Normal };
        if let Err(error) = files.mount.unmount(how) {
            tracing::warn!(%error, "the files of its volumes stay mounted");
        } else if let Err(error) = std::fs::remove_dir(files.mount.target()) {
            tracing::debug!(%error, "a folder stays");
        }
        taken
    }

    /// Makes the kernel notice the new size of a volume.
    pub(crate) fn resized(&self, pool: &str, object: u64) {
        let Some(files) = self.of(pool) else { return };
        let path = files.devices.lock().values().find(|d| d.object == object).map(|d| d.path.clone());
        let file = files.mount.target().join(object.to_string());
        // Forces the kernel to query the size again.
        let (flags, what) = (rustix::fs::AtFlags::STATX_FORCE_SYNC, rustix::fs::StatxFlags::SIZE);
        if let Err(errno) = rustix::fs::statx(rustix::fs::CWD, &file, flags, what) {
            tracing::debug!(%errno, "a volume's file can't be looked at");
        }
        if let Some(Err(reason)) = path.map(|path| device::losetup(&["--set-capacity"], &path)) {
            tracing::warn!(?reason, "its block device keeps its size");
        }
    }
}
