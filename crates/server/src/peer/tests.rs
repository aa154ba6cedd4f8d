use super::*;

fn peer(uid: u32) -> Peer {
    Peer { uid, gid: uid, pid: None }
}

/// Root and the owner may do anything, a stranger may only look, and that at root's pools alone.
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

/// Who asks is known while the answer is made, and no longer, also where that ends badly.
#[test]
fn askers() {
    assert_eq!(asker(), Peer::own());
    let budget = &Budget::of_owner();
    assert_eq!(asking(peer(7), budget, || asking(peer(8), budget, asker)), peer(8));
    assert_eq!(asking(peer(7), budget, asker), peer(7));
    let dies = std::panic::AssertUnwindSafe(|| asking(peer(7), budget, || panic!("an answer that dies")));
    let died = std::panic::catch_unwind(dies);
    assert!(died.is_err());
    assert_eq!(asker(), Peer::own());
}
