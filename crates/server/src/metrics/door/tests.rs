//! Who is let in.

use super::*;

/// Goal: connections that ask nothing make room for new ones, the oldest first; connections that
/// are answered don't.
#[test]
fn idle_connections_make_room() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut connections = Connections::default();
        let add = |connections: &mut Connections, busy: bool| {
            let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
            connections.0.push_back(Connection { task, busy: Arc::new(AtomicBool::new(busy)) });
        };
        add(&mut connections, true);
        for _ in 1..CONNECTIONS {
            assert!(connections.make_room());
            add(&mut connections, false);
        }
        let ids = |connections: &Connections| -> Vec<_> {
            connections.0.iter().map(|connection| connection.task.id()).collect()
        };
        let before = ids(&connections);
        assert!(connections.make_room());
        assert_eq!(ids(&connections), [&before[..1], &before[2..]].concat(), "the oldest idle one went");
        add(&mut connections, true);
        connections.0.iter().for_each(|connection| connection.busy.store(true, Ordering::Relaxed));
        assert!(!connections.make_room(), "all are answered");
        connections.0[5].task.abort();
        tokio::task::yield_now().await;
        assert!(connections.make_room(), "one has ended");
        assert_eq!(connections.0.len(), CONNECTIONS - 1);
    });
}
