//! Applying the steps to a real pool on image files.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use codec::crypt::{CryptoSuite, WrappingKey};
use device::Layer;
use dmu::{NewObject, Objset};
use dsl::keys::{KeyFormat, KeyStatus};
use dsl::ops::clone::Clone as CloneTask;
use dsl::ops::create::Create;
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::key::{NewCrypt, NewKey};
use dsl::ops::promote::Promote;
use dsl::ops::props::{SetAs, SetProps};
use dsl::ops::rename::Rename;
use dsl::ops::rollback::Rollback;
use dsl::ops::snapshot::Snapshot;
use dsl::prop::parse::{Context, setting};
use dsl::{Dsl, Kind, SyncTask};
use ondisk::feature::{FEATURES, Feature};
use ondisk::{BlkId, DmuType, ObjNum};
use spa::create::{Beginning, NewLeaf, NewPool, NewVdev, Setting, claim_file, create};
use spa::engine::{CheckpointError, PoolWriter, REBUILD_MAX_SEGMENT, World};
use spa::import::{Options as ImportOptions, Resources, SystemClock, import, import_for_writing};
use spa::{Host, Spa};
use stream::receive::RECV_WRITE_BATCH_SIZE;
use zpl::NewFileSystem;

use super::Failure;
use super::disk::{Power, Rack};
use super::model::{self, Contents, Model, Op};
use super::shape::Shape;
use super::slots::image;
use crate::chain;
use crate::crash::SplitMix;

/// Size of each device in bytes.
const SIZE: u64 = 320 << 20;
/// The same in a pool with scarce space.
const SMALL: u64 = 112 << 20;
/// Block size of the object that has large blocks.
const LARGE: u32 = 256 << 10;
/// Block sizes of other objects.
const BLOCKS: [u32; 5] = [512, 4 << 10, 16 << 10, 64 << 10, 128 << 10];
const MISSING: &str = "an object of the model does not exist";
/// A head whose snapshot takes up space for a while. It is not part of the model.
pub(super) const FILLER: &str = "filler";
/// Number of the model's first object in an object set, above the objects of the file system.
const FIRST: u64 = 1000;
/// The key of all encrypted datasets.
const KEY: [u8; 32] = [7; 32];

/// Blocks of one slice of a scan. So a scan takes many transaction groups, and kills can hit it.
const SLICE: u64 = 40;
/// Bytes that a rebuild copies at once. So a rebuild has many slices too.
const STRETCH: u64 = 32 << 10;

struct Seeded {
    state: AtomicU64,
    rack: Arc<Rack>,
}

impl World for Seeded {
    fn now(&self) -> u64 {
        1_700_000_000
    }

    fn random(&self) -> u64 {
        SplitMix(self.state.fetch_add(1, Ordering::Relaxed)).roll()
    }

    fn memory(&self) -> u64 {
        1 << 30
    }

    fn layer(&self) -> Layer {
        self.rack.layer()
    }
}
/// Bytes that a receive writes in one transaction. So a receive has many points to resume from.
const BATCH: u64 = 64 << 10;

/// A pool of a life, and what it must hold.
pub(super) struct SoakPool {
    pub(super) dir: PathBuf,
    /// Size of each device in bytes.
    pub(super) size: u64,
    seed: u64,
    workers: usize,
    /// Number of steps that the life has done.
    pub(super) steps: u64,
    pub(super) model: Model,
    pub(super) rack: Arc<Rack>,
    /// `None` while the pool is exported.
    pub(super) spa: Option<Arc<Spa>>,
}

fn host() -> Host {
    Host { hostid: 1, hostname: "soak".into() }
}

pub(super) fn file_system() -> NewFileSystem {
    NewFileSystem::new((1_700_000_000, 0))
}

/// The encryption of a new encryption root.
fn new_crypt() -> NewCrypt {
    let key = Arc::new(WrappingKey::from_raw(KEY));
    let key = NewKey { format: KeyFormat::Raw, location: Some("prompt".into()), key, salt: 0, iterations: 0 };
    NewCrypt { suite: Some(CryptoSuite::Aes256Gcm), off: false, key: Some(key) }
}

