//! A few facts of each vnode of a volume, for dumps and restores of what changed.
//!
//! # Theory
//! Each incremental dump names all vnodes of a volume, and most have not changed. So their facts
//! are read in place ([`dmu::Objset::bonuses`]), without the other attributes. A file that can't be
//! read so has no facts here. The caller opens it, and gets the error if it is malformed.

use crate::{AfsStatus, FileSystem, FileType, Node, Result};
use dmu::{BonusBlocks, Bonuses};
use ondisk::sa::{Attr as Sa, SaRegistry};
use ondisk::znode::Pflags;
use ondisk::{DmuType, ObjNum};
use std::ops::Range;

/// What dumps and restores need to know of a vnode that stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AfsBrief {
    /// The type of the file.
    pub kind: FileType,
    /// The generation: the uniquifier of the vnode.
    pub generation: u64,
    /// The number of links.
    pub links: u64,
    /// The size: bytes of a file, entries of a directory with `.` and `..`.
    pub size: u64,
    /// The directory.
    pub parent: ObjNum,
    /// The flags of the file.
    pub pflags: Pflags,
    /// When the server last changed the vnode ([`AfsStatus::server_mtime`]). `None`: the file has
    /// no status.
    pub server_mtime: Option<u64>,
}

impl AfsBrief {
    fn of(registry: &SaRegistry, bonus: &[u8]) -> Option<Self> {
        let wanted = [Sa::Mode, Sa::Gen, Sa::Links, Sa::Size, Sa::Parent, Sa::Flags, Sa::Afs];
        let [mode, generation, links, size, parent, flags, status] = registry.find(bonus, wanted).ok()??;
        let word = |at: Range<usize>| bonus.get(at)?.first_chunk().map(|word| u64::from_le_bytes(*word));
        let kind = FileType::from_mode(word(mode)?);
        (kind != FileType::Unknown).then_some(Self {
            kind,
            generation: word(generation)?,
            links: word(links)?,
            size: word(size)?,
            parent: ObjNum(word(parent)?),
            pflags: Pflags(word(flags)?),
            server_mtime: Some(AfsStatus::server_mtime_of(bonus.get(status)?).ok()?),
        })
    }
}

impl Node {
    /// The facts of an open file.
    ///
    /// # Errors
    /// Those of [`Node::afs_status`].
    pub fn afs_brief(&self) -> Result<AfsBrief> {
        let attr = self.attr();
        Ok(AfsBrief {
            kind: attr.kind,
            generation: attr.generation,
            links: attr.nlink,
            size: attr.size,
            parent: attr.parent,
            pflags: attr.pflags,
            server_mtime: self.afs_status()?.map(|status| status.server_mtime),
        })
    }
}

/// The iterator of [`FileSystem::afs_briefs`].
pub struct AfsBriefs {
    fs: FileSystem,
    blocks: BonusBlocks,
    block: Option<Bonuses>,
    index: usize,
}

impl FileSystem {
    /// The files from an object on, in order. A file without facts must be opened
    /// ([`FileSystem::node`]), and may not exist then.
    ///
    /// After an error, the iterator ends.
    ///
    /// # Errors
    /// * [`crate::Error::Dmu`]: a block of dnodes can't be read.
    pub fn afs_briefs(&self, first: ObjNum) -> AfsBriefs {
        AfsBriefs { fs: self.clone(), blocks: self.objset().bonuses(first), block: None, index: 0 }
    }

    /// The facts of a file. `None`: the object is none.
    ///
    /// # Errors
    /// Those of [`FileSystem::node`], but for [`crate::Error::NoFile`], and of
    /// [`Node::afs_status`].
    pub fn afs_brief(&self, number: ObjNum) -> Result<Option<AfsBrief>> {
        match self.node(number) {
            Err(crate::Error::NoFile { .. }) => Ok(None),
            node => Ok(Some(node?.afs_brief()?)),
        }
    }
}

impl Iterator for AfsBriefs {
    type Item = Result<(ObjNum, Option<AfsBrief>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some((object, found)) = self.block.as_ref().and_then(|block| block.get(self.index)) {
                self.index += 1;
                match found {
                    None | Some((DmuType::ZNODE, _)) => return Some(Ok((object, None))),
                    Some((DmuType::SA, bonus)) => {
                        let brief = AfsBrief::of(&self.fs.sa().registry(), bonus);
                        return Some(Ok((object, brief)));
                    }
                    // An object of the file system itself.
                    Some(_) => {}
                }
            }
            match self.blocks.next()? {
                Ok(block) => (self.block, self.index) = (Some(block), 0),
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}
