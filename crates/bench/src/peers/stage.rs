//! A new pool with one file system, for a workload on the engine, and threads that work for a time.

use super::knobs::{ASHIFT, CACHE_MB, DELAY_US, MSECS, OBJ_MB, OBJS, PREFILL, RS, SIZE_MB, TITLE};
use super::{Answer, Knobs};
use crate::images::{Geometry, Images, POOL};
use crate::measure::process_cpu;
use anyhow::{Context, Result};
use poolhouse::dmu::{Dnode, NewObject, Tx};
use poolhouse::dsl::ops::create::Create;
use poolhouse::dsl::prop::parse::{Context as Parsing, setting};
use poolhouse::dsl::{Kind, Need, Owned};
use poolhouse::ondisk::{Ashift, DmuType};
use poolhouse::spa::engine::PoolWriter;
use poolhouse::spa::import::{Options, Resources, SystemClock, import_for_writing};
use poolhouse::spa::{Host, Spa, discover};
use poolhouse::zpl::NewFileSystem;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of one transaction, where the transaction is not what is measured.
pub(super) const CHUNK: usize = 1 << 20;

/// A pool with one file system that is owned for writing.
pub(super) struct Stage {
    // The fields are dropped in this order.
    pub(super) owned: Owned,
    spa: Spa,
    images: Images,
}

impl Stage {
    /// A pool on an image in the directory `dir`, with a file system without compression.
    pub(super) fn new(dir: &Path, knobs: &Knobs) -> Result<Stage> {
        Stage::on(Images::there(dir, &format!("peers-{}", std::process::id()), 1), knobs)
    }

    /// The same on these images, which this creates.
    pub(super) fn on(images: Images, knobs: &Knobs) -> Result<Stage> {
        Stage::compressed(images, knobs, "off")
    }

    /// The same with a compression.
    pub(super) fn compressed(images: Images, knobs: &Knobs, compression: &str) -> Result<Stage> {
        images.create(knobs.number(SIZE_MB)? << 20)?;
        if knobs.number(PREFILL)? > 0 {
            images.prefill()?;
        }
        let ashift = u8::try_from(knobs.number(ASHIFT)?).ok().filter(|a| (9..=16).contains(a)).map(Ashift);
        let spa = images.pool(&Geometry {
            ashift: Some(ashift.context("ashift is 9 to 16")?),
            cache_bytes: knobs.number(CACHE_MB)? << 20,
            delay: Duration::from_micros(knobs.number(DELAY_US)?),
        })?;
        let live = spa.writer().context("a new pool is open for writing")?;
        let parsing = Parsing { kind: Kind::Filesystem, creating: true, max_block: 1 << 20 };
        let props = vec![setting("compression", compression, parsing).context("a property")?];
        let name = format!("{POOL}/w");
        let contents = Arc::new(NewFileSystem::new((1_700_000_000, 0)));
        live.run(Box::new(Create {
            name: name.clone(),
            contents,
            props,
            crypt: None,
            enforce_limits: false,
        }))?;
        let owned = live.dsl().heads().own(&live.dsl().dataset(&name)?)?;
        Ok(Stage { owned, spa, images })
    }

    /// The pool.
    pub(super) fn live(&self) -> &PoolWriter {
        self.spa.writer().expect("it was open for writing when this was made")
    }

    /// A transaction that changes about so many bytes.
    pub(super) fn tx(&self, bytes: u64) -> Result<Tx> {
        Ok(self.live().tx_for(&self.owned, Need { bytes, netfree: false })?)
    }

    /// A transaction that frees more space than it uses.
    pub(super) fn tx_to_free(&self) -> Result<Tx> {
        Ok(self.live().tx_for(&self.owned, Need { bytes: 1 << 12, netfree: true })?)
    }

