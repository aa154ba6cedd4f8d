//! The folders of the kernel modules (`/sys/module/zfs`), as the daemon's tree of files shows them
//! too (`zfs_sysfs.c`).
//!
//! They hold what this release knows about features, properties and its version.

use dsl::prop::{Kind as On, PROPS, PropAttr, PropDesc as Dataset, PropKind};
use ondisk::feature::FEATURES;

use crate::props::{self, Edit, Kind, PropDesc};

const ROOT: &str = "sys/module/zfs";
const SPL: &str = "sys/module/spl";
/// Abilities that are no pool features, and that this release has (`zfs_kernel_features`).
const KERNEL: [&str; 2] = ["com.delphix:vdev_initialize", "org.zfsonlinux:vdev_trim"];
/// Default values of pool properties, if not 0 or empty.
const POOL_DEFAULTS: [(&str, &str); 4] = [
    ("version", "5000"),
    ("delegation", "1"),
    ("dedup_table_quota", "18446744073709551615"),
    ("compatibility", "off"),
];
const VDEV_DEFAULTS: [(&str, &str); 2] = [("allocating", "1"), ("failfast", "1")];

/// Every file with its content.
pub fn facts() -> Vec<(String, String)> {
    // Both modules have the same version.
    let mut all: Vec<(String, String)> = [ROOT, SPL]
        .map(|module| (format!("{module}/version"), format!("{}\n", crate::version::module())))
        .into();
    let mut put = |folder: &str, of: &str, facts: &[(&str, String)]| {
        for (name, text) in facts {
            all.push((format!("{ROOT}/{folder}/{of}/{name}"), format!("{text}\n")));
        }
    };
    for name in KERNEL {
        put("features.kernel", name, &[("supported", "yes".into())]);
    }
    for f in FEATURES {
        let yes = |b: bool| if b { "1" } else { "0" }.to_owned();
        let facts = [
            ("description", f.description.to_owned()),
            ("guid", f.guid.to_owned()),
            ("uname", f.name.to_owned()),
            ("readonly_compatible", yes(f.readonly_compatible())),
            ("required_for_mos", yes(f.mos())),
            ("activate_on_enable", yes(f.activate_on_enable())),
            ("per_dataset", yes(f.per_dataset())),
        ];
        put("features.pool", f.guid, &facts);
    }
    for p in PROPS {
        put("properties.dataset", p.name, &of_dataset(p));
    }
    for p in props::POOL {
        put("properties.pool", p.name, &shown(p, &POOL_DEFAULTS));
    }
    for p in props::VDEV {
        put("properties.vdev", p.name, &shown(p, &VDEV_DEFAULTS));
    }
    all
}

fn flag(b: bool) -> String {
    String::from(if b { "1" } else { "0" })
}

fn of_dataset(p: &Dataset) -> [(&'static str, String); 7] {
    let (kind, default) = match p.kind {
        PropKind::Number => ("number", p.default.to_string()),
        PropKind::Index => ("index", p.default.to_string()),
        PropKind::String => ("string", p.default_str.unwrap_or_default().to_owned()),
    };
    let kinds = [
        (On::Filesystem, "filesystem"),
        (On::Snapshot, "snapshot"),
        (On::Volume, "volume"),
        (On::Bookmark, "bookmark"),
    ];
    let datasets = kinds.into_iter().filter(|(kind, _)| p.types & *kind as u8 != 0);
    let datasets: String = datasets.map(|(_, name)| format!("{name} ")).collect();
    [
        ("type", kind.to_owned()),
        ("readonly", flag(p.attr == PropAttr::Readonly)),
        ("setonce", flag(p.attr == PropAttr::Onetime)),
        ("visible", flag(p.visible)),
        ("values", p.values.to_owned()),
        ("default", default),
        ("datasets", datasets),
    ]
}

fn shown(p: &PropDesc, defaults: &[(&str, &str)]) -> [(&'static str, String); 6] {
    let (kind, usual) = match p.kind {
        Kind::Number => ("number", "0"),
        Kind::Index(_) => ("index", "0"),
        Kind::Text => ("string", ""),
    };
    let default = defaults.iter().find(|(name, _)| *name == p.name).map_or(usual, |(_, default)| default);
    [
        ("type", kind.to_owned()),
        ("readonly", flag(p.edit == Edit::ReadOnly)),
        ("setonce", flag(matches!(p.edit, Edit::Once | Edit::OnceOwn))),
        ("visible", flag(!p.hidden)),
        ("values", p.values.to_owned()),
        ("default", default.to_owned()),
    ]
}
