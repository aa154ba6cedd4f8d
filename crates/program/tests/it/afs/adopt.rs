//! `poolhouse afs adopt`: volumes that OpenAFS's file server 1.8.9 wrote on its partition.

use std::os::unix::fs::FileExt;

use api::AfsAdopt;
use api::run_dir::RunDir;

use super::export::vnodes;
use super::*;

const MADE: VolumeId = VolumeId(536_870_913);
const WORK: VolumeId = VolumeId(536_870_917);
const BACKUP: VolumeId = VolumeId(WORK.0 + 1);
const RELEASED: VolumeId = VolumeId(WORK.0 + 2);
/// The information of `work`, and where it has the field `inUse`.
const INFO: &str = "vicepa/AFSIDat/3/3+++U/special/zzzz5I++++0";
const IN_USE: u64 = 44;
/// Where it has the name, and the date of the last change.
const NAME: u64 = 12;
const UPDATED: u64 = 248;

impl Stand {
    /// A served partition without volumes, one of OpenAFS, and dumps of the latter's volumes.
    fn with_vicepa() -> Self {
        let stand = Self::new();
        stand.enable();
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../afs/tests/data/openafs-vicep.tar.zst");
        testkit::unpacked(&data, stand.dir.path());
        stand
    }

    /// A command that adopts. Returns its exit code, and what it says.
    fn adopt(&self, options: &str, volumes: &str) -> (i32, String) {
        let at = self.dir.path().display();
        let ran = self.daemon.ran(&format!("afs adopt {options} {at}/vicepa tank/vicepa {volumes}"));
        (ran.status.code().expect("a code"), said(&ran))
    }

    /// The dump that OpenAFS's volume server made of a volume.
    fn of_openafs(&self, name: &str) -> Vec<u8> {
        fs::read(self.dir.path().join("dumps").join(name)).expect("a dump")
    }

    /// The numbers of the volumes.
    fn volumes(&self) -> Vec<u64> {
        let all = self.json("afs volumes -j");
        let all = all["volumes"].as_object().expect("volumes");
        let mut numbers: Vec<u64> = all.keys().map(|id| id.parse().expect("a number")).collect();
        numbers.sort_unstable();
        numbers
    }

    fn write(&self, name: &str, at: u64, bytes: &[u8]) {
        let file = fs::File::options().write(true).open(self.dir.path().join(name)).expect("a file");
        file.write_all_at(bytes, at).expect("written");
    }
}

/// Goal: volumes and clones come with all that they have, chosen ones first. A list changes
/// nothing, and what is there already stays.
#[test]
fn volumes_are_adopted() {
    let stand = Stand::with_vicepa();
    let (code, text) = stand.adopt("-n", "");
    assert!(code == 0 && text.contains("/vicepa: 5 volumes to adopt"), "{text}");
    assert!(text.contains("\n536870918\twork.backup\tBK\t536870917\t"), "{text}");
    assert!(stand.volumes().is_empty());
    let (code, text) = stand.adopt("", &format!("t.made {BACKUP}"));
    assert!(code == 0 && text.contains("/vicepa: 2 volumes adopted, "), "{text}");
    assert_eq!(stand.volumes(), [MADE.0.into(), u64::from(BACKUP.0)]);
    let (code, text) = stand.adopt("", "");
    assert!(code == 0 && text.contains("/vicepa: 3 volumes adopted, "), "{text}");
    assert!(text.contains("; 2 were there; 0 not adopted") && text.contains("vos syncvldb SERVER"), "{text}");
    let (code, text) = stand.adopt("", "");
    assert!(
        code == 0 && text.contains("/vicepa: 0 volumes adopted, 0 bytes of dumps; 5 were there"),
        "{text}"
    );
    // What is on disk is what was adopted.
    stand.export_and_import();
    for (id, name) in [(MADE, "t.made"), (WORK, "work"), (BACKUP, "work.backup"), (RELEASED, "work.readonly")]
    {
        assert!(vnodes(&stand.dump(id)) == vnodes(&stand.of_openafs(name)), "{name}");
        let call = Call::ListOneVolume { partition: 0, volume: id };
        let Ok(Reply::ListOneVolume(found)) = stand.operate(&call) else { panic!("no {name}") };
        let found = &found[0];
        let group = [found.parent, found.clone, found.backup].map(|id| id.0);
        let ours = match name {
            "t.made" => [MADE.0, 0, 0],
            "work.backup" => [WORK.0, 0, 0],
            _ => [WORK.0, RELEASED.0, BACKUP.0],
        };
        assert_eq!(group, ours, "{name}");
        assert_eq!(found.status, 2, "{name}");
    }
}

