//! The output of commands on opened pools, compared byte for byte with OpenZFS's output for the
//! same pools.
//!
//! OpenZFS printed a transcript while the pool was in use, and the image is some txgs newer.
//! [`MASKS`] lists, with reasons, all values that differ for that, or that do not belong to the
//! pool. They are masked on both sides.

use std::rc::Rc;

use crate::common::live::FixtureService;
use crate::common::{in_process, run, same};
use testkit::Fixture;

/// A value that is not compared.
struct Mask {
    /// The transcripts with this value.
    files: &'static [&'static str],
    /// The fixture, or all if empty.
    fixture: &'static str,
    /// The cells.
    cells: Cells,
    /// The reason.
    #[allow(dead_code, reason = "for the reader")]
    why: &'static str,
}

/// Cells of a transcript.
enum Cells {
    /// In a table with tabs: the columns with these numbers, in the selected lines.
    Tabs(Lines, &'static [usize]),
    /// In a padded table: the columns under these headers, in the selected lines.
    Under(Lines, &'static [&'static str]),
    /// The values of properties with these names (`get`).
    Props(&'static [&'static str]),
    /// Everything from this text to the end of its line.
    After(&'static str),
    /// Lines that contain this text.
    Whole(&'static str),
}

/// Lines of a table.
#[derive(Clone, Copy, PartialEq)]
enum Lines {
    All,
    /// Those of the pool's root dataset.
    Root,
    /// Those that contain this text.
    With(&'static str),
}

const LIST: [&str; 2] = ["zpool-list.txt", "zpool-list-p.txt"];

const MASKS: &[Mask] = &[
    Mask {
        files: &["zpool-list.txt"],
        fixture: "",
        cells: Cells::Under(Lines::All, &["ALLOC", "FREE", "CKPOINT", "FRAG", "CAP"]),
        why: "trimming and exporting came after the transcript and wrote some blocks",
    },
    Mask {
        files: &["zpool-list-p.txt"],
        fixture: "",
        cells: Cells::Tabs(Lines::All, &[2, 3, 4, 6, 7]),
        why: "the same",
    },
    Mask {
        files: &["zpool-list-p.txt"],
        fixture: "",
        cells: Cells::Tabs(Lines::With("\t/fx"), &[2, 3, 4, 5, 7, 8]),
        why: "the same; a vdev's line begins with a tab",
    },
    Mask {
        files: &["zpool-list-p.txt"],
        fixture: "",
        cells: Cells::Tabs(Lines::With("-"), &[3, 4, 5, 7, 8]),
        why: "the same",
    },
    Mask {
        files: &LIST,
        fixture: "multi-vdev",
        cells: Cells::Whole("d4.img"),
        why: "the kernel module had seen the size of the device before it was taken offline",
    },
    Mask {
        files: &LIST,
        fixture: "stripe-classes",
        cells: Cells::Whole("loop0p1"),
        why: "how full a cache device is, is not in the pool",
    },
    Mask {
        files: &["zpool-status.txt", "zpool-status-D.txt"],
        fixture: "checkpoint",
        cells: Cells::After("consumes "),
        why: "what the checkpoint pins grew until the export",
    },
    Mask {
        files: &["zpool-status-D.txt"],
        fixture: "",
        cells: Cells::After(", size "),
        why: "logs of dedup tables were flushed until the export",
    },
    Mask {
        files: &["zpool-get.txt"],
        fixture: "",
        cells: Cells::Props(&["free", "allocated", "fragmentation", "capacity", "checkpoint"]),
        why: "trimming and exporting came after the transcript and wrote some blocks",
    },
    Mask {
        files: &["zpool-get.txt"],
        fixture: "",
        cells: Cells::Props(&["readonly", "load_guid"]),
        why: "this import's own",
    },
    Mask {
        files: &["zpool-get.txt"],
        fixture: "",
        cells: Cells::Props(&["dedup_table_size"]),
        why: "logs of dedup tables were flushed until the export",
    },
    Mask {
        files: &["zpool-get-vdevs.txt"],
        fixture: "",
        cells: Cells::Props(&[
            "free",
            "allocated",
            "capacity",
            "null_ops",
            "read_ops",
            "write_ops",
            "free_ops",
            "claim_ops",
            "trim_ops",
            "null_bytes",
            "read_bytes",
            "write_bytes",
            "free_bytes",
            "claim_bytes",
            "trim_bytes",
        ]),
        why: "counted since the import; and as above",
    },
    Mask {
        files: &["zpool-get-vdevs.txt"],
        fixture: "",
        cells: Cells::Whole("cannot get vdev propert"),
        why: "OpenZFS fails on spares and cache devices, and says so on standard error",
    },
    Mask {
        files: &["zpool-get-vdevs.txt"],
        fixture: "draid1",
        cells: Cells::Whole("draid1:2d:5c:1s-0"),
        why: "OpenZFS doesn't find a draid vdev by its name",
    },
    Mask {
        files: &["zpool-get-vdevs.txt"],
        fixture: "multi-vdev",
        cells: Cells::Whole("d4.img\tasize"),
        why: "as in the list",
    },
    Mask {
        files: &["zpool-get-vdevs.txt"],
        fixture: "multi-vdev",
        cells: Cells::Whole("d4.img\tpsize"),
        why: "as in the list",
    },
    Mask {
        files: &["zpool-get-vdevs.txt"],
        fixture: "multi-vdev",
        cells: Cells::Whole("d4.img\ttrim_support"),
        why: "as in the list: the kernel module had seen that the device can be trimmed before it was taken offline",
    },
    Mask {
        files: &["zpool-status-D.txt"],
        fixture: "multi-vdev",
        cells: Cells::After("d4.img  OFFLINE"),
        why: "the same",
    },
    Mask {
        files: &["zfs-list.txt"],
        fixture: "",
        cells: Cells::Tabs(Lines::All, &[3]),
        why: "the pool's metadata grew until the export, and what is available shrank",
    },
    Mask {
        files: &["zfs-list.txt"],
        fixture: "",
        cells: Cells::Tabs(Lines::Root, &[2, 5, 7]),
        why: "the root's figures include the pool's metadata",
    },
    Mask {
        files: &["zfs-list-space.txt"],
        fixture: "",
        cells: Cells::Under(Lines::All, &["AVAIL"]),
        why: "as above",
    },
    Mask {
        files: &["zfs-list-space.txt"],
        fixture: "",
        cells: Cells::Under(Lines::Root, &["USED", "USEDCHILD"]),
        why: "as above",
    },
    Mask { files: &["zfs-get.txt"], fixture: "", cells: Cells::Props(&["available"]), why: "as above" },
    Mask {
        files: &["zfs-get.txt"],
        fixture: "",
        cells: Cells::Tabs(Lines::Root, &[2]),
        why: "as above: the root's used, usedbychildren, logicalused, compressratio; its other values are its children's too",
    },
    Mask {
        files: &["zfs-get.txt"],
        fixture: "",
        cells: Cells::Whole("\tsnapshots_changed\t"),
        why: "pools without extensible datasets keep it in memory only",
    },
    Mask {
        files: &["zfs-get.txt"],
        fixture: "send-partial",
        cells: Cells::Props(&["receive_resume_token"]),
        why: "it holds how far the stream came, which the export still moved",
    },
];

/// The text without the masked values.
fn masked(f: &Fixture, file: &str, text: &str) -> String {
    let rules: Vec<&Mask> = MASKS
        .iter()
        .filter(|m| m.files.contains(&file) && (m.fixture.is_empty() || m.fixture == f.name()))
        .collect();
    let header = text.lines().next().unwrap_or_default();
    let mut out = String::new();
    'lines: for line in text.lines() {
        let mut line = line.to_owned();
        for m in &rules {
            match &m.cells {
                Cells::Whole(part) if line.contains(part) => continue 'lines,
                Cells::Whole(_) => {}
                Cells::After(part) => {
                    if let Some(at) = line.find(part) {
                        line.truncate(at + part.len());
                    }
                }
                Cells::Props(names) => {
                    let mut fields: Vec<&str> = line.split('\t').collect();
                    if fields.len() > 2 && names.contains(&fields[1]) {
                        fields[2] = "~";
                    }
                    line = fields.join("\t");
                }
                Cells::Tabs(lines, columns) => {
                    if fits(*lines, f, &line) {
                        let mut fields: Vec<&str> = line.split('\t').collect();
                        for (i, field) in fields.iter_mut().enumerate() {
                            if columns.contains(&i) {
                                *field = "~";
                            }
                        }
                        line = fields.join("\t");
                    }
                }
                Cells::Under(lines, titles) => {
                    if fits(*lines, f, &line) && line != header {
                        titles.iter().for_each(|t| blank(&mut line, header, t));
                    }
                }
            }
        }
        out += &line;
        out.push('\n');
    }
    out
}

fn fits(lines: Lines, f: &Fixture, line: &str) -> bool {
    match lines {
        Lines::All => true,
        Lines::With(part) => {
            line.trim_start().contains(part) && line.starts_with('\t') || line.starts_with(part)
        }
        Lines::Root => line.split(['\t', ' ']).next() == Some(f.pool()),
    }
}

/// Blanks the word that ends where a right-aligned header does.
fn blank(line: &mut String, header: &str, title: &str) {
    let Some(at) = format!("{header} ").find(&format!(" {title} ")).map(|at| at + 1) else { return };
    let end = (at + title.len()).min(line.len());
    let start = line[..end].rfind(' ').map_or(0, |at| at + 1);
    line.replace_range(start..end, &" ".repeat(end - start));
}

/// Runs a command on every fixture and compares its output. `but` are the beginnings of fixture
/// names to skip.
fn compare(file: &str, line: &str, but: &[&str]) {
    let mut seen = 0;
    for f in testkit::names().into_iter().filter_map(|n| testkit::find(&n)) {
        if f.base().is_some() || but.iter().any(|b| f.name().starts_with(b)) {
            continue;
        }
        let Some(want) = f.output(file) else { continue };
        let line = line.replace("POOL", f.pool());
        let ran = run(&line, in_process(Rc::new(FixtureService::of(&f))));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}: {line}", f.name());
        same(&format!("{}: {line}", f.name()), &masked(&f, file, &ran.out), &masked(&f, file, &want));
        seen += 1;
    }
    assert!(seen > 5, "only {seen} transcripts");
}

