//! The encryption of Kerberos 5 tickets.
//!
//! # Theory
//! A ticket is encrypted with the cell's key, by one of these encryption types:
//!
//! | number | name |
//! |---|---|
//! | 17, 18 | `aes128-cts-hmac-sha1-96`, `aes256-cts-hmac-sha1-96` (RFC 3962) |
//! | 23 | `rc4-hmac` (RFC 4757) |
//!
//! # Absent
//! Types with DES and triple DES. Keys of these types in a cell's file are not used.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256};
use hmac::{Hmac, Mac};
use md5::Md5;
use sha1::Sha1;
use zeroize::Zeroizing;

/// What the key of a ticket is used for.
const USAGE: u32 = 2;
/// Bytes of a block of AES.
const BLOCK: usize = 16;
/// Bytes of a checksum of the AES types.
const CHECKSUM: usize = 12;
/// Bytes of a checksum of RC4's type, and of the random bytes before its text.
const RC4_CHECKSUM: usize = 16;
const RC4_RANDOM: usize = 8;

/// `aes128-cts-hmac-sha1-96`.
pub(super) const AES_128: i32 = 17;
/// `aes256-cts-hmac-sha1-96`.
pub(super) const AES_256: i32 = 18;
/// `rc4-hmac`.
pub(super) const RC4: i32 = 23;

/// How many bytes a key of this type has, if it can be used.
pub(super) fn key_length(enctype: i32) -> Option<usize> {
    match enctype {
        AES_128 | RC4 => Some(16),
        AES_256 => Some(32),
        _ => None,
    }
}

/// AES with a key of either length.
pub(super) enum Aes {
    Short(Aes128),
    Long(Aes256),
}

impl Aes {
    pub(super) fn new(key: &[u8]) -> Option<Aes> {
        let short = Aes128::new_from_slice(key).ok().map(Aes::Short);
        short.or_else(|| Aes256::new_from_slice(key).ok().map(Aes::Long))
    }

    fn encrypt(&self, block: &mut [u8; BLOCK]) {
        match self {
            Aes::Short(aes) => aes.encrypt_block(block.into()),
            Aes::Long(aes) => aes.encrypt_block(block.into()),
        }
    }

    fn decrypt(&self, block: &mut [u8; BLOCK]) {
        match self {
            Aes::Short(aes) => aes.decrypt_block(block.into()),
            Aes::Long(aes) => aes.decrypt_block(block.into()),
        }
    }
}

/// Spreads bytes over a block (RFC 3961, section 5.1): copies of them, each rotated by 13 bits more
/// than the one before, are added with carries that go round.
pub(super) fn spread(bytes: &[u8]) -> [u8; BLOCK] {
    let (n, bits) = (bytes.len(), bytes.len() * 8);
    let common = (1..=n).rev().find(|d| n.is_multiple_of(*d) && BLOCK.is_multiple_of(*d)).unwrap_or(1);
    let total = n * BLOCK / common;
    let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    let mut sums = [0u32; BLOCK];
    for at in 0..total {
        let copy = at / n;
        let byte = (0..8).fold(0u8, |byte, k| {
            let position = (at % n) * 8 + k;
            byte << 1 | bit((position + bits - 13 * copy % bits) % bits)
        });
        sums[at % BLOCK] += u32::from(byte);
    }
    let mut carry = 0;
    loop {
        for sum in sums.iter_mut().rev() {
            *sum += carry;
            carry = *sum >> 8;
            *sum &= 0xff;
        }
        if carry == 0 {
            return sums.map(|sum| sum as u8);
        }
    }
}

/// The key for one purpose that derives from another (RFC 3961, section 5.1).
pub(super) fn derive(key: &[u8], purpose: u8) -> Option<Zeroizing<Vec<u8>>> {
    let aes = Aes::new(key)?;
    let usage = USAGE.to_be_bytes();
    let mut block = spread(&[usage[0], usage[1], usage[2], usage[3], purpose]);
    let mut derived = Zeroizing::new(Vec::with_capacity(key.len()));
    while derived.len() < key.len() {
        aes.encrypt(&mut block);
        derived.extend_from_slice(&block);
    }
    Some(derived)
}

fn xor(block: &mut [u8; BLOCK], other: &[u8]) {
    block.iter_mut().zip(other).for_each(|(a, b)| *a ^= b);
}

/// Encrypts in CBC mode, with the last two blocks exchanged and the last one cut (RFC 3962).
pub(super) fn encrypt_cts(aes: &Aes, text: &[u8]) -> Vec<u8> {
    let (mut chain, mut blocks) = ([0; BLOCK], Vec::new());
    for chunk in text.chunks(BLOCK) {
        // A short chunk counts as filled up with zeroes.
        xor(&mut chain, chunk);
        aes.encrypt(&mut chain);
        blocks.push(chain);
    }
    let last = blocks.len() - 1;
    if last > 0 {
        blocks.swap(last - 1, last);
    }
    let mut bytes = blocks.concat();
    bytes.truncate(text.len());
    bytes
}

