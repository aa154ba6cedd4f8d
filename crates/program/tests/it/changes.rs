//! Command lines that change pools and datasets: those refused before any request to the engine,
//! with OpenZFS's messages and exit codes.

use std::rc::Rc;

use crate::common::paper::Paper;
use crate::common::{Ran, in_process, run};

fn ran(line: &str) -> Ran {
    run(line, in_process(Rc::new(Paper::default())))
}

/// Goal: an invalid line gives an error message and the command's usage on standard error, with
/// exit code 2.
#[test]
fn usage_errors() {
    for (line, message) in [
        ("zpool create", "missing pool name argument\n"),
        ("zpool create tank", "missing vdev specification\n"),
        ("zpool create -Z tank a", "invalid option 'Z'\n"),
        ("zpool create -o", "missing argument for 'o' option\n"),
        ("zpool destroy", "missing pool argument\n"),
        ("zpool destroy a b", "too many arguments\n"),
        ("zpool add", "missing pool name argument\n"),
        ("zpool add tank", "missing vdev specification\n"),
        ("zpool add -o ashift tank a", "missing '=' for -o option\n"),
        (
            "zpool add -f --allow-in-use tank a",
            "'-f' option is not allowed with '--allow-replication-mismatch', '--allow-ashift-mismatch', or '--allow-in-use'\n",
        ),
        ("zpool set", "missing property=value argument\n"),
        ("zpool set a=b", "missing pool name\n"),
        ("zpool set a tank", "missing value in property=value argument\n"),
        ("zpool set a=b c d e", "too many pool names\n"),
        ("zpool reguid -g x tank", "invalid GUID: x\n"),
        ("zpool reguid", "missing pool name\n"),
        ("zpool checkpoint -w tank", "--wait only valid when --discard also specified\n"),
        ("zpool checkpoint", "missing pool argument\n"),
        ("zpool clear", "missing pool name\n"),
        ("zpool clear -n tank", "-n or -X only meaningful with -F\n"),
        ("zpool labelclear", "missing vdev name\n"),
        ("zpool upgrade -V 29 tank", "invalid version '29'\n"),
        ("zpool upgrade -a tank", "-a option should not be used along with a pool name\n"),
        ("zpool upgrade -v tank", "-v option is incompatible with other arguments\n"),
        ("zpool upgrade -V 28", "-V option is incompatible with other arguments\n"),
        ("zfs create", "missing filesystem argument\n"),
        ("zfs create -V 1G", "missing volume argument\n"),
        ("zfs create -V", "missing size argument\n"),
        ("zfs create a b", "too many arguments\n"),
        ("zfs create -s a/b", "'-s' and '-b' can only be used when creating a volume\n"),
        ("zfs create -u -V 1G a/b", "'-u' can only be used when creating a filesystem\n"),
        ("zfs destroy", "missing dataset argument\n"),
        ("zfs destroy a b", "too many arguments\n"),
        ("zfs snapshot", "missing snapshot argument\n"),
        ("zfs clone", "missing source dataset argument\n"),
        ("zfs clone a@b", "missing target dataset argument\n"),
        ("zfs promote", "missing clone filesystem argument\n"),
        ("zfs promote -x", "invalid option 'x'\n"),
        ("zfs rename a", "missing target dataset argument\n"),
        ("zfs rename -p -r a@b c", "-p and -r options are mutually exclusive\n"),
        ("zfs rename -u -p a c", "-u and -p options are mutually exclusive\n"),
        ("zfs rename -r a b", "source dataset for recursive rename must be a snapshot\n"),
        ("zfs rollback", "missing dataset argument\n"),
        ("zfs bookmark a b", "invalid source name 'a': must contain a '@' or '#'\n"),
        ("zfs bookmark a@b c", "invalid bookmark name 'c': must contain a '#'\n"),
        ("zfs hold .t a@b", "tag may not start with '.'\n"),
        ("zfs set", "missing arguments\n"),
        ("zfs set a=b", "missing dataset name(s)\n"),
        ("zfs set tank", "missing property=value argument(s)\n"),
        ("zfs set a=b tank c=d", "invalid argument order\n"),
        ("zfs inherit", "missing property argument\n"),
        ("zfs inherit compression", "missing dataset argument\n"),
        ("zfs inherit nope tank", "invalid property 'nope'\n"),
        ("zfs change-key -i -o keyformat=hex tank", "Properties not allowed for inheriting\n"),
        ("zfs change-key", "Missing dataset argument\n"),
        ("zfs upgrade -V 9 tank", "invalid version 9\n"),
    ] {
        let r = ran(line);
        assert_eq!(r.code, 2, "{line}: {}", r.err);
        assert!(r.err.starts_with(&format!("{message}usage:\n\t")), "{line}: {}", r.err);
        assert_eq!(r.out, "", "{line}");
    }
}

