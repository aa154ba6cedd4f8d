//! Space accounting: from a dataset up through all directories.
//!
//! # Theory
//! `used_bytes` of a directory is the space that it and everything below it take of the pool. The
//! breakdown by purpose adds up to the total.
//!
//! A reservation counts as used in the directory above, whether or not it is used. So the change
//! that goes up is the change of the greater of the two. The rest moves between *used by children*
//! and *reserved for children*. A `refreservation` is to the dataset what a reservation is to the
//! directory.
//!
//! Each step is a difference of maxima, so many changes add up to the same as their sum. A sync
//! therefore sums up its blocks before it enters them.

use crate::sync::Syncing;
use crate::{Error, Result};
use ondisk::dsl::{DD_FLAG_USED_BREAKDOWN, DdUsed, DslDirPhys};
use ondisk::{Blkptr, Corrupt, ObjNum};

/// No directory is deeper than a name can be long.
const MAX_DEPTH: usize = crate::ZFS_MAX_DATASET_NAME_LEN;

/// A change of space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delta {
    /// Space of the pool, deflated.
    pub used: i64,
    /// Compressed bytes.
    pub comp: i64,
    /// Uncompressed bytes.
    pub uncomp: i64,
}

impl Delta {
    /// The space of a block; `dsize` is its deflated size (`bp_get_dsize_sync`).
    pub fn of(bp: &Blkptr, dsize: u64) -> Delta {
        let psize = bp.stored().map_or(0, |s| s.psize.0);
        let uncomp = match &bp.body {
            ondisk::blkptr::Body::Hole | ondisk::blkptr::Body::Redacted => return Delta::default(),
            // Embedded metadata counts as nothing, embedded data as its logical size.
            _ if bp.is_metadata() => psize,
            _ => bp.lsize.0,
        };
        Delta { used: dsize as i64, comp: psize as i64, uncomp: uncomp as i64 }
    }

    /// The space of a list of blocks.
    pub fn of_list(s: pool::bpobj::Space) -> Delta {
        Delta { used: s.used as i64, comp: s.comp as i64, uncomp: s.uncomp as i64 }
    }
}

impl std::ops::AddAssign for Delta {
    fn add_assign(&mut self, o: Delta) {
        self.used += o.used;
        self.comp += o.comp;
        self.uncomp += o.uncomp;
    }
}

impl std::ops::Sub for Delta {
    type Output = Delta;
    fn sub(self, o: Delta) -> Delta {
        Delta { used: self.used - o.used, comp: self.comp - o.comp, uncomp: self.uncomp - o.uncomp }
    }
}

impl std::ops::Neg for Delta {
    type Output = Delta;
    fn neg(self) -> Delta {
        Delta::default() - self
    }
}

/// Adds to a counter, which must not go below zero.
pub(crate) fn adjust(object: u64, what: &'static str, n: &mut u64, by: i64) -> Result<()> {
    let bad = Corrupt::Shape { what, why: "a count of space would be less than nothing" };
    *n = n.checked_add_signed(by).ok_or(Error::Corrupt { object: ObjNum(object), source: bad })?;
    Ok(())
}

/// The part of a change that goes up: what is beyond the reservation (`parent_delta`).
pub(crate) fn past(reserved: u64, used: u64, by: i64) -> i64 {
    let after = used.saturating_add_signed(by);
    after.max(reserved).wrapping_sub(used.max(reserved)) as i64
}

/// Adds to a directory's totals.
fn total(object: u64, p: &mut DslDirPhys, d: Delta) -> Result<()> {
    const WHAT: &str = "DSL directory";
    adjust(object, WHAT, &mut p.used_bytes, d.used)?;
    adjust(object, WHAT, &mut p.compressed_bytes, d.comp)?;
    adjust(object, WHAT, &mut p.uncompressed_bytes, d.uncomp)
}