/// Decrypts what [`encrypt_cts`] made, of one block at least.
pub(super) fn decrypt_cts(aes: &Aes, cipher: &[u8]) -> Vec<u8> {
    let tail = (cipher.len() - 1) % BLOCK + 1;
    let mut text = Vec::with_capacity(cipher.len());
    let mut chain = [0; BLOCK];
    let block_at = |at: usize| -> [u8; BLOCK] { cipher[at..at + BLOCK].try_into().expect("a whole block") };
    if cipher.len() == BLOCK {
        let mut block = block_at(0);
        aes.decrypt(&mut block);
        return block.to_vec();
    }
    let exchanged = cipher.len() - tail - BLOCK;
    for at in (0..exchanged).step_by(BLOCK) {
        let mut block = block_at(at);
        aes.decrypt(&mut block);
        xor(&mut block, &chain);
        text.extend_from_slice(&block);
        chain = block_at(at);
    }
    // The last block of the chain comes first. Its text tells what was cut off the other one.
    let mut end = block_at(exchanged);
    aes.decrypt(&mut end);
    let short = &cipher[exchanged + BLOCK..];
    let mut whole = end;
    whole[..tail].copy_from_slice(short);
    xor(&mut end, &whole);
    aes.decrypt(&mut whole);
    xor(&mut whole, &chain);
    text.extend_from_slice(&whole);
    text.extend_from_slice(&end[..tail]);
    text
}

fn mac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Option<M> {
    let mut mac = <M as KeyInit>::new_from_slice(key).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(mac)
}

fn md5_mac(key: &[u8], parts: &[&[u8]]) -> Option<[u8; 16]> {
    mac::<Hmac<Md5>>(key, parts).map(|mac| mac.finalize().into_bytes().into())
}

/// HMAC-MD5, which the derivation of session keys needs too.
pub(super) fn hmac_md5(key: &[u8], message: &[u8]) -> Option<[u8; 16]> {
    md5_mac(key, &[message])
}

fn rc4(key: &[u8], bytes: &mut [u8]) {
    let mut state: Zeroizing<[u8; 256]> = Zeroizing::new(std::array::from_fn(|i| i as u8));
    let mut j = 0u8;
    for i in 0..256 {
        j = j.wrapping_add(state[i]).wrapping_add(key[i % key.len()]);
        state.swap(i, usize::from(j));
    }
    let (mut i, mut j) = (0u8, 0u8);
    for byte in bytes {
        i = i.wrapping_add(1);
        j = j.wrapping_add(state[usize::from(i)]);
        state.swap(usize::from(i), usize::from(j));
        let at = state[usize::from(i)].wrapping_add(state[usize::from(j)]);
        *byte ^= state[usize::from(at)];
    }
}

/// Decrypts a ticket. `None`: the type is unknown, or the key is another one.
pub(super) fn decrypt(enctype: i32, key: &[u8], cipher: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    if enctype == RC4 {
        let (checksum, rest) = cipher.split_at_checked(RC4_CHECKSUM)?;
        let base = Zeroizing::new(md5_mac(key, &[&USAGE.to_le_bytes()])?);
        let stream = Zeroizing::new(md5_mac(&*base, &[checksum])?);
        let mut text = Zeroizing::new(rest.to_vec());
        rc4(&*stream, &mut text);
        mac::<Hmac<Md5>>(&*base, &[&text])?.verify_slice(checksum).ok()?;
        return Some(Zeroizing::new(text.get(RC4_RANDOM..)?.to_vec()));
    }
    if !matches!(enctype, AES_128 | AES_256) || cipher.len() < BLOCK + CHECKSUM {
        return None;
    }
    let (cipher, checksum) = cipher.split_at(cipher.len() - CHECKSUM);
    let aes = Aes::new(&derive(key, 0xaa)?)?;
    let text = Zeroizing::new(decrypt_cts(&aes, cipher));
    let check = mac::<Hmac<Sha1>>(&derive(key, 0x55)?, &[&text])?;
    check.verify_truncated_left(checksum).ok()?;
    Some(Zeroizing::new(text[BLOCK..].to_vec()))
}

/// Encrypts a ticket, with random bytes before it.
pub(super) fn encrypt(enctype: i32, key: &[u8], random: &[u8; BLOCK], text: &[u8]) -> Option<Vec<u8>> {
    if enctype == RC4 {
        let base = Zeroizing::new(md5_mac(key, &[&USAGE.to_le_bytes()])?);
        let mut bytes = [&random[..RC4_RANDOM], text].concat();
        let checksum = md5_mac(&*base, &[&bytes])?;
        let stream = Zeroizing::new(md5_mac(&*base, &[&checksum])?);
        rc4(&*stream, &mut bytes);
        return Some([&checksum[..], &bytes].concat());
    }
    if !matches!(enctype, AES_128 | AES_256) {
        return None;
    }
    let plain = Zeroizing::new([&random[..], text].concat());
    let checksum = mac::<Hmac<Sha1>>(&derive(key, 0x55)?, &[&plain])?.finalize().into_bytes();
    let aes = Aes::new(&derive(key, 0xaa)?)?;
    let mut bytes = encrypt_cts(&aes, &plain);
    bytes.extend_from_slice(&checksum[..CHECKSUM]);
    Some(bytes)
}
