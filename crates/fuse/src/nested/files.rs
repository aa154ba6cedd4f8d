//! Requests of a mount with nested file systems: each goes to its file system.

use super::{Fs, GONE, Nest};
use crate::caller::Asker;
use crate::tree::{
    Allocate, Attr, CloneRange, Entry, FileTree, Flags, NewNode, Node, Rename, Seek, SetAttr, SetXattr,
    Statfs,
};
use observe::ops::Ended;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

const POSIX_ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

impl Nest {
    /// As [`Nest::at`], for changes.
    ///
    /// # Errors
    /// `EROFS`: the file system is mounted read-only.
    fn change<R>(
        &self,
        node: Node,
        work: impl FnOnce(&Fs, &dyn FileTree, Node) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.at(node, |fs, tree, node| {
            fs.may_be_written()?;
            work(fs, tree, node)
        })
    }

    /// Refuses to remove or rename a mountpoint.
    ///
    /// # Errors
    /// `EBUSY`: a file system is mounted on the entry.
    fn not_covered(fs: &Fs, tree: &dyn FileTree, dir: Node, name: &[u8]) -> Result<(), Errno> {
        if fs.covered.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        match tree.lookup(dir, name) {
            Ok(found) if fs.cover(found.node).is_some() => Err(Errno::BUSY),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

impl FileTree for Nest {
    fn root(&self) -> Node {
        self.top.root()
    }

    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Attr, Errno> {
        self.at(dir, |fs, tree, dir| self.shown(fs, tree.lookup(dir, name)?, name))
    }

    fn attr(&self, node: Node) -> Result<Attr, Errno> {
        self.at(node, |fs, tree, node| self.show(fs, tree.attr(node)?))
    }

    fn readlink(&self, node: Node) -> Result<Vec<u8>, Errno> {
        self.at(node, |_, tree, node| tree.readlink(node))
    }

    fn read(&self, node: Node, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        self.at(node, |_, tree, node| tree.read(node, offset, buf))
    }

    fn readdir(&self, dir: Node, cookie: u64, limit: usize) -> Result<Vec<Entry>, Errno> {
        self.at(dir, |fs, tree, dir| {
            let mut entries = tree.readdir(dir, cookie, limit)?;
            for entry in &mut entries {
                let Some(inner) = entry.node else { continue };
                let child = fs.cover(inner);
                let open = child.as_ref().filter(|child| child.open_tree().is_some());
                let root = open.and_then(|child| self.root_of(child).ok());
                (entry.node, entry.ino) = match root {
                    Some(root) => (Some(root.node), root.ino),
                    // A listing doesn't open the file system mounted there.
                    None if child.is_some() => (None, self.ino(fs, inner, entry.ino)?),
                    None => (self.outward(fs, inner).ok(), self.ino(fs, inner, entry.ino)?),
                };
            }
            Ok(entries)
        })
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let value = self.at(node, |_, tree, node| tree.xattr(node, name));
        match value {
            // The kernel requests the ACL of each file, and treats this errno as a failure.
            Err(Errno::OPNOTSUPP) if self.posix_acl && POSIX_ACLS.contains(&name) => Err(Errno::NODATA),
            value => value,
        }
    }

    fn xattr_names(&self, node: Node) -> Result<Vec<Vec<u8>>, Errno> {
        self.at(node, |_, tree, node| tree.xattr_names(node))
    }

    fn statfs(&self, node: Node) -> Result<Statfs, Errno> {
        self.at(node, |_, tree, node| tree.statfs(node))
    }

    fn seek(&self, node: Node, offset: u64, what: Seek) -> Result<u64, Errno> {
        self.at(node, |_, tree, node| tree.seek(node, offset, what))
    }

    fn flags(&self, node: Node) -> Result<Flags, Errno> {
        self.at(node, |_, tree, node| tree.flags(node))
    }

    fn writable(&self) -> bool {
        // Each file system decides for itself.
        true
    }

    fn names_stay(&self, dir: Node) -> bool {
        self.at(dir, |_, tree, dir| Ok(tree.names_stay(dir))).unwrap_or(false)
    }

    fn keeps_pages(&self) -> bool {
        self.top.keeps_pages()
    }

    fn changes_elsewhere(&self) -> bool {
        self.top.changes_elsewhere()
    }

    fn is_live(&self) -> bool {
        self.top.is_live()
    }

    fn admits(&self, dir: Node, who: Asker) -> bool {
        // If the node is bad, the request itself fails.
        self.at(dir, |_, tree, dir| Ok(tree.admits(dir, who))).unwrap_or(true)
    }

    fn create(&self, dir: Node, name: &[u8], new: &NewNode<'_>) -> Result<Attr, Errno> {
        self.change(dir, |fs, tree, dir| self.show(fs, tree.create(dir, name, new)?))
    }

    fn create_unnamed(&self, dir: Node, new: &NewNode<'_>) -> Result<Attr, Errno> {
        self.change(dir, |fs, tree, dir| self.show(fs, tree.create_unnamed(dir, new)?))
    }

    fn link(&self, node: Node, dir: Node, name: &[u8]) -> Result<Attr, Errno> {
        self.change(dir, |fs, tree, dir| {
            let node = self.same(fs, node)?;
            self.show(fs, tree.link(node, dir, name)?)
        })
    }

    fn unlink(&self, dir: Node, name: &[u8]) -> Result<(), Errno> {
        self.change(dir, |_, tree, dir| tree.unlink(dir, name))
    }

    fn rmdir(&self, dir: Node, name: &[u8]) -> Result<(), Errno> {
        self.change(dir, |fs, tree, dir| {
            let _changing = fs.changing.read();
            Self::not_covered(fs, tree, dir, name)?;
            tree.rmdir(dir, name)
        })
    }

    fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), how: Rename) -> Result<(), Errno> {
        self.change(from.0, |fs, tree, dir| {
            let (from, to) = ((dir, from.1), (self.same(fs, to.0)?, to.1));
            let _changing = fs.changing.read();
            Self::not_covered(fs, tree, from.0, from.1)?;
            Self::not_covered(fs, tree, to.0, to.1)?;
            tree.rename(from, to, how)
        })
    }

    fn write(&self, node: Node, offset: u64, data: &[u8], kill: bool) -> Result<(), Errno> {
        self.change(node, |_, tree, node| tree.write(node, offset, data, kill))
    }

    fn write_pages(&self, node: Node, offset: u64, data: &[u8], kill: bool) -> Result<(), Errno> {
        // A file system that was not opened for changes refuses the write itself.
        self.at(node, |_, tree, node| tree.write(node, offset, data, kill))
    }

    fn clone_range(&self, range: &CloneRange) -> Result<u64, Errno> {
        self.change(range.target, |fs, tree, target| {
            let source = self.same(fs, range.source)?;
            tree.clone_range(&CloneRange { source, target, ..*range })
        })
    }

    fn accessed(&self, node: Node) {
        // The read succeeds, even if its time can't be stored.
        let _ = self.change(node, |_, tree, node| {
            tree.accessed(node);
            Ok(())
        });
    }

    fn set_attr(&self, node: Node, set: &SetAttr) -> Result<Attr, Errno> {
        self.change(node, |fs, tree, node| self.show(fs, tree.set_attr(node, set)?))
    }

    fn allocate(&self, node: Node, offset: u64, len: u64, what: Allocate) -> Result<(), Errno> {
        self.change(node, |_, tree, node| tree.allocate(node, offset, len, what))
    }

    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], how: SetXattr) -> Result<(), Errno> {
        self.change(node, |_, tree, node| tree.set_xattr(node, name, value, how))
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<(), Errno> {
        self.change(node, |_, tree, node| tree.remove_xattr(node, name))
    }

    fn set_flags(&self, node: Node, flags: Flags) -> Result<(), Errno> {
        self.change(node, |_, tree, node| tree.set_flags(node, flags))
    }

    fn fsync(&self, node: Node) -> Result<(), Errno> {
        self.at(node, |_, tree, node| if tree.writable() { tree.fsync(node) } else { Ok(()) })
    }

    fn sync(&self) -> Result<(), Errno> {
        let mut done = if self.top.writable() { self.top.sync() } else { Ok(()) };
        for fs in self.all() {
            if let Some(tree) = fs.open_tree().filter(|tree| tree.writable()) {
                done = done.and(tree.sync());
            }
        }
        done
    }

    fn given(&self, node: Node) -> Result<(), Errno> {
        if node.0 & super::NESTED == 0 {
            return self.top.given(node);
        }
        let (fs, _) = self.place(node)?;
        if fs.is_outer() || fs.known.hold() { Ok(()) } else { Err(Errno::STALE) }
    }

    fn forget(&self, node: Node, times: u64) {
        if node.0 & super::NESTED == 0 {
            if self.top.writable() {
                self.top.forget(node, times);
            }
            return;
        }
        let Ok((fs, tag)) = self.place(node) else { return };
        let inner = Node(u64::from(tag) << super::OBJECT_BITS | node.0 & super::OBJECT_MASK);
        let told = self.in_fs(&fs, |tree| {
            if tree.writable() {
                tree.forget(inner, times);
            }
            Ok(())
        });
        if let Err(errno) = told {
            tracing::debug!(node = node.0, %errno, "what is gone needs not be told");
        }
        if !fs.is_outer() && fs.known.release(times.min(!GONE)) {
            self.bury(&fs);
        }
    }

    fn dataset_of(&self, node: Node) -> Option<(String, Option<u64>)> {
        self.within(node, |tree, node| tree.dataset_of(node))
    }

    fn path_of(&self, node: Node) -> Option<Vec<u8>> {
        self.within(node, |tree, node| tree.path_of(node))
    }

    fn count(&self, node: Node, ended: &Ended) {
        if node.0 & super::NESTED == 0 {
            return self.top.count(node, ended);
        }
        // What is gone, or could not be opened, is the outer file system's.
        let Ok((fs, tag)) = self.place(node) else { return self.top.count(self.root(), ended) };
        let inner = Node(u64::from(tag) << super::OBJECT_BITS | node.0 & super::OBJECT_MASK);
        match fs.open_tree() {
            _ if fs.is_outer() => self.top.count(inner, ended),
            Some(tree) => tree.count(inner, ended),
            None => self.top.count(self.root(), ended),
        }
    }
}
