//! Who a caller is, and what it may do.
//!
//! # Theory
//! A caller is a user of the cell on a host. The rights in a directory come from its access list,
//! for the groups of both. Administrators of the cell may look up and administer everywhere.
//! Superusers of the server (its own cell key, and the users of `UserList`) may call the volume
//! server. They have no rights on files by that.
//!
//! # See
//! OpenAFS: `GetRights`, `Check_PermissionRights` in `src/viced/afsfileprocs.c`.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, Instant};

use observe::lock::Mutex;
use rx::engine::Info;
use rx::security::{ConnectionId, Identity};

use super::activity::clients::Client;
use super::hosts::Host;
use crate::acl::{Acl, Rights};
use crate::calls::fileserver::lock;
use crate::cell::protection::User;
use crate::errors::errno::{EACCES, EINVAL, EPERM};
use crate::types::{PrincipalId, StoreStatus, VnodeType};

/// Read and execute by the owner.
const OWNER_READ_EXECUTE: u32 = 0o500;
/// Write by the owner.
const OWNER_WRITE: u32 = 0o200;
/// Set-user-id and set-group-id.
pub const SET_ID: u32 = 0o6000;
/// The bits of a mode that users other than administrators set.
const ORDINARY: u32 = 0o777;

/// Who calls.
#[derive(Clone)]
pub struct Caller {
    /// The user.
    pub user: Arc<User>,
    /// What a caller without a ticket is.
    pub anyone: Arc<User>,
    /// The groups of the host.
    pub host_groups: Arc<[PrincipalId]>,
    /// The host.
    pub host: Arc<Host>,
    /// The counters of what it does.
    pub usage: Arc<Client>,
}

/// The rights of a caller in a directory, and those of anyone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// The caller's.
    pub rights: Rights,
    /// Those of a caller without a ticket.
    pub anyone: Rights,
}

/// What decides about rights on a file, beside the access list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// What it is.
    pub kind: VnodeType,
    /// The owner.
    pub owner: PrincipalId,
    /// The Unix group.
    pub group: i32,
    /// The mode's low twelve bits.
    pub mode: u32,
}

impl Caller {
    /// Whether the caller administers the cell.
    pub fn is_administrator(&self) -> bool {
        self.user.is_administrator
    }

    /// The code of an error for this caller: some clients want unified ones.
    pub fn code(&self, code: i32) -> i32 {
        if self.host.wants_unified() { crate::errors::to_unified(code) } else { code }
    }

    /// The rights that an access list gives.
    pub fn granted(&self, acl: &Acl) -> Granted {
        let of_host = acl.rights(&self.host_groups);
        let mut rights = acl.rights(&self.user.groups).with(of_host);
        if self.is_administrator() {
            rights = rights.with(Rights::LOOKUP).with(Rights::ADMINISTER);
        }
        Granted { rights, anyone: acl.rights(&self.anyone.groups).with(of_host) }
    }

    fn owns(&self, file: &About) -> bool {
        self.user.id == file.owner
    }

    /// A mode that the caller asks for, as far as it may set one (`CREATE_SGUID_ADMIN_ONLY`).
    pub fn mode(&self, mode: u32) -> u32 {
        mode & if self.is_administrator() { 0o7777 } else { ORDINARY }
    }

    /// Whether the caller owns the file and has a name in the cell.
    fn is_named_owner(&self, file: &About) -> bool {
        self.owns(file) && self.user.id != PrincipalId::ANONYMOUS
    }

    fn owns_volume(&self, owner: PrincipalId) -> bool {
        match owner.0 {
            0 => false,
            1.. => self.user.id == owner,
            _ => self.user.groups.contains(&owner),
        }
    }

    /// Whether the status of a file may be read.
    ///
    /// # Errors
    /// EACCES.
    pub fn check_status(&self, file: &About, granted: Granted) -> Result<(), i32> {
        match file.kind {
            VnodeType::Directory => Ok(()),
            _ if self.is_administrator() => Ok(()),
            VnodeType::Symlink => need(granted.rights.has(Rights::LOOKUP)),
            VnodeType::File => need(self.may_read(file, granted)),
        }
    }

    /// Whether the contents of a file may be read. `owner` is that of the volume.
    ///
    /// # Errors
    /// EACCES.
    pub fn check_read(&self, file: &About, granted: Granted, owner: PrincipalId) -> Result<(), i32> {
        if file.kind != VnodeType::File {
            let may =
                granted.rights.has(Rights::LOOKUP) || self.is_administrator() || self.owns_volume(owner);
            return need(may);
        }
        need(self.may_read(file, granted))?;
        let mode = file.mode & OWNER_READ_EXECUTE != 0;
        need(mode || self.owns(file) || self.is_administrator())
    }

    fn may_read(&self, file: &About, granted: Granted) -> bool {
        let own = self.is_named_owner(file) && granted.rights.has(Rights::INSERT);
        granted.rights.has(Rights::READ) || own
    }

    /// Whether the owner stores into a new file, for which the right to insert is enough.
    fn fills(&self, file: &About, granted: Granted) -> bool {
        file.kind == VnodeType::File && granted.rights.has(Rights::INSERT) && self.owns(file)
    }

    /// Whether contents may be stored.
    ///
    /// # Errors
    /// EACCES; EPERM: only administrators give files away.
    pub fn check_store(&self, file: &About, granted: Granted, set: &StoreStatus) -> Result<(), i32> {
        self.check_owner(file, set)?;
        if self.fills(file, granted) {
            return Ok(());
        }
        self.check_mode(set)?;
        need(granted.rights.has(Rights::WRITE))?;
        need(self.is_administrator() || file.mode & OWNER_WRITE != 0)
    }