impl Syncing<'_> {
    /// Accounts for space taken or freed for one purpose (`dsl_dir_diduse_space`).
    pub(crate) fn diduse(&mut self, dir: u64, what: DdUsed, d: Delta) -> Result<()> {
        if d == Delta::default() {
            return Ok(());
        }
        let p = self.dir_mut(dir)?;
        let up = Delta { used: past(p.reserved, p.used_bytes, d.used), ..d };
        total(dir, p, d)?;
        if p.flags & DD_FLAG_USED_BREAKDOWN != 0 {
            adjust(dir, "DSL directory", &mut p.used_breakdown[what as usize], d.used)?;
        }
        match p.parent_obj {
            0 => Ok(()),
            parent => self.diduse_transfer(parent, up, d.used, DdUsed::ChildRsrv, DdUsed::Child),
        }
    }

    /// Accounts for a change that also moves space between purposes, up to the root
    /// (`dsl_dir_diduse_transfer_space`).
    ///
    /// `d` is the change of the total. Of it, `tonew` goes to the purpose `new`; the difference
    /// comes from `old`.
    pub(crate) fn diduse_transfer(
        &mut self,
        dir: u64,
        d: Delta,
        tonew: i64,
        old: DdUsed,
        new: DdUsed,
    ) -> Result<()> {
        let (mut dir, mut d, mut tonew, mut old, mut new) = (dir, d, tonew, old, new);
        for _ in 0..MAX_DEPTH {
            if d == Delta::default() && tonew == 0 {
                return Ok(());
            }
            let p = self.dir_mut(dir)?;
            let up = past(p.reserved, p.used_bytes, d.used);
            let here = d.used;
            total(dir, p, d)?;
            if p.flags & DD_FLAG_USED_BREAKDOWN != 0 {
                adjust(dir, "DSL directory", &mut p.used_breakdown[old as usize], here - tonew)?;
                adjust(dir, "DSL directory", &mut p.used_breakdown[new as usize], tonew)?;
            }
            if p.parent_obj == 0 {
                return Ok(());
            }
            dir = p.parent_obj;
            d.used = up;
            (tonew, old, new) = (here, DdUsed::ChildRsrv, DdUsed::Child);
        }
        let source = Corrupt::Shape { what: "DSL directory", why: "no way leads to the root" };
        Err(Error::Corrupt { object: ObjNum(dir), source })
    }

    /// Moves space from one purpose to another (`dsl_dir_transfer_space`).
    pub(crate) fn transfer(&mut self, dir: u64, by: i64, old: DdUsed, new: DdUsed) -> Result<()> {
        if by == 0 || self.dir(dir)?.flags & DD_FLAG_USED_BREAKDOWN == 0 {
            return Ok(());
        }
        let p = self.dir_mut(dir)?;
        adjust(dir, "DSL directory", &mut p.used_breakdown[old as usize], -by)?;
        adjust(dir, "DSL directory", &mut p.used_breakdown[new as usize], by)
    }

    /// Free bytes of a directory if `ancestor` used `delta` more (`dsl_dir_space_available`).
    ///
    /// This counts what is on disk only.
    pub(crate) fn space_available(&mut self, dir: u64, ancestor: u64, delta: i64) -> Result<u64> {
        let mut chain = vec![dir];
        loop {
            let at = *chain.last().expect("it begins with one");
            match self.dir(at)?.parent_obj {
                0 => break,
                _ if chain.len() > MAX_DEPTH => {
                    let source = Corrupt::Shape { what: "DSL directory", why: "no way leads to the root" };
                    return Err(Error::Corrupt { object: ObjNum(dir), source });
                }
                parent => chain.push(parent),
            }
        }
        let mut above = u64::MAX;
        for at in chain.into_iter().rev() {
            let p = self.dir(at)?;
            let mut quota = if p.quota == 0 { u64::MAX } else { p.quota };
            if p.parent_obj == 0 {
                quota = quota.min(self.dsl.space().adjusted());
            }
            let mut used = p.used_bytes;
            if above != u64::MAX {
                above = above.saturating_add(p.reserved.saturating_sub(used));
            }
            if at == ancestor {
                used = used.saturating_add_signed(delta);
                if above != u64::MAX {
                    above = above.saturating_sub_signed(delta);
                }
            }
            above = quota.checked_sub(used).map_or(0, |left| left.min(above));
        }
        Ok(above)
    }

    /// Free bytes of a directory.
    pub(crate) fn available(&mut self, dir: u64) -> Result<u64> {
        self.space_available(dir, 0, 0)
    }
}
