//! An object set that is shown, and what its objects need.

use super::ctx::{Ctx, Run};
use super::files::Files;
use super::opened::Opened;
use dmu::Objset;
use dsl::{Dataset, Prop, Value};
use ondisk::objset::ObjsetKind;

/// An object set to show.
pub struct View<'a> {
    /// The pool.
    pub pool: &'a Opened,
    /// The object set.
    pub os: Objset,
    /// The dataset; `None` for the MOS.
    pub ds: Option<&'a Dataset>,
    /// Whether the dataset is encrypted and its key not loaded.
    pub locked: bool,
    /// The name of the compression that objects inherit.
    pub compression: String,
    /// The means to show files; `None` if the object set has none, or they are not wanted.
    pub files: Option<Files>,
    /// Number of objects without a known path.
    pub leaked: u64,
}

/// Opens a dataset to show its objects; `None` if it was never written.
///
/// `files` says whether files will be shown too.
pub fn open<'a>(cx: &mut Ctx<'_>, pool: &'a Opened, ds: &'a Dataset, files: bool) -> Run<Option<View<'a>>> {
    let Some(os) = ds.objset()? else { return Ok(None) };
    let encrypted = ds.dir().crypto_object()?.is_some();
    let locked = encrypted && pool.dsl.keys().key(ds.object().0).is_none();
    let files =
        if os.kind() == ObjsetKind::Zfs && files { cx.part(|_| Ok(Some(Files::load(&os)?)))? } else { None };
    let compression = compression(pool, ds)?;
    Ok(Some(View { pool, os, ds: Some(ds), locked, compression, files, leaked: 0 }))
}

/// The compression of a dataset's blocks, as zdb names it. Snapshots write none.
fn compression(pool: &Opened, ds: &Dataset) -> Run<String> {
    if ds.is_snapshot() {
        return Ok("inherit".into());
    }
    let value = ds.property(Prop::Compression)?.map(|p| p.value);
    let Some(Value::Number(n)) = value else { return Ok("inherit".into()) };
    let name = Prop::Compression.desc().index_name(n).unwrap_or("inherit");
    Ok(match name {
        "on" if pool.spa.features().is_active("org.illumos:lz4_compress") => "lz4",
        "on" => "lzjb",
        "off" => "uncompressed",
        // OpenZFS's number for the default level differs from the property's.
        "zstd" => "zstd-unknown",
        other => other,
    }
    .into())
}
