//! Layout, order and number formats of each command, checked with transcripts that are parsed back
//! into data.

use std::rc::Rc;

use crate::common::paper::Paper;
use crate::common::{in_process, run, same};
use api::Requests;

/// Every fixture that has transcripts, as a service.
fn papers() -> Vec<(testkit::Fixture, Rc<dyn Requests>)> {
    let all = testkit::names().into_iter().filter_map(|n| testkit::find(&n));
    all.filter(|f| f.base().is_none() && f.output("zpool-list.txt").is_some())
        .map(|f| {
            let paper = in_process(Rc::new(Paper::of(&f)));
            (f, paper)
        })
        .collect()
}

/// Goal: each layout of `zpool list` shows the pool as OpenZFS prints it.
#[test]
fn zpool_list() {
    for (f, paper) in papers() {
        for (file, line) in [("zpool-list.txt", "zpool list -v"), ("zpool-list-p.txt", "zpool list -Hpv")] {
            let ran = run(&format!("{line} {}", f.pool()), paper.clone());
            assert_eq!((ran.code, ran.err.as_str()), (0, ""));
            // The cache device filled between the two transcripts.
            let steady = |s: &str| -> String {
                s.lines()
                    .filter(|l| !l.contains("loop0p1  ") || f.name() != "stripe-classes")
                    .map(|l| format!("{l}\n"))
                    .collect()
            };
            same(&format!("{}: {line}", f.name()), &steady(&ran.out), &steady(&f.output(file).unwrap()));
        }
    }
}

/// Goal: `zpool get all` lists the properties in OpenZFS's order, features last.
#[test]
fn zpool_get() {
    for (f, paper) in papers() {
        let ran = run(&format!("zpool get -Hp all {}", f.pool()), paper);
        same(f.name(), &ran.out, &f.output("zpool-get.txt").unwrap());
    }
}

/// Goal: the table of `zpool status` has OpenZFS's order and widths.
#[test]
fn zpool_status_table() {
    for (f, paper) in papers() {
        let ran = run(&format!("zpool status {}", f.pool()), paper);
        let table = |s: &str| s[s.find("config:").expect("a table")..].to_owned();
        same(f.name(), &table(&ran.out), &table(&f.output("zpool-status.txt").unwrap()));
    }
}

/// Goal: `zfs get all` skips properties that don't apply and keeps OpenZFS's order, user properties
/// last.
#[test]
fn zfs_get() {
    for (f, paper) in papers() {
        let ran = run(&format!("zfs get -Hp -r -t all all {}", f.pool()), paper);
        same(f.name(), &ran.out, &f.output("zfs-get.txt").unwrap());
    }
}

/// Goal: `zfs list` sorts, aligns and rounds as OpenZFS does, with a dash for values that don't
/// apply.
#[test]
fn zfs_list() {
    for (f, paper) in papers() {
        let columns =
            "name,type,used,avail,refer,lused,lrefer,compressratio,guid,createtxg,creation,origin,objsetid";
        for (file, line) in [
            ("zfs-list-space.txt", "zfs list -r -t all -o space".to_owned()),
            ("zfs-list.txt", format!("zfs list -Hp -r -t all -o {columns}")),
        ] {
            let ran = run(&format!("{line} {}", f.pool()), paper.clone());
            same(&format!("{}: {line}", f.name()), &ran.out, &f.output(file).unwrap());
        }
    }
}

/// Goal: the tables of `zfs userspace` have OpenZFS's order.
#[test]
fn zfs_userspace() {
    for (f, paper) in papers() {
        let mut got = String::new();
        let mut pairs: Vec<(String, &str)> = Vec::new();
        let text = f.output("zfs-userspace.txt").unwrap_or_default();
        for line in text.lines() {
            let mut fields = line.split('\t');
            let pair = (fields.next().unwrap().to_owned(), fields.next().unwrap());
            if pairs.last() != Some(&pair) {
                pairs.push(pair);
            }
        }
        for (dataset, table) in pairs {
            let ran = run(
                &format!("zfs {table} -Hpn {dataset}").replace("projectspace -Hpn", "projectspace -Hp"),
                paper.clone(),
            );
            for line in ran.out.lines() {
                got += &format!("{dataset}\t{table}\t{line}\n");
            }
        }
        same(f.name(), &got, &text);
    }
}

/// Goal: JSON output is valid for jq, with OpenZFS's keys first.
#[test]
fn json() {
    let f = testkit::load("mirror2");
    let paper = in_process(Rc::new(Paper::of(&f)));
    let ran = run("zpool list -j", paper.clone());
    let start = r#"{"output_version":{"command":"zpool list","vers_major":0,"vers_minor":1},"pools":{"xmirror2":{"name":"xmirror2","type":"POOL","state":"ONLINE","#;
    assert!(ran.out.starts_with(start), "{}", ran.out);
    let ran = run("zfs list -j --json-int", paper);
    let start = r#"{"output_version":{"command":"zfs list","vers_major":0,"vers_minor":1},"datasets":{"xmirror2":{"name":"xmirror2","type":"FILESYSTEM","pool":"xmirror2","createtxg":1,"properties":{"used":{"value":"#;
    assert!(ran.out.starts_with(start), "{}", ran.out);
}
