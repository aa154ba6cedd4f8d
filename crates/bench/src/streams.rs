//! Send and receive: by the library, and by the commands through a pipe.
//!
//! # Theory
//! A round is a process of its own ([`Part`]). It makes new pools, and measures each phase once.
//! Beside a send stands a read of the same data past the cache, and beside a receive a write of the
//! same data. The report has the medians of the rounds.
//!
//! | environment | meaning |
//! |---|---|
//! | `BENCH_STREAM_MB` | MiB of data; default 512 |
//! | `BENCH_STREAM_MOST` | most unchanged blocks and files of an increment; default 100,000 |
//! | `BENCH_STREAM_SNAPSHOTS` | snapshots of a package; default 400 |

mod commands;
mod increments;

use crate::images::{Geometry, Images, POOL};
use crate::making::{object, pattern};
use crate::measure::{Took, answer, here, round, summary};
use anyhow::{Context, Result, bail};
use codec::crypt::{CryptoSuite, WrappingKey};
use poolhouse::dmu::Dnode;
use poolhouse::dsl::keys::KeyFormat;
use poolhouse::dsl::ops::create::Create;
use poolhouse::dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use poolhouse::dsl::ops::key::{NewCrypt, NewKey};
use poolhouse::dsl::ops::snapshot::Snapshot;
use poolhouse::dsl::prop::parse::{Context as Parsing, setting};
use poolhouse::dsl::{Kind, Need, Owned, PropList};
use poolhouse::ondisk::{DmuType, ObjNum};
use poolhouse::spa::Spa;
use poolhouse::spa::engine::PoolWriter;
use poolhouse::stream::{Forms, Options, Origin, ReceiveOptions, Receiving, send};
use poolhouse::zpl::NewFileSystem;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Bytes of one read or write, and so of one transaction.
const CHUNK: usize = 1 << 20;
/// Bytes of the cache: the data do not fit into it.
const CACHE: u64 = 32 << 20;
/// The forms of streams, by the options of `zfs send`.
const FORMS: [(&str, &str, Forms); 4] = [
    ("", "fs", Forms { large_blocks: false, embedded: false, compressed: false, raw: false }),
    ("-c", "fs", Forms { large_blocks: false, embedded: false, compressed: true, raw: false }),
    ("-w", "fs", Forms { large_blocks: false, embedded: false, compressed: false, raw: true }),
    ("-w-encrypted", "enc", Forms { large_blocks: false, embedded: false, compressed: false, raw: true }),
];

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The library, without a daemon.
    Library,
    /// Increments of files and trees, by the library.
    Increments,
    /// `zfs send` and `zfs receive` with a pipe.
    Commands,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 3] = [Part::Library, Part::Increments, Part::Commands];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Part::Library => "streams-library",
            Part::Increments => "streams-increments",
            Part::Commands => "streams-commands",
        }
    }

    /// A line that describes it.
    pub fn what(self) -> &'static str {
        match self {
            Part::Library => "sends and receives beside reads and writes of the same data, by the library",
            Part::Increments => "1,000 changed blocks or files beside more and more unchanged ones",
            Part::Commands => "zfs send and receive through a pipe, and packages of many snapshots",
        }
    }

    /// Runs the part once, with new pools in the directory `dir`.
    ///
    /// # Errors
    /// A pool can't be made, or a send or receive failed.
    pub fn run(self, dir: &Path) -> Result<Value> {
        let mut done = Phases::default();
        match self {
            Part::Library => library(dir, &mut done)?,
            Part::Increments => increments::run(dir, &mut done)?,
            Part::Commands => commands::run(dir, &mut done)?,
        }
        Ok(Value::Array(done.0))
    }
}

/// What was measured so far.
#[derive(Default)]
struct Phases(Vec<Value>);

impl Phases {
    fn add(&mut self, phase: &str, took: Took, counts: Value) {
        let mut entry = json!({ "phase": phase, "wall_s": took.wall_s, "cpu_s": took.cpu_s });
        for (name, value) in counts.as_object().into_iter().flatten() {
            entry[name] = value.clone();
        }
        self.0.push(entry);
    }
}

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> Result<u64> {
    match std::env::var(name).ok().filter(|value| !value.is_empty()) {
        Some(value) => value.parse().with_context(|| format!("{name} is a number")),
        None => Ok(otherwise),
    }
}