    /// Whether a status may be stored.
    ///
    /// # Errors
    /// EACCES; EPERM: only administrators give files away.
    pub fn check_store_status(&self, file: &About, granted: Granted, set: &StoreStatus) -> Result<(), i32> {
        self.check_owner(file, set)?;
        if self.fills(file, granted) || self.is_administrator() {
            return Ok(());
        }
        self.check_mode(set)?;
        need(match file.kind {
            VnodeType::Directory => granted.rights.has_any(Rights::INSERT.with(Rights::DELETE)),
            VnodeType::File | VnodeType::Symlink => granted.rights.has(Rights::WRITE),
        })
    }

    fn check_owner(&self, file: &About, set: &StoreStatus) -> Result<(), i32> {
        let gives = set.owner.is_some_and(|owner| owner != file.owner);
        let regroups = set.group.is_some_and(|group| group != file.group);
        if (gives || regroups) && !self.is_administrator() { Err(EPERM) } else { Ok(()) }
    }

    fn check_mode(&self, set: &StoreStatus) -> Result<(), i32> {
        need(set.mode.is_none_or(|mode| mode & SET_ID == 0) || self.is_administrator())
    }

    /// Whether the access list of a directory may be replaced.
    ///
    /// # Errors
    /// EACCES.
    pub fn check_administer(&self, granted: Granted, owner: PrincipalId) -> Result<(), i32> {
        need(granted.rights.has(Rights::ADMINISTER) || self.owns_volume(owner) || self.is_administrator())
    }

    /// Whether a file may be locked.
    ///
    /// # Errors
    /// EACCES; EINVAL: there is no such lock.
    pub fn check_lock(&self, file: &About, granted: Granted, kind: i32) -> Result<super::locks::Kind, i32> {
        let own = self.owns(file) && granted.rights.has(Rights::INSERT);
        match kind {
            lock::READ => need(own || granted.rights.has_any(Rights::LOCK.with(Rights::WRITE)))
                .map(|()| super::locks::Kind::Read),
            lock::WRITE => need(own || granted.rights.has(Rights::WRITE)).map(|()| super::locks::Kind::Write),
            _ => Err(EINVAL),
        }
    }

    /// The rights that a status shows to the caller. For other files than directories, the right to
    /// administer tells that the caller owns the file.
    pub fn shown(&self, file: &About, granted: Granted) -> Rights {
        if file.kind == VnodeType::Directory {
            return granted.rights;
        }
        let rights = granted.rights.without(Rights::ADMINISTER);
        if self.owns(file) { rights.with(Rights::ADMINISTER) } else { rights }
    }
}

/// Callers by their connections.
///
/// A connection belongs to one user. So most calls need no look at users, groups and hosts.
#[derive(Default)]
pub struct Callers {
    shards: [Mutex<Known>; SHARDS],
}

/// Callers by their connections.
type Known = HashMap<Connection, Proven>;

/// A caller, and what its connection proved.
struct Proven {
    caller: Arc<Caller>,
    identity: Option<Arc<Identity>>,
    until: Instant,
    /// The number of the client's counters.
    client: u64,
}
type Connection = (SocketAddrV4, ConnectionId);

/// Parts of the table, each with a lock.
const SHARDS: usize = 16;
/// Most connections of a part. With more, all of it is forgotten.
const CONNECTIONS: usize = 4096;
/// How long a caller's groups hold.
const FRESH: Duration = Duration::from_secs(60);

impl Callers {
    fn shard(&self, info: &Info) -> &Mutex<Known> {
        let mixed = (info.connection.cid >> 2 ^ u32::from(info.peer.port())).wrapping_mul(0x9e37_79b1);
        &self.shards[(mixed >> 28) as usize % SHARDS]
    }

    /// The caller of a connection from this host.
    pub fn get(&self, info: &Info, host: &Arc<Host>) -> Option<Arc<Caller>> {
        let shard = self.shard(info).lock();
        let known = shard.get(&(info.peer, info.connection))?;
        // Another connection may have the numbers of one that has ended.
        let same = known.identity == info.identity && Arc::ptr_eq(&known.caller.host, host);
        let holds = same && known.until > Instant::now();
        holds.then(|| Arc::clone(&known.caller))
    }

    /// Notes the caller of a connection.
    pub fn put(&self, info: &Info, caller: Arc<Caller>) {
        let mut shard = self.shard(info).lock();
        if shard.len() >= CONNECTIONS {
            shard.clear();
        }
        let (identity, until) = (info.identity.clone(), Instant::now() + FRESH);
        let client = caller.usage.number;
        shard.insert((info.peer, info.connection), Proven { caller, identity, until, client });
    }

    /// How many connections have made a call lately, by the numbers of their clients' counters: all
    /// of the last minute, and none that made none for two minutes.
    pub fn connections(&self) -> HashMap<u64, u64> {
        let (mut counts, now) = (HashMap::new(), Instant::now());
        let mut clients = Vec::with_capacity(CONNECTIONS);
        for shard in &self.shards {
            // Calls wait for the lock, so they are counted without it.
            let fresh = |known: &Proven| (known.until > now).then_some(known.client);
            clients.extend(shard.lock().values().filter_map(fresh));
            clients.drain(..).for_each(|client| *counts.entry(client).or_default() += 1);
        }
        counts
    }

    /// Forgets all callers.
    pub fn clear(&self) {
        self.shards.iter().for_each(|shard| shard.lock().clear());
    }
}

/// EACCES unless it is allowed.
pub fn need(allowed: bool) -> Result<(), i32> {
    if allowed { Ok(()) } else { Err(EACCES) }
}