/// Goal: `zpool status` shows health, scans, removals, expansions, checkpoints and the tree.
#[test]
fn zpool_status() {
    compare("zpool-status.txt", "zpool status POOL", &[]);
}

/// Goal: the same with dedup tables, whole paths and TRIM states.
#[test]
fn zpool_status_dedup() {
    compare("zpool-status-D.txt", "zpool status -DPt POOL", &[]);
}

/// Goal: `zpool list` shows rounded sizes of pools and vdevs.
#[test]
fn zpool_list() {
    compare("zpool-list.txt", "zpool list -v POOL", &[]);
}

/// Goal: the same with exact sizes.
#[test]
fn zpool_list_exact() {
    compare("zpool-list-p.txt", "zpool list -Hpv POOL", &[]);
}

/// Goal: `zpool get` shows every property and feature of a pool. The log fixtures changed after
/// their transcripts.
#[test]
fn zpool_get() {
    compare("zpool-get.txt", "zpool get -Hp all POOL", &["zil-"]);
}

/// Goal: `zpool get` shows every property of every vdev.
#[test]
fn zpool_get_vdevs() {
    compare("zpool-get-vdevs.txt", "zpool get -Hp all POOL all-vdevs", &[]);
}

/// Goal: `zfs list` shows exact names, sizes and ids of datasets. The pools of the log fixtures
/// were listed before their crash.
#[test]
fn zfs_list() {
    let columns =
        "name,type,used,avail,refer,lused,lrefer,compressratio,guid,createtxg,creation,origin,objsetid";
    compare("zfs-list.txt", &format!("zfs list -Hp -r -t all -o {columns} POOL"), &["zil-"]);
}

