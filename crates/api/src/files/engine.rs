//! [`Files`] over an open dataset.

use super::{Fault, Files, Gap, Item, Kind, Meta, PAGE_MAX, PART_MAX, Page, XATTR_NAMES_MAX};
use dmu::{Dnode, Extent, Objset, Walk};
use ondisk::{BlkId, Level, ObjNum};
use zpl::{DirCookie, FileSystem, NewFile, SetAttr, SetXattr};

/// Makes the kernel drop stale knowledge of a mounted file system.
pub trait Kernel {
    /// Drops what the kernel knows of these changes.
    fn tell(&self, stale: &[Change<'_>]);
    /// Drops all of a file, and returns whether the kernel knew the file.
    fn drop_file(&self, object: ObjNum) -> bool;
    /// Whether the mount is read-only at present.
    fn is_read_only(&self) -> bool;
}

/// A change that the kernel did not make.
pub enum Change<'a> {
    /// The attributes or contents of a file.
    File(ObjNum),
    /// The file that a name in a directory refers to.
    Name(ObjNum, &'a [u8]),
}

/// An open dataset.
pub struct Engine {
    what: What,
    /// The object that is read from front to back.
    contents: Option<Contents>,
    kernel: Option<Box<dyn Kernel>>,
    /// A changed file that the kernel was not notified of yet.
    untold: Option<ObjNum>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.told();
    }
}

enum What {
    Files(FileSystem),
    /// Any other dataset, of which objects are read.
    Objects(Objset),
}

struct Contents {
    dnode: Dnode,
    walk: Walk,
}

impl Engine {
    /// An engine for a file system.
    pub fn files(fs: FileSystem) -> Self {
        Self { what: What::Files(fs), contents: None, kernel: None, untold: None }
    }

    /// An engine for a dataset of which only objects are read, such as a volume.
    pub fn objects(objset: Objset) -> Self {
        Self { what: What::Objects(objset), contents: None, kernel: None, untold: None }
    }

    /// An engine for a file system that is mounted.
    pub fn mounted(fs: FileSystem, kernel: Box<dyn Kernel>) -> Self {
        Self { what: What::Files(fs), contents: None, kernel: Some(kernel), untold: None }
    }

    fn fs(&self) -> Result<&FileSystem, Fault> {
        match &self.what {
            What::Files(fs) => Ok(fs),
            What::Objects(_) => Err(zpl::Error::NotFileSystem.into()),
        }
    }

    /// The file system, for a change. Its mount may have become read-only a moment ago.
    fn to_change(&self) -> Result<&FileSystem, Fault> {
        match &self.kernel {
            Some(kernel) if kernel.is_read_only() => Err(zpl::Error::ReadOnly.into()),
            Some(_) | None => self.fs(),
        }
    }

    /// Records a change of a file. The kernel is notified when another file changes, since a copy
    /// writes a file in many steps.
    fn touched(&mut self, object: ObjNum) {
        if self.untold != Some(object) {
            self.told();
            self.untold = Some(object);
        }
    }

    fn told(&mut self) {
        if let Some(object) = self.untold.take() {
            self.tell(&[Change::File(object)]);
        }
    }

    fn contents(&mut self, at: u64) -> Result<&mut Contents, Gap> {
        let none = || Fault { kind: Kind::Other, text: "no file was begun".to_owned() };
        self.contents.as_mut().ok_or_else(|| Gap::rest(at, none()))
    }

    fn tell(&self, stale: &[Change<'_>]) {
        if let Some(kernel) = &self.kernel {
            kernel.tell(stale);
        }
    }
}

impl Files for Engine {
    fn resolve(&mut self, path: &[u8], follow: bool) -> Result<Meta, Fault> {
        let fs = self.fs()?;
        let node = if follow { fs.resolve(path)? } else { fs.resolve_link(path)? };
        Ok((&node).into())
    }

    fn meta(&mut self, object: ObjNum) -> Result<Meta, Fault> {
        Ok((&self.fs()?.node(object)?).into())
    }

    fn page(&mut self, folder: ObjNum, from: DirCookie) -> Result<Page, Fault> {
        let mut page = Page::default();
        let mut bytes = 0;
        for entry in self.fs()?.read_dir(folder, from)? {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    page.fault = Some(error.into());
                    return Ok(page);
                }
            };
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            bytes += entry.name.len();
            page.entries.push(Item { name: entry.name.into(), object: entry.object, next: entry.next.0 });
            if page.entries.len() == PAGE_MAX.0 || bytes >= PAGE_MAX.1 {
                page.more = true;
                return Ok(page);
            }
        }
        Ok(page)
    }

    fn readlink(&mut self, link: ObjNum) -> Result<Vec<u8>, Fault> {
        Ok(self.fs()?.node(link)?.readlink()?)
    }

    fn xattr_names(&mut self, object: ObjNum) -> Result<Vec<Vec<u8>>, Fault> {
        Ok(self.fs()?.node(object)?.xattr_names(XATTR_NAMES_MAX)?)
    }

