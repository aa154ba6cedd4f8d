//! The entry points that fuzzing drives: each decoder of bytes from outside.
//!
//! # Theory
//! A pool image is hostile input: whatever its bytes, decoding them returns a value or an error, with bounded work and
//! memory. Each target here takes any bytes, decodes them, and walks what came out as a caller would. A
//! target returns nothing and asserts little: a panic, an overflow, a hang or a memory limit is the finding.
//!
//! The same targets are driven twice: by libFuzzer (`fuzz/`, `make fuzz`), guided by coverage, and by this crate's
//! tests, with seeds cut from real pools and mutations that depend on a printed number alone, so that every
//! `make test` runs a little of each.
//!
//! # Absent
//! Findings: an input that broke something becomes a named test of the room it broke.

pub mod decoders;
pub mod graft;
pub mod labels;
pub mod mutate;
pub mod nbd;
pub mod seeds;

/// A target: what it is called, and what it does with some bytes.
pub type Target = (&'static str, fn(&[u8]));

/// Every decoder target.
pub const DECODERS: &[Target] = &[
    ("label", decoders::label),
    ("uberblock", decoders::uberblock),
    ("nvlist", decoders::nvlist),
    ("config", decoders::config),
    ("gpt", decoders::gpt),
    ("mbr", decoders::mbr),
    ("blkptr", decoders::blkptr),
    ("gang", decoders::gang),
    ("dnode", decoders::dnode),
    ("objset", decoders::objset),
    ("zap_micro", decoders::zap_micro),
    ("zap_fat", decoders::zap_fat),
    ("zap_leaf", decoders::zap_leaf),
    ("sa", decoders::sa),
    ("znode", decoders::znode),
    ("acl", decoders::acl),
    ("dsl", decoders::dsl),
    ("bookmark", decoders::bookmark),
    ("bpobj", decoders::bpobj),
    ("spacemap", decoders::spacemap),
    ("zil", decoders::zil),
    ("l2arc", decoders::l2arc),
    ("ddt", decoders::ddt),
    ("brt", decoders::brt),
    ("history", decoders::history),
    ("indirect", decoders::indirect),
    ("scan", decoders::scan),
    ("byteswap", decoders::byteswap),
    ("embedded_checksum", decoders::embedded_checksum),
    ("lzjb", decoders::lzjb),
    ("zle", decoders::zle),
    ("gzip", decoders::gzip),
    ("lz4", decoders::lz4),
    ("zstd", decoders::zstd),
    ("nbd_option", nbd::option),
    ("nbd_requests", nbd::requests),
];
