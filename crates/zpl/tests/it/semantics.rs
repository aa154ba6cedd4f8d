//! Behaviour that manifests don't show: case and normalization, holes, ACLs, accounting, errors,
//! and mutated attributes.

use crate::common::pool::{filesystems, mos};
use ondisk::acl::{Ace, Who};
use proptest::prelude::*;
use std::collections::BTreeMap;
use zpl::{CaseSensitivity, DirCookie, DirEntry, Error, FileSystem, FileType, Node, SpaceKind};

fn pool(name: &str) -> BTreeMap<String, FileSystem> {
    let fx = testkit::find(name).expect("bundled");
    let sets = filesystems(fx.pool(), &mos(&fx.images()[0]));
    sets.into_iter().map(|(n, os)| (n, FileSystem::open(&os).unwrap())).collect()
}

/// Every file of a file system, found by listing.
fn all_nodes(fs: &FileSystem) -> Vec<Node> {
    let mut out = vec![fs.node(fs.root()).unwrap()];
    let mut todo = vec![fs.root()];
    while let Some(dir) = todo.pop() {
        for e in fs.read_dir(dir, DirCookie(2)).unwrap() {
            let node = fs.node(e.unwrap().object).unwrap();
            if node.attr().kind == FileType::Directory {
                todo.push(node.object());
            }
            out.push(node);
        }
    }
    out
}

/// The entries of a directory, listed in pieces of `step`, each resumed at the end of the previous
/// one.
fn in_pieces(fs: &FileSystem, dir: &Node, step: usize) -> Vec<DirEntry> {
    let mut out: Vec<DirEntry> = Vec::new();
    loop {
        let from = out.last().map_or(DirCookie::START, |e| e.next);
        let piece: Vec<_> =
            fs.read_dir(dir.object(), from).unwrap().take(step).collect::<Result<_, _>>().unwrap();
        if piece.is_empty() {
            return out;
        }
        out.extend(piece);
    }
}

/// Goal: listing in small pieces gives the same entries as at once, `.` and `..` first, and none
/// twice.
#[test]
fn listing_resumes() {
    let pool = pool("single-lz4");
    let mut largest = 0;
    for name in ["single-lz4", "single-lz4/ci", "single-lz4/norm-formD", "single-lz4/dn-16k"] {
        let fs = &pool[name];
        let dirs: Vec<Node> =
            all_nodes(fs).into_iter().filter(|n| n.attr().kind == FileType::Directory).collect();
        for dir in &dirs {
            let whole: Vec<_> = dir.read_dir(DirCookie::START).unwrap().collect::<Result<_, _>>().unwrap();
            assert_eq!((whole[0].name.as_slice(), whole[1].name.as_slice()), (&b"."[..], &b".."[..]));
            assert_eq!(whole.len() as u64, dir.attr().size, "{name}: {:?}", dir.object());
            assert_eq!(in_pieces(fs, dir, 7), whole);
        }
        largest = largest.max(dirs.iter().map(|d| d.attr().size).max().unwrap());
    }
    assert!(largest > 1000, "no fat directory among them");
}

/// Goal: a file system that ignores case finds names in any case, one of mixed case only on
/// request, others never.
#[test]
fn case() {
    let pool = pool("single-lz4");
    let mut seen = [0, 0, 0];
    for (name, mode) in [
        ("single-lz4/ci", CaseSensitivity::Insensitive),
        ("single-lz4/mixed", CaseSensitivity::Mixed),
        ("single-lz4/comp-off", CaseSensitivity::Sensitive),
    ] {
        let fs = &pool[name];
        assert_eq!(fs.case_sensitivity(), mode);
        for dir in all_nodes(fs).into_iter().filter(|n| n.attr().kind == FileType::Directory) {
            let names: Vec<_> = dir.read_dir(DirCookie(2)).unwrap().map(|e| e.unwrap()).collect();
            for e in &names {
                let swapped: Vec<u8> =
                    e.name
                        .iter()
                        .map(|b| {
                            if b.is_ascii_lowercase() {
                                b.to_ascii_uppercase()
                            } else {
                                b.to_ascii_lowercase()
                            }
                        })
                        .collect();
                if swapped == e.name
                    || names.iter().filter(|o| o.name.eq_ignore_ascii_case(&e.name)).count() > 1
                {
                    continue;
                }
                let exact = dir.lookup_entry(&swapped, false);
                let folded = dir.lookup_entry(&swapped, true);
                match mode {
                    CaseSensitivity::Insensitive => {
                        let found = exact.unwrap();
                        assert_eq!((found.object, &found.name), (e.object, &e.name));
                        seen[0] += 1;
                    }
                    CaseSensitivity::Mixed => {
                        assert!(matches!(exact, Err(Error::NoEntry { .. })));
                        assert_eq!(folded.unwrap().object, e.object);
                        seen[1] += 1;
                    }
                    CaseSensitivity::Sensitive => {
                        assert!(matches!(exact, Err(Error::NoEntry { .. })));
                        assert!(matches!(folded, Err(Error::NoEntry { .. })));
                        seen[2] += 1;
                    }
                }
            }
        }
    }
    assert!(seen.iter().all(|n| *n > 50), "{seen:?}");
}