    /// Creates an object.
    pub(super) fn object(&self, block_size: u64) -> Result<Dnode> {
        let block_size = u32::try_from(block_size).context("a block has up to 16 MiB")?;
        let spec = NewObject { block_size, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
        Ok(self.owned.objset().create_object(&self.tx(1 << 14)?, &spec)?)
    }

    /// Writes the first `len` bytes of an object, a chunk in each transaction.
    pub(super) fn put_all(&self, dnode: &Dnode, len: u64, data: &[u8]) -> Result<()> {
        for offset in (0..len).step_by(CHUNK) {
            let n = (len - offset).min(CHUNK as u64);
            let tx = self.tx(n)?;
            dnode.write_at(&tx, offset, &data[..usize::try_from(n)?])?;
        }
        Ok(())
    }

    /// Creates `objs` objects of `obj_mb` MiB.
    pub(super) fn put_objects(&self, knobs: &Knobs, data: &[u8]) -> Result<()> {
        for _ in 0..knobs.number(OBJS)? {
            let dnode = self.object(knobs.number(RS)?)?;
            self.put_all(&dnode, knobs.number(OBJ_MB)? << 20, data)?;
        }
        Ok(())
    }

    /// Reads the first `len` bytes of an object, so that they are cached.
    pub(super) fn read_all(&self, dnode: &Dnode, len: u64) -> Result<()> {
        let mut buf = vec![0; CHUNK];
        for offset in (0..len).step_by(CHUNK) {
            let n = usize::try_from((len - offset).min(CHUNK as u64))?;
            dnode.read_at(offset, &mut buf[..n])?;
        }
        Ok(())
    }

    /// Frees a whole object in pieces, as an unmap of a volume does.
    ///
    /// Returns the longest wait for a transaction group, in seconds.
    pub(super) fn unmap(&self, dnode: &Dnode) -> Result<f64> {
        let (mut pieces, mut earlier, mut longest) = (dnode.pieces(0, u64::MAX)?, None, 0f64);
        while let Some(piece) = pieces.next_piece()? {
            let tx = self.tx_to_free()?;
            dnode.free_range(&tx, piece.offset, piece.len)?;
            if let Some(txg) = earlier.replace(tx.txg()) {
                drop(tx);
                let since = Instant::now();
                self.live().txgs().wait_synced(txg)?;
                longest = longest.max(since.elapsed().as_secs_f64());
            }
        }
        Ok(longest)
    }

    /// Waits until everything is on disk.
    pub(super) fn sync(&self) -> Result<()> {
        Ok(self.live().sync_all()?)
    }

    /// Exports the pool, and removes its images.
    pub(super) fn end(self) -> Result<()> {
        self.export().map(drop)
    }

    /// Exports the pool, and keeps its images.
    pub(super) fn leave(self) -> Result<()> {
        self.export().map(Images::keep)
    }

    fn export(self) -> Result<Images> {
        let Stage { owned, spa, images } = self;
        drop(owned);
        spa.writer().expect("it was open for writing when this was made").export()?;
        Ok(images)
    }
}

/// Imports the pool on images that another process created, and keeps them. Its caller removes
/// them.
pub(super) fn import(images: Images, knobs: &Knobs) -> Result<Spa> {
    let found = discover(images.paths());
    images.keep();
    let candidate = found.pools.first().context("there is no pool on the images")?;
    let options =
        Options { readonly: false, cache: (knobs.number(CACHE_MB)? << 20).into(), ..Options::default() };
    let (host, resources) = (Host::of_system(), Resources::of_system(POOL));
    import_for_writing(candidate, &options, None, &host, &SystemClock, resources)
        .map_err(|e| anyhow::anyhow!("import it: {e:?}"))
}

/// The answer of a pass over all objects of a pool: wall and CPU time in seconds, and the rate.
pub(super) fn pass(knobs: &Knobs, wall_s: f64, cpu_s: f64) -> Result<Answer> {
    let (mut answer, title) = (Answer::default(), knobs.word(TITLE)?);
    let bytes = (knobs.number(OBJS)? * knobs.number(OBJ_MB)?) << 20;
    answer.put(title, "s", wall_s);
    answer.put(title, "cpu_s", cpu_s);
    answer.put(title, "mb_s", bytes as f64 / wall_s / 1e6);
    Ok(answer)
}

/// A small random number generator (xorshift).
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(7919) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Incompressible bytes.
pub(super) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut numbers = Numbers::new(seed);
    let mut out = vec![0; len];
    out.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&numbers.next().to_le_bytes()));
    out
}

/// The result of several threads.
pub(super) struct Together<T> {
    /// The result of each thread.
    pub(super) each: Vec<T>,
    /// Wall time in seconds.
    pub(super) wall_s: f64,
    /// CPU time of the whole process in seconds.
    pub(super) cpu_s: f64,
}

/// Runs `work` in `threads` threads for `time`.
///
/// Each thread gets its number, and a flag that is set when it must stop.
pub(super) fn together<T: Send>(
    threads: usize,
    time: Duration,
    work: impl Fn(usize, &AtomicBool) -> Result<T> + Sync,
) -> Result<Together<T>> {
    let stop = AtomicBool::new(false);
    let (since, cpu) = (Instant::now(), process_cpu());
    let each = std::thread::scope(|scope| {
        let (work, stop) = (&work, &stop);
        let all: Vec<_> = (0..threads).map(|i| scope.spawn(move || work(i, stop))).collect();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let join = |t: std::thread::ScopedJoinHandle<'_, Result<T>>| {
            t.join().expect("a thread that works here returns its errors")
        };
        all.into_iter().map(join).collect::<Result<Vec<T>>>()
    })?;
    Ok(Together { each, wall_s: since.elapsed().as_secs_f64(), cpu_s: process_cpu() - cpu })
}

/// The duration of a measurement.
pub(super) fn duration(knobs: &Knobs) -> Result<Duration> {
    Ok(Duration::from_millis(knobs.number(MSECS)?))
}
