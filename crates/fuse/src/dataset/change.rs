//! Changes that the kernel requests, translated for `zpl`.

use super::{Dataset, POSIX_ACLS};
use crate::tree::{Allocate, Attr, CloneRange, NewNode, Node, Rename, SetAttr, SetTime, SetXattr, Time};
use ondisk::ObjNum;
use rustix::io::Errno;
use zpl::{FileSystem, FileType, Kind, NewFile};

/// How much free space `fallocate` needs, in percent of the range.
const RESERVE_PERCENT: u128 = 110;

impl From<SetXattr> for zpl::SetXattr {
    fn from(how: SetXattr) -> Self {
        match how {
            SetXattr::Either => Self::Either,
            SetXattr::Create => Self::Create,
            SetXattr::Replace => Self::Replace,
        }
    }
}

fn kind_of(new: &NewNode<'_>) -> Option<Kind> {
    let (major, minor) = new.rdev;
    Some(match FileType::from_mode(new.mode.into()) {
        // mknod(2) without a type makes a plain file.
        FileType::Regular => Kind::Regular,
        FileType::Unknown if new.mode >> 12 == 0 => Kind::Regular,
        FileType::Unknown => return None,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink(new.target.to_vec()),
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharDevice => Kind::CharDevice(major, minor),
        FileType::BlockDevice => Kind::BlockDevice(major, minor),
    })
}

fn time_of(time: Time) -> zpl::Time {
    zpl::Time { secs: time.sec, nanos: time.nsec.min(999_999_999) }
}

fn file_of(new: &NewNode<'_>) -> Result<NewFile, Errno> {
    Ok(NewFile {
        kind: kind_of(new).ok_or(Errno::INVAL)?,
        permissions: new.mode & 0o7777,
        umask: new.umask & 0o777,
        uid: new.caller.uid,
        gid: new.caller.gid,
    })
}

impl Dataset {
    pub(super) fn make(&self, dir: Node, name: &[u8], new: &NewNode<'_>) -> Result<Attr, Errno> {
        let attr = self.told(dir, self.here()?.create(self.object(dir)?, name, &file_of(new)?))?;
        Ok(self.of(&attr))
    }

    pub(super) fn make_unnamed(&self, dir: Node, new: &NewNode<'_>) -> Result<Attr, Errno> {
        let attr = self.told(dir, self.here()?.create_unnamed(self.object(dir)?, &file_of(new)?))?;
        Ok(self.of(&attr))
    }

    pub(super) fn cloned(&self, range: &CloneRange) -> Result<u64, Errno> {
        let CloneRange { from, to, len, .. } = *range;
        let (source, target) = (self.object(range.source)?, self.object(range.target)?);
        let whole = zpl::CloneRange { source, from, target, to, len };
        self.told(range.source, self.here()?.clone_range(&whole, range.kill))
    }

    pub(super) fn cloned_out_of(&self, snapshot: &FileSystem, range: &CloneRange) -> Result<u64, Errno> {
        let CloneRange { from, to, len, .. } = *range;
        let whole = zpl::CloneRange {
            source: ObjNum(range.source.0),
            from,
            target: self.object(range.target)?,
            to,
            len,
        };
        let done = self.here()?.clone_range_of(snapshot, &whole, range.kill);
        self.told(range.target, done)
    }

    pub(super) fn moved(
        &self,
        (from, name): (Node, &[u8]),
        (to, new_name): (Node, &[u8]),
        how: Rename,
    ) -> Result<(), Errno> {
        let how = match how {
            Rename::Replace => zpl::Rename::Replace,
            Rename::NoReplace => zpl::Rename::NoReplace,
            Rename::Exchange => zpl::Rename::Exchange,
            Rename::Whiteout { replace, caller } => {
                zpl::Rename::Whiteout { replace, uid: caller.uid, gid: caller.gid }
            }
        };
        let (source, target) = ((self.object(from)?, name), (self.object(to)?, new_name));
        self.told(from, self.here()?.rename(source, target, how)).map(|_| ())
    }

    pub(super) fn changed(&self, node: Node, set: &SetAttr) -> Result<Attr, Errno> {
        let now = self.told(node, self.here()?.now())?;
        let time = |t: Option<SetTime>| {
            t.map(|t| match t {
                SetTime::Now => now,
                SetTime::At(t) => time_of(t),
            })
        };
        let set = zpl::SetAttr {
            permissions: set.mode,
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: time(set.atime),
            mtime: time(set.mtime),
            kill: set.kill,
        };
        let attr = self.told(node, self.here()?.set_attr(self.object(node)?, &set))?;
        Ok(self.of(&attr))
    }

    pub(super) fn allocated(&self, node: Node, offset: u64, len: u64, what: Allocate) -> Result<(), Errno> {
        let (fs, object) = (self.here()?, self.object(node)?);
        let end = offset.checked_add(len).ok_or(Errno::FBIG)?;
        if matches!(what, Allocate::Extend | Allocate::Keep) {
            self.has_room(len)?;
        }
        if matches!(what, Allocate::Punch | Allocate::Zero) {
            self.told(node, fs.punch(object, offset, len))?;
        }
        if matches!(what, Allocate::Extend | Allocate::Zero) {
            self.told(node, fs.extend(object, end))?;
        }
        Ok(())
    }

    /// Refuses a range that is larger than the free space.
    ///
    /// Nothing can be reserved for later writes. But a range that could never be written is an
    /// error at once (`zfs_fallocate_reserve_percent`).
    ///
    /// # Errors
    /// `ENOSPC`: the free space is too small. Besides, any errno of the function that returns the
    /// sizes.
    fn has_room(&self, len: u64) -> Result<(), Errno> {
        let Some(sizes) = &self.sizes else { return Ok(()) };
        let sizes = sizes()?;
        let room = u128::from(sizes.free) * u128::from(sizes.unit) * 100 / RESERVE_PERCENT;
        if u128::from(len) > room { Err(Errno::NOSPC) } else { Ok(()) }
    }

    pub(super) fn may_set_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        let known = [&b"user."[..], b"trusted.", b"security."].iter().any(|ns| name.starts_with(ns));
        if self.shows(name) && (known || POSIX_ACLS.contains(&name)) { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }
}
