use super::*;

/// Root and the owner may do anything, a stranger may only look.
#[test]
fn strangers_may_only_look() {
    for method in
        ["pool", "datasets", "import", "export", "mount", "load_key", "scan", "history", "shutdown", "?"]
    {
        assert!(may(Peer { uid: 0 }, 1000, method));
        assert!(may(Peer { uid: 1000 }, 1000, method));
    }
    assert!(may(Peer { uid: 1001 }, 0, "pool"));
    assert!(may(Peer { uid: 1001 }, 0, "datasets"));
    for method in
        ["import", "export", "mount", "unmount", "load_key", "unload_key", "scan", "history", "space", "?"]
    {
        assert!(!may(Peer { uid: 1001 }, 0, method), "{method}");
    }
}