/// Goal: `zfs list` shows the rounded space of datasets.
#[test]
fn zfs_list_space() {
    compare("zfs-list-space.txt", "zfs list -r -t all -o space POOL", &["zil-"]);
}

/// Goal: `zfs get` shows every property of every dataset, snapshot and bookmark, with its source.
#[test]
fn zfs_get() {
    compare("zfs-get.txt", "zfs get -Hp -r -t all all POOL", &["zil-"]);
}

/// Goal: `zpool history` shows the history with internal records and arguments of ioctls, up to the
/// time of the transcript.
#[test]
fn zpool_history() {
    for f in testkit::names().into_iter().filter_map(|n| testkit::find(&n)).filter(|f| f.base().is_none()) {
        let Some(want) = f.output("zpool-history.txt") else { continue };
        let ran =
            run(&format!("zpool history -il {}", f.pool()), in_process(Rc::new(FixtureService::of(&f))));
        if ran.code != 0 {
            assert_eq!(format!("{}{}", ran.err, ran.out), want, "{}", f.name());
            continue;
        }
        // The blank line at the end of a history comes after later records.
        let want = want.strip_suffix('\n').unwrap_or(&want);
        let upto: String = ran.out.split_inclusive('\n').take(want.lines().count()).collect();
        same(f.name(), &upto, want);
    }
}

/// Goal: `zfs userspace` shows the use and quotas of users, groups and projects.
#[test]
fn zfs_userspace() {
    for f in testkit::names().into_iter().filter_map(|n| testkit::find(&n)).filter(|f| f.base().is_none()) {
        let Some(want) = f.output("zfs-userspace.txt").filter(|_| !f.name().starts_with("zil-")) else {
            continue;
        };
        let (live, mut got) = (in_process(Rc::new(FixtureService::of(&f))), String::new());
        let mut last = (String::new(), String::new());
        for line in want.lines() {
            let mut fields = line.split('\t').map(str::to_owned);
            let pair = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
            if pair == last {
                continue;
            }
            let flags = if pair.1 == "projectspace" { "-Hp" } else { "-Hpn" };
            let ran = run(&format!("zfs {} {flags} {}", pair.1, pair.0), live.clone());
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", pair.0);
            got += &ran.out.lines().map(|l| format!("{}\t{}\t{l}\n", pair.0, pair.1)).collect::<String>();
            last = pair;
        }
        same(f.name(), &got, &want);
    }
}

/// Goal: `zfs holds` shows holds with their times.
#[test]
fn zfs_holds() {
    let f = testkit::load("single-lz4");
    let ran = run(
        "zfs holds -H single-lz4/snaps@two single-lz4/snaps@three",
        in_process(Rc::new(FixtureService::of(&f))),
    );
    same(f.name(), &ran.out, &f.output("zfs-holds.txt").expect("a transcript"));
}
