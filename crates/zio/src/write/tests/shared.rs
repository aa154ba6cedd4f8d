//! Blocks in the dedup table or the table of clones.

use super::{BOOKMARK, READ, pool, req, text};
use crate::{Clones, Dedup, Found, ReadOptions, WritePolicy, Zio};
use device::Block;
use observe::lock::Mutex;
use ondisk::{Blkptr, ChecksumKind, Dva, Txg};
use std::collections::HashMap;
use std::sync::Arc;

/// Entries by checksum: places, birth, references.
#[derive(Default)]
struct Table {
    entries: Mutex<HashMap<[u64; 4], (Blkptr, u32)>>,
    revoked: Mutex<Vec<Dva>>,
    full: bool,
}

impl Dedup for Table {
    fn has(&self, _: Txg, bp: &Blkptr, _: &ReadOptions) -> bool {
        bp.stored().is_some_and(|s| self.entries.lock().contains_key(&s.sum))
    }

    fn find(&self, _: Txg, bp: &Blkptr, _: u8) -> Found {
        let s = bp.stored().unwrap();
        assert!(s.dvas == [None; 3] && s.dedup);
        match self.entries.lock().get(&s.sum) {
            None if self.full => Found::Full,
            None => Found::New,
            Some((bp, _)) => {
                let s = bp.stored().unwrap();
                Found::Have { dvas: s.dvas, phys_birth: s.phys_birth }
            }
        }
    }

    fn enter(&self, _: Txg, bp: &Blkptr) {
        let mut entries = self.entries.lock();
        let entry = entries.entry(bp.stored().unwrap().sum).or_insert((*bp, 0));
        *entry = (*bp, entry.1 + 1);
    }

    fn revoke(&self, _: Txg, bp: &Blkptr, new: &[Dva]) {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&bp.stored().unwrap().sum).unwrap();
        entry.1 -= 1;
        self.revoked.lock().extend(new);
    }

    fn release(&self, _: Txg, bp: &Blkptr) -> bool {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&bp.stored().unwrap().sum) else { return true };
        entry.1 -= 1;
        false
    }
}

fn write(zio: &Zio, txg: u64, data: &[Block], policy: WritePolicy) -> Vec<Blkptr> {
    zio.write_batch(Txg(txg), data.iter().map(|d| req(d.clone(), policy)).collect(), &zio.workers()).unwrap()
}

const POLICY: WritePolicy =
    WritePolicy { dedup: true, verify: true, checksum: ChecksumKind::Sha256, ..WritePolicy::PLAIN };

/// Goal: equal blocks share their places, within a batch and later, and keep the birth of those.
/// More copies are added to the existing ones. Blocks that the table dropped are freed.
#[test]
fn equal_blocks_share() {
    let (zio, space) = pool(3, 12, u64::MAX);
    let table = Arc::new(Table::default());
    zio.set_dedup(table.clone());
    let first = write(&zio, 4, &[text(16_384), text(8192), text(16_384)], POLICY);
    assert_eq!(first[0], first[2]);
    let later = write(&zio, 9, &[text(16_384)], WritePolicy { copies: 3, ..POLICY })[0];
    let (a, b) = (first[0].stored().unwrap(), later.stored().unwrap());
    assert_eq!((a.dvas[0], b.copies().count(), b.phys_birth, later.birth), (b.dvas[0], 3, Txg(4), Txg(9)));
    assert_eq!(zio.read(&later, &BOOKMARK, &READ).unwrap(), text(16_384));
    assert_eq!(table.entries.lock()[&a.sum].1, 3);
    zio.free(Txg(10), &later).unwrap();
    assert!(space.freed.lock().is_empty());
    table.entries.lock().clear();
    zio.free(Txg(10), &later).unwrap();
    assert_eq!(space.freed.lock().len(), 3);
}

/// Goal: a block whose checksum collides with another's is written by itself, and so is one for
/// which the table has no space.
#[test]
fn collisions_and_quota() {
    let (zio, _) = pool(1, 12, u64::MAX);
    let table = Arc::new(Table::default());
    zio.set_dedup(table.clone());
    let (a, b) = (write(&zio, 4, &[text(16_384)], POLICY)[0], write(&zio, 4, &[text(8192)], POLICY)[0]);
    // The table takes one for the other.
    table.entries.lock().insert(a.stored().unwrap().sum, (b, 1));
    let c = write(&zio, 5, &[text(16_384)], POLICY)[0];
    assert!(!c.stored().unwrap().dedup && zio.read(&c, &BOOKMARK, &READ).unwrap() == text(16_384));
    zio.set_dedup(Arc::new(Table { full: true, ..Table::default() }));
    let d = write(&zio, 5, &[text(4096)], WritePolicy { compress: ondisk::CompressKind::Off, ..POLICY })[0];
    assert!(!d.stored().unwrap().dedup);
}

/// Goal: a batch that fails revokes its entries, with the places that they got.
#[test]
fn failed_entries_are_revoked() {
    let (zio, space) = pool(1, 9, u64::MAX);
    *space.left.lock() = 20_000;
    let table = Arc::new(Table::default());
    zio.set_dedup(table.clone());
    let data = [text(4096), text(4096), super::noise(131_072)];
    zio.write_batch(Txg(4), data.map(|d| req(d, POLICY)).to_vec(), &zio.workers()).unwrap_err();
    assert!(table.entries.lock().values().all(|(_, refs)| *refs == 0));
    assert_eq!(table.revoked.lock().len(), 1);
}

struct Shared;

impl Clones for Shared {
    fn release(&self, _: Txg, _: &Blkptr) -> bool {
        true
    }
}

/// Goal: a block that clones still refer to stays.
#[test]
fn clones_stay() {
    let (zio, space) = pool(1, 9, u64::MAX);
    let bp = write(&zio, 4, &[text(4096)], WritePolicy::PLAIN)[0];
    zio.set_clones(Arc::new(Shared));
    zio.free(Txg(5), &bp).unwrap();
    assert!(space.freed.lock().is_empty());
}
