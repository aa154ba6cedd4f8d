//! fcrypt over eight packets at a time, with AVX2.
//!
//! # Theory
//! A round of one packet needs the result of the round before, and a block that of the block
//! before. Packets don't depend on each other. So each lane of a vector holds a word of another
//! packet, and one gather instruction looks up a byte of all eight.
//!
//! Packets of a window have equal lengths, but for the last. The lanes run as far as the shortest
//! packet, and what is left of the others follows one by one.

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_i32gather_epi32,
    _mm256_set_epi8, _mm256_set_epi64x, _mm256_set1_epi32, _mm256_shuffle_epi8, _mm256_shuffle_ps,
    _mm256_srli_epi32, _mm256_storeu_si256, _mm256_unpackhi_epi32, _mm256_unpacklo_epi32, _mm256_xor_si256,
};

use super::{BLOCK, ROUNDS, TABLES};

/// Packets that are handled at a time.
pub(super) const LANES: usize = 8;

/// Whether this processor has what the functions here need.
pub(super) fn available() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

/// A word of each lane, left and right half of a block.
#[derive(Clone, Copy)]
struct Blocks {
    left: __m256i,
    right: __m256i,
}

#[target_feature(enable = "avx2")]
fn swap_bytes(words: __m256i) -> __m256i {
    let order = _mm256_set_epi8(
        12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1,
        2, 3,
    );
    _mm256_shuffle_epi8(words, order)
}

/// The block of each lane at `at`.
#[target_feature(enable = "avx2")]
fn load(packets: &[&mut [u8]; LANES], at: usize) -> Blocks {
    let block = |lane: usize| {
        let bytes = packets[lane][at..at + BLOCK].try_into().expect("a block has eight bytes");
        i64::from_le_bytes(bytes)
    };
    let low = swap_bytes(_mm256_set_epi64x(block(3), block(2), block(1), block(0)));
    let high = swap_bytes(_mm256_set_epi64x(block(7), block(6), block(5), block(4)));
    let (low, high) = (_mm256_castsi256_ps(low), _mm256_castsi256_ps(high));
    // Within each half: the even words of both are the left halves of blocks, the odd the right.
    Blocks {
        left: _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(low, high)),
        right: _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(low, high)),
    }
}

/// Stores the block of each lane at `at`.
#[target_feature(enable = "avx2")]
fn store(packets: &mut [&mut [u8]; LANES], at: usize, blocks: Blocks) {
    let mut words = [[0u8; BLOCK]; LANES];
    let halves = [
        swap_bytes(_mm256_unpacklo_epi32(blocks.left, blocks.right)),
        swap_bytes(_mm256_unpackhi_epi32(blocks.left, blocks.right)),
    ];
    for (half, words) in halves.into_iter().zip(words.as_chunks_mut::<4>().0) {
        #[allow(unsafe_code, reason = "a vector is stored through a pointer")]
        // SAFETY: `words` is four blocks of eight bytes, as large as the vector. The store needs
        // no alignment.
        unsafe {
            _mm256_storeu_si256(words.as_mut_ptr().cast(), half);
        }
    }
    // Unpacking undoes the order of words that `load` made.
    for (packet, word) in packets.iter_mut().zip(words) {
        packet[at..at + BLOCK].copy_from_slice(&word);
    }
}

#[target_feature(enable = "avx2")]
fn lookup(table: &[u32; 256], bytes: __m256i) -> __m256i {
    #[allow(unsafe_code, reason = "measured: eight look-ups at a time")]
    // SAFETY: each lane of `bytes` is 255 at most, and the table has 256 words.
    unsafe {
        _mm256_i32gather_epi32::<4>(table.as_ptr().cast(), bytes)
    }
}

/// The function of a round, for each lane.
#[target_feature(enable = "avx2")]
fn mix(words: __m256i) -> __m256i {
    let byte = _mm256_set1_epi32(0xff);
    let first = lookup(&TABLES[0], _mm256_srli_epi32::<24>(words));
    let second = lookup(&TABLES[1], _mm256_and_si256(_mm256_srli_epi32::<16>(words), byte));
    let third = lookup(&TABLES[2], _mm256_and_si256(_mm256_srli_epi32::<8>(words), byte));
    let fourth = lookup(&TABLES[3], _mm256_and_si256(words, byte));
    _mm256_xor_si256(_mm256_xor_si256(first, second), _mm256_xor_si256(third, fourth))
}

