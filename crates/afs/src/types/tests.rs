use std::fmt::Debug;

use proptest::prelude::*;

use super::*;
use crate::acl::Rights;
use crate::wire::{Chars, Flag, Wire};

/// Goal: structures have the sizes that OpenAFS 1.8.9 puts on the wire.
#[test]
fn structures_have_their_sizes() {
    let sizes = [
        (FetchStatus::SIZE, FetchStatus::default().to_bytes().len(), 84),
        (StoreStatus::SIZE, StoreStatus::default().to_bytes().len(), 24),
        (CallBack::SIZE, CallBack::default().to_bytes().len(), 12),
        (VolSync::SIZE, VolSync::default().to_bytes().len(), 24),
        (FetchVolumeStatus::SIZE, FetchVolumeStatus::default().to_bytes().len(), 48),
        (StoreVolumeStatus::SIZE, StoreVolumeStatus::default().to_bytes().len(), 12),
        (VolumeInfo::SIZE, VolumeInfo::default().to_bytes().len(), 220),
        (XVolumeInfo::SIZE, XVolumeInfo::default().to_bytes().len(), 128 + 16 * 4 + 32 * 4),
        (VolumeStatus::SIZE, VolumeStatus::default().to_bytes().len(), 64),
        (Partition::SIZE, Partition::default().to_bytes().len(), 272),
        (Partition64::SIZE, Partition64::default().to_bytes().len(), 2076),
        (TransactionStatus::SIZE, TransactionStatus::default().to_bytes().len(), 176),
        (RestoreCookie::SIZE, RestoreCookie::default().to_bytes().len(), 140),
        (Replica::SIZE, Replica::default().to_bytes().len(), 16),
    ];
    for (at, (constant, written, known)) in sizes.into_iter().enumerate() {
        assert_eq!((constant, written), (known, known), "structure {at}");
    }
}

fn comes_back<T: Wire + PartialEq + Debug>(value: &T) -> Result<(), TestCaseError> {
    prop_assert_eq!(&T::from_bytes(&value.to_bytes()).unwrap(), value);
    Ok(())
}

prop_compose! {
    fn any_fetch_status()(w in any::<[u32; 14]>(), length in any::<u64>(), kind in 0..4u32) -> FetchStatus {
        FetchStatus {
            kind: VnodeType::from_number(kind),
            link_count: w[0],
            length,
            data_version: DataVersion(w[1]),
            author: PrincipalId(w[2].cast_signed()),
            owner: PrincipalId(w[3].cast_signed()),
            caller_access: Rights(w[4]),
            anonymous_access: Rights(w[5]),
            mode: w[6],
            parent: Vnode(w[7]),
            parent_unique: Unique(w[8]),
            modify_time: Date(w[9]),
            server_modify_time: Date(w[10]),
            group: w[11].cast_signed(),
            lock_count: w[12].cast_signed(),
            error: w[13].cast_signed(),
        }
    }
}

proptest! {
    /// Goal: a status comes back, and each word is where the protocol has it.
    #[test]
    fn a_status_comes_back(status in any_fetch_status(), modify_time: Option<u32>, owner: Option<i32>, group: Option<i32>, mode: Option<u32>, segment_size: Option<u32>, is_durable: bool) {
        comes_back(&status)?;
        let bytes = status.to_bytes();
        let words: Vec<u32> = bytes.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
        prop_assert_eq!((words[0], words[12], words[16], words[17]), (1, 1, 0, 0));
        prop_assert_eq!(u64::from(words[19]) << 32 | u64::from(words[3]), status.length);
        prop_assert_eq!((words[4], words[7], words[13]), (status.data_version.0, status.caller_access.0, status.modify_time.0));
        prop_assert_eq!((words[18], words[20]), (status.lock_count.cast_unsigned(), status.error.cast_unsigned()));
        let store = StoreStatus { modify_time: modify_time.map(Date), owner: owner.map(PrincipalId), group, mode, segment_size, is_durable };
        comes_back(&store)?;
    }
}

/// Goal: what a client leaves as it is has no bit in the mask.
#[test]
fn the_mask_says_what_changes() {
    let mask = |status: StoreStatus| u32::from_be_bytes(status.to_bytes()[..4].try_into().unwrap());
    let none = StoreStatus::default();
    assert_eq!(mask(none.clone()), 0);
    assert_eq!(mask(StoreStatus { modify_time: Some(Date(0)), ..none.clone() }), 1);
    assert_eq!(mask(StoreStatus { owner: Some(PrincipalId(0)), ..none.clone() }), 2);
    assert_eq!(mask(StoreStatus { group: Some(0), ..none.clone() }), 4);
    assert_eq!(mask(StoreStatus { mode: Some(0), ..none.clone() }), 8);
    assert_eq!(mask(StoreStatus { segment_size: Some(0), ..none.clone() }), 16);
    assert_eq!(mask(StoreStatus { is_durable: true, ..none }), 1024);
}

/// Goal: a volume in a list comes back, and its words are in OpenAFS's order.
#[test]
fn a_listed_volume_comes_back() {
    let info = VolumeInfo {
        name: Chars::new(b"root.cell"),
        id: VolumeId(1),
        kind: 2,
        backup: VolumeId(3),
        parent: VolumeId(4),
        clone: VolumeId(5),
        status: VOK,
        copy_date: Date(7),
        in_use: Flag(1),
        needs_salvaged: Flag(0),
        destroy_me: Flag(0xD3),
        creation_date: Date(11),
        access_date: Date(12),
        update_date: Date(13),
        backup_date: Date(14),
        day_use: 15,
        file_count: 16,
        quota: 17,
        size: 18,
        flags: -1,
        min_quota: 20,
        week_use: 21,
        update_counter: 22,
        spare: 23,
    };
    let bytes = info.to_bytes();
    assert_eq!(VolumeInfo::from_bytes(&bytes).unwrap(), info);
    let words: Vec<i32> =
        bytes[128..].chunks(4).map(|word| i32::from_be_bytes(word.try_into().unwrap())).collect();
    let expected = [1, 2, 3, 4, 5, 2, 7, 1, 0, 0xD3, 11, 12, 13, 14, 15, 16, 17, 18, -1, 20, 21, 22, 23];
    assert_eq!(words, expected);
}

/// Goal: names of vnodes and promises are what OpenAFS has.
#[test]
fn small_things() {
    let fid = Fid { volume: VolumeId(536_870_912), vnode: Vnode::ROOT, unique: Unique(1) };
    assert_eq!(fid.to_string(), "536870912.1.1");
    assert!(Vnode(1).is_directory() && !Vnode(2).is_directory());
    assert_eq!(DataVersion(u32::MAX).next(), DataVersion(0));
    assert_eq!(CallBack::shared(5).to_bytes(), [0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 2]);
    assert_eq!(CallBack::dropped().kind, 3);
    assert_eq!(FetchStatus::of_error(102).error, 102);
    let kinds = [0, 1, 2, 3, 4].map(VnodeType::from_number);
    assert_eq!(
        kinds,
        [None, Some(VnodeType::File), Some(VnodeType::Directory), Some(VnodeType::Symlink), None]
    );
    let kinds = [0, 1, 2, 3].map(VolumeType::from_number);
    assert_eq!(
        kinds,
        [Some(VolumeType::ReadWrite), Some(VolumeType::ReadOnly), Some(VolumeType::Backup), None]
    );
}
