//! Users and groups by the cell's protection servers.
//!
//! # Theory
//! See [`protection`](super::protection). Answers are kept for [`VALID`], and longer while no
//! server answers. So a server goes on serving the users that it knows.
//!
//! # Memory
//! Each cache has a bounded number of entries, and an answer has 5,000 groups at most.

use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cache::{Answer, Cache};
use super::databases::{Databases, Failure};
use super::protection::{AWAY, Protection, User};
use crate::acl::MAX_PRINCIPAL_NAME;
use crate::calls::ptserver::{Call, CpsReply, MAX_NAMES, PrincipalName, Reply};
use crate::errors::protection::PRNOENT;
use crate::errors::rxgen::RXGEN_CC_UNMARSHAL;
use crate::types::PrincipalId;
use crate::wire::List;

/// How long an answer is fresh.
pub const VALID: Duration = Duration::from_secs(2 * 3600);
/// How long an unknown name or a refusal is remembered.
const NEGATIVE: Duration = Duration::from_secs(60);
/// The pause after a server was away, for an answer that is not fresh.
const RETRY: Duration = Duration::from_secs(30);
/// Most users in all parts of the cache together.
const USERS: usize = 65_536;
/// Parts of the cache of users, each with its own lock.
const SHARDS: usize = 16;
/// Most hosts in the cache.
const HOSTS: usize = 65_536;

/// The protection servers of the cell.
pub struct PtServer {
    databases: Databases,
    hash: RandomState,
    users: [Cache<String, Arc<User>>; SHARDS],
    hosts: Cache<Ipv4Addr, Arc<[PrincipalId]>>,
    anonymous: Cache<(), Arc<User>>,
}

impl PtServer {
    /// Users and groups by these servers of [`super::PR_SERVICE`].
    pub fn new(databases: Databases) -> Self {
        Self {
            databases,
            hash: RandomState::new(),
            users: std::array::from_fn(|_| Cache::new(USERS / SHARDS, RETRY)),
            hosts: Cache::new(HOSTS, RETRY),
            anonymous: Cache::new(1, RETRY),
        }
    }

    /// Whether no server answered the last call.
    pub fn is_away(&self) -> bool {
        self.databases.is_away()
    }

    fn call(&self, call: &Call) -> Result<Reply, i32> {
        let bytes = self.databases.call(&call.request()).map_err(|failure| match failure {
            Failure::Refused(code) => code,
            Failure::Away => AWAY,
        })?;
        Reply::decode(call.opcode(), &bytes).map_err(|error| {
            tracing::warn!(%error, "the reply of a protection server can't be decoded");
            RXGEN_CC_UNMARSHAL
        })
    }

    fn groups(&self, id: PrincipalId) -> Result<Vec<PrincipalId>, i32> {
        match self.call(&Call::GetCps { id })? {
            Reply::GetCps(reply) => Ok(complete(reply, id)),
            _ => Err(RXGEN_CC_UNMARSHAL),
        }
    }

    fn few_ids(&self, names: &[Vec<u8>]) -> Result<Vec<PrincipalId>, i32> {
        // A name that is too long is unknown.
        let short: Option<Vec<PrincipalName>> = names.iter().map(|name| principal(name)).collect();
        let Some(short) = short else {
            let each = |name: &Vec<u8>| match principal(name) {
                Some(_) => self.few_ids(std::slice::from_ref(name)),
                None => Ok(vec![PrincipalId::ANONYMOUS]),
            };
            return names.iter().map(each).collect::<Result<Vec<_>, i32>>().map(|ids| ids.concat());
        };
        let list = List::new(short).ok_or(RXGEN_CC_UNMARSHAL)?;
        match self.call(&Call::NameToId { names: list })? {
            Reply::NameToId(ids) if ids.len() == names.len() => Ok(ids.into_vec()),
            _ => Err(RXGEN_CC_UNMARSHAL),
        }
    }

    fn few_names(&self, ids: &[PrincipalId]) -> Result<Vec<Vec<u8>>, i32> {
        let list = List::new(ids.to_vec()).ok_or(RXGEN_CC_UNMARSHAL)?;
        match self.call(&Call::IdToName { ids: list })? {
            Reply::IdToName(names) if names.len() == ids.len() => {
                Ok(names.iter().map(|name| name.as_bytes().to_vec()).collect())
            }
            _ => Err(RXGEN_CC_UNMARSHAL),
        }
    }