impl SoakPool {
    pub(super) fn new(dir: &Path, seed: u64, workers: usize, model: Model, power: &Arc<Power>) -> SoakPool {
        REBUILD_MAX_SEGMENT.set(STRETCH);
        RECV_WRITE_BATCH_SIZE.set(BATCH);
        let (dir, size) = (dir.to_owned(), if model.scarce { SMALL } else { SIZE });
        SoakPool { dir, size, seed, workers, steps: 0, model, rack: Arc::new(Rack::on(power)), spa: None }
    }

    /// Creates the pool on new images.
    ///
    /// # Errors
    /// [`Failure`]: an image can't be created, or the pool can't be created.
    pub(super) fn create(&mut self, shape: Shape) -> Result<(), Failure> {
        let (dir, size) = (&self.dir, self.size);
        std::fs::create_dir_all(dir)?;
        let count: usize = shape.tops.iter().map(|(.., count)| count).sum();
        let paths: Vec<PathBuf> = (0..count + shape.spares).map(|n| dir.join(image(n))).collect();
        paths.iter().try_for_each(|p| File::create(p)?.set_len(size))?;
        let mut rest = paths.into_iter().map(|path| NewLeaf { path });
        let vdevs = shape.tops.iter().map(|(shape, bias, count)| NewVdev {
            shape: *shape,
            bias: *bias,
            leaves: rest.by_ref().take(*count).collect(),
        });
        let vdevs = vdevs.collect();
        let new = NewPool { name: self.model.name().into(), vdevs, ashift: None, force: true };
        let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
        let contents = file_system();
        let begin = Beginning {
            features: &features,
            contents: &contents,
            props: &Vec::new(),
            crypt: None,
            temporary_name: None,
            version: 5000,
        };
        let Resources { workers: threads, world } = self.resources(self.seed);
        let rack = &self.rack;
        let claimer = |path: &Path| claim_file(path).map(|(image, kind)| (rack.around(image), kind));
        let setting = Setting {
            host: &host(),
            world,
            claimer: &claimer,
            workers: threads,
            cache: (64u64 << 20).into(),
            altroot: None,
        };
        let spa = create(&new, &begin, &setting)?;
        let spares: Vec<NewLeaf> = rest.collect();
        let live = spa.writer().ok_or("the pool is not open for writing")?;
        live.vdevs().add_aux(&spares, &[], true, &claimer)?;
        live.scans().limit_slices(SLICE);
        self.spa = Some(Arc::new(spa));
        Ok(())
    }

    /// The options of an import.
    fn options(&self) -> ImportOptions {
        ImportOptions {
            force: true,
            cache: (64u64 << 20).into(),
            layer: self.rack.layer(),
            ..ImportOptions::default()
        }
    }

    fn resources(&self, seed: u64) -> Resources {
        Resources {
            workers: Arc::new(zio::Workers::new("zio", self.workers)),
            world: Arc::new(Seeded { state: AtomicU64::new(seed), rack: Arc::clone(&self.rack) }),
        }
    }

    pub(super) fn import(&mut self) -> Result<(), Failure> {
        self.import_at(false)
    }

    /// Imports the pool, or the state of its checkpoint.
    fn import_at(&mut self, checkpoint: bool) -> Result<(), Failure> {
        let scan = spa::discover(&[&self.dir]);
        let candidate = scan.pools.first().ok_or("the pool is gone")?;
        let options = ImportOptions { readonly: false, checkpoint, ..self.options() };
        // Each import needs another random sequence, as guids of an earlier sequence are in use.
        let imports = SplitMix(candidate.config.txg.0).roll();
        let resources = self.resources(self.seed ^ self.steps.rotate_left(32) ^ imports);
        let spa = import_for_writing(candidate, &options, None, &host(), &SystemClock, resources)
            .map_err(|e| chain(&e))?;
        if let Some(live) = spa.writer() {
            live.scans().limit_slices(SLICE);
        }
        self.spa = Some(Arc::new(spa));
        self.drop_filler()?;
        self.unlock()
    }

    /// Loads the keys of all encrypted datasets.
    pub(super) fn unlock(&self) -> Result<(), Failure> {
        unlock(self.live()?.dsl())
    }

