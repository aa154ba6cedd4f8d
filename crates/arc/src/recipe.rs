//! What is needed to restore the stored form of a block, beyond its name and what memory holds.
//!
//! # Theory
//! Cache devices get blocks as the pool has them ([`crate::l2`]), and memory holds them decrypted,
//! as the object sees them. An encrypted block needs its salt and initialisation vector. A block
//! that was compressed with zstd needs its level, unless its compressed form is held.
//!
//! Both are known when a block enters the cache, from the pointer and from the compressed bytes.
//! They are kept as long as the block is held, and only while there are cache devices. They are
//! kept beside the headers, so that those of other blocks do not grow. The keys are not part of a
//! recipe; they are looked up when it is used.
//!
//! # Locks
//! The recipes of a bucket are in it, behind its lock.

use crate::header::{Header, Key};
use codec::compress::ZstdLevel;
use device::Block;
use ondisk::blkptr::{Body, CryptParams};
use ondisk::{Blkptr, CompressKind};
use std::collections::HashMap;

/// Memory of a recipe in its table.
pub(crate) const RECIPE_OVERHEAD: u64 = 96;

/// How to restore the stored form of a block; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recipe {
    params: CryptParams,
    level: Option<ZstdLevel>,
}

impl Recipe {
    /// The recipe of a block with this pointer, and the level if it was compressed with zstd and
    /// the level is known.
    pub(crate) fn of(bp: &Blkptr, level: Option<ZstdLevel>) -> Recipe {
        let none = CryptParams { salt: [0; 8], iv: [0; 12] };
        Recipe { params: bp.stored().map_or(none, |s| s.crypt_params), level }
    }

    /// The zstd level in compressed bytes.
    pub(crate) fn level_of(bp: &Blkptr, packed: Option<&Block>) -> Option<ZstdLevel> {
        let zstd = bp.stored().is_some_and(|s| s.compress == CompressKind::Zstd);
        let header = codec::compress::zstd_header(packed.filter(|_| zstd)?).ok()?;
        Some(header.level)
    }

    /// Adds its fields to a block's pointer that was made from a key.
    pub(crate) fn complete(&self, bp: &mut Blkptr) {
        if let Body::Stored(s) = &mut bp.body {
            s.crypt_params = self.params;
        }
    }

    pub(crate) fn level(&self) -> Option<ZstdLevel> {
        self.level
    }

    /// Whether it is enough for a block, whose compressed form is held or not.
    pub(crate) fn serves(&self, key: &Key, packed: bool) -> bool {
        packed || key.compress() != CompressKind::Zstd || self.level.is_some()
    }
}

/// Recipes by header: a header keeps its address while it holds something.
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

    /// Drops the recipe of a header that gives up what it holds. Returns whether there was one.
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
