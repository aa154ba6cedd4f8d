//! Who may do what.

use afs::calls::fileserver::{Call, Reply, lock};
use afs::errors::errno;
use afs::types::{Fid, PrincipalId, StoreStatus};

use super::{ALICE, BOB, Client, FRIENDS, Rig, VOLUME, denied, name, root, unified};

/// A directory with this access list.
fn directory(rig: &Rig, text: &str, acl: &str) -> Fid {
    let admin = rig.client(Some("admin"));
    let fid = admin.make_dir(root(VOLUME), text).unwrap().fid;
    admin.set_acl(fid, acl).unwrap();
    fid
}

fn file_of(rig: &Rig, directory: Fid, text: &str) -> Fid {
    rig.client(Some("admin")).create(directory, text).unwrap().fid
}

fn remove(client: &Client, directory: Fid, text: &str) -> Result<(), i32> {
    client.remove(directory, text)
}

/// Goal: each right allows its calls and no others.
#[test]
fn rights() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let alice = rig.client(Some("alice"));
    let with = |text: &str, bits: u32| directory(&rig, text, &format!("2\n0\nadmins\t127\nalice\t{bits}\n"));
    let (r, w, i, l, d, k) =
        (with("r", 1), with("w", 2), with("i", 4), with("l", 8), with("d", 16), with("k", 32));
    // Looking: the status of a directory is for anyone, its pages need `l`.
    for dir in [r, w, i, l, d, k] {
        alice.status(dir).unwrap();
        let may = dir == l;
        assert_eq!(alice.fetch(dir, 0, 9999).is_ok(), may, "{dir}");
    }
    for dir in [r, w, i, l, d, k] {
        let file = file_of(&rig, dir, "f");
        assert_eq!(alice.fetch(file, 0, 10).is_ok(), dir == r, "read {dir}");
        assert_eq!(alice.status(file).is_ok(), dir == r, "status {dir}");
        assert_eq!(alice.store(file, 0, b"x", 1).is_ok(), dir == w, "write {dir}");
        let set = StoreStatus { mode: Some(0o600), ..StoreStatus::default() };
        let stored = alice.call(Call::StoreStatus { fid: file, status: set.clone() });
        assert_eq!(stored.is_ok(), dir == w, "chmod {dir}");
        let stored = alice.call(Call::StoreStatus { fid: dir, status: set });
        assert_eq!(stored.is_ok(), dir == i || dir == d, "chmod of the directory {dir}");
        let locked = alice.call(Call::SetLock { fid: file, kind: lock::READ });
        assert_eq!(locked.is_ok(), dir == k || dir == w, "read lock {dir}");
        assert_eq!(alice.create(dir, "new").is_ok(), dir == i, "create {dir}");
        assert_eq!(alice.make_dir(dir, "newdir").is_ok(), dir == i, "mkdir {dir}");
        let link = alice.call(Call::Link { directory: dir, name: name("hard"), existing: file });
        assert_eq!(link.is_ok(), dir == i, "link {dir}");
        assert_eq!(remove(&alice, dir, "f").is_ok(), dir == d, "remove {dir}");
        assert_eq!(alice.set_acl(dir, "1\n0\nalice\t127\n"), denied(), "set the list of {dir}");
    }
    let rename = |from, to| {
        let (old_name, new_name) = (name("f"), name("g"));
        alice.call(Call::Rename { old_directory: from, old_name, new_directory: to, new_name }).map(drop)
    };
    file_of(&rig, d, "f");
    assert_eq!(rename(d, l), denied());
    assert_eq!(rename(i, i), denied());
    rename(d, i).unwrap();
    // Replacing needs `d` there too.
    file_of(&rig, d, "f");
    assert_eq!(rename(d, i), denied());
}

