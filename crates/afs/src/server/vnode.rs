//! A file of a volume, and its status for clients.

use std::sync::Arc;
use std::time::Instant;

use zpl::{AfsStatus, FileType, Node, Time};

use super::access::{About, Caller, Granted};
use super::known::Known;
use super::open::Open;
use crate::acl::Acl;
use crate::dir::Editor;
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
    /// What decides about rights.
    pub fn about(&self) -> About {
        let attr = self.node.attr();
        About {
            kind: self.kind,
            owner: PrincipalId((attr.uid.0 as u32).cast_signed()),
            group: (attr.gid.0 as u32).cast_signed(),
            mode: attr.mode & 0o7777,
        }
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

    /// What is known of a file, and its access list, without a look at the file system.
    ///
    /// The caller has locked the vnode, shared at least.
    pub fn known(&self, number: Vnode) -> Option<(Arc<Known>, Arc<Known>)> {
        let known = self.knowledge().get((self.instance, number))?;
        let governor = match known.governor == number {
            true => Arc::clone(&known),
            false => self.knowledge().get((self.instance, known.governor))?,
        };
        governor.acl.is_some().then_some((known, governor))
    }

    /// What is known of a file, without its access list. The caller has locked the vnode.
    pub fn known_alone(&self, number: Vnode) -> Option<Arc<Known>> {
        self.knowledge().get((self.instance, number))
    }

    /// Notes what is known of a file now. The caller has locked the vnode, shared at least.
    ///
    /// # Errors
    /// Those of [`Self::blob`].
    pub fn know(&self, file: &Found) -> Result<Arc<Known>, i32> {
        let known = Arc::new(self.examine(file)?);
        self.knowledge().put((self.instance, file.vnode), Arc::clone(&known));
        Ok(known)
    }

    /// Forgets what is known of a file that changed. The caller has locked the vnode.
    pub fn forget(&self, number: Vnode) {
        self.knowledge().forget((self.instance, number));
    }

    /// What is known of a file now, without a note of it: for a vnode that is not locked.
    ///
    /// # Errors
    /// Those of [`Self::blob`].
    pub fn examine(&self, file: &Found) -> Result<Known, i32> {
        let attr = file.node.attr();
        let about = file.about();
        let governor = file.governor();
        let (parent_unique, acl) = match file.kind {
            VnodeType::Directory => (file.unique, Some(self.parse(file)?)),
            _ => (self.unique_of(governor).map_err(|_| code::VSALVAGE)?, None),
        };
        let status = FetchStatus {
            kind: Some(file.kind),
            link_count: u32::try_from(attr.nlink).unwrap_or(u32::MAX),
            length: self.length(file)?,
            data_version: DataVersion(self.version(file.status.data_version)),
            author: PrincipalId(file.status.author),
            owner: about.owner,
            mode: about.mode,
            parent: governor,
            parent_unique,
            modify_time: date(attr.mtime),
            server_modify_time: Date(u32::try_from(file.status.server_mtime).unwrap_or(u32::MAX)),
            group: about.group,
            ..FetchStatus::default()
        };
        Ok(Known { unique: file.unique, governor, status, acl })
    }

    /// The unique of a directory that has a file which the caller has locked: it can't be removed.
    fn unique_of(&self, directory: Vnode) -> Result<Unique, i32> {
        match self.known_alone(directory) {
            Some(known) => Ok(known.unique),
            None => Ok(self.find_any(directory)?.unique),
        }
    }

    fn parse(&self, directory: &Found) -> Result<Acl, i32> {
        Acl::from_compact(&directory.status.access_list)
            .map_err(|error| self.damaged(directory.vnode, &error))
    }

    /// The access list that governs a file.
    ///
    /// # Errors
    /// VSALVAGE: the directory is damaged.
    pub fn acl(&self, file: &Found) -> Result<Acl, i32> {
        if file.kind == VnodeType::Directory {
            return self.parse(file);
        }
        if let Some((_, governor)) = self.known(file.vnode)
            && let Some(acl) = &governor.acl
        {
            return Ok(acl.clone());
        }
        let governor = file.governor();
        // The vnode is locked already, and the directory may share that lock. If another thread
        // waits to change one of them, nothing is noted.
        let _lock = self.try_lock_again(governor);
        let parent = self.find_any(governor).map_err(|_| code::VSALVAGE)?;
        if _lock.is_some() {
            self.know(&parent)?;
        }
        self.parse(&parent)
    }

    /// The blob of a directory.
    ///
    /// # Errors
    /// VSALVAGE: it can't be read, or AFS can't have such a directory.
    pub fn blob(&self, directory: &Found) -> Result<Arc<Editor>, i32> {
        let version = directory.status.data_version;
        let blob = self.blobs().get(self.instance, &self.fs, &directory.node, version);
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

    /// The status of a file for a caller, as it is now. It is noted as known.
    ///
    /// # Errors
    /// Those of [`Self::blob`].
    pub fn status(&self, file: &Found, caller: &Caller, granted: Granted) -> Result<FetchStatus, i32> {
        Ok(self.present(file.vnode, &*self.know(file)?, caller, granted))
    }

    /// The status of a known file for a caller.
    pub fn present(&self, number: Vnode, known: &Known, caller: &Caller, granted: Granted) -> FetchStatus {
        self.present_at(number, known, caller, granted, Instant::now())
    }

    /// [`Self::present`] at a time that the caller knows.
    pub fn present_at(
        &self,
        number: Vnode,
        known: &Known,
        caller: &Caller,
        granted: Granted,
        now: Instant,
    ) -> FetchStatus {
        FetchStatus {
            caller_access: caller.shown(&known.about(), granted),
            anonymous_access: granted.anyone,
            lock_count: self.locks.count(number, now),
            ..known.status.clone()
        }
    }
}