/// Goal: what is in use, damaged or another volume is not taken, is named with what to do, and
/// leaves nothing behind. The others are taken.
#[test]
fn refusals_are_named() {
    let stand = Stand::with_vicepa();
    stand.write(INFO, IN_USE, &[1]);
    fs::remove_file(stand.dir.path().join("vicepa/AFSIDat/=/=+++U/special/zzzz92++++0")).expect("removed");
    let (code, text) = stand.adopt("", "");
    assert!(code == 1 && text.contains("/vicepa: 3 volumes adopted, "), "{text}");
    assert!(text.contains("; 2 not adopted"), "{text}");
    assert!(text.contains("volume 536870917 (work): not adopted: its inUse is 1 (file server)"), "{text}");
    assert!(text.contains("volume 536870913: not adopted: the index of files: "), "{text}");
    assert!(text.contains(": run OpenAFS's salvager on it\n"), "{text}");
    assert!(!stand.volumes().contains(&u64::from(WORK.0)));
    let (code, text) = stand.adopt("", "nothing");
    assert!(code == 1 && text.contains("nothing: ") && text.contains("has no such volume"), "{text}");
    // Another volume has the number.
    stand.write(INFO, IN_USE, &[0]);
    stand.write(INFO, 12, b"other\0");
    assert_eq!(stand.adopt("", "other").0, 0);
    stand.write(INFO, 12, b"another\0");
    let (code, text) = stand.adopt("", "another");
    assert!(code == 1 && text.contains("/vicepa has this number for other already"), "{text}");
    let at = stand.dir.path().display();
    let text = stand.bad(&format!("afs adopt {at}/vicepa tank/other"));
    assert!(text.contains("tank/other: is no partition that is served: `poolhouse afs enable`"), "{text}");
    let text = stand.bad(&format!("afs adopt {at}/dumps tank/vicepa"));
    assert!(text.contains("is no partition of OpenAFS's file server"), "{text}");
    assert_eq!(stand.daemon.ran("afs adopt /vicepa").status.code(), Some(2));
}

/// Goal: a copy that is older than the partition's volume is not taken for it, a volume that is
/// being made is said to be, and data without a head are named. No name reaches the terminal as it
/// is.
#[test]
fn what_is_there_is_looked_at() {
    let stand = Stand::with_vicepa();
    stand.write(INFO, NAME, b"wo\x1b]0;rk\0");
    let (code, text) = stand.adopt("", &WORK.to_string());
    assert!(code == 0 && stand.adopt("-n", "").1.contains("wo\\u{1b}]0;rk\t"), "{text}");
    assert_eq!(stand.adopt("", &WORK.to_string()).0, 0);
    stand.write(INFO, UPDATED, &0x7000_0000_u32.to_le_bytes());
    let (code, text) = stand.adopt("", &WORK.to_string());
    assert!(code == 1 && text.contains("the server has an older copy, of "), "{text}");
    stand.write(INFO, NAME, b"other\0");
    let (code, text) = stand.adopt("", "other");
    assert!(code == 1 && text.contains("has this number for wo\\u{1b}]0;rk already"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    let place = RunDir::at(&stand.dir.path().join("run"));
    let request = AfsAdopt { dataset: "tank/vicepa".to_owned(), volume: MADE.0, ..AfsAdopt::default() };
    let dump = stand.of_openafs("t.made");
    api::streams::adopt(&place, &request, &mut |to| {
        to.write_all(&dump[..100])?;
        assert!((0..1000).any(|_| stand.volumes().len() == 2), "the volume is not begun");
        let (code, text) = stand.adopt("", "t.made");
        assert!(code == 1 && text.contains("already, and it is in a transaction"), "{text}");
        to.write_all(&dump[100..])
    })
    .expect("a whole dump");
    fs::remove_file(stand.dir.path().join("vicepa/V0536870918.vol")).expect("removed");
    let (code, text) = stand.adopt("", &BACKUP.to_string());
    assert!(code == 1 && text.contains("volume 536870918: not adopted: it has files, but no .vol"), "{text}");
}

/// Goal: a dump that breaks off, or is another volume's, leaves no volume, and the next one is
/// taken.
#[test]
fn half_a_dump_leaves_nothing() {
    let stand = Stand::with_vicepa();
    let place = RunDir::at(&stand.dir.path().join("run"));
    let dump = stand.of_openafs("t.made");
    let send = |volume: VolumeId, part: &[u8]| {
        let request = AfsAdopt { dataset: "tank/vicepa".to_owned(), volume: volume.0, ..AfsAdopt::default() };
        api::streams::adopt(&place, &request, &mut |to| to.write_all(part))
    };
    for part in [&dump[..0], &dump[..100], &dump[..dump.len() - 1]] {
        let text = api::chain(&send(MADE, part).expect_err("half a dump"));
        assert!(stand.volumes().is_empty(), "{text}");
    }
    assert!(send(WORK, &dump).is_err() && send(VolumeId(0), &dump).is_err());
    assert!(stand.volumes().is_empty());
    assert!(!stand.daemon.good("zfs list -H -o name -r tank/vicepa").contains("vicepa/5"));
    send(MADE, &dump).expect("a whole dump");
    let text = format!("{:?}", send(MADE, &dump).expect_err("it exists"));
    assert!(text.contains("VVOLEXISTS"), "{text}");
    assert_eq!(stand.volumes(), [u64::from(MADE.0)]);
    assert!(vnodes(&stand.dump(MADE)) == vnodes(&dump));
}