    pub(super) fn live(&self) -> Result<&PoolWriter, Failure> {
        self.spa.as_deref().and_then(Spa::writer).ok_or_else(|| "the pool is not open for writing".into())
    }

    pub(super) fn run(&self, task: impl SyncTask + Send + 'static) -> Result<(), Failure> {
        Ok(self.live()?.run(Box::new(task))?)
    }

    /// Changes a head in a transaction that may write `len` bytes, and waits until it is on disk.
    fn change(
        &self,
        head: &str,
        len: u64,
        change: impl FnOnce(&dsl::Owned, &dmu::Tx) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let live = self.live()?;
        let owned = live.dsl().heads().own(&live.dsl().dataset(head)?)?;
        let tx = live.tx(len)?;
        change(&owned, &tx)?;
        let txg = tx.txg();
        drop(tx);
        Ok(live.txgs().wait_synced(txg)?)
    }

    /// Does a step that only this pool takes part in.
    ///
    /// # Errors
    /// [`Failure`]: the pool refuses it.
    pub(super) fn perform(&mut self, op: &Op) -> Result<(), Failure> {
        match op.clone() {
            Op::Create(name) => {
                let (contents, props) = (Arc::new(file_system()), Vec::new());
                self.run(Create { name, contents, props, crypt: None, enforce_limits: false })
            }
            Op::Write { head, object, offset, len, seed } => self.change(&head, len, |owned, tx| {
                let dnode = self.find_or_claim(owned.objset(), tx, object, seed)?;
                Ok(dnode.write_at(tx, offset, &model::bytes(seed, len))?)
            }),
            Op::Punch(head, object, offset, len) => self.change(&head, 1 << 17, |owned, tx| {
                let dnode = find(owned.objset(), object, self.model.wide)?.ok_or(MISSING)?;
                Ok(dnode.free_range(tx, offset, len)?)
            }),
            Op::Remove(head, object) => self.change(&head, 1, |owned, tx| {
                let dnode = find(owned.objset(), object, self.model.wide)?.ok_or(MISSING)?;
                Ok(owned.objset().free_object(tx, dnode.object())?)
            }),
            Op::Snapshot(names) => self.run(Snapshot { names, ..Snapshot::default() }),
            Op::DestroySnapshot(name) => self.run(DestroySnapshots { names: vec![name], defer: false }),
            Op::Clone(origin, name) => {
                self.run(CloneTask { name, origin, props: Vec::new(), enforce_limits: false })
            }
            Op::Promote(name) => self.run(Promote { name, enforce_limits: false }),
            Op::Rollback(name) => self.run(Rollback { name, to: None }),
            Op::Rename(old, new) => self.run(Rename { old, new, enforce_limits: false }),
            Op::Destroy(name) => self.run(DestroyHead { name }),
            Op::Set(name, prop, value) => {
                let context = Context { kind: Kind::Filesystem, creating: false, max_block: 1 << 20 };
                let props = vec![setting(prop, value, context)?];
                self.run(SetProps { name, props, source: SetAs::Local })
            }
            Op::CreateEncrypted(name) => {
                let (contents, props) = (Arc::new(file_system()), Vec::new());
                let crypt = Some(new_crypt());
                self.run(Create { name, contents, props, crypt, enforce_limits: false })
            }
            Op::Share(head, from, to) => {
                self.change(&head, 1 << 17, |owned, tx| self.share(owned.objset(), tx, from, to))
            }
            Op::Reimport => {
                self.export()?;
                self.check()?;
                self.import()
            }
            // A killed actor may have done it already.
            Op::Checkpoint => match self.live()?.checkpoints().take() {
                Err(CheckpointError::Exists) => Ok(()),
                done => Ok(done?),
            },
            Op::Discard => match self.live()?.checkpoints().discard(true) {
                Err(CheckpointError::Absent) => Ok(()),
                done => Ok(done?),
            },
            Op::Device(op) => self.befall(&op),
            Op::Rewind => {
                let there = self.spa.as_ref().is_some_and(|spa| spa.checkpoint().is_some());
                self.export()?;
                self.import_at(there)
            }
            _ => Err("two pools may take part in it".into()),
        }
    }

