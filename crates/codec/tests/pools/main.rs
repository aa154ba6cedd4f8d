//! Every block of real pools is verified, decrypted and unpacked, with this crate and `ondisk`
//! alone.

#![allow(clippy::unwrap_used, reason = "a test, whose helpers are functions too")]

mod keys;
mod walk;

use codec::crypt::WrappingKey;
use keys::Keys;
use std::fs::File;
use walk::Walk;

/// Walks a fixture of one disk; `None` if the fixture isn't available.
fn walk(name: &str) -> Option<Walk> {
    let fixture = testkit::find(name)?;
    let mut given = Vec::new();
    if fixture.dir().join("raw.key").exists() {
        given.push(WrappingKey::from_raw(fixture.file("raw.key").try_into().unwrap()));
        given.push(WrappingKey::from_hex(&fixture.file("hex.key")).unwrap());
    }
    let mut walk = Walk::new(File::open(&fixture.images()[0]).unwrap(), Keys::new(given));
    walk.pool();
    Some(walk)
}

fn has(walk: &Walk, what: &str, least: usize) {
    let count = walk.count.get(what).copied().unwrap_or(0);
    assert!(count >= least, "{what}: {count} of {least}; {:#?}", walk.count);
}

/// Goal: each checksum function and each compressor that a pool can use agrees with OpenZFS's
/// blocks.
#[test]
fn every_checksum_and_compressor() {
    let walk = walk("single-lz4").expect("this fixture is bundled");
    for kind in ["fletcher2", "sha256", "sha512", "skein", "edonr", "blake3", "off"] {
        has(&walk, &format!("checksum {kind}"), 50);
    }
    has(&walk, "checksum fletcher4", 5000);
    for kind in ["uncompressed", "lzjb", "gzip-1", "gzip-9", "zle", "lz4", "zstd"] {
        has(&walk, &format!("compress {kind}"), 50);
    }
    has(&walk, "uberblock", 100);
    assert!(walk.repacked > 1000);
}

/// Goal: all suites, key formats and kinds of protected blocks decrypt and authenticate, and
/// encrypt to the same bytes.
#[test]
fn every_suite() {
    let walk = walk("encrypted").expect("this fixture is bundled");
    for suite in ["aes-128-ccm", "aes-192-ccm", "aes-256-ccm", "aes-128-gcm", "aes-192-gcm", "aes-256-gcm"] {
        has(&walk, &format!("{suite} ZFS plain file"), 10);
        has(&walk, &format!("{suite} DMU dnode"), 1);
    }
    has(&walk, "authenticated", 10);
    has(&walk, "indirect MAC", 10);
    has(&walk, "objset, both MACs", 10);
    has(&walk, "encrypted for dedup", 1);
}

/// Goal: gang headers verify: nested ones, ones with copies, and encrypted ones.
#[test]
fn gang_blocks() {
    let walk = walk("gang").expect("this fixture is bundled");
    has(&walk, "gang header", 100);
    has(&walk, "aes-256-gcm ZFS plain file", 10);
}

/// Goal: log blocks, plain and encrypted, verify to the end of their chains.
#[test]
fn log_blocks() {
    let walk = walk("zil-freeze").expect("this fixture is bundled");
    has(&walk, "log block", 20);
    has(&walk, "log block, encrypted", 5);
}
