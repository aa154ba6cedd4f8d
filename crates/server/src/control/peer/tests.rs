use crate::control::peer::*;

fn peer(uid: u32) -> Peer {
    Peer { uid, gid: uid, pid: None }
}

/// Goal: root and the owner may do anything. Another user may only read, and only at root's daemon.
#[test]
fn strangers_may_only_look() {
    for method in
        ["pool", "datasets", "import", "export", "mount", "load_key", "scan", "history", "shutdown", "?"]
    {
        assert!(may(peer(0), 1000, method));
        assert!(may(peer(1000), 1000, method));
        assert!(!may(peer(1001), 1000, method));
    }
    assert!(may(peer(1001), 0, "pool"));
    assert!(may(peer(1001), 0, "datasets"));
    for method in
        ["import", "export", "mount", "unmount", "load_key", "unload_key", "scan", "history", "space", "?"]
    {
        assert!(!may(peer(1001), 0, method), "{method}");
    }
}
