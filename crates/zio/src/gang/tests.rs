//! Gang trees laid out by hand in the memory of a device.

use crate::{Bookmark, Error, ReadOptions, Zio};
use codec::checksum::embedded::{Verifier, seal};
use device::{Device, MemDevice};
use ondisk::blkptr::{BLKPTR_SIZE, Body, CryptParams, Stored};
use ondisk::label::LABEL_START_SIZE;
use ondisk::*;
use std::sync::Arc;

const BIRTH: Txg = Txg(7);

fn place(sector: u64, gang: bool) -> Dva {
    Dva { vdev: VdevId(0), offset: Offset(sector << 9), asize: Asize(512), gang }
}

/// A pointer to `psize` bytes at these copies, without a checksum.
fn pointer(dvas: [Option<Dva>; 3], psize: u64) -> Blkptr {
    let stored = Stored {
        dvas,
        psize: Psize(psize),
        compress: CompressKind::Off,
        checksum: ChecksumKind::Off,
        sum: [0; 4],
        phys_birth: BIRTH,
        fill: 1,
        dedup: false,
        crypt: false,
        crypt_params: CryptParams { salt: [0; 8], iv: [0; 12] },
    };
    let kind = DmuType::PLAIN_FILE_CONTENTS;
    Blkptr { kind, lsize: Lsize(psize), birth: BIRTH, body: Body::Stored(stored), ..Blkptr::HOLE }
}

/// A pipeline over one device, and the device itself, to write to it.
fn pipeline() -> (Zio, Arc<MemDevice>) {
    let device = Arc::new(MemDevice::new("d", 64 << 20));
    let mut root = VdevConfig::new(VdevKind::Root, Guid(1));
    let mut leaf = VdevConfig::new(VdevKind::File, Guid(2));
    leaf.ashift = Some(Ashift(9));
    root.children = vec![leaf];
    let opened = device.clone();
    let tree = vdev::Tree::open(&root, &mut |_| Ok(opened.clone() as Arc<dyn Device>)).unwrap();
    (Zio::new(Arc::new(tree)), device)
}

/// Writes a gang header to this sector, with the checksum of the place of the first copy.
fn write_header(device: &MemDevice, first: u64, sector: u64, children: &[Blkptr]) {
    let mut raw = vec![0; 512];
    for (to, bp) in raw.chunks_mut(BLKPTR_SIZE).zip(children) {
        to.copy_from_slice(&bp.encode());
    }
    let verifier = Verifier::GangHeader { vdev: 0, offset: first << 9, birth: BIRTH.0 };
    seal(&verifier, &mut raw, None).unwrap();
    device.write_at(&raw, LABEL_START_SIZE + (sector << 9)).unwrap();
}

fn read(zio: &Zio, bp: &Blkptr) -> crate::Result<device::Block> {
    zio.read(
        bp,
        &Bookmark { objset: 1, object: ObjNum(2), level: Level(0), blkid: BlkId(0) },
        &ReadOptions::demand(),
    )
}

/// Goal: a header has the checksum of the first copy's place. Where that copy is damaged, the
/// second serves.
#[test]
fn the_second_copy_of_a_header_serves() {
    let (zio, device) = pipeline();
    let piece = |sector| pointer([Some(place(sector, false)), None, None], 512);
    write_header(&device, 10, 11, &[piece(20), piece(21)]);
    device.write_at(&[5; 1024], LABEL_START_SIZE + (20 << 9)).unwrap();
    let bp = pointer([Some(place(10, true)), Some(place(11, true)), None], 1024);
    assert_eq!(read(&zio, &bp).unwrap()[..], [5; 1024]);
}

/// Goal: copies do not multiply. A tree whose every piece has three equal copies, and whose last
/// level is damaged, would cost 3^12 headers.
#[test]
fn copies_do_not_multiply() {
    let (zio, device) = pipeline();
    let thrice = |sector| pointer([Some(place(sector, true)); 3], 16 << 20);
    for sector in 100..112 {
        write_header(&device, sector, sector, &[thrice(sector + 1)]);
    }
    let got = read(&zio, &pointer([Some(place(100, true)), None, None], 16 << 20));
    assert!(matches!(got, Err(Error::Checksum { .. } | Error::Corrupt { .. })), "{got:?}");
    let asked: u64 =
        zio.tree().devices().map(|(g, _)| zio.tree().stats(g).unwrap().ops(vdev::IoType::Read)).sum();
    assert!(asked < 200_000, "{asked} reads");
}

/// Goal: a piece that is longer than the rest of its block is refused before it is read.
#[test]
fn pieces_fit_before_they_are_read() {
    let (zio, device) = pipeline();
    let long = pointer([Some(place(30, false)), None, None], 1 << 20);
    write_header(&device, 10, 10, &[long]);
    let got = read(&zio, &pointer([Some(place(10, true)), None, None], 1024));
    assert!(matches!(got, Err(Error::Corrupt { .. })), "{got:?}");
    let asked: u64 =
        zio.tree().devices().map(|(g, _)| zio.tree().stats(g).unwrap().ops(vdev::IoType::Read)).sum();
    assert_eq!(asked, 1);
}