    /// Gives an object the blocks of another.
    fn share(&self, os: &Objset, tx: &dmu::Tx, from: u64, to: u64) -> Result<(), Failure> {
        let source = find(os, from, self.model.wide)?.ok_or(MISSING)?;
        let target = match find(os, to, self.model.wide)? {
            Some(target) if target.block_size() == source.block_size() => target,
            found => {
                if let Some(other) = found {
                    os.free_object(tx, other.object())?;
                }
                let spec = spec(source.block_size() as u32);
                os.claim_object(tx, ObjNum(numbers(to, self.model.wide).start), &spec)?
            }
        };
        target.free_range(tx, 0, u64::MAX)?;
        let blocks = source.max_size().div_ceil(source.block_size());
        target.clone_blocks(tx, BlkId(0), &source, BlkId(0), blocks)?;
        Ok(())
    }

    /// An object of the model. It is created if it does not exist.
    fn find_or_claim(&self, os: &Objset, tx: &dmu::Tx, object: u64, seed: u64) -> dmu::Result<dmu::Dnode> {
        if let Some(dnode) = find(os, object, self.model.wide)? {
            return Ok(dnode);
        }
        let numbers = numbers(object, self.model.wide);
        if !self.model.wide {
            return os.claim_object(tx, ObjNum(numbers.start), &spec(1 << 14));
        }
        let mut dice = SplitMix(seed);
        let block_size = if self.model.is_large(object) {
            LARGE
        } else {
            BLOCKS[dice.below(BLOCKS.len() as u64) as usize]
        };
        // So an object may lie where a dnode of several slots was before.
        let number = numbers.start + dice.below(4);
        let slots = 1 + dice.below(4) as u8;
        os.claim_object(tx, ObjNum(number), &NewObject { slots, ..spec(block_size) })
    }

    /// Exports the pool.
    ///
    /// # Errors
    /// [`Failure`]: the pool is not open for writing, or has stopped.
    pub(super) fn export(&mut self) -> Result<(), Failure> {
        if let Some(spa) = self.spa.take() {
            spa.writer().ok_or("the pool is not open for writing")?.export()?;
        }
        Ok(())
    }

    /// Compares the exported pool with the model.
    ///
    /// # Errors
    /// [`Failure`]: they differ, or the pool can't be read.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.compare(&self.look()?)
    }

    pub(super) fn compare(&self, seen: &BTreeMap<String, Contents>) -> Result<(), Failure> {
        let wanted = self.wanted();
        if *seen == wanted {
            return Ok(());
        }
        let names = |of: &BTreeMap<String, Contents>| of.keys().cloned().collect::<Vec<_>>().join(" ");
        let differ = wanted.iter().filter(|(name, held)| seen.get(*name).is_some_and(|s| s != *held));
        let differ: Vec<&String> = differ.map(|(name, _)| name).collect();
        Err(format!("wanted {}; found {}; contents differ: {differ:?}", names(&wanted), names(seen)).into())
    }

    /// What the pool must hold.
    pub(super) fn wanted(&self) -> BTreeMap<String, Contents> {
        bare(self.model.seen())
    }

    /// What the pool on the images holds.
    pub(super) fn look(&self) -> Result<BTreeMap<String, Contents>, Failure> {
        let scan = spa::discover(&[&self.dir]);
        let candidate = scan.pools.first().ok_or("the pool is gone")?;
        let spa = import(candidate, &self.options(), &host(), &SystemClock).map_err(|f| chain(&f.error))?;
        let options = dsl::Options { pool_name: spa.name().to_owned(), space: spa.space()?, altroot: None };
        let dsl = Dsl::open(spa.mos().clone(), options)?;
        spa.mos().objset().cache().zio().set_keys(dsl.keys().clone());
        unlock(&dsl)?;
        see(&dsl, None, self.model.wide)
    }

    /// What the imported pool holds in a head and its snapshots. Nothing, if there is no such head.
    pub(super) fn see(&self, head: &str) -> Result<BTreeMap<String, Contents>, Failure> {
        let live = self.live()?;
        match live.read(|dsl| see(dsl, Some(head), self.model.wide)) {
            Err(e) if matches!(e.downcast_ref(), Some(dsl::Error::NoSuchDataset { .. })) => {
                Ok(BTreeMap::new())
            }
            seen => seen,
        }
    }

    /// Compares a head of the imported pool with the model.
    pub(super) fn compare_head(&self, head: &str) -> Result<(), Failure> {
        let (seen, mut wanted) = (self.see(head)?, self.wanted());
        wanted.retain(|name, _| name.split('@').next() == Some(head));
        let names = |of: &BTreeMap<String, Contents>| of.keys().cloned().collect::<Vec<_>>().join(" ");
        match seen == wanted {
            true => Ok(()),
            false => Err(format!("wanted {}; found {}", names(&wanted), names(&seen)).into()),
        }
    }

    /// Feeds all images to a hash.
    pub(super) fn hash(&self, hash: &mut blake3::Hasher) -> std::io::Result<()> {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(&self.dir)?.map(|e| Ok(e?.path())).collect::<std::io::Result<_>>()?;
        paths.sort();
        for path in paths.iter().filter(|path| path.is_file()) {
            hash.update(&std::fs::read(path)?);
        }
        Ok(())
    }
}

