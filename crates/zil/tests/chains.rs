//! Logs that OpenZFS left unreplayed, compared with the output of `zdb -iiii`.
#![allow(clippy::unwrap_used)]

#[path = "../../pool/tests/it/common/mod.rs"]
mod common;

use dsl::{Dsl, ListOptions, Options};
use ondisk::zil::{RecordBody, TxKind};
use std::collections::BTreeMap;
use zil::{Claim, End, Log};

fn open(f: &testkit::Fixture) -> (Dsl, u64) {
    let o = common::open(f.images());
    let options = Options { pool_name: f.pool().to_owned(), ..Options::default() };
    let dsl = Dsl::open(o.mos, options).unwrap();
    o.cache.zio().set_keys(dsl.keys().clone());
    (dsl, o.txg)
}

/// The lines that `zdb -iiii` prints for a chain: blocks, records, and the contents of most
/// records.
fn lines(log: &Log, show_bodies: bool) -> Vec<String> {
    let mut out = Vec::new();
    for block in log.blocks() {
        let block = block.unwrap();
        let claim = match block.claim {
            Claim::Already => "already claimed",
            Claim::Will => "will claim",
            Claim::Wont => "won't claim",
        };
        out.push(format!("Block seqno {}, {claim}", block.seq));
        for r in block.records.into_iter().flatten() {
            let h = r.header;
            let ci = if h.ci { "CI-" } else { "" };
            let name = h.kind.name();
            out.push(format!("{ci}{name:19} len {:6}, txg {}, seq {}", h.reclen, h.txg, h.seq));
            if !show_bodies {
                out.push("(encrypted)".to_owned());
            } else if let Some(body) = r.body {
                out.extend(said(h.kind, &body));
            }
        }
    }
    out
}

/// The lines that `zdb` prints for a record, without times and block pointers.
fn said(kind: TxKind, body: &RecordBody) -> Vec<String> {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    match body {
        RecordBody::Create(c) => {
            let mut out = Vec::new();
            match &c.link {
                Some(link) => out.push(format!("{} -> {}", text(&c.name), text(link))),
                None if kind != TxKind::Mkxattr && c.acl.is_none() => out.push(text(&c.name)),
                None => {}
            }
            if c.acl.is_none() {
                let (o, s) = (c.foid.object, c.foid.slots);
                out.push(format!("doid {}, foid {o}, slots {s}, mode {:o}", c.doid, c.mode));
                out.push(format!("uid {}, gid {}, gen {}, rdev 0x{:x}", c.uid, c.gid, c.gen_, c.rdev));
            }
            out
        }
        RecordBody::Remove { doid, name } => vec![format!("doid {doid}, name {}", text(name))],
        RecordBody::Link { doid, link_obj, name } => {
            vec![format!("doid {doid}, link_obj {link_obj}, name {}", text(name))]
        }
        // zdb looks for the names of a whiteout's record where a plain rename has them.
        RecordBody::Rename(r) if r.whiteout.is_some() => {
            vec![format!("sdoid {}, tdoid {}", r.sdoid, r.tdoid)]
        }
        RecordBody::Rename(r) => vec![
            format!("sdoid {}, tdoid {}", r.sdoid, r.tdoid),
            format!("src {} tgt {}", text(&r.source), text(&r.target)),
        ],
        RecordBody::Write(w) => {
            vec![format!("foid {}, offset {:x}, length {:x}", w.foid, w.offset, w.length)]
        }
        RecordBody::Truncate { foid, offset, length } => {
            vec![format!("foid {foid}, offset 0x{offset:x}, length 0x{length:x}")]
        }
        RecordBody::Setattr(a) => vec![format!("foid {}, mask 0x{:x}", a.foid, a.mask)],
        RecordBody::SetSaXattr { foid, name, .. } => {
            vec![format!("foid {foid}"), format!("XAT_NAME  {}", text(name))]
        }
        _ => Vec::new(),
    }
}

/// Goal: every log has the blocks and records that zdb lists, in the same order, with the same
/// claims and contents.
#[test]
fn chains_agree_with_zdb() {
    let mut records = 0;
    for name in ["zil-freeze", "zil-slog", "zil-crash"] {
        let Some(f) = testkit::find(name) else { continue };
        let (dsl, txg) = open(&f);
        // zdb ends no line after a value of an extended attribute.
        let text = f.output("zdb-zil.txt").unwrap();
        let text = text.replace("\tBlock seqno", "\n\tBlock seqno").replace("\t\tTX_", "\n\t\tTX_");
        let mut want: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut at = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("Dataset ") {
                at = rest.split(' ').next().unwrap();
            } else if !line.trim().is_empty() {
                want.entry(at).or_default().push(line.trim());
            }
        }
        for d in dsl.list_sorted(None, &ListOptions::default()).unwrap().whole().unwrap() {
            let Some(os) = d.objset().unwrap() else { continue };
            let Some(log) = Log::open(&os, txg, 0).unwrap() else { continue };
            let d_name = d.name();
            let want = &want[d_name.as_str()];
            let encrypted = d.dir().crypto_object().unwrap().is_some();
            let got = lines(&log, !encrypted);
            let mut rest = want.iter();
            for line in &got {
                // The lines between them are those that `said` omits: times, block pointers,
                // values.
                assert!(rest.any(|w| *w == line.as_str()), "{d_name}: zdb does not say {line:?} there");
            }
            let count = |lines: &[String], what: &str| lines.iter().filter(|l| l.contains(what)).count();
            let said: Vec<String> = want.iter().map(|s| (*s).to_owned()).collect();
            for what in ["Block seqno", ", txg "] {
                assert_eq!(count(&got, what), count(&said, what), "{d_name}: {what}");
            }
            records += count(&got, ", txg ");
        }
    }
    assert!(records > 100, "only {records} records");
}

/// Goal: a loaded key opens an encrypted log; the record bodies name the created file.
#[test]
fn encrypted_chain_opens_with_its_key() {
    let Some(f) = testkit::find("zil-freeze") else { return };
    let (dsl, txg) = open(&f);
    let enc = dsl.dataset("zil-freeze/enc").unwrap();
    let os = enc.objset().unwrap().unwrap();
    let log = Log::open(&os, txg, 0).unwrap().unwrap();
    let all = |log: &Log| -> Vec<zil::LogRecord> {
        log.blocks().flat_map(|b| b.unwrap().records.unwrap_or_default()).collect()
    };
    let locked = all(&log);
    assert!(!locked.is_empty() && locked.iter().all(|r| r.body.is_none()));
    dsl.keys().load(enc.dir(), b"correct horse", false).unwrap();
    let open = all(&log);
    assert_eq!(locked.len(), open.len());
    let names: Vec<String> = open
        .iter()
        .filter_map(|r| match &r.body {
            Some(RecordBody::Create(c)) => Some(String::from_utf8(c.name.clone()).unwrap()),
            _ => None,
        })
        .collect();
    assert!(names.iter().any(|n| n == "new-small"), "{names:?}");
}

/// Goal: a chain ends at a block that was allocated and never written.
#[test]
fn chains_end_at_the_unwritten() {
    let Some(f) = testkit::find("zil-crash") else { return };
    let (dsl, txg) = open(&f);
    let os = dsl.dataset("zil-crash/std").unwrap().objset().unwrap().unwrap();
    let log = Log::open(&os, txg, 0).unwrap().unwrap();
    let mut blocks = log.blocks();
    for b in blocks.by_ref() {
        b.unwrap();
    }
    assert!(matches!(blocks.end(), Some(End::Unwritten(_))), "{:?}", blocks.end());
}
