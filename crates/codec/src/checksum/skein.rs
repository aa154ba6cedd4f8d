//! Skein-512-256 as a MAC with the pool's salt as key.
//!
//! # Theory
//! Skein chains the tweakable block cipher Threefish. It encrypts each 64-byte block of input under
//! the chaining value. The ciphertext XOR the input is the next chaining value. The tweak counts
//! the bytes and names the purpose (key, configuration, message, output), so that no two uses
//! collide. Key and configuration depend on the salt alone; [`SkeinMac`] has the chaining value
//! after them.
//!
//! # See
//! "The Skein Hash Function Family", version 1.3, section 3. OpenZFS: `skein_zfs.c`.

use threefish::Threefish512;

/// Bytes of a block.
const BLOCK: usize = 64;
/// Bits of the digest.
const OUTPUT_BITS: u64 = 256;
/// "SHA3" and version 1: the first word of the configuration block.
const SCHEMA: u64 = 0x0000_0001_3341_4853;

/// Purpose of a chain of blocks: the type field of the tweak.
#[derive(Clone, Copy)]
enum Purpose {
    Key = 0,
    Config = 4,
    Message = 48,
    Output = 63,
}

/// The chaining value after the salt and the configuration.
pub(super) struct SkeinMac {
    chain: [u64; 8],
}

impl SkeinMac {
    pub(super) fn new(salt: &[u8; 32]) -> Self {
        let key = ubi([0; 8], Purpose::Key, salt);
        let mut config = [0u8; 32];
        config[..8].copy_from_slice(&SCHEMA.to_le_bytes());
        config[8..16].copy_from_slice(&OUTPUT_BITS.to_le_bytes());
        Self { chain: ubi(key, Purpose::Config, &config) }
    }

    pub(super) fn hash(&self, data: &[u8]) -> [u8; 32] {
        let message = ubi(self.chain, Purpose::Message, data);
        let out = ubi(message, Purpose::Output, &[0; 8]);
        let mut digest = [0; 32];
        for (raw, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(out) {
            *raw = word.to_le_bytes();
        }
        digest
    }
}

/// Runs one chain (`UBI`) over `data`. Zeros pad the last block; no data is one block of zeros.
fn ubi(mut chain: [u64; 8], purpose: Purpose, data: &[u8]) -> [u64; 8] {
    const FIRST: u64 = 1 << 62;
    const FINAL: u64 = 1 << 63;
    let kind = (purpose as u64) << 56;
    // The last block, full or not, carries the final flag.
    let whole = data.len().saturating_sub(1) / BLOCK;
    let (body, last) = data.split_at(whole * BLOCK);
    let mut done = 0u64;
    for block in body.as_chunks::<BLOCK>().0 {
        let first = if done == 0 { FIRST } else { 0 };
        done += BLOCK as u64;
        step(&mut chain, [done, kind | first], block);
    }
    let mut block = [0; BLOCK];
    block[..last.len()].copy_from_slice(last);
    let first = if done == 0 { FIRST } else { 0 };
    step(&mut chain, [data.len() as u64, kind | first | FINAL], &block);
    chain
}

fn step(chain: &mut [u64; 8], tweak: [u64; 2], block: &[u8; BLOCK]) {
    let mut plain = [0; 8];
    for (word, raw) in plain.iter_mut().zip(block.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*raw);
    }
    let cipher = Threefish512::new_with_tweak_u64(chain, &tweak);
    *chain = plain;
    cipher.encrypt_block_u64(chain);
    for (word, input) in chain.iter_mut().zip(plain) {
        *word ^= input;
    }
}

#[cfg(test)]
mod tests;