/// Goal: with any normalization, a name is found in every equivalent form; without one, only as it
/// was written.
#[test]
fn normalization() {
    let pool = pool("single-lz4");
    for form in ["formC", "formD", "formKC", "formKD"] {
        let fs = &pool[&format!("single-lz4/norm-{form}")];
        let mut other_forms = 0;
        for dir in all_nodes(fs).into_iter().filter(|n| n.attr().kind == FileType::Directory) {
            for e in dir.read_dir(DirCookie(2)).unwrap().map(|e| e.unwrap()) {
                for flags in [0x10u64, 0x50] {
                    let norm = dmu::zap::Normalization::from_disk(flags).unwrap();
                    let other = dmu::zap::normalize(&e.name, norm);
                    assert_eq!(dir.lookup_entry(&other, false).unwrap().object, e.object);
                    other_forms += u32::from(other != e.name);
                }
            }
        }
        assert!(other_forms > 0, "{form} has no name of two forms");
        assert!(matches!(fs.lookup(fs.root(), b"\xff\xfe"), Err(Error::NotUtf8)));
    }
}

/// Goal: searches for data and holes partition each file. Holes contain zeros, and errors come at
/// the end.
#[test]
fn data_and_holes() {
    let pool = pool("single-lz4");
    let mut holes = 0;
    for node in all_nodes(&pool["single-lz4/rs-4K"]) {
        if node.attr().kind != FileType::Regular {
            continue;
        }
        let size = node.attr().size;
        let mut at = 0;
        while at < size {
            let data = match node.seek_data(at) {
                Ok(d) => d,
                Err(Error::PastEnd { .. }) => size,
                Err(e) => panic!("{e}"),
            };
            let mut gap = vec![1; (data - at).min(1 << 20) as usize];
            assert_eq!(node.read(at, &mut gap).unwrap(), gap.len());
            assert!(gap.iter().all(|b| *b == 0), "data in a hole");
            holes += u32::from(data > at);
            if data == size {
                break;
            }
            let hole = node.seek_hole(data).unwrap();
            assert!(hole > data);
            at = hole;
        }
        assert!(matches!(node.seek_hole(size), Err(Error::PastEnd { .. })));
        assert!(matches!(node.seek_data(u64::MAX), Err(Error::PastEnd { .. })));
        assert_eq!(node.read(size, &mut [0; 8]).unwrap(), 0);
        assert_eq!(node.read(u64::MAX, &mut [0; 8]).unwrap(), 0);
    }
    assert!(holes > 0);
}

/// True if the entry of `who` in a trivial ACL allows what one of the three digits of a mode
/// allows.
fn allows(aces: &[Ace], who: fn(&Who) -> bool, digit: u32) -> bool {
    const READ: u32 = 1;
    const WRITE: u32 = 2;
    const EXECUTE: u32 = 0x20;
    let wanted = [(4, READ), (2, WRITE), (1, EXECUTE)];
    let granted = aces.iter().filter(|a| a.kind == 0 && who(&a.who)).fold(0, |m, a| m | a.mask);
    let denied = aces.iter().filter(|a| a.kind == 1 && who(&a.who)).fold(0, |m, a| m | a.mask);
    wanted.iter().all(|(bit, mask)| ((granted & !denied) & mask != 0) == (digit & bit != 0))
}

/// Goal: every file's ACL can be read in each version of file systems, and a trivial one matches
/// the mode.
#[test]
fn acls() {
    let mut trivial = 0;
    for name in ["single-lz4", "v28", "v1"] {
        for (dataset, fs) in pool(name).into_iter().take(12) {
            for node in all_nodes(&fs) {
                let acl = node.acl().unwrap();
                assert!(!acl.aces.is_empty(), "{dataset}: {:?} has no ACL", node.object());
                // With acltype=posix the umask narrows the mode after the ACL was created, and the
                // mode rules.
                if !acl.trivial || dataset.contains("/acl-") {
                    continue;
                }
                // Only entries that deny can make the owner's and the group's digit narrower than
                // everyone's.
                let everyone = allows(&acl.aces, |w| *w == Who::Everyone, node.attr().mode & 7);
                assert!(everyone, "{dataset}: {:o} {:?}", node.attr().mode, acl.aces);
                trivial += 1;
            }
        }
    }
    assert!(trivial > 1000, "only {trivial}");
}

