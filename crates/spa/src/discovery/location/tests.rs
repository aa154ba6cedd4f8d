use device::MemDevice;
use ondisk::mbr::SECTOR;

use crate::discovery::location::*;

const SIZE: u64 = 512 << 20;

/// A disk with the records that sfdisk wrote for partitions 1 and 2 and the logical ones 5 and 6.
/// Each entry is the sector of a record and those bytes of its entries that are not zero.
fn divided() -> Arc<dyn Device> {
    let records = [
        (
            0,
            "0020210083490108000800000000020080490208a59a02180008020000000400009a0318054504410008060000f80900",
        ),
        (395_264, "00ba2318bfe30320000800000000020000e30420055524310008020000080400"),
        (528_384, "00042421835524310008000000000400"),
    ];
    let disk = MemDevice::new("disk", SIZE);
    for (at, hex) in records {
        let mut sector = [0; SECTOR as usize];
        for (byte, hex) in sector[446..].iter_mut().zip(hex.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap();
        }
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        disk.write_at(&sector, at * SECTOR).unwrap();
    }
    Arc::new(disk)
}

/// Goal: the partitions of a real master boot record and its chain of logical ones are where sfdisk
/// says.
#[test]
fn boot_records() {
    let at =
        |number, first: u64, sectors: u64| Partition { number, offset: first * 512, size: sectors * 512 };
    let all =
        [at(1, 2048, 131_072), at(2, 133_120, 262_144), at(5, 397_312, 131_072), at(6, 530_432, 262_144)];
    let disk = divided();
    assert_eq!(partitions(&*disk), all);
    // Partitions that pass the end of the disk are left out.
    let short = Region::new(disk.clone(), 0, 600_000 * 512, "short").unwrap();
    assert_eq!(partitions(&short), all[..3]);
    // A chain that leads to itself ends.
    disk.write_at(&[0; 4], 395_264 * SECTOR + 446 + 16 + 8).unwrap();
    assert_eq!(partitions(&*disk), all[..3]);
    disk.write_at(&[0; 2], 510).unwrap();
    assert_eq!(partitions(&*disk), []);
}