/// Goal: a well-formed line with invalid contents gives an error message without usage text, with
/// exit code 1 and without any request.
#[test]
fn refused_lines() {
    for (line, message) in [
        (
            "zpool create a/b c",
            "cannot create 'a/b': invalid character '/' in pool name\nuse 'zfs create' to create a dataset\n",
        ),
        ("zpool create -o nope=1 tank a", "property 'nope' is not a valid pool or vdev property\n"),
        ("zpool create -O nope=1 tank a", "property 'nope' is not a valid filesystem property\n"),
        ("zpool create -o comment tank a", "missing '=' for -o option\n"),
        ("zpool create -o comment=a -o comment=b tank a", "property 'comment' specified multiple times\n"),
        (
            "zpool create -o version=28 -o feature@lz4_compress=enabled tank a",
            "'feature@' and 'version' properties cannot be specified together\n",
        ),
        (
            "zpool create -o version=28 -o compatibility=x tank a",
            "when 'version' is specified, the 'compatibility' feature may only be set to 'legacy'\n",
        ),
        (
            "zpool create -t a/b tank c",
            "cannot create 'a/b': invalid character '/' in temporary name\nuse 'zfs create' to create a dataset\n",
        ),
        ("zpool create tank /no/such/device", "cannot resolve path '/no/such/device'\n"),
        (
            "zpool create tank nosuchdevice",
            "cannot open 'nosuchdevice': no such device in /dev\nmust be a full path or shorthand device name\n",
        ),
        ("zpool create tank /", "cannot use '/': must be a block device or regular file\n"),
        (
            "zpool create -o ashift=7 tank x",
            "invalid 'ashift=7' property: only values between 9 and 16 are allowed.\n",
        ),
        ("zpool create -o ashift=x tank x", "ashift must be a number.\n"),
        ("zpool create tank mirror", "invalid vdev specification: mirror requires at least 2 devices\n"),
        ("zpool destroy tank", "cannot open 'tank': no such pool\n"),
        ("zpool labelclear /no/such/device", "failed to open /no/such/device: No such file or directory\n"),
        (
            "zpool labelclear nosuchdevice",
            "failed to find device nosuchdevice, try specifying absolute path instead\n",
        ),
        ("zfs create -V x tank/v", "bad volume size 'x': bad numeric value 'x'\n"),
        ("zfs create -b 1Q -V 1G tank/v", "bad volume block size '1Q': invalid numeric suffix 'Q'\n"),
        ("zfs create -o a tank/v", "missing '=' for property=value argument\n"),
        ("zfs create -o a=1 -o a=2 tank/v", "property 'a' specified multiple times\n"),
        ("zfs create tank", "cannot create 'tank': missing dataset name\n"),
        (
            "zfs create tank//a",
            "cannot create 'tank//a': empty component or misplaced '@' or '#' delimiter in name\n",
        ),
        ("zfs inherit used tank", "used property is read-only\n"),
        (
            "zfs inherit quota tank",
            "'quota' property cannot be inherited\nuse 'zfs set quota=none' to clear\nuse 'zfs inherit -S quota' to revert to \
             received value\n",
        ),
        ("zfs destroy tank/a", "cannot open 'tank/a': dataset does not exist\n"),
    ] {
        let r = ran(line);
        assert_eq!((r.code, r.err.as_str()), (1, message), "{line}");
        assert_eq!(r.out, "", "{line}");
    }
    let set = ran("zpool set comment=x tank");
    assert_eq!((set.code, set.err.as_str()), (22, "cannot open 'tank': is not a pool\n"));
}

/// Goal: `-n` shows the layout that the words describe. Mixed redundancy is refused unless it is
/// forced.
#[test]
fn dry_runs() {
    let dir = tempfile::tempdir().expect("a folder");
    let disk = |name: &str, mib: u64| {
        let path = dir.path().join(name);
        std::fs::File::create(&path).expect("a file").set_len(mib << 20).expect("room");
        path.display().to_string()
    };
    let names: Vec<String> = (0..6).map(|n| disk(&format!("d{n}"), 64)).collect();
    let [a, b, c, d, e, f] = &names[..] else { unreachable!("six names") };
    let mnt = dir.path().join("mnt").display().to_string();
    let r = ran(&format!(
        "zpool create -n -m {mnt} tank mirror {a} {b} log {c} special {d} -f cache {e} spare {f}"
    ));
    assert_eq!((r.code, r.err.as_str()), (0, ""));
    let want = format!(
        "would create 'tank' with the following layout:\n\n\ttank\n\t  mirror\n\t    {a}\n\t    {b}\n\tspecial\n\t  {d}\n\tlogs\n\t  {c}\n\
         \tcache\n\t  {e}\n\tspares\n\t  {f}\n"
    );
    assert_eq!(r.out, want);
    let mixed = ran(&format!("zpool create -n -m {mnt} tank {c} mirror {a} {b}"));
    assert_eq!(
        (mixed.code, mixed.err.as_str()),
        (
            1,
            "invalid vdev specification\nuse '-f' to override the following errors:\nmismatched replication level: both file and \
             mirror vdevs are present\n"
        )
    );
    let big = disk("big", 128);
    let sizes = ran(&format!("zpool create -n -m {mnt} tank mirror {a} {big}"));
    assert!(sizes.err.ends_with("mirror contains devices of different sizes\n"), "{}", sizes.err);
    std::fs::create_dir_all(format!("{mnt}/x")).expect("a folder");
    let full = ran(&format!("zpool create -n -m {mnt} tank {a}"));
    assert_eq!(
        full.err,
        format!(
            "mountpoint '{mnt}' exists and is not empty\nuse '-m' option to provide a different default\n"
        )
    );
    let relative = ran(&format!("zpool create -n -m mnt tank {a}"));
    assert_eq!(relative.err, "invalid mountpoint 'mnt': must be an absolute path, 'legacy', or 'none'\n");
}

/// Goal: devices of pools are refused, with the pool's name and state, and taken by force if the
/// pool is not in use.
#[test]
fn devices_in_use() {
    let f = testkit::load("mirror2");
    let image = f.images()[0].display().to_string();
    let r = ran(&format!("zpool create -n -m none tank {image}"));
    assert_eq!(
        (r.code, r.err),
        (
            1,
            format!(
                "invalid vdev specification\nuse '-f' to override the following errors:\n{image} is part of exported pool '{}'\n",
                f.pool()
            )
        )
    );
    assert_eq!(ran(&format!("zpool create -f -n -m none tank {image}")).code, 0);
    let clear = ran(&format!("zpool labelclear {image}"));
    assert_eq!(clear.code, 1);
}
