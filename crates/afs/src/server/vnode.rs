//! A file of a volume, and its status for clients.

use std::sync::Arc;
use std::time::Instant;

use zpl::{AfsStatus, FileType, Node, Time};

use super::access::{Caller, Granted};
use super::volume::Open;
use crate::acl::Acl;
use crate::errors::volume as code;
use crate::server::chain;
use crate::types::{DataVersion, Date, FetchStatus, PrincipalId, Unique, Vnode, VnodeType};
use crate::volume::{object, vnode};

/// A file, directory or symbolic link as it is now.
pub struct Found {
    /// Its number.
    pub vnode: Vnode,
    /// The use of its number.
    pub unique: Unique,
    /// What it is.
    pub kind: VnodeType,
    /// Its file.
    pub node: Node,
    /// Its status beside that of the file.
    pub status: AfsStatus,
}

/// Seconds since 1970 as clients have them.
pub fn date(time: Time) -> Date {
    Date(u32::try_from(time.secs.max(0)).unwrap_or(u32::MAX))
}

/// KiB that a file of this length counts (`nBlocks`).
pub fn kib(length: u64) -> i64 {
    i64::try_from(length.div_ceil(1024).max(1)).unwrap_or(i64::MAX)
}

impl Found {
    /// The owner.
    pub fn owner(&self) -> PrincipalId {
        PrincipalId((self.node.attr().uid.0 as u32).cast_signed())
    }

    /// The Unix group.
    pub fn group(&self) -> i32 {
        (self.node.attr().gid.0 as u32).cast_signed()
    }

    /// The mode's low twelve bits.
    pub fn mode(&self) -> u32 {
        self.node.attr().mode & 0o7777
    }

    /// The directory that has it; of a directory, itself.
    pub fn governor(&self) -> Vnode {
        match self.kind {
            VnodeType::Directory => self.vnode,
            _ => vnode(self.node.attr().parent).unwrap_or_default(),
        }
    }
}

impl Open {
    /// The file of a fid.
    ///
    /// # Errors
    /// * VNOVNODE: there is no such file, or its number has another use.
    /// * VSALVAGE: it is damaged. The log has the cause.
    pub fn find(&self, number: Vnode, unique: Unique) -> Result<Found, i32> {
        let found = self.find_any(number)?;
        if found.unique == unique { Ok(found) } else { Err(code::VNOVNODE) }
    }

    /// The file that has this number now.
    ///
    /// # Errors
    /// Those of [`Self::find`].
    pub fn find_any(&self, number: Vnode) -> Result<Found, i32> {
        if number.0 == 0 {
            return Err(code::VNOVNODE);
        }
        let node = match self.fs.node(object(number)) {
            Ok(node) => node,
            Err(zpl::Error::NoFile { .. }) => return Err(code::VNOVNODE),
            Err(error) => return Err(self.damaged(number, &error)),
        };
        let attr = node.attr();
        if attr.nlink == 0 {
            return Err(code::VNOVNODE);
        }
        let kind = match attr.kind {
            FileType::Regular => VnodeType::File,
            FileType::Directory => VnodeType::Directory,
            FileType::Symlink => VnodeType::Symlink,
            // Another front end made it.
            _ => return Err(code::VNOVNODE),
        };
        let unique = Unique(u32::try_from(attr.generation).map_err(|_| code::VNOVNODE)?);
        let status = node.afs_status().map_err(|error| self.damaged(number, &error))?;
        Ok(Found { vnode: number, unique, kind, status: status.unwrap_or_default(), node })
    }

    /// Logs that a file is damaged.
    pub fn damaged(&self, number: Vnode, error: &dyn std::error::Error) -> i32 {
        tracing::error!(volume = self.id.0, vnode = number.0, error = chain(error), "a file can't be read");
        code::VSALVAGE
    }

    /// The access list that governs a file.
    ///
    /// # Errors
    /// VSALVAGE: the directory is damaged.
    pub fn acl(&self, file: &Found) -> Result<Acl, i32> {
        let parse = |list: &[u8]| Acl::from_compact(list).map_err(|error| self.damaged(file.vnode, &error));
        if file.kind == VnodeType::Directory {
            return parse(&file.status.access_list);
        }
        let parent = self.find_any(file.governor()).map_err(|_| code::VSALVAGE)?;
        parse(&parent.status.access_list)
    }

    /// The blob of a directory.
    ///
    /// # Errors
    /// VSALVAGE: it can't be read, or AFS can't have such a directory.
    pub fn blob(&self, directory: &Found) -> Result<Arc<Vec<u8>>, i32> {
        let version = directory.status.data_version;
        let blob = self.blobs().get(self.id, &self.fs, &directory.node, version);
        blob.map_err(|error| self.damaged(directory.vnode, &error))
    }

    /// The length that clients see.
    ///
    /// # Errors
    /// Those of [`Self::blob`].
    pub fn length(&self, file: &Found) -> Result<u64, i32> {
        match file.kind {
            VnodeType::Directory => Ok(self.blob(file)?.len() as u64),
            _ => Ok(file.node.attr().size),
        }
    }

    /// The status of a file for a caller.
    ///
    /// # Errors
    /// Those of [`Self::blob`].
    pub fn status(&self, file: &Found, caller: &Caller, granted: Granted) -> Result<FetchStatus, i32> {
        let attr = file.node.attr();
        let (parent, parent_unique) = match file.kind {
            VnodeType::Directory => (file.vnode, file.unique),
            _ => {
                let parent = file.governor();
                (parent, self.find_any(parent).map_err(|_| code::VSALVAGE)?.unique)
            }
        };
        Ok(FetchStatus {
            kind: Some(file.kind),
            link_count: u32::try_from(attr.nlink).unwrap_or(u32::MAX),
            length: self.length(file)?,
            data_version: DataVersion(self.version(file.status.data_version)),
            author: PrincipalId(file.status.author),
            owner: file.owner(),
            caller_access: caller.shown(file, granted),
            anonymous_access: granted.anyone,
            mode: file.mode(),
            parent,
            parent_unique,
            modify_time: date(attr.mtime),
            server_modify_time: Date(u32::try_from(file.status.server_mtime).unwrap_or(u32::MAX)),
            group: file.group(),
            lock_count: self.locks.count(file.vnode, Instant::now()),
            error: 0,
        })
    }
}
