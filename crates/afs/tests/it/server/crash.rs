//! What clients can rely on after a server crashed.

use super::{Rig, VOLUME, root};

/// Goal: after a clean stop, versions go on and clients keep what they have. After a crash, no
/// unique that was handed out comes again, and no version that a client may have seen.
#[test]
fn uniques_and_versions() {
    let mut rig = Rig::new();
    rig.volume(VOLUME, "v");
    let image = rig.dir.path().join("d0");
    let (version, file) = {
        let client = rig.client(None);
        let file = client.create(root(VOLUME), "f").unwrap().fid;
        (client.version(root(VOLUME)), file)
    };
    rig.stop();
    rig.open(image.clone());
    rig.start();
    {
        let client = rig.client(None);
        assert_eq!(client.version(root(VOLUME)), version);
        let next = client.create(root(VOLUME), "g").unwrap().fid;
        assert_eq!(next.unique.0, file.unique.0 + 1);
    }
    // The image as it was before these changes.
    rig.pool.as_ref().unwrap().sync().unwrap();
    let crashed = rig.dir.path().join("crashed");
    std::fs::copy(&image, &crashed).unwrap();
    let (lost, seen) = {
        let client = rig.client(None);
        let lost = client.create(root(VOLUME), "lost").unwrap();
        (lost.fid, lost.directory.data_version.0)
    };
    rig.stop();
    rig.open(crashed);
    rig.start();
    let client = rig.client(None);
    assert!(client.status(lost).is_err());
    let now = client.version(root(VOLUME));
    assert!(now > seen, "{now} after {seen}");
    let next = client.create(root(VOLUME), "h").unwrap();
    assert!(next.fid.unique > lost.unique);
    assert_eq!(next.directory.data_version.0, now + 1);
}