    fn ask_user(&self, name: &str) -> Answer<Arc<User>> {
        let id = match self.few_ids(&[name.as_bytes().to_vec()]) {
            Ok(ids) => ids.first().copied().unwrap_or(PrincipalId::ANONYMOUS),
            Err(code) => return failed(code),
        };
        let known = match id {
            PrincipalId::ANONYMOUS => Err(PRNOENT),
            id => self.groups(id).map(|groups| Arc::new(User::new(id, groups))),
        };
        match known {
            Ok(user) => Answer::Known(user, VALID),
            // The name is unknown, or was removed a moment ago.
            Err(PRNOENT) => match self.anonymous() {
                Ok(user) => Answer::Known(user, NEGATIVE),
                Err(code) => failed(code),
            },
            Err(code) => failed(code),
        }
    }
}

/// The groups of a reply, with a warning if they are not all.
fn complete(reply: CpsReply, id: PrincipalId) -> Vec<PrincipalId> {
    if reply.over != 0 {
        tracing::warn!(%id, "this user or host is in more groups than a protection server lists");
    }
    reply.principals.into_vec()
}

fn failed<V>(code: i32) -> Answer<V> {
    match code {
        AWAY => Answer::Away(code),
        code => Answer::Refused(code, NEGATIVE),
    }
}

/// A name as the protection servers have it: without capital letters.
fn principal(name: &[u8]) -> Option<PrincipalName> {
    let lower = name.to_ascii_lowercase();
    // The server would read a name up to a NUL only, which is another name.
    let is_name = lower.len() <= MAX_PRINCIPAL_NAME && !lower.contains(&0);
    is_name.then(|| PrincipalName::new(&lower))
}

impl Protection for PtServer {
    fn user(&self, name: &str) -> Result<Arc<User>, i32> {
        let name = name.to_ascii_lowercase();
        if principal(name.as_bytes()).is_none() {
            return self.anonymous();
        }
        let shard = &self.users[self.hash.hash_one(&name) as usize % SHARDS];
        shard.get(&name, Instant::now(), || self.ask_user(&name))
    }

    fn host(&self, address: Ipv4Addr) -> Result<Arc<[PrincipalId]>, i32> {
        let ask = || match self.call(&Call::GetHostCps { host: address.to_bits() }) {
            Ok(Reply::GetHostCps(reply)) => {
                let mut groups = reply.principals.into_vec();
                groups.sort_unstable();
                Answer::Known(groups.into(), VALID)
            }
            Ok(_) => Answer::Refused(RXGEN_CC_UNMARSHAL, NEGATIVE),
            Err(AWAY) => Answer::Away(AWAY),
            // Most hosts are unknown.
            Err(_) => Answer::Known(Arc::default(), NEGATIVE),
        };
        self.hosts.get(&address, Instant::now(), ask)
    }

    fn names(&self, ids: &[PrincipalId]) -> Result<Vec<Vec<u8>>, i32> {
        ids.chunks(MAX_NAMES)
            .map(|ids| self.few_names(ids))
            .collect::<Result<Vec<_>, i32>>()
            .map(|all| all.concat())
    }

    fn ids(&self, names: &[Vec<u8>]) -> Result<Vec<PrincipalId>, i32> {
        names
            .chunks(MAX_NAMES)
            .map(|names| self.few_ids(names))
            .collect::<Result<Vec<_>, i32>>()
            .map(|all| all.concat())
    }

    /// While no server answers, this is [`User::anonymous`].
    fn anonymous(&self) -> Result<Arc<User>, i32> {
        let ask = || match self.groups(PrincipalId::ANONYMOUS) {
            Ok(groups) => Answer::Known(Arc::new(User::new(PrincipalId::ANONYMOUS, groups)), VALID),
            Err(code) => failed(code),
        };
        match self.anonymous.get(&(), Instant::now(), ask) {
            Err(AWAY) => Ok(Arc::new(User::anonymous())),
            result => result,
        }
    }

    fn flush(&self, users: &[PrincipalId], addresses: &[u32]) {
        let is_flushed = |user: Option<&Arc<User>>| user.is_none_or(|user| users.contains(&user.id));
        if !users.is_empty() {
            self.users.iter().for_each(|shard| shard.remove(|_, user| is_flushed(user)));
            self.anonymous.remove(|(), user| is_flushed(user));
        }
        if !addresses.is_empty() {
            self.hosts.remove(|address, _| addresses.contains(&address.to_bits()));
        }
    }
}
