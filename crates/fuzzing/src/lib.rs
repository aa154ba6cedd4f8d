//! The entry points for fuzzing: all decoders of foreign bytes.
//!
//! # Theory
//! A pool image is hostile input. Whatever its bytes, decoding must return a value or an error,
//! with bounded work and memory. Each target takes any bytes, decodes them, and walks the result as
//! a caller would. A target returns nothing and asserts little. Its findings are panics, overflows,
//! hangs and excessive memory use.
//!
//! Two programs drive the same targets:
//!
//! * libFuzzer (`fuzz/`, `make fuzz`), guided by coverage.
//! * The tests of this crate, with seeds from real pools, and mutations that follow from a printed
//!   number. So every `make test` runs a few rounds of each.
//!
//! # Absent
//! Findings: an input that caused a failure becomes a named test of that crate.

pub mod afs;
pub mod decoders;
pub mod graft;
pub mod labels;
pub mod mutate;
pub mod nbd;
pub mod rx;
pub mod seeds;
pub mod stream;

/// A target: its name, and the function that gets the bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
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
    ("stream", stream::stream),
    ("afs_dump", afs::dump),
    ("afs_dir", afs::dir),
    ("afs_acl", afs::acl),
    ("afs_calls", afs::calls),
    ("afs_config", afs::config),
    ("afs_vicep", afs::vicep),
    ("nbd_option", nbd::option),
    ("nbd_requests", nbd::requests),
    ("rx_packet", rx::packet),
    ("rx_xdr", rx::xdr),
    ("rx_ticket", rx::ticket),
    ("rx_response", rx::response),
    ("rx_key_file", rx::key_file),
    ("rx_conversation", rx::conversation),
];
