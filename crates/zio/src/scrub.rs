//! Reading a block to check that all of it is right.
//!
//! # Theory
//! A scrub reads every piece of every copy and repairs what differs. A resilver finds what devices
//! are known to lack; that is written later, together with other blocks. Both first need the right
//! bytes, from any good copy.
//!
//! Nothing is decrypted or decompressed: the checksum is of the stored bytes. A gang block is its
//! headers and its pieces, each a block with copies and a checksum of its own.
//!
//! # Locks
//! None is held. The caller keeps the block from being freed, so that a repair does not overwrite
//! another block.
//!
//! # See
//! OpenZFS `dsl_scan_scrub_cb`, `scan_exec_io`, `zio_vdev_io_assess`.

use std::sync::Arc;

use codec::checksum::embedded::{self, Verifier};
use device::Block;
use ondisk::blkptr::{Body, Stored};
use ondisk::gang::{GANG_HEADER_SIZE, decode_gang_header};
use ondisk::{Blkptr, ChecksumKind, Corrupt, DmuType, Dva, Psize, SPA_MINBLOCKSHIFT, Txg};
use vdev::{Examined, Laid, RepairOutcome, Tree, VdevError};

use crate::gang::MAX_DEPTH;
use crate::read::Extent;
use crate::read::has_mac;
use crate::{Bookmark, Error, ReadOptions, Result, Zio};

/// How a block is examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExamineKind {
    /// Every piece is read and compared (`ZIO_FLAG_SCRUB`).
    Scrub,
    /// What devices have missed is found, and written together with other blocks
    /// (`ZIO_FLAG_RESILVER`).
    Resilver,
}

/// What is done with the findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RepairMode {
    /// [`ExamineKind::Scrub`].
    Scrub,
    /// [`ExamineKind::Resilver`].
    Resilver,
    /// Copies that a read found wrong are rewritten; the read counted the errors
    /// (`ZIO_FLAG_SELF_HEAL`).
    Heal,
}

/// One block to examine: all of its copies, and how bytes are verified.
struct BlockCopies<'a> {
    dvas: Vec<&'a Dva>,
    size: usize,
    birth: Txg,
    bookmark: &'a Bookmark,
    /// It is not known whether it was ever written.
    speculative: bool,
    /// There is a checksum that shows whether bytes are right.
    sure: bool,
}

/// The examination of one block, with all parts of a gang block.
struct Examination<'a> {
    zio: &'a Zio,
    bookmark: &'a Bookmark,
    how: RepairMode,
    options: &'a ReadOptions,
    done: RepairOutcome,
    /// The vdevs at the start.
    tree: Arc<Tree>,
    /// What a resilver is to write.
    lacking: Vec<Laid>,
    headers_left: u64,
}

/// What devices lack of a block.
#[derive(Debug)]
pub struct MissingPieces {
    /// To be written with [`Tree::refill`] of this tree and no other.
    pub laid: Vec<Laid>,
    /// The tree for which it was laid out.
    pub tree: Arc<Tree>,
    /// The rest of the outcome.
    pub known: RepairOutcome,
}

impl Zio {
    /// Examines every copy of a block, and repairs at once what it can (`ZIO_FLAG_SCRUB`).
    ///
    /// Returns the stored bytes and the outcome. A hole or embedded block has no place of its own,
    /// and so no bytes.
    ///
    /// # Errors
    /// No copy is right. Checksum errors were counted against the devices that returned wrong
    /// bytes.
    ///
    /// * [`Error::Place`]: the pointer names a place that no block can have.
    /// * [`Error::Io`]: too many devices are missing or failed.
    /// * [`Error::Checksum`]: copies were read, and none has the right checksum.
    /// * [`Error::Corrupt`]: the pointer or the gang tree is invalid.
    pub fn look(
        &self,
        bp: &Blkptr,
        bookmark: &Bookmark,
        options: &ReadOptions,
    ) -> Result<(Option<Block>, RepairOutcome)> {
        let looked = self.look_as(bp, bookmark, RepairMode::Scrub, options)?;
        Ok(looked.map_or_else(Default::default, |(raw, looking)| (Some(raw), looking.done)))
    }

    /// Rewrites every copy of a block that is not right (`ZIO_FLAG_SELF_HEAL`). The caller knows
    /// that the block is still in its places.
    ///
    /// # Errors
    /// Those of [`Zio::look`].
    pub fn heal(&self, bp: &Blkptr, bookmark: &Bookmark, options: &ReadOptions) -> Result<()> {
        self.look_as(bp, bookmark, RepairMode::Heal, options).map(drop)
    }