/// The numbers that an object of the model may have.
fn numbers(object: u64, wide: bool) -> Range<u64> {
    if wide { FIRST + 8 * object..FIRST + 8 * object + 4 } else { FIRST + object..FIRST + object + 1 }
}

/// An object of the model, if it exists.
fn find(os: &Objset, object: u64, wide: bool) -> dmu::Result<Option<dmu::Dnode>> {
    for number in numbers(object, wide) {
        match os.dnode(ObjNum(number)) {
            Err(dmu::Error::NoSuchObject { .. }) => {}
            found => return found.map(Some),
        }
    }
    Ok(None)
}

fn spec(block_size: u32) -> NewObject {
    NewObject { block_size, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) }
}

/// What the datasets hold, or a head and its snapshots.
fn see(dsl: &Dsl, head: Option<&str>, wide: bool) -> Result<BTreeMap<String, Contents>, Failure> {
    let mut out = BTreeMap::new();
    let listing = dsl::ListOptions { snapshots: true, ..dsl::ListOptions::default() };
    let below = head.map(|head| Ok::<_, dsl::Error>(dsl.dataset(head)?.dir().clone())).transpose()?;
    for dataset in dsl.list_sorted(below, &listing)?.whole()? {
        // A receive that was interrupted leaves a part.
        if dataset.is_inconsistent() || dataset.name().contains(&format!("/{FILLER}")) {
            continue;
        }
        let mut contents = Contents::new();
        let os = dataset.objset()?.ok_or("a dataset without contents")?;
        for object in 1..=model::OBJECTS {
            if let Some(dnode) = find(&os, object, wide)? {
                let mut bytes = vec![0; dnode.max_size() as usize];
                dnode.read_at(0, &mut bytes)?;
                contents.insert(object, bytes);
            }
        }
        out.insert(dataset.name(), contents);
    }
    Ok(bare(out))
}

/// Loads the keys of all encrypted datasets.
fn unlock(dsl: &Dsl) -> Result<(), Failure> {
    for dataset in dsl.list_sorted(None, &dsl::ListOptions::default())?.whole()? {
        let dir = dataset.dir();
        if dir.encryption_root()?.is_some() && dsl.keys().status(dir)? != KeyStatus::Available {
            dsl.keys().load(dir, &KEY, false)?;
        }
    }
    Ok(())
}