/// Runs parts in rounds, and returns an entry for each phase.
pub(crate) fn measure(me: &Path, scratch: &Path, parts: &[Part], rounds: usize) -> Vec<Value> {
    let mut results = Vec::new();
    for part in parts {
        let mut phases: Vec<String> = Vec::new();
        let mut took: BTreeMap<String, (Vec<Took>, Value)> = BTreeMap::new();
        let mut failed = None;
        for _ in 0..rounds {
            match answer(Command::new(me).arg("streams").arg(part.name()).arg(scratch)) {
                Ok(done) => done.as_array().into_iter().flatten().for_each(|phase| {
                    let name = phase["phase"].as_str().unwrap_or_default().to_owned();
                    if !took.contains_key(&name) {
                        phases.push(name.clone());
                    }
                    let time = |field: &str| phase[field].as_f64().unwrap_or_default();
                    let (rounds, last) = took.entry(name).or_default();
                    rounds.push(Took { wall_s: time("wall_s"), cpu_s: time("cpu_s") });
                    *last = phase.clone();
                }),
                Err(error) => failed = Some(format!("{error:#}")),
            }
        }
        results.extend(phases.iter().map(|phase| entry(*part, phase, &took)));
        results.extend(failed.map(|why| json!({ "work": part.name(), "failed": why })));
    }
    results
}

