//! Opening a pool, and walking all that it shows: datasets, properties, files, volumes, metadata.
//!
//! # Theory
//! The input is a script of changes to blocks of a bundled pool. [`fuzzing::graft`] gives the
//! changed blocks right checksums, so every byte of the input reaches a decoder. The walk then does
//! everything that a front end does, and continues after each error.
//!
//! The walk limits how much it requests, as a directory may rightly claim a million files. The
//! library must limit what each single request costs.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use fuzzing::graft::Graft;
use fuzzing::mutate::{Rng, mutate};
use ondisk::DmuType;
use poolhouse::zpl::{DirCookie, FileSystem, FileType, Node};
use poolhouse::{Claim, Dataset, OpenOptions, Pool};

/// The most files and directories that a walk visits.
const MAX_NODES: usize = 400;
/// The most datasets that a walk visits.
const MAX_DATASETS: usize = 200;
/// How many bytes of a file's contents are read: at its start, in its data and at its end.
const PART: usize = 16 << 10;

/// Opens the pool in an image and walks it. Returns whether the pool opened.
pub fn image(path: &Path) -> bool {
    let options = OpenOptions {
        claim: Claim::Nothing,
        force: true,
        missing_log: true,
        cache_bytes: Some(16 << 20),
        no_read_ahead: true,
        ..OpenOptions::default()
    };
    let Ok(pool) = Pool::open(&[path], &options) else { return false };
    walk(&pool);
    true
}

/// Walks everything that an open pool shows.
pub fn walk(pool: &Pool) {
    metadata(pool);
    let mut left = MAX_NODES;
    for name in pool.dataset_names(true).unwrap_or_default().names.iter().take(MAX_DATASETS) {
        if let Ok(dataset) = pool.dataset(name) {
            of_dataset(&dataset, &mut left);
        }
    }
}

fn metadata(pool: &Pool) {
    let mos = pool.spa().mos();
    let _ = format!("{:?}", pool.spa().tree().describe());
    if let Ok(Some(history)) = mos.history() {
        history.take(10_000).for_each(drop);
    }
    let _ =
        (mos.pool_props(), mos.features(), mos.scan(), mos.removing(), mos.condensing(), mos.checkpoint());
    let _ = mos.brt(1).map(|all| {
        all.iter().filter_map(|b| mos.brt_entries(b).ok()).for_each(|e| e.take(10_000).for_each(drop));
    });
    drop(poolhouse::dsl::traverse::pool_roots(mos.objset(), drop));
}

fn of_dataset(dataset: &Dataset, left: &mut usize) {
    let d = dataset.dsl();
    let _ = (d.properties(), d.holds(), d.bookmarks(), d.clones(), d.origin(), d.written(), d.resume_token());
    if let Ok(volume) = dataset.volume() {
        let mut buf = vec![0; PART];
        for at in [0, volume.size() / 2, volume.size().saturating_sub(PART as u64)] {
            let _ = volume.read_at(&mut buf, at);
        }
    }
    if let Ok(fs) = dataset.filesystem() {
        of_files(&fs, left);
    }
}

fn of_files(fs: &FileSystem, left: &mut usize) {
    let mut seen = HashSet::new();
    let mut pending = vec![fs.root()];
    while let Some(object) = pending.pop() {
        if *left == 0 || !seen.insert(object) {
            continue;
        }
        *left -= 1;
        let Ok(node) = fs.node(object) else { continue };
        of_node(&node);
        // A search for the path of an object reads whole directories. A few are enough.
        if left.is_multiple_of(32) {
            let _ = fs.object_path(object);
        }
        if node.attr().kind != FileType::Directory {
            continue;
        }
        let Ok(entries) = fs.read_dir(object, DirCookie(0)) else { continue };
        for entry in entries.take(*left).flatten() {
            let _ = fs.lookup(object, &entry.name);
            pending.push(entry.object);
        }
    }
    let _ = (fs.domains().is_ok(), fs.unlinked());
}

fn of_node(node: &Node) {
    let _ = (node.attr().fs_flags(), node.xattrs(), node.acl());
    let size = node.attr().size;
    match node.attr().kind {
        FileType::Symlink => {
            let _ = node.readlink();
        }
        FileType::Regular => {
            let mut buf = vec![0; PART];
            let data = node.seek_data(0).unwrap_or(0);
            for at in [0, data, size.saturating_sub(PART as u64), size] {
                let _ = node.read(at, &mut buf);
            }
            let _ = node.seek_hole(data);
        }
        _ => {}
    }
}

/// The blocks that are worth a change: those that the library decodes.
fn candidates(graft: &Graft) -> Vec<usize> {
    (0..graft.nodes().len()).filter(|i| graft.nodes()[*i].kind() != DmuType::NONE).collect()
}

/// A pool that is changed, walked and restored, in each round.
#[derive(Debug)]
pub struct Rounds {
    graft: Graft,
    candidates: Vec<usize>,
}

impl Rounds {
    /// A private copy of the fixture NAME.
    ///
    /// # Panics
    /// The fixture is missing or can't be read.
    pub fn on(name: &str) -> Rounds {
        let graft = Graft::open(&testkit::load(name));
        let candidates = candidates(&graft);
        Rounds { graft, candidates }
    }

    fn round(&mut self, changed: BTreeMap<usize, Vec<u8>>) -> bool {
        self.graft.apply(changed);
        let opened = image(&self.graft.image());
        self.graft.undo();
        opened
    }

    /// Changes one to three blocks as `seed` determines. Returns whether the pool still opened.
    pub fn seeded(&mut self, seed: u64) -> bool {
        let mut rng = Rng::new(seed);
        let mut changed = BTreeMap::new();
        for _ in 0..1 + rng.below(3) {
            let index = self.candidates[rng.below(self.candidates.len())];
            let mut contents = self.graft.nodes()[index].contents().to_vec();
            mutate(&mut rng, &mut contents);
            changed.insert(index, contents);
        }
        self.round(changed)
    }

    /// Changes blocks as a script determines. Returns whether the pool still opened.
    ///
    /// A step of the script has ten bytes:
    ///
    /// * 0 to 1: the block.
    /// * 2: the width, and whether to replace or to XOR.
    /// * 3 to 4: the offset.
    /// * 5 to 9: the value.
    pub fn script(&mut self, script: &[u8]) -> bool {
        let mut changed: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for step in script.chunks_exact(10).take(32) {
            let block = usize::from(u16::from_le_bytes([step[0], step[1]]));
            let index = self.candidates[block % self.candidates.len()];
            let contents =
                changed.entry(index).or_insert_with(|| self.graft.nodes()[index].contents().to_vec());
            let at = usize::from(u16::from_le_bytes([step[3], step[4]])) % contents.len().max(1);
            let width = [1, 2, 4, 8][usize::from(step[2] >> 6)].min(contents.len() - at);
            let value = [step[5], step[6], step[7], step[8], step[9], 0, 0, step[9]];
            for (byte, v) in contents[at..at + width].iter_mut().zip(value) {
                *byte = if step[2] & 1 == 0 { *byte ^ v } else { v };
            }
        }
        self.round(changed)
    }
}

/// The fuzz target: a script of changes to one of two pools, an old and a new one.
pub fn pool(data: &[u8]) {
    thread_local! {
        static OLD: RefCell<Rounds> = RefCell::new(Rounds::on("v1"));
        static NEW: RefCell<Rounds> = RefCell::new(Rounds::on("longname"));
    }
    let Some((which, script)) = data.split_first() else { return };
    let pool = if which & 1 == 0 { &NEW } else { &OLD };
    pool.with_borrow_mut(|rounds| rounds.script(script));
}
