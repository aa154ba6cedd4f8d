//! What it takes to make the stored form of a block again, where its name and what memory holds of it do not say.
//!
//! # Theory
//! Cache devices get blocks as the pool has them ([`crate::l2`]), and memory holds them as the object sees them, decrypted. What is encrypted needs its salt and initialisation vector, and what was packed by zstd
//! its level, unless its packed form is held. Both are known when a block comes into the cache, from the pointer and from what was packed, and are kept for as long as the block is held: beside the headers, so that
//! those of other blocks do not grow, and only while there are cache devices. The keys are no part of a recipe: they are asked for when it is followed.
//!
//! # Locks
//! Those of a bucket are in it, behind its lock.

use crate::header::{Header, Key};
use codec::compress::ZstdLevel;
use device::Block;
use ondisk::blkptr::{Body, CryptParams};
use ondisk::{Blkptr, CompressKind};
use std::collections::HashMap;

/// What a recipe takes, in its table.
pub(crate) const RECIPE_OVERHEAD: u64 = 96;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recipe {
    params: CryptParams,
    level: Option<ZstdLevel>,
}

impl Recipe {
    /// Of a block with this pointer, packed by zstd at this level if it is packed so, and that is known.
    pub(crate) fn of(bp: &Blkptr, level: Option<ZstdLevel>) -> Recipe {
        let none = CryptParams { salt: [0; 8], iv: [0; 12] };
        Recipe { params: bp.stored().map_or(none, |s| s.crypt_params), level }
    }

    /// The level in what was packed by zstd.
    pub(crate) fn level_of(bp: &Blkptr, packed: Option<&Block>) -> Option<ZstdLevel> {
        let zstd = bp.stored().is_some_and(|s| s.compress == CompressKind::Zstd);
        let header = codec::compress::zstd_header(packed.filter(|_| zstd)?).ok()?;
        Some(header.level)
    }

    /// Completes what a key knows of a block's pointer.
    pub(crate) fn complete(&self, bp: &mut Blkptr) {
        if let Body::Stored(s) = &mut bp.body {
            s.crypt_params = self.params;
        }
    }

    pub(crate) fn level(&self) -> Option<ZstdLevel> {
        self.level
    }

    /// Whether it does for a block of which the packed form is held, or not.
    pub(crate) fn serves(&self, key: &Key, packed: bool) -> bool {
        packed || key.compress() != CompressKind::Zstd || self.level.is_some()
    }
}

/// Recipes by whose they are: a header stays where it is while it holds something.
#[derive(Default)]
pub(crate) struct Recipes(HashMap<usize, Recipe>);

impl Recipes {
    fn name(header: &Header) -> usize {
        std::ptr::from_ref(header).addr()
    }

    pub(crate) fn keep(&mut self, header: &Header, recipe: Recipe) {
        header.set_recipe();
        self.0.insert(Self::name(header), recipe);
    }

    pub(crate) fn get(&self, header: &Header) -> Option<Recipe> {
        self.0.get(&Self::name(header)).copied().filter(|_| header.has_recipe())
    }

    /// A header gives up what it holds: its recipe is of no use any more. Says whether there was one.
    pub(crate) fn forget(&mut self, header: &Header) -> bool {
        let had = header.unset_recipe();
        if had {
            self.0.remove(&Self::name(header));
            if self.0.is_empty() {
                self.0.shrink_to_fit();
            }
        }
        had
    }
}