/// The medians of a phase, and its ratio to the phase that it names.
fn entry(part: Part, phase: &str, all: &BTreeMap<String, (Vec<Took>, Value)>) -> Value {
    let (rounds, last) = &all[phase];
    let mut out = Map::new();
    out.insert("work".into(), part.name().into());
    out.insert("phase".into(), phase.into());
    let medians = summary(rounds);
    let cpu = medians["cpu_s"].as_f64().unwrap_or_default();
    out.extend(medians.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
    for (name, value) in last.as_object().into_iter().flatten() {
        if !["phase", "wall_s", "cpu_s"].contains(&name.as_str()) {
            out.insert(name.clone(), value.clone());
        }
    }
    let per = |bytes: Option<f64>| bytes.filter(|bytes| *bytes > 0.0).map(|bytes| round(cpu / (bytes / 1e9)));
    if let Some(cost) = per(last["bytes"].as_f64()) {
        out.insert("cpu_s_per_gb".into(), json!(cost));
    }
    if let Some(cost) = per(last["data"].as_f64()) {
        out.insert("cpu_s_per_gb_of_data".into(), json!(cost));
    }
    if let Some((other, _)) = last["beside"].as_str().and_then(|name| all.get(name)) {
        let theirs = summary(other)["cpu_s"].as_f64().unwrap_or_default();
        out.insert("cpu_ratio".into(), json!((theirs > 0.0).then(|| round(cpu / theirs))));
    }
    Value::Object(out)
}

/// A pool that streams are made of and received into.
struct Stage {
    spa: Arc<Spa>,
    /// Removed with the stage.
    _images: Images,
}

impl Stage {
    fn new(dir: &Path, geometry: &Geometry) -> Result<Self> {
        // As the daemon does.
        device::recycle::set_memory(poolhouse::spa::discovery::host::memory());
        let images = Images::new(dir, "streams", 1, 64 << 30)?;
        Ok(Self { spa: Arc::new(images.pool(geometry)?), _images: images })
    }

    fn live(&self) -> Result<&PoolWriter> {
        self.spa.writer().context("a new pool is open for writing")
    }

    fn snapshot(&self, name: &str) -> Result<()> {
        let names = vec![format!("{POOL}/{name}")];
        Ok(self.live()?.run(Box::new(Snapshot { names, ..Snapshot::default() }))?)
    }

    /// Writes the stream of a snapshot.
    fn send(&self, name: &str, from: Option<&str>, forms: Forms, sink: impl Write) -> Result<()> {
        let live = self.live()?;
        let find = |name: &str| live.dsl().dataset(&format!("{POOL}/{name}"));
        let to = find(name)?;
        let origin = match from {
            Some(from) => Some(Origin::of_snapshot(&to, &find(from)?)?),
            None => None,
        };
        Ok(send(&to, &Options { origin, forms, ..Options::default() }, sink)?)
    }

    fn receive(&self, name: &str, source: impl std::io::Read) -> Result<u64> {
        let options = ReceiveOptions { name: format!("{POOL}/{name}"), ..ReceiveOptions::default() };
        let receiving = Receiving::new(&self.spa, source, &options)?;
        let bytes = receiving.bytes();
        receiving.finish()?;
        Ok(bytes)
    }

    /// Destroys a file system and its snapshot `s`, and waits until its space is free.
    fn destroy(&self, name: &str) -> Result<()> {
        let live = self.live()?;
        let (head, names) = (format!("{POOL}/{name}"), vec![format!("{POOL}/{name}@s")]);
        live.run(Box::new(DestroySnapshots { names, defer: false }))?;
        live.run(Box::new(DestroyHead { name: head }))?;
        Ok(live.sync_all()?)
    }
}

fn lz4() -> Result<PropList> {
    let parsing = Parsing { kind: Kind::Filesystem, creating: true, max_block: 1 << 20 };
    Ok(vec![setting("compression", "lz4", parsing).context("a compressor")?])
}

/// Writes `bytes` bytes to an object, and syncs.
fn fill(live: &PoolWriter, owned: &Owned, dnode: &Dnode, bytes: u64, pattern: &[u8]) -> Result<()> {
    for offset in (0..bytes).step_by(CHUNK) {
        let from = offset as usize % (pattern.len() - CHUNK);
        let tx = live.tx_for(owned, Need { bytes: CHUNK as u64, netfree: false })?;
        dnode.write_at(&tx, offset, &pattern[from..from + CHUNK])?;
    }
    Ok(live.sync_all()?)
}

/// Makes the encrypted file system `enc`.
fn make_encrypted(live: &PoolWriter) -> Result<()> {
    let key = Arc::new(WrappingKey::from_raw([7; 32]));
    let key = NewKey { format: KeyFormat::Raw, location: Some("prompt".into()), key, salt: 0, iterations: 0 };
    let crypt = Some(NewCrypt { suite: Some(CryptoSuite::Aes256Gcm), off: false, key: Some(key) });
    let contents = Arc::new(NewFileSystem::new((1_700_000_000, 0)));
    let (name, props) = (format!("{POOL}/enc"), lz4()?);
    Ok(live.run(Box::new(Create { name, contents, props, crypt, enforce_limits: false }))?)
}

fn library(dir: &Path, done: &mut Phases) -> Result<()> {
    let bytes = number("BENCH_STREAM_MB", 512)? << 20;
    let stage = Stage::new(dir, &Geometry { cache_bytes: CACHE, ..Geometry::default() })?;
    let (live, pattern) = (stage.live()?, pattern());
    // The first use of memory costs a page fault for each page, and so does that of the image. So
    // the first run is not timed.
    let (owned, dnode) = object(live, "warm", lz4()?, DmuType::PLAIN_FILE_CONTENTS)?;
    fill(live, &owned, &dnode, bytes, &pattern)?;
    drop(owned);
    stage.snapshot("warm@s")?;
    stage.destroy("warm")?;
    let (owned, dnode) = object(live, "fs", lz4()?, DmuType::PLAIN_FILE_CONTENTS)?;
    let object_number = dnode.object();
    let ((), took) = here(|| fill(live, &owned, &dnode, bytes, &pattern))?;
    done.add("write", took, json!({ "bytes": bytes }));
    make_encrypted(live)?;
    let enc = live.dsl().heads().own(&live.dsl().dataset(&format!("{POOL}/enc"))?)?;
    let tx = live.tx_for(&enc, Need { bytes: 1 << 14, netfree: false })?;
    let spec = poolhouse::dmu::NewObject {
        block_size: 1 << 17,
        ..poolhouse::dmu::NewObject::new(DmuType::PLAIN_FILE_CONTENTS)
    };
    let secret = enc.objset().create_object(&tx, &spec)?;
    drop(tx);
    fill(live, &enc, &secret, bytes, &pattern)?;
    stage.snapshot("fs@s")?;
    stage.snapshot("enc@s")?;
    let ((), took) = here(|| read(&stage, object_number, bytes))?;
    done.add("read", took, json!({ "bytes": bytes }));
    for (name, of, forms) in FORMS {
        let snapshot = format!("{of}@s");
        let ((), took) = here(|| stage.send(&snapshot, None, forms, std::io::sink()))?;
        let path = dir.join("stream");
        stage.send(&snapshot, None, forms, File::create(&path)?)?;
        let length = std::fs::metadata(&path)?.len();
        let beside = if name.is_empty() { "read" } else { "" };
        done.add(&format!("send{name}"), took, json!({ "bytes": length, "data": bytes, "beside": beside }));
        let (_, took) = here(|| stage.receive("r@s", File::open(&path)?))?;
        let beside = if name.is_empty() { "write" } else { "" };
        done.add(
            &format!("receive{name}"),
            took,
            json!({ "bytes": length, "data": bytes, "beside": beside }),
        );
        stage.destroy("r")?;
        std::fs::remove_file(path)?;
    }
    drop((owned, enc));
    Ok(live.export()?)
}

/// Reads a snapshot's object from start to end.
fn read(stage: &Stage, object: ObjNum, bytes: u64) -> Result<()> {
    let snapshot = stage.live()?.dsl().dataset(&format!("{POOL}/fs@s"))?;
    let Some(os) = snapshot.objset()? else { bail!("the snapshot is empty") };
    let (dnode, mut buf) = (os.dnode(object)?, vec![0; CHUNK]);
    for offset in (0..bytes).step_by(CHUNK) {
        dnode.read_at(offset, &mut buf)?;
    }
    Ok(())
}
