//! A cell without users.

use std::net::Ipv4Addr;
use std::sync::Arc;

use afs::cell::protection::{Protection, User};
use afs::types::PrincipalId;

/// The users of a cell without users.
pub struct Anonymous;

impl Protection for Anonymous {
    fn user(&self, _: &str) -> Result<Arc<User>, i32> {
        self.anonymous()
    }

    fn host(&self, _: Ipv4Addr) -> Result<Arc<[PrincipalId]>, i32> {
        Ok(Arc::default())
    }

    fn names(&self, ids: &[PrincipalId]) -> Result<Vec<Vec<u8>>, i32> {
        Ok(ids.iter().map(|id| id.to_string().into_bytes()).collect())
    }

    fn ids(&self, names: &[Vec<u8>]) -> Result<Vec<PrincipalId>, i32> {
        Ok(names.iter().map(|_| PrincipalId::ANONYMOUS).collect())
    }

    fn anonymous(&self) -> Result<Arc<User>, i32> {
        Ok(Arc::new(User::anonymous()))
    }

    fn flush(&self, _: &[PrincipalId], _: &[u32]) {}
}
