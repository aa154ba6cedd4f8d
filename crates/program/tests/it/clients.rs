//! `poolhouse top -v clients` and `-v vms` say exactly what each client did.
//!
//! Tests that need a mount print a message and do nothing without one.

use crate::client::Client;
use crate::observed::{OF_WORK, Stand, WORKED, work};
use nbd::abi::cmd;
use serde_json::Value;
use std::fs;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

/// Numbers of a row, by their columns.
fn numbers<const N: usize>(row: &Value, columns: [&str; N]) -> [u64; N] {
    columns.map(|column| row[column].as_u64().unwrap_or_else(|| panic!("{column} of {row}")))
}

/// The rows of a process of this kind.
fn of_process(s: &Stand, kind: &str, pid: u32) -> Vec<Value> {
    let rows = s.rows("clients", "kind", kind);
    rows.into_iter().filter(|row| row["pid"].as_u64() == Some(pid.into())).collect()
}

fn own_name() -> String {
    fs::read_to_string("/proc/self/comm").expect("a name").trim_end().to_owned()
}

/// Goal: what a process did through mounts counts for it alone, whichever of its threads did it,
/// and whether the mount is nested or not. Its name and control group stay known when it has ended.
#[test]
fn known_processes() {
    for words in [&[][..], &["--nest"]] {
        let Some(s) = Stand::new(words) else { return };
        s.daemon.good("zfs create tank/a");
        let before = of_process(&s, "fuse", std::process::id());
        assert!(before.iter().all(|row| numbers(row, ["writes", "errors"]) == [0, 0]), "{before:?}");
        work(&s.at("mnt/a"));
        let made = ["1", "2", "3"].map(|name| s.at(&format!("mnt/a/{name}")));
        let mut mkdir = Command::new("mkdir").args(&made).spawn().expect("it starts");
        let other = mkdir.id();
        assert!(mkdir.wait().expect("it runs").success());
        let rows = of_process(&s, "fuse", std::process::id());
        let [row] = &rows[..] else { panic!("one row: {rows:?}") };
        let columns = ["writes", "fsyncs", "bytes_written", "errors", "reads"];
        assert_eq!(numbers(row, columns), WORKED, "{words:?} {row} {OF_WORK:?}");
        assert_eq!(numbers(row, ["mkfile", "mkdir", "rmdir", "rmfile", "rename"]), [1, 2, 58, 0, 0]);
        let uid = rustix::process::getuid().as_raw();
        let name = format!("{}[{}] u:{uid}", own_name(), std::process::id());
        let text = |key: &str| row[key].as_str().unwrap_or_default();
        assert_eq!((text("client"), text("process")), (&*name, &*own_name()));
        assert_eq!(text("most_errors"), "rmdir ENOTEMPTY");
        let groups = fs::read_to_string("/proc/self/cgroup").expect("groups");
        let cgroup = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
        assert!(text("cgroup") == cgroup || cgroup.is_empty(), "{row}");
        assert!(row["mean_ns"].as_u64().expect("a time") > 0);
        let rows = of_process(&s, "fuse", other);
        let [row] = &rows[..] else { panic!("one row: {rows:?}") };
        assert_eq!(numbers(row, ["mkdir", "writes", "errors", "bytes_read"]), [3, 0, 0, 0]);
        assert_eq!(row["client"].as_str(), Some(&*format!("mkdir[{other}] u:{uid}")));
        let shown = s.daemon.good("top -v clients");
        assert!(shown.contains(&name) && !shown.contains("PROCESS"), "{shown}");
        // The total is that of all datasets.
        let total = |view: &str, keep: &dyn Fn(&Value) -> bool| {
            let rows = s.rows_of(view);
            rows.iter().filter(|row| keep(row)).map(|row| numbers(row, ["ops"])[0]).sum::<u64>()
        };
        let by_clients = total("clients", &|row| row["kind"] == "fuse");
        assert_eq!(by_clients, total("datasets", &|_| true), "{words:?}");
    }
}

/// Goal: each client of a volume has exactly what it sent, by its process or its address, with its
/// volume and connections. `slower` shows the address, too.
#[test]
fn known_clients_of_volumes() {
    let s = Stand::unmounted();
    let socket = s.at("sock");
    s.daemon.good("zfs create -s -V 64m tank/v");
    s.daemon.good("zfs create -s -V 64m tank/w");
    s.daemon.good(&format!("export -l {} tank/v", socket.display()));
    let uri = s.daemon.good("export -l 127.0.0.1:0 tank/w");
    let place = uri.trim().strip_prefix("nbd://").and_then(|rest| rest.split('/').next()).expect("a place");
    let mut near = Client::of(&socket, "tank/v");
    let tcp = TcpStream::connect(place).expect("it listens");
    let mut far = Client::greet(UnixStream::from(OwnedFd::from(tcp)), 3);
    far.go("tank/w").expect("it is there");
    for at in 0..7 {
        near.write(at * 8192, &[3; 8192]);
    }
    for at in 0..4 {
        assert_eq!(near.read(at * 8192, 4096), [3; 4096]);
    }
    near.flush();
    for _ in 0..3 {
        let _ = near.ask(cmd::READ, 0, 1 << 40, 4096, &[]);
    }
    far.write(0, &[5; 512]);
    let rows = of_process(&s, "nbd", std::process::id());
    let [row] = &rows[..] else { panic!("one row: {rows:?}") };
    let columns = ["reads", "writes", "fsyncs", "errors", "bytes_read", "bytes_written", "connections"];
    assert_eq!(numbers(row, columns), [7, 7, 1, 3, 4 * 4096, 7 * 8192, 1]);
    assert_eq!((row["volume"].as_str(), row["most_errors"].as_str()), (Some("tank/v"), Some("read EINVAL")));
    let of_volume = |name: &str| {
        let rows = s.rows("vms", "volume", name);
        let [row] = &rows[..] else { panic!("one row: {rows:?}") };
        row.clone()
    };
    let row = of_volume("tank/v");
    let columns = ["reads", "writes", "bytes_read", "bytes_written", "write_size"];
    assert_eq!(numbers(&row, columns), [7, 7, 4 * 4096, 7 * 8192, 8192]);
    let times = ["write_mean_ns", "write_p99_ns", "write_max_ns"];
    let [mean, p99, max] = numbers(&row, times);
    assert!(0 < mean && mean <= p99 && p99 <= max, "{row}");
    let row = of_volume("tank/w");
    assert_eq!(numbers(&row, ["writes", "bytes_written"]), [1, 512]);
    assert_eq!((row["client"].as_str(), row["reads"].as_u64()), (Some("127.0.0.1"), Some(0)));
    let slow = s.daemon.good("slower -p --last 1m --dataset tank/w 0");
    assert!(slow.lines().nth(1).is_some_and(|line| line.contains("\t127.0.0.1\ttank/w\t")), "{slow}");
    near.bye();
    far.bye();
}

/// Goal: requests on the control socket count for their user, and those that failed as errors.
#[test]
fn users_of_the_socket() {
    let s = Stand::unmounted();
    let uid = rustix::process::getuid().as_raw();
    let own = || {
        let rows = s.rows("clients", "client", &format!("u:{uid}"));
        let [row] = &rows[..] else { panic!("one row: {rows:?}") };
        numbers(row, ["ops", "others", "errors"])
    };
    let [before, _, errors] = own();
    assert!(!s.daemon.ran("zpool scrub none").status.success());
    let [ops, others, failed] = own();
    assert!(ops > before && others == ops && failed > errors, "{before} {ops} {errors} {failed}");
}