    fn xattr(&mut self, object: ObjNum, name: &[u8]) -> Result<Vec<u8>, Fault> {
        Ok(self.fs()?.node(object)?.xattr(name)?)
    }

    fn begin(&mut self, object: ObjNum) -> Result<(), Fault> {
        self.contents = None;
        let dnode = match &self.what {
            What::Files(fs) => fs.node(object)?.dnode().clone(),
            What::Objects(objset) => objset.dnode(object).map_err(|e| Fault::other(&e))?,
        };
        let walk = dnode.walk();
        self.contents = Some(Contents { dnode, walk });
        Ok(())
    }

    fn next(&mut self, at: u64, data: bool) -> Result<Option<u64>, Gap> {
        let want = if data { Extent::Data } else { Extent::Hole };
        self.contents(at)?.walk.next_offset(at, want).map_err(|damage| Gap {
            from: damage.from,
            to: damage.to,
            fault: Fault::other(&damage.error),
        })
    }

    fn read(&mut self, at: u64, buf: &mut [u8]) -> Result<usize, Gap> {
        let dnode = &self.contents(at)?.dnode;
        let most = buf.len().min(PART_MAX);
        if dnode.read_at(at, &mut buf[..most]).is_ok() {
            return Ok(most);
        }
        // Part of the range is damaged: read the good blocks one by one.
        let block = dnode.block_size();
        let one = usize::try_from(block - at % block).unwrap_or(most).min(most);
        match dnode.read_at(at, &mut buf[..one]) {
            Ok(()) => Ok(one),
            Err(e) => Err(Gap { from: at, to: past_damage(dnode, &e, at), fault: Fault::other(&e) }),
        }
    }

    fn lookup(&mut self, folder: ObjNum, name: &[u8]) -> Result<ObjNum, Fault> {
        Ok(self.fs()?.lookup(folder, name)?)
    }

    fn remove(&mut self, folder: ObjNum, name: &[u8]) -> Result<Option<ObjNum>, Fault> {
        let fs = self.to_change()?;
        let file = fs.lookup(folder, name)?;
        let gone = fs.unlink(folder, name)?;
        // The file may have other names.
        self.tell(&[Change::Name(folder, name), Change::File(folder), Change::File(file)]);
        if let Some(gone) = gone {
            // A file that the kernel knows is freed when the kernel forgets it.
            let known = self.kernel.as_ref().is_some_and(|kernel| kernel.drop_file(gone));
            if !known {
                fs.reap(gone)?;
            }
        }
        Ok(gone)
    }

    fn link(&mut self, file: ObjNum, folder: ObjNum, name: &[u8]) -> Result<(), Fault> {
        self.to_change()?.link(file, folder, name)?;
        self.tell(&[Change::Name(folder, name), Change::File(folder), Change::File(file)]);
        Ok(())
    }

    fn create(&mut self, folder: ObjNum, name: &[u8], new: &NewFile) -> Result<ObjNum, Fault> {
        let made = self.to_change()?.create(folder, name, new)?.object;
        self.tell(&[Change::Name(folder, name), Change::File(folder)]);
        Ok(made)
    }

    fn write(&mut self, object: ObjNum, at: u64, data: &[u8]) -> Result<(), Fault> {
        self.touched(object);
        Ok(self.to_change()?.write(object, at, data, false)?)
    }

    fn extend(&mut self, object: ObjNum, size: u64) -> Result<(), Fault> {
        self.touched(object);
        Ok(self.to_change()?.extend(object, size)?)
    }

    fn set_xattr(&mut self, object: ObjNum, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        self.touched(object);
        Ok(self.to_change()?.set_xattr(object, name, value, SetXattr::Either)?)
    }

    fn set_attr(&mut self, object: ObjNum, set: &SetAttr) -> Result<(), Fault> {
        self.touched(object);
        let done = self.to_change()?.set_attr(object, set);
        // This is the last step of a copy.
        self.told();
        done?;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        Ok(self.fs()?.sync()?)
    }
}

/// The first byte that an unreadable block does not hide. An indirect block hides all below it.
fn past_damage(dnode: &Dnode, e: &dmu::Error, at: u64) -> u64 {
    let (level, blkid) = match e {
        dmu::Error::Read(e) => (e.bookmark().level, e.bookmark().blkid),
        dmu::Error::Misplaced { level, blkid, .. } => (*level, *blkid),
        _ => (Level(0), BlkId(0)),
    };
    let block = dnode.block_size();
    let next_block = (at / block + 1).saturating_mul(block);
    if level.0 == 0 {
        return next_block;
    }
    let shift = u32::from(level.0) * dnode.phys().epbs();
    let blocks = blkid.0.saturating_add(1).checked_mul(1u64.checked_shl(shift).unwrap_or(u64::MAX));
    blocks.unwrap_or(u64::MAX).saturating_mul(block).max(next_block)
}
