//! Known vectors, and the forms of the cipher against each other.

use proptest::prelude::*;

use super::{BLOCK, Schedule};

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn block(text: &str) -> [u8; BLOCK] {
    hex(text).try_into().unwrap()
}

const FOX: &[u8; 48] = b"The quick brown fox jumps over the lazy dogs.\0\0\0";

/// Goal: the vectors that Linux and Arla test `pcbc(fcrypt)` with come out.
#[test]
fn known_vectors() {
    let cases = [
        ("0000000000000000", "0000000000000000", vec![0; 8], "0e0900c73ef7ed41"),
        ("114477aadd003366", "0000000000000000", hex("123456789abcdef0"), "d8ed787477ec0680"),
        (
            "f0e1d2c3b4a59687",
            "fedcba9876543210",
            FOX.to_vec(),
            "00f00e1175e62382eeac98624451e484c359d8aa6460aef7d2d9137972a3450323b562d70cf527d1f8913cac442292ef",
        ),
        (
            "fedcba9876543210",
            "f0e1d2c3b4a59687",
            FOX.to_vec(),
            "ca90f59dcbd4d23c01887f3e316e629dd8e057a3063a42582a28fe72522fdde01989091c2a8e8c94fcc768e488aade0f",
        ),
    ];
    for (key, iv, plain, cipher) in cases {
        let (schedule, iv) = (Schedule::new(&block(key)), block(iv));
        let mut bytes = plain.clone();
        schedule.encrypt_pcbc(iv, &mut bytes);
        assert_eq!(bytes, hex(cipher), "{key}");
        schedule.decrypt_pcbc(iv, &mut bytes);
        assert_eq!(bytes, plain, "{key}");
    }
}

/// Goal: parity bits of a key don't matter, and a schedule shows nothing of its key.
#[test]
fn parity_is_ignored() {
    let (odd, even) = (Schedule::new(&[1; 8]), Schedule::new(&[0; 8]));
    assert_eq!(odd.encrypt_block(*b"abcdefgh"), even.encrypt_block(*b"abcdefgh"));
    assert_eq!(format!("{odd:?}"), "Schedule");
}

/// Goal: bytes in two parts give what they give in one, and a tail shorter than a block is left.
#[test]
fn parts_continue_each_other() {
    let (schedule, iv) = (Schedule::new(b"abcdefgh"), *b"87654321");
    let mut whole: Vec<u8> = (0..43).collect();
    let mut parts = whole.clone();
    schedule.encrypt_pcbc(iv, &mut whole);
    let next = schedule.encrypt_pcbc(iv, &mut parts[..16]);
    schedule.encrypt_pcbc(next, &mut parts[16..]);
    assert_eq!(parts, whole);
    assert_eq!(parts[40..], [40, 41, 42]);
}

proptest! {
    /// Goal: many packets at a time are what each is alone, for any number and any lengths.
    #[test]
    fn packets_are_encrypted_alike(
        key: [u8; 8],
        iv: [u8; 8],
        plain in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..20),
    ) {
        let schedule = Schedule::new(&key);
        let mut alone = plain.clone();
        alone.iter_mut().for_each(|packet| { schedule.encrypt_pcbc(iv, packet); });
        let mut together = plain.clone();
        let mut packets: Vec<&mut [u8]> = together.iter_mut().map(Vec::as_mut_slice).collect();
        schedule.encrypt_packets(iv, &mut packets);
        prop_assert_eq!(&together, &alone);
        let mut packets: Vec<&mut [u8]> = together.iter_mut().map(Vec::as_mut_slice).collect();
        schedule.decrypt_packets(iv, &mut packets);
        prop_assert_eq!(&together, &plain);
    }
}