/// The contents without the zeros at the ends of objects, as the size of an object is a whole
/// number of blocks.
fn bare(mut seen: BTreeMap<String, Contents>) -> BTreeMap<String, Contents> {
    for bytes in seen.values_mut().flat_map(BTreeMap::values_mut) {
        let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |n| n + 1);
        bytes.truncate(used);
    }
    seen
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::os::unix::fs::FileExt;
    use std::time::Duration;

    use spa::engine::AttachTerms;
    use vdev::{Limit, Symptom};

    use super::super::Terms;
    use super::super::slots::{DeviceOp, Faults};
    use super::*;

    /// A new pool without faults.
    fn pool(dir: &Path, shape: usize, seed: u64, workers: usize) -> SoakPool {
        let shape = Shape::ALL[shape];
        let terms = Terms { shape, seed, faults: Faults::None, streams: false, second: None };
        let mut pool = SoakPool::new(dir, seed, workers, Model::first(&terms), &Arc::default());
        pool.create(shape).unwrap();
        pool
    }

    /// Applies a chosen step to the model and to the pool.
    fn meet(life: &mut SoakPool, op: Op) {
        life.model.apply(&op);
        life.perform(&op).unwrap();
    }

    /// Goal: all devices get up to date, even if a resilver finds so many errors that a spare is
    /// activated after the errors were cleared. Seed 20261814 of a long soak waited forever.
    #[test]
    fn a_resilver_finds_too_much() {
        let dir = tempfile::tempdir().unwrap();
        let mut life = pool(dir.path(), 3, 20_261_814, 2);
        let head = format!("{}/full", Model::POOL);
        meet(&mut life, Op::Create(head.clone()));
        for object in 1..=model::OBJECTS {
            let (head, seed) = (head.clone(), object);
            meet(&mut life, Op::Write { head, object, offset: 0, len: 1 << 20, seed });
        }
        let spoiled = std::fs::OpenOptions::new().write(true).open(dir.path().join(image(1))).unwrap();
        spoiled.write_all_at(&vec![7; 100 << 20], ondisk::label::LABEL_START_SIZE).unwrap();
        // So that the resilver still runs when the errors are cleared.
        life.live().unwrap().scans().limit_slices(2);
        meet(&mut life, Op::Device(DeviceOp::Replace(image(2), image(6), false)));
        let tree = life.spa.as_ref().unwrap().tree();
        let few = Limit { count: 3, within: Duration::from_secs(600) };
        for (guid, _) in tree.devices() {
            tree.set_limit(guid, Symptom::Checksum, few).unwrap();
        }
        // The tree keeps the devices open.
        drop(tree);
        meet(&mut life, Op::Device(DeviceOp::Settle));
        life.export().unwrap();
        life.check().unwrap();
    }

    /// Goal: a hot spare that is activated just when its device is detached is a spare again later.
    /// Before that it is an ordinary device. Seed 20261923 of a long soak had one device too many.
    #[test]
    fn a_spare_amid_a_detach() {
        let dir = tempfile::tempdir().unwrap();
        let mut life = pool(dir.path(), 1, 20_261_923, 2);
        let guid_of = |life: &SoakPool, device: usize| {
            let root = life.live().unwrap().config().vdev_tree.clone().unwrap();
            let path = dir.path().join(image(device));
            root.leaves().find(|leaf| leaf.path.as_deref() == path.to_str().map(str::as_bytes)).unwrap().guid
        };
        let (rack, leaf) = (Arc::clone(&life.rack), NewLeaf { path: dir.path().join(image(2)) });
        let claimer = |path: &Path| claim_file(path).map(|(image, kind)| (rack.around(image), kind));
        let terms = AttachTerms {
            replace: true,
            sequential: false,
            force: false,
            unattended: false,
            claimer: &claimer,
        };
        let live = life.live().unwrap();
        live.vdevs().attach(guid_of(&life, 1), &leaf, &terms).unwrap();
        live.vdevs().detach(guid_of(&life, 1)).unwrap();
        assert_eq!(live.vdevs().spare_count(), 0);
        meet(&mut life, Op::Device(DeviceOp::Detach(image(1), false)));
        assert_eq!(life.live().unwrap().vdevs().spare_count(), 1);
        meet(&mut life, Op::Device(DeviceOp::Settle));
        life.export().unwrap();
        life.check().unwrap();
    }

    /// Goal: an import between two steps draws other guids than the import before, as the model
    /// expects. Seed 20261402 of a long soak drew the same guids.
    #[test]
    fn other_guids_at_each_import() {
        let dir = tempfile::tempdir().unwrap();
        let mut life = pool(dir.path(), 0, 20_261_402, 1);
        let mut guid_of_new = |name: &str| {
            // The pool is not exported, so its labels still say that it is in use.
            life.spa = None;
            life.import().unwrap();
            let name = format!("{}/{name}", Model::POOL);
            life.perform(&Op::Create(name.clone())).unwrap();
            life.live().unwrap().dsl().dataset(&name).unwrap().phys().guid
        };
        assert_ne!(guid_of_new("first"), guid_of_new("second"));
    }
}