    /// Finds what devices are known to have missed of a block (`ZIO_FLAG_RESILVER`). Writes
    /// nothing. `None` for a block without a place of its own.
    ///
    /// # Errors
    /// Those of [`Zio::look`].
    pub fn lacking(
        &self,
        bp: &Blkptr,
        bookmark: &Bookmark,
        options: &ReadOptions,
    ) -> Result<Option<MissingPieces>> {
        let looked = self.look_as(bp, bookmark, RepairMode::Resilver, options)?;
        Ok(looked.map(|(_, Examination { tree, lacking: laid, done: known, .. })| MissingPieces {
            laid,
            tree,
            known,
        }))
    }

    fn look_as<'a>(
        &'a self,
        bp: &Blkptr,
        bookmark: &'a Bookmark,
        how: RepairMode,
        options: &'a ReadOptions,
    ) -> Result<Option<(Block, Examination<'a>)>> {
        let Body::Stored(s) = &bp.body else { return Ok(None) };
        let headers_left = 3 * ((s.psize.0 >> SPA_MINBLOCKSHIFT) + u64::from(MAX_DEPTH));
        let (done, lacking, tree) = (RepairOutcome::default(), Vec::new(), self.tree());
        let mut looking =
            Examination { zio: self, bookmark, how, options, done, tree, lacking, headers_left };
        let looked = self.pretended(bp, s, bookmark, options).map_or_else(|| looking.stored(bp, s, 0), Err);
        let raw = looked.inspect_err(|e| self.damage().judge(bp, bookmark, e))?;
        Ok(Some((raw, looking)))
    }

    /// The failure of a block of which all copies have an injected fault ([`vdev::inject`]). If
    /// only some copies have one, the examination finds the others, and repairs nothing.
    fn pretended(
        &self,
        bp: &Blkptr,
        s: &Stored,
        bookmark: &Bookmark,
        options: &ReadOptions,
    ) -> Option<Error> {
        let all = s.copies().all(|dva| self.spoiled(bp, s, dva, bookmark).is_some());
        if all { self.fetch_stored(bp, s, bookmark, options).err() } else { None }
    }

    /// Decodes what [`Zio::look`] returned, as the object sees it, but not decrypted.
    ///
    /// # Errors
    /// * [`Error::Decode`]: the bytes can't be authenticated or decompressed, as with ciphertext.
    /// * [`Error::Corrupt`]: the contents are invalid.
    /// * [`Error::Redacted`]: the block was left out of a redacted stream.
    pub fn open_raw(
        &self,
        bp: &Blkptr,
        raw: Block,
        bookmark: &Bookmark,
        options: &ReadOptions,
    ) -> Result<Block> {
        match &bp.body {
            Body::Stored(s) => {
                let opened = self.decode(bp, s, (raw.thaw(), Extent::Whole), bookmark)?;
                Ok(opened.block.into_head())
            }
            Body::Embedded(_) | Body::Hole | Body::Redacted => self.read_undecrypted(bp, bookmark, options),
        }
    }
}