/// Goal: accounting of bytes and objects equals the output of `zfs userspace`.
#[test]
fn userspace() {
    let mut lines = 0;
    for name in ["single-lz4", "v28", "v1", "longname"] {
        let fx = testkit::find(name).expect("bundled");
        let Some(text) = fx.output("zfs-userspace.txt") else { continue };
        let pool = pool(name);
        for line in text.lines() {
            let f: Vec<&str> = line.split('\t').collect();
            let [dataset, what, kind, id, used, quota, objused, objquota] = f[..] else { panic!("{line}") };
            let Some(fs) = pool.get(dataset) else { continue };
            let kinds = match what {
                "userspace" => [
                    SpaceKind::UserUsed,
                    SpaceKind::UserQuota,
                    SpaceKind::UserObjUsed,
                    SpaceKind::UserObjQuota,
                ],
                "groupspace" => [
                    SpaceKind::GroupUsed,
                    SpaceKind::GroupQuota,
                    SpaceKind::GroupObjUsed,
                    SpaceKind::GroupObjQuota,
                ],
                "projectspace" => [
                    SpaceKind::ProjectUsed,
                    SpaceKind::ProjectQuota,
                    SpaceKind::ProjectObjUsed,
                    SpaceKind::ProjectObjQuota,
                ],
                other => panic!("{other} {kind}"),
            };
            let id: u32 = id.parse().unwrap();
            for (kind, want) in kinds.into_iter().zip([used, quota, objused, objquota]) {
                let all = fs.space(kind).unwrap();
                let got = all.iter().find(|s| s.id.rid() == id).map_or(0, |s| s.value);
                assert_eq!(got, want.parse().unwrap_or(0), "{line}: {kind:?}");
            }
            lines += 1;
        }
    }
    assert!(lines > 300, "only {lines}");
}

/// Goal: the names of extended attributes are limited to the caller's maximum, whether stored as a
/// system attribute or in a hidden directory.
#[test]
fn names_of_attributes_are_bounded() {
    let pool = pool("single-lz4");
    let nodes: Vec<_> = pool.values().flat_map(all_nodes).collect();
    for hidden in [false, true] {
        let is_tagged = |n: &&Node| {
            n.xattr_dir().unwrap().is_some() == hidden && !n.xattr_names(usize::MAX).unwrap().is_empty()
        };
        let node = nodes.iter().find(is_tagged).unwrap();
        let names = node.xattr_names(usize::MAX).unwrap();
        let size = names.iter().map(|n| n.len() + 1).sum();
        assert_eq!(node.xattr_names(size).unwrap(), names);
        assert!(matches!(node.xattr_names(size - 1), Err(Error::XattrsTooLarge { .. })), "{hidden}");
    }
}

/// Goal: each wrong request has its own error.
#[test]
fn errors() {
    let pool = pool("single-lz4");
    let fs = &pool["single-lz4/comp-off"];
    let nodes = all_nodes(fs);
    let of = |kind| nodes.iter().find(|n| n.attr().kind == kind).unwrap();
    let (file, dir, link) = (of(FileType::Regular), of(FileType::Directory), of(FileType::Symlink));
    assert!(matches!(dir.read(0, &mut [0]), Err(Error::IsDirectory { .. })));
    assert!(matches!(file.read_dir(DirCookie::START), Err(Error::NotDirectory { .. })));
    assert!(matches!(file.lookup_entry(b"x", false), Err(Error::NotDirectory { .. })));
    assert!(matches!(file.readlink(), Err(Error::NotSymlink { .. })));
    assert!(matches!(dir.lookup_entry(&[b'x'; 1024], false), Err(Error::NameTooLong { len: 1024 })));
    assert!(matches!(file.xattr(b"user.surely.not"), Err(Error::NoXattr { .. })));
    assert!(matches!(fs.node(ondisk::ObjNum(1)), Err(Error::NoFile { .. })));
    assert!(matches!(fs.node(ondisk::ObjNum(u64::MAX / 4096)), Err(Error::NoFile { .. })));
    assert!(matches!(fs.resolve(b"/no/such"), Err(Error::NoEntry { .. })));
    assert!(!link.readlink().unwrap().is_empty());
    assert_eq!(fs.object_path(fs.root()).unwrap(), b"/");
    assert_eq!(fs.resolve(b"//.//..///").unwrap().object(), fs.root());
    assert!(fs.unlinked().unwrap().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    /// Goal: mutated attributes of real files are refused or read without a panic.
    #[test]
    fn mutated_bonuses(pick in any::<prop::sample::Index>(), muts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
        static REAL: std::sync::LazyLock<Vec<(dmu::sa::Sa, Vec<u8>)>> = std::sync::LazyLock::new(|| {
            let pool = pool("single-lz4");
            ["single-lz4/xa-sa", "single-lz4/acl-sa", "single-lz4/dn-16k"]
                .iter()
                .flat_map(|n| {
                    let fs = &pool[*n];
                    all_nodes(fs).into_iter().map(|f| (fs.sa().clone(), f.dnode().bonus().to_vec())).collect::<Vec<_>>()
                })
                .collect()
        });
        let (sa, bonus) = &REAL[pick.index(REAL.len())];
        let mut b = bonus.clone();
        for (at, v) in muts {
            let i = at.index(b.len());
            b[i] = v;
        }
        if let Ok(all) = sa.registry().locate(&b) {
            for l in all {
                let raw = &b[l.range.clone()];
                let _ = ondisk::nvlist::Nvlist::decode(raw);
                let _ = ondisk::acl::aces(ondisk::acl::AclVersion::Fuid, 40, raw);
                l.swap.to_native(ondisk::ByteOrder::Big, &mut raw.to_vec());
            }
        }
    }
}