#[target_feature(enable = "avx2")]
fn encrypt(keys: &[u32; ROUNDS], mut blocks: Blocks) -> Blocks {
    for pair in keys.chunks_exact(2) {
        let (even, odd) = (_mm256_set1_epi32(pair[0] as i32), _mm256_set1_epi32(pair[1] as i32));
        blocks.left = _mm256_xor_si256(blocks.left, mix(_mm256_xor_si256(blocks.right, even)));
        blocks.right = _mm256_xor_si256(blocks.right, mix(_mm256_xor_si256(blocks.left, odd)));
    }
    blocks
}

#[target_feature(enable = "avx2")]
fn decrypt(keys: &[u32; ROUNDS], mut blocks: Blocks) -> Blocks {
    for pair in keys.chunks_exact(2).rev() {
        let (even, odd) = (_mm256_set1_epi32(pair[0] as i32), _mm256_set1_epi32(pair[1] as i32));
        blocks.right = _mm256_xor_si256(blocks.right, mix(_mm256_xor_si256(blocks.left, odd)));
        blocks.left = _mm256_xor_si256(blocks.left, mix(_mm256_xor_si256(blocks.right, even)));
    }
    blocks
}

#[target_feature(enable = "avx2")]
fn xor(a: Blocks, b: Blocks) -> Blocks {
    Blocks { left: _mm256_xor_si256(a.left, b.left), right: _mm256_xor_si256(a.right, b.right) }
}

/// The same vector in each lane.
#[target_feature(enable = "avx2")]
fn same(iv: [u8; BLOCK]) -> Blocks {
    let (left, right) = super::words(iv);
    Blocks { left: _mm256_set1_epi32(left as i32), right: _mm256_set1_epi32(right as i32) }
}

/// Whole blocks that all packets have.
fn common(packets: &[&mut [u8]; LANES]) -> usize {
    packets.iter().map(|packet| packet.len() / BLOCK).min().unwrap_or(0)
}

/// Encrypts the blocks that all packets have, and stores what follows them in the chain of each.
#[target_feature(enable = "avx2")]
fn encrypt_lanes(
    keys: &[u32; ROUNDS],
    iv: [u8; BLOCK],
    packets: &mut [&mut [u8]; LANES],
    chains: &mut [&mut [u8]; LANES],
) {
    let mut chain = same(iv);
    for at in (0..common(packets)).map(|block| block * BLOCK) {
        let plain = load(packets, at);
        let cipher = encrypt(keys, xor(plain, chain));
        store(packets, at, cipher);
        chain = xor(plain, cipher);
    }
    store(chains, 0, chain);
}

/// Decrypts the blocks that all packets have, and stores what follows them in the chain of each.
#[target_feature(enable = "avx2")]
fn decrypt_lanes(
    keys: &[u32; ROUNDS],
    iv: [u8; BLOCK],
    packets: &mut [&mut [u8]; LANES],
    chains: &mut [&mut [u8]; LANES],
) {
    let mut chain = same(iv);
    for at in (0..common(packets)).map(|block| block * BLOCK) {
        let cipher = load(packets, at);
        let plain = xor(decrypt(keys, cipher), chain);
        store(packets, at, plain);
        chain = xor(plain, cipher);
    }
    store(chains, 0, chain);
}

/// Encrypts or decrypts what all packets have in common. Returns how many bytes of each that is,
/// and each packet's vector for the rest.
///
/// # Panics
/// If the processor lacks AVX2: see [`available`].
pub(super) fn run(
    keys: &[u32; ROUNDS],
    iv: [u8; BLOCK],
    packets: &mut [&mut [u8]; LANES],
    encrypts: bool,
) -> (usize, [[u8; BLOCK]; LANES]) {
    assert!(available(), "the caller has checked the processor");
    let mut chains = [[0; BLOCK]; LANES];
    let mut places = chains.each_mut().map(|chain| &mut chain[..]);
    #[allow(unsafe_code, reason = "measured: twice as fast as one packet at a time")]
    // SAFETY: the processor has the feature that the functions are built for. Callers have no other
    // duty.
    unsafe {
        if encrypts {
            encrypt_lanes(keys, iv, packets, &mut places);
        } else {
            decrypt_lanes(keys, iv, packets, &mut places);
        }
    }
    (common(packets) * BLOCK, chains)
}
