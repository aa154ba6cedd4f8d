//! fcrypt, the block cipher of rxkad.
//!
//! # Theory
//! fcrypt is a Feistel cipher of 16 rounds over blocks of 8 bytes, with keys of 56 bits. It is no
//! protection by today's measure. Every AFS client that has a token speaks it, so a file server
//! must.
//!
//! A round substitutes the four bytes of a word, permutes them, and rotates the word. Four tables
//! of 256 words hold all three steps. They are computed at compile time from the substitution
//! tables, and stay in the first-level cache.
//!
//! rxkad chains blocks in propagating mode (PCBC), and starts each packet with the same vector. So
//! packets are independent of each other. Where the processor has AVX2, eight packets are encrypted
//! at a time ([`Schedule::encrypt_packets`]).
//!
//! # Absent
//! Padding, headers and checksums of packets are in `rx`.
//!
//! # See
//! OpenAFS: `src/rxkad/fcrypt.c`. Linux: `crypto/fcrypt.c`.

mod sboxes;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod wide;

use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bytes of a block, of a key and of an initialization vector.
pub const BLOCK: usize = 8;
const ROUNDS: usize = 16;

/// Substitution, permutation and rotation of one byte of a word, for each position.
static TABLES: [[u32; 256]; 4] = [
    table(&sboxes::SBOX0, 8),
    table(&sboxes::SBOX1, 0),
    table(&sboxes::SBOX2, 16),
    table(&sboxes::SBOX3, 24),
];

/// The words that the bytes of one position become. The permutation moves the byte to bit `shift`.
const fn table(sbox: &[u8; 256], shift: u32) -> [u32; 256] {
    let mut words = [0; 256];
    let mut i = 0;
    while i < 256 {
        words[i] = ((sbox[i] as u32) << shift).rotate_right(5);
        i += 1;
    }
    words
}

/// The round keys of one key. They are erased when dropped.
///
/// OpenAFS: `fc_KeySchedule`.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Schedule([u32; ROUNDS]);

impl std::fmt::Debug for Schedule {
    /// Shows nothing of the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Schedule")
    }
}

/// The function of a round.
fn mix(word: u32) -> u32 {
    let [a, b, c, d] = word.to_be_bytes();
    TABLES[0][usize::from(a)]
        ^ TABLES[1][usize::from(b)]
        ^ TABLES[2][usize::from(c)]
        ^ TABLES[3][usize::from(d)]
}

fn words(block: [u8; BLOCK]) -> (u32, u32) {
    let both = u64::from_be_bytes(block);
    ((both >> 32) as u32, both as u32)
}

fn block(left: u32, right: u32) -> [u8; BLOCK] {
    (u64::from(left) << 32 | u64::from(right)).to_be_bytes()
}

impl Schedule {
    /// The round keys of a key, whose parity bits are ignored.
    #[must_use]
    pub fn new(key: &[u8; BLOCK]) -> Schedule {
        // Seven bits of each byte are 56 bits, which rotate by 11 for each round.
        let mut bits = key.iter().fold(0u64, |bits, byte| bits << 7 | u64::from(byte >> 1));
        let mut keys = [0; ROUNDS];
        for key in &mut keys {
            *key = bits as u32;
            bits = (bits >> 11) | ((bits & 0x7ff) << 45);
        }
        bits.zeroize();
        Schedule(keys)
    }

    /// Encrypts one block.
    #[must_use]
    pub fn encrypt_block(&self, bytes: [u8; BLOCK]) -> [u8; BLOCK] {
        let (mut left, mut right) = words(bytes);
        for pair in self.0.chunks_exact(2) {
            left ^= mix(right ^ pair[0]);
            right ^= mix(left ^ pair[1]);
        }
        block(left, right)
    }

    /// Decrypts one block.
    #[must_use]
    pub fn decrypt_block(&self, bytes: [u8; BLOCK]) -> [u8; BLOCK] {
        let (mut left, mut right) = words(bytes);
        for pair in self.0.chunks_exact(2).rev() {
            right ^= mix(left ^ pair[1]);
            left ^= mix(right ^ pair[0]);
        }
        block(left, right)
    }

    /// Encrypts whole blocks in propagating mode. Returns the vector for what follows them.
    ///
    /// Bytes after the last whole block stay as they are. OpenAFS: `fc_cbc_encrypt`.
    pub fn encrypt_pcbc(&self, iv: [u8; BLOCK], bytes: &mut [u8]) -> [u8; BLOCK] {
        let mut chain = u64::from_ne_bytes(iv);
        for block in bytes.as_chunks_mut::<BLOCK>().0 {
            let plain = u64::from_ne_bytes(*block);
            *block = self.encrypt_block((plain ^ chain).to_ne_bytes());
            chain = plain ^ u64::from_ne_bytes(*block);
        }
        chain.to_ne_bytes()
    }

    /// Decrypts whole blocks in propagating mode. Returns the vector for what follows them.
    ///
    /// Bytes after the last whole block stay as they are. OpenAFS: `fc_cbc_encrypt`.
    pub fn decrypt_pcbc(&self, iv: [u8; BLOCK], bytes: &mut [u8]) -> [u8; BLOCK] {
        let mut chain = u64::from_ne_bytes(iv);
        for block in bytes.as_chunks_mut::<BLOCK>().0 {
            let cipher = u64::from_ne_bytes(*block);
            let plain = u64::from_ne_bytes(self.decrypt_block(*block)) ^ chain;
            *block = plain.to_ne_bytes();
            chain = plain ^ cipher;
        }
        chain.to_ne_bytes()
    }

    /// Encrypts packets that all start with the same vector.
    pub fn encrypt_packets(&self, iv: [u8; BLOCK], packets: &mut [&mut [u8]]) {
        for packet in self.wide(iv, packets, true) {
            self.encrypt_pcbc(iv, packet);
        }
    }

    /// Decrypts packets that all start with the same vector.
    pub fn decrypt_packets(&self, iv: [u8; BLOCK], packets: &mut [&mut [u8]]) {
        for packet in self.wide(iv, packets, false) {
            self.decrypt_pcbc(iv, packet);
        }
    }

    /// Handles packets eight at a time, where the processor can. Returns those that are left.
    fn wide<'p, 'b>(
        &self,
        iv: [u8; BLOCK],
        packets: &'p mut [&'b mut [u8]],
        encrypts: bool,
    ) -> &'p mut [&'b mut [u8]] {
        #[cfg(target_arch = "x86_64")]
        if wide::available() {
            let (groups, rest) = packets.as_chunks_mut::<{ wide::LANES }>();
            for group in groups {
                let mut lanes = group.each_mut().map(|packet| &mut packet[..]);
                let (done, chains) = wide::run(&self.0, iv, &mut lanes, encrypts);
                for (packet, chain) in group.iter_mut().zip(chains) {
                    if encrypts {
                        self.encrypt_pcbc(chain, &mut packet[done..]);
                    } else {
                        self.decrypt_pcbc(chain, &mut packet[done..]);
                    }
                }
            }
            return rest;
        }
        packets
    }
}
