//! Finding a fixture by name, with all files beside its images.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::copy::FixtureCopy;
use crate::manifest::{self, Manifest, Zvol};
use crate::unpack;

/// One device image of a fixture, as `pool.json` lists it.
#[derive(Debug, Clone, Deserialize)]
pub struct ImageSpec {
    /// File name, `d0.img` and so on.
    pub file: String,
    /// Size in bytes.
    pub size: u64,
}

#[derive(Debug, Deserialize)]
struct PoolJson {
    pool: Option<String>,
    #[serde(default)]
    images: Vec<ImageSpec>,
    based_on: Option<String>,
}

/// A pool written by OpenZFS, unpacked and ready for reading.
#[derive(Debug, Clone)]
pub struct Fixture {
    name: String,
    pool: String,
    dir: PathBuf,
    images: Vec<PathBuf>,
    base: Option<Box<Fixture>>,
}

/// The root directory of the repository.
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate lies two folders below the root")
        .to_path_buf()
}

/// The bundled fixtures, `fixtures/` at the root of the repository.
pub fn bundled_dir() -> PathBuf {
    workspace_root().join("fixtures")
}

/// The directories that are searched for fixtures: `FIXTURES` first, then the bundled ones.
fn sources() -> Vec<PathBuf> {
    let root = workspace_root();
    let outside = std::env::var_os("FIXTURES").filter(|v| !v.is_empty()).map(|v| root.join(v));
    if let Some(dir) = &outside {
        assert!(dir.is_dir(), "FIXTURES names {}, which is not a folder", dir.display());
    }
    outside.into_iter().chain([bundled_dir()]).collect()
}

fn source_of(name: &str) -> Option<PathBuf> {
    sources().into_iter().map(|s| s.join(name)).find(|d| d.join("pool.json").is_file())
}

/// The names of all available fixtures, sorted.
///
/// # Panics
/// `FIXTURES` names no directory, or a `pool.json` can't be read.
pub fn names() -> Vec<String> {
    let mut all = BTreeSet::new();
    for source in sources() {
        let Ok(entries) = fs::read_dir(&source) else { continue };
        for entry in entries.flatten() {
            if entry.path().join("pool.json").is_file() {
                all.insert(entry.file_name().into_string().expect("fixture names are ASCII"));
            }
        }
    }
    // A damaged fixture needs the fixture that it is based on.
    all.iter().filter(|n| find_base(n).is_none_or(|b| all.contains(&b))).cloned().collect()
}

fn find_base(name: &str) -> Option<String> {
    read_pool_json(&source_of(name)?).based_on
}

