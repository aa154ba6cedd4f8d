//! The pool that is measured.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use dsl::ops::create::Create;
use dsl::{PropList, SyncTask};
use ondisk::feature::{FEATURES, Feature};
use poolhouse::Pool;
use poolhouse::zpl::{Kind, NewFile, NewFileSystem, Policies};
use spa::Host;
use spa::create::{Beginning, NewLeaf, NewPool, NewVdev, Setting, VdevShape, claim_file, create};
use spa::import::Resources;

/// The pool's name.
pub const POOL: &str = "bench8115";
/// Size of its sparse image file, in bytes.
const IMAGE: u64 = 64 << 30;
/// Size of the file in each leaf, in bytes.
const FILE: usize = 1 << 20;
/// The creation time of everything in it, in seconds since the epoch.
const MADE: u64 = 1_700_000_000;

/// How many file systems there are on each level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Groups.
    pub groups: usize,
    /// Containers of each group.
    pub containers: usize,
    /// Timeflows of each container.
    pub timeflows: usize,
    /// Leaves of each timeflow.
    pub leaves: usize,
}

impl Default for Shape {
    /// The shape of illumos bug 8115.
    fn default() -> Self {
        Self { groups: 2, containers: 100, timeflows: 2, leaves: 5 }
    }
}

impl Shape {
    /// How many file systems there are, the pool's own included.
    pub fn file_systems(&self) -> u64 {
        let below = self.containers * (1 + self.timeflows * (1 + self.leaves));
        (1 + self.groups * (1 + below)) as u64
    }
}

/// The names of the file systems below the pool's own. Parents come first, and leaves last.
pub fn names(pool: &str, shape: Shape) -> Vec<String> {
    let mut names: Vec<String> = (0..shape.groups).map(|g| format!("{pool}/group-{g}")).collect();
    let below = |parents: &[String], what: &str, count: usize| -> Vec<String> {
        let each = |parent: &String| (0..count).map(|i| format!("{parent}/{what}-{i}")).collect::<Vec<_>>();
        parents.iter().flat_map(each).collect()
    };
    let containers = below(&names, "container", shape.containers);
    let timeflows = below(&containers, "timeflow", shape.timeflows);
    let leaves = below(&timeflows, "ds", shape.leaves);
    names.extend(containers.into_iter().chain(timeflows).chain(leaves));
    names
}

/// The path of the image file.
pub(super) fn image(room: &Path) -> PathBuf {
    room.join("pool.img")
}

/// Makes the pool in a folder, and exports it.
///
/// # Errors
/// An [`anyhow::Error`] whose text names the cause:
///
/// * the image file exists or can't be created;
/// * the pool can't be created, written or exported.
pub fn make(room: &Path, shape: Shape) -> Result<()> {
    let path = image(room);
    std::fs::File::create_new(&path)
        .and_then(|file| file.set_len(IMAGE))
        .with_context(|| format!("make {}", path.display()))?;
    let pool = new_pool(&path).context("make a pool")?;
    let names = names(POOL, shape);
    let live = pool.spa().writer().context("a new pool is written")?;
    let done = live.run_all(names.iter().map(|name| task(name)).collect())?;
    done.into_iter().collect::<dsl::Result<Vec<()>>>()?;
    let leaves = shape.groups * shape.containers * shape.timeflows * shape.leaves;
    let bytes = contents();
    for name in &names[names.len() - leaves..] {
        let dataset = pool.dataset(name)?;
        let fs = pool.open_for_writing(dataset.dsl(), Policies::default())?;
        let file = fs.create(fs.root(), b"file", &NewFile::new(Kind::Regular, 0o644))?;
        fs.write(file.object, 0, &bytes, false)?;
    }
    Ok(pool.export()?)
}

fn task(name: &str) -> Box<dyn SyncTask + Send> {
    let contents = Arc::new(NewFileSystem::new((MADE, 0)));
    let props = PropList::new();
    Box::new(Create { name: name.to_owned(), contents, props, crypt: None, enforce_limits: false })
}

/// Lines of text, which compress well.
fn contents() -> Vec<u8> {
    let lines = (0..).flat_map(|n: u32| format!("line {n} of a file that nobody reads here\n").into_bytes());
    lines.take(FILE).collect()
}

fn new_pool(path: &Path) -> Result<Pool> {
    let leaves = vec![NewLeaf { path: path.to_owned() }];
    let vdevs = vec![NewVdev { shape: VdevShape::Single, bias: None, leaves }];
    let new = NewPool { name: POOL.into(), vdevs, ashift: None, force: false };
    let features: Vec<&'static Feature> = FEATURES.iter().filter(|f| f.can_write()).collect();
    let contents = NewFileSystem::new((MADE, 0));
    let begin = Beginning {
        features: &features,
        contents: &contents,
        props: &PropList::new(),
        crypt: None,
        temporary_name: None,
        version: 5000,
    };
    let Resources { workers, world } = Resources::of_system(POOL);
    let setting = Setting {
        host: &Host::of_system(),
        world,
        claimer: &claim_file,
        workers,
        cache: poolhouse::default_cache_bytes().into(),
        altroot: None,
    };
    Ok(Pool::with_spa(create(&new, &begin, &setting)?, None)?)
}
