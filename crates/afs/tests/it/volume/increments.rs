//! Dumps of what changed, against full dumps.

use super::in_place::{THEN, change, rig};
use super::*;
use dsl::ops::snapshot::Snapshot;

/// The vnodes of a dump in its order.
fn sequence(bytes: &[u8]) -> Vec<Made> {
    let (mut all, mut reader) = (Vec::<Made>::new(), Reader::new(bytes));
    loop {
        match reader.next_event().unwrap() {
            Event::Vnode(record) => all.push((*record, Vec::new())),
            Event::Data(data) => all.last_mut().unwrap().1.extend_from_slice(data),
            Event::End => return all,
            Event::Header(_) | Event::Volume(_) => {}
        }
    }
}

/// The increment that a full dump has in it.
fn expected(full: &[Made], own: &VolumeHeader, scope: DumpScope) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    let spans = vec![Span { from: scope.since, to: own.update_date }];
    writer.header(&Header { volume: own.id, name: own.name.clone(), spans }).unwrap();
    writer.volume(own).unwrap();
    for (record, data) in full {
        let attributes = record.attributes.as_ref().unwrap();
        let all = record.vnode.is_directory() && !scope.omit_unchanged_directories;
        let is_whole = all || attributes.server_modify_time >= scope.since;
        let named = VnodeRecord { attributes: None, ..record.clone() };
        writer.vnode(if is_whole { record } else { &named }).unwrap();
        writer.data(if is_whole { data } else { &[] }).unwrap();
    }
    writer.end().unwrap()
}

/// All increments of a volume, each of which is what its full dump says.
fn increments(fs: &FileSystem, own: &VolumeHeader) -> Vec<Vec<u8>> {
    let full = sequence(&dump(fs, own, DumpScope::FULL, Vec::new()).unwrap());
    assert!(full.is_sorted_by_key(|(record, _)| (!record.vnode.is_directory(), record.vnode)));
    let times = full.iter().map(|(record, _)| record.attributes.as_ref().unwrap().server_modify_time.0);
    // All times of changes, and some of the restored files.
    let times = times.filter(|time| *time >= THEN as u32 || time % 50 < 2);
    let mut times: Vec<u32> = times.flat_map(|time| [time, time + 1]).collect();
    times.sort_unstable();
    times.dedup();
    let mut all = Vec::new();
    for since in times.into_iter().map(Date) {
        for omit_unchanged_directories in [false, true] {
            let scope = DumpScope { since, omit_unchanged_directories, version_base: 0 };
            let made = dump(fs, own, scope, Vec::new()).unwrap();
            assert!(made == expected(&full, own, scope), "{scope:?}");
            assert_eq!(dump_size(fs, own, scope).unwrap(), made.len() as u64);
            all.push(made);
        }
    }
    all
}

/// Goal: an increment since any time has all vnodes, those of directories first. What changed is
/// as in the full dump, byte for byte, and the others are named alone. That is the same before the
/// changes are on disk, afterwards, and in a snapshot.
#[test]
fn increments_since_any_time() {
    let rig = rig();
    rig.restore(&write(&small())).unwrap();
    change(&rig.fs);
    // A removed file that is still in use is no vnode.
    let removed = rig.fs.unlink(object(Vnode(3)), b"file250").unwrap().unwrap();
    let own = header(&rig.fs).unwrap().unwrap();
    let all = increments(&rig.fs, &own);
    assert!(all.len() > 60);
    let removed = vnode(removed).unwrap();
    assert!(all.iter().all(|made| sequence(made).iter().all(|(record, _)| record.vnode != removed)));
    rig.fs.sync().unwrap();
    assert!(increments(&rig.fs, &own) == all, "a txg changes the dumps");
    let live = rig.spa.writer().unwrap();
    live.run(Box::new(Snapshot { names: vec!["tank/536870915@1".to_owned()], ..Snapshot::default() }))
        .unwrap();
    let os = live.dsl().dataset("tank/536870915@1").unwrap().objset().unwrap().unwrap();
    assert!(increments(&FileSystem::open(&os).unwrap(), &own) == all, "the snapshot has other dumps");
    drop(os);
    rig.end();
}