fn read_pool_json(dir: &Path) -> PoolJson {
    let path = dir.join("pool.json");
    let text = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The fixture NAME, unpacked. `None` if it is not available, as only the whole set
/// (`FIXTURES=DIR`) has it.
///
/// # Panics
/// A file of the fixture can't be read or unpacked.
pub fn find(name: &str) -> Option<Fixture> {
    let dir = source_of(name)?;
    let spec = read_pool_json(&dir);
    match spec.based_on {
        None => {
            let pool = spec.pool.unwrap_or_else(|| panic!("fixture {name}: pool.json names no pool"));
            let folder = unpack::images(name, &dir);
            let images = spec.images.iter().map(|i| folder.join(&i.file)).collect();
            Some(Fixture { name: name.to_owned(), pool, dir, images, base: None })
        }
        Some(base) => {
            let base = find(&base)?;
            let folder = unpack::damaged(name, &dir, &base);
            let images = base
                .images
                .iter()
                .map(|p| {
                    let own = folder.join(p.file_name().expect("an image has a file name"));
                    if own.exists() { own } else { p.clone() }
                })
                .collect();
            let pool = base.pool.clone();
            Some(Fixture { name: name.to_owned(), pool, dir, images, base: Some(Box::new(base)) })
        }
    }
}

/// The fixture NAME, unpacked.
///
/// # Panics
/// There is no fixture of that name, or it can't be unpacked.
pub fn load(name: &str) -> Fixture {
    find(name).unwrap_or_else(|| {
        panic!("no fixture {name}; there are {:?} (FIXTURES=DIR adds a folder of more)", names())
    })
}

/// The device images of the fixture NAME, in the pool's order. They must not be written.
///
/// # Panics
/// See [`load`].
pub fn fixture(name: &str) -> Vec<PathBuf> {
    load(name).images
}

/// A private, writable, sparse copy of the images of the fixture NAME. Dropping it removes them.
///
/// # Panics
/// See [`load`]. Also if a file can't be copied.
pub fn fixture_copy(name: &str) -> FixtureCopy {
    load(name).copy()
}

impl Fixture {
    /// The name of the fixture, which is that of its directory.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the pool (`xmirror2` in the fixture `mirror2`).
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// The device images in order. They must not be written.
    pub fn images(&self) -> &[PathBuf] {
        &self.images
    }

    /// The source directory: keys (`raw.key`, `hex.key`), `commands.txt`, `scrub.txt`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The undamaged fixture that this one is based on.
    pub fn base(&self) -> Option<&Fixture> {
        self.base.as_deref()
    }

    /// A private, writable, sparse copy of the images. Dropping it removes them.
    ///
    /// # Panics
    /// A file can't be copied.
    pub fn copy(&self) -> FixtureCopy {
        FixtureCopy::of(&self.images)
    }

    /// A file of the source directory, for example `hex.key`.
    ///
    /// # Panics
    /// The file can't be read.
    pub fn file(&self, name: &str) -> Vec<u8> {
        let path = self.dir.join(name);
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The manifests of all datasets and snapshots. A damaged fixture has those of its base.
    ///
    /// # Panics
    /// The manifests can't be unpacked or read.
    pub fn manifests(&self) -> Vec<Manifest> {
        match &self.base {
            Some(base) => base.manifests(),
            None => manifest::read_all(&unpack::folder(&self.name, &self.dir, "manifests")),
        }
    }

    /// The manifest of one dataset or snapshot in the state of the image, if there is one.
    pub fn manifest(&self, dataset: &str) -> Option<Manifest> {
        self.manifests().into_iter().find(|m| m.dataset == dataset && m.variant.is_none())
    }

    /// What each volume, and each snapshot of one, contains.
    pub fn zvols(&self) -> Vec<Zvol> {
        match &self.base {
            Some(base) => base.zvols(),
            None => manifest::read_zvols(&unpack::folder(&self.name, &self.dir, "manifests")),
        }
    }

    /// The transcript `outputs/NAME` (stored with or without `.zst`), if the fixture has it.
    pub fn output(&self, name: &str) -> Option<String> {
        let folder = unpack::folder(&self.name, &self.dir, "outputs");
        let bytes = unpack::read_plain_or_zst(&folder.join(name))?;
        // `zdb` prints names unchanged, and some names are not UTF-8.
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The file `streams/NAME` (stored with or without `.zst`): a send stream, or what `zstream`
    /// printed of it. `None` if the fixture has no such file.
    ///
    /// # Panics
    /// The file can't be unpacked.
    pub fn stream(&self, name: &str) -> Option<Vec<u8>> {
        unpack::read_plain_or_zst(&self.dir.join("streams").join(name))
    }

    /// The names of the send streams, sorted, without `.zsend`.
    ///
    /// # Panics
    /// The folder can't be read.
    pub fn streams(&self) -> Vec<String> {
        let names = unpack::file_names(&self.dir.join("streams"));
        let mut streams: Vec<String> = names
            .iter()
            .filter_map(|n| n.trim_end_matches(".zst").strip_suffix(".zsend"))
            .map(str::to_owned)
            .collect();
        streams.sort();
        streams
    }

    /// The names of the transcripts, without `.zst`, sorted.
    pub fn outputs(&self) -> Vec<String> {
        let folder = unpack::folder(&self.name, &self.dir, "outputs");
        unpack::file_names(&folder).into_iter().map(|n| n.trim_end_matches(".zst").to_owned()).collect()
    }
}