impl Examination<'_> {
    fn corrupt(&self, source: Corrupt) -> Error {
        Error::Corrupt { bookmark: *self.bookmark, source }
    }

    // As deep as a gang tree may be.
    fn stored(&mut self, bp: &Blkptr, s: &Stored, depth: u32) -> Result<Block> {
        if s.psize.0 > bp.lsize.0 {
            return Err(self.corrupt(Corrupt::Range {
                what: "block pointer",
                field: "psize",
                value: s.psize.0,
            }));
        }
        let speculative = bp.kind == DmuType::INTENT_LOG;
        let bookmark = self.bookmark;
        let (gangs, plain): (Vec<&Dva>, Vec<&Dva>) = s.copies().partition(|dva| dva.gang);
        if gangs.is_empty() {
            let size = s.psize.0 as usize;
            let sure = !matches!(s.checksum, ChecksumKind::Off | ChecksumKind::Noparity);
            let place = BlockCopies { dvas: plain, size, birth: s.phys_birth, bookmark, speculative, sure };
            let zio = self.zio;
            return self.at(&place, &|buf| zio.verify(bp, s, buf));
        }
        // No software writes a block that is a gang block in some places only.
        self.done.incomplete |= !plain.is_empty();
        // All copies of the header are equal, and bound to the place of the first.
        let first = s.copies().next().expect("it has a copy that is a gang block");
        let verifier =
            Verifier::GangHeader { vdev: first.vdev.0.into(), offset: first.offset.0, birth: s.phys_birth.0 };
        if depth > MAX_DEPTH || self.headers_left == 0 {
            let why = "its tree is too deep, or has more headers than it has sectors";
            return Err(self.corrupt(Corrupt::Shape { what: "gang block", why }));
        }
        self.headers_left -= 1;
        let (dvas, size) = (gangs, GANG_HEADER_SIZE);
        let place = BlockCopies { dvas, size, birth: s.phys_birth, bookmark, speculative, sure: true };
        let verify = |buf: &[u8]| embedded::verify(&verifier, buf, has_mac(bp, s)).map(drop);
        let header = self.at(&place, &verify)?;
        for piece in decode_gang_header(&header).map_err(|source| self.corrupt(source))? {
            if let Body::Stored(inner) = &piece.body {
                // The caller's check of the whole block shows whether this is fatal.
                self.done.incomplete |= self.stored(&piece, inner, depth + 1).is_err();
            }
        }
        Ok(self.zio.fetch_stored(bp, s, bookmark, self.options)?.freeze())
    }

    /// Examines one place.
    fn at(&mut self, place: &BlockCopies<'_>, verify: &dyn Fn(&[u8]) -> codec::Result<()>) -> Result<Block> {
        let (tree, request) = (Arc::clone(&self.tree), &self.options.request);
        let psize = Psize(place.size as u64);
        if self.how == RepairMode::Resilver {
            let good = self.any_of(place, verify)?;
            for dva in place.dvas.iter().filter(|dva| tree.is_behind(dva.vdev, place.birth)) {
                match tree.lay_out_missed(dva.vdev, dva.offset.0, &good, place.birth) {
                    Ok((laid, known)) => {
                        self.lacking.extend(laid);
                        self.done.add(known);
                    }
                    Err(_) => self.done.incomplete = true,
                }
            }
            return Ok(good);
        }
        if self.how == RepairMode::Heal {
            let good = self.any_of(place, verify)?;
            for dva in place.dvas.iter().filter(|_| place.sure) {
                // A piece that can't be written stays as it was.
                self.done.incomplete |=
                    tree.repair(dva.vdev, dva.offset.0, &good, place.birth, request).is_err();
            }
            return Ok(good);
        }
        // A copy that can't be examined is only read: its vdev is missing, or its layout is being
        // changed.
        let examined: Vec<std::result::Result<Examined, VdevError>> = place
            .dvas
            .iter()
            .map(|dva| tree.examine(dva.vdev, dva.offset.0, psize, place.birth, request))
            .collect();
        let guess = if place.sure { Examined::guess } else { Examined::fresh_guess };
        let mut guesses = examined.iter().flatten().filter_map(guess);
        let good = match guesses.find(|guess| verify(guess).is_ok()).cloned() {
            Some(good) => good,
            None => self.any_of(place, verify)?,
        };
        for examined in &examined {
            let outcome =
                examined.as_ref().ok().and_then(|e| tree.repair_examined(e, &good, place.sure, request).ok());
            match outcome {
                Some(outcome) => self.done.add(outcome),
                None => self.done.incomplete = true,
            }
        }
        Ok(good)
    }

    /// The right bytes of a place, from any copy. Counts errors only if there are none.
    fn any_of(&self, place: &BlockCopies<'_>, verify: &dyn Fn(&[u8]) -> codec::Result<()>) -> Result<Block> {
        let tree = &self.tree;
        let bookmark = *place.bookmark;
        let mut failure = None;
        for dva in place.dvas.iter().map(|dva| **dva) {
            let (psize, request) = (Psize(place.size as u64), &self.options.request);
            let attempts = tree.attempts(dva.vdev, dva.offset.0, psize, place.birth, request);
            let mut attempts = match attempts {
                Ok(attempts) => attempts,
                Err(source) => {
                    failure.get_or_insert(Error::Place { bookmark, dva, source });
                    continue;
                }
            };
            let mut wrong = None;
            for buf in attempts.by_ref() {
                match verify(&buf) {
                    Ok(()) => {
                        // Errors are counted when all pieces are compared.
                        let _ = attempts.let_be();
                        return Ok(Block::copy_of(&buf));
                    }
                    Err(e) => wrong = Some(e),
                }
            }
            // The read that recorded the block for healing has counted the errors.
            let uncharged = place.speculative || self.how == RepairMode::Heal;
            let failed = if uncharged { attempts.let_be() } else { attempts.give_up() };
            let error = match wrong {
                Some(source) => Error::Checksum { bookmark, dva, source },
                None => {
                    let source = failed.io.map(Arc::new);
                    Error::Io { bookmark, dva, unread: failed.unread, source }
                }
            };
            if failure.is_none() || matches!(error, Error::Checksum { .. }) {
                failure = Some(error);
            }
        }
        Err(failure.expect("a stored block has a copy"))
    }
}