/// Goal: groups give rights, negative entries take them, and anonymous callers have none of them.
#[test]
fn groups_and_negative_entries() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let acl = format!("2\n1\n{}\t9\nsystem:anyuser\t8\nbob\t8\n", "alice");
    let dir = directory(&rig, "d", &acl);
    let (alice, bob, anonymous) = (rig.client(Some("alice")), rig.client(Some("bob")), rig.client(None));
    let access = |client: &Client| client.status(dir).unwrap().status.caller_access.0;
    assert_eq!((access(&alice), access(&bob), access(&anonymous)), (9, 0, 8));
    assert_eq!(bob.fetch(dir, 0, 99).err(), Some(unified(errno::EACCES)));
    assert_eq!(alice.status(dir).unwrap().status.anonymous_access.0, 8);
    let Reply::FetchAcl(reply) = alice.call(Call::FetchAcl { fid: dir }).unwrap() else { panic!() };
    assert_eq!(reply.acl.as_bytes(), b"2\n1\nsystem:anyuser\t8\nalice\t9\nbob\t8\n\0");
    assert_eq!(bob.call(Call::FetchAcl { fid: dir }).err(), Some(unified(errno::EACCES)));
    let admin = rig.client(Some("admin"));
    assert_eq!(admin.set_acl(dir, "1\n0\nwhoever\t9\n").err(), Some(unified(errno::EINVAL)));
    assert!(access(&admin) & (8 | 64) == 8 | 64);
    assert_ne!(FRIENDS, PrincipalId::ANYUSER);
}

/// Goal: the creator owns a file and fills it with the right to insert alone. Only administrators
/// give files away or set privileges.
#[test]
fn owners() {
    let rig = Rig::new();
    rig.volume(VOLUME, "v");
    let dir = directory(&rig, "drop", "2\n0\nalice\t12\nbob\t14\n");
    let (alice, bob) = (rig.client(Some("alice")), rig.client(Some("bob")));
    let made = alice.create(dir, "f").unwrap();
    assert_eq!((made.status.owner, made.status.author), (ALICE, ALICE));
    assert!(made.status.caller_access.0 & 64 != 0);
    let reply = alice.store(made.fid, 0, b"mine", 4).unwrap();
    assert!(reply.status.caller_access.0 & 64 != 0);
    assert_eq!(alice.fetch(made.fid, 0, 4).unwrap().0, b"mine");
    assert_eq!(bob.status(made.fid).err(), Some(unified(errno::EACCES)));
    let set = |client: &Client, status| client.call(Call::StoreStatus { fid: made.fid, status }).map(drop);
    let owner = StoreStatus { owner: Some(BOB), ..StoreStatus::default() };
    assert_eq!(set(&alice, owner.clone()), Err(unified(errno::EPERM)));
    let mode = StoreStatus { mode: Some(0o4755), ..StoreStatus::default() };
    assert_eq!(set(&bob, mode), denied());
    // Privileges don't come with a new file or a store either.
    let status = StoreStatus { mode: Some(0o6755), ..StoreStatus::default() };
    let call = Call::CreateFile { directory: dir, name: name("set-id"), status: status.clone() };
    let Reply::CreateFile(reply) = alice.call(call).unwrap() else { panic!() };
    assert_eq!(reply.status.mode, 0o755);
    let flush = Call::FlushCps { users: Default::default(), addresses: Default::default(), spare: 0 };
    assert_eq!(alice.call(flush).err(), Some(unified(errno::EPERM)));
    let admin = rig.client(Some("admin"));
    admin.call(Call::StoreStatus { fid: reply.fid, status }).unwrap();
    assert_eq!(admin.status(reply.fid).unwrap().status.mode, 0o6755);
    assert_eq!(alice.store(reply.fid, 0, b"x", 1).unwrap().status.mode, 0o755);
    set(&admin, owner).unwrap();
    assert_eq!(admin.status(made.fid).unwrap().status.owner, BOB);
    // A mount point needs the right to administer.
    let target = afs::calls::fileserver::Path::new("#v.").unwrap();
    let status = StoreStatus { mode: Some(0o644), ..StoreStatus::default() };
    let call = Call::Symlink { directory: dir, name: name("m"), target, status };
    assert_eq!(alice.call(call.clone()).err(), Some(unified(errno::EACCES)));
    admin.set_acl(dir, "1\n0\nalice\t76\n").unwrap();
    alice.call(call).unwrap();
}
