//! ZAPs: their statistics, and their entries.

use super::ctx::{Ctx, Run};
use super::text::histogram;
use dmu::zap::{Key, Value, Zap};
use ondisk::{crypto_key, mos};

/// Names of entries whose bytes are no text.
const BINARY: [&str; 5] =
    [crypto_key::MASTER_KEY, crypto_key::HMAC_KEY, crypto_key::IV, crypto_key::MAC, mos::CHECKSUM_SALT];

/// Shows the statistics of a ZAP (`dump_zap_stats`).
pub fn stats(cx: &mut Ctx<'_>, zap: &Zap) -> Run {
    let Some(s) = zap.fat_stats()? else {
        writeln!(cx.out, "\tmicrozap: {} bytes, {} entries", zap.dnode().block_size(), zap.count()?);
        return Ok(());
    };
    cx.out.put("\tFat ZAP stats:\n\t\tPointer table:\n");
    writeln!(cx.out, "\t\t\t{} elements", s.table_len);
    writeln!(cx.out, "\t\t\tzt_blk: {}", s.table_block);
    writeln!(cx.out, "\t\t\tzt_numblks: {}", s.table_blocks);
    writeln!(cx.out, "\t\t\tzt_shift: {}", s.table_shift);
    writeln!(cx.out, "\t\t\tzt_blks_copied: {}", s.blocks_copied);
    writeln!(cx.out, "\t\t\tzt_nextblk: {}", s.next_table);
    writeln!(cx.out, "\t\tZAP entries: {}", s.entries);
    writeln!(cx.out, "\t\tLeaf blocks: {}", s.leafs);
    writeln!(cx.out, "\t\tTotal blocks: {}", s.blocks);
    writeln!(cx.out, "\t\tzap_block_type: {:#x}", s.block_type);
    writeln!(cx.out, "\t\tzap_magic: {:#x}", s.magic);
    writeln!(cx.out, "\t\tzap_salt: {:#x}", s.salt);
    for (title, buckets) in [
        ("Leafs with 2^n pointers", &s.leafs_with_2n_pointers),
        ("Blocks with n*5 entries", &s.blocks_with_n5_entries),
        ("Blocks n/10 full", &s.blocks_n_tenths_full),
        ("Entries with n chunks", &s.entries_using_n_chunks),
        ("Buckets with n entries", &s.buckets_with_n_entries),
    ] {
        writeln!(cx.out, "\t\t{title}:");
        histogram(cx.out, buckets, 0);
    }
    Ok(())
}

/// Shows the entries of any ZAP (`dump_zap`).
pub fn entries(cx: &mut Ctx<'_>, zap: &Zap) -> Run {
    stats(cx, zap)?;
    cx.out.put("\n");
    for e in zap.entries() {
        let e = e?;
        cx.out.put("\t\t");
        let binary = match &e.key {
            Key::Name(name) => {
                cx.out.put_bytes(name);
                BINARY.iter().any(|b| b.as_bytes() == name)
            }
            // The `x` at the end is in OpenZFS's output too.
            Key::Words(w) => {
                write!(cx.out, "0x{:010}x", w.first().copied().unwrap_or(0));
                false
            }
        };
        cx.out.put(" = ");
        value(cx, &e.value, binary, matches!(e.key, Key::Words(_)));
        cx.out.put("\n");
    }
    Ok(())
}

fn value(cx: &mut Ctx<'_>, value: &Value, binary: bool, words: bool) {
    match value.as_bytes().filter(|_| !words) {
        Some(bytes) if binary => bytes.iter().for_each(|b| write!(cx.out, "{b:02x}")),
        Some(bytes) => {
            let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
            cx.out.put_bytes(&bytes[..end]);
        }
        None if value.int_size() == 8 => value.iter().for_each(|v| write!(cx.out, "{} ", v as i64)),
        None => value.iter().for_each(|v| write!(cx.out, "{v} ")),
    }
}

/// Shows the entries of a directory (`dump_zpldir`).
pub fn directory(cx: &mut Ctx<'_>, zap: &Zap) -> Run {
    const TYPES: [&str; 16] = [
        "not specified",
        "FIFO",
        "Character Device",
        "3 (invalid)",
        "Directory",
        "5 (invalid)",
        "Block Device",
        "7 (invalid)",
        "Regular File",
        "9 (invalid)",
        "Symbolic Link",
        "11 (invalid)",
        "Socket",
        "Door",
        "Event Port",
        "15 (invalid)",
    ];
    stats(cx, zap)?;
    cx.out.put("\n");
    for e in zap.entries() {
        let e = e?;
        let v = e.value.first().unwrap_or(0);
        cx.out.put("\t\t");
        cx.out.put_bytes(e.name());
        writeln!(cx.out, " = {} (type: {})", v & ((1 << 48) - 1), TYPES[(v >> 60) as usize]);
    }
    Ok(())
}

/// Shows the attributes that files of an object set can have (`dump_sa_attrs`).
pub fn sa_registry(cx: &mut Ctx<'_>, zap: &Zap) -> Run {
    stats(cx, zap)?;
    cx.out.put("\n");
    for e in zap.entries() {
        let e = e?;
        cx.out.put("\t\t");
        cx.out.put_bytes(e.name());
        match e.value.first() {
            None => cx.out.put(" = \n"),
            Some(v) => {
                let (len, swap, num) = (v >> 24 & 0xffff, v >> 16 & 0xff, v & 0xffff);
                writeln!(cx.out, " =  {v:x} : [{len}:{swap}:{num}]");
            }
        }
    }
    Ok(())
}

/// Shows the layouts of attributes (`dump_sa_layouts`).
pub fn sa_layouts(cx: &mut Ctx<'_>, zap: &Zap) -> Run {
    stats(cx, zap)?;
    cx.out.put("\n");
    for e in zap.entries() {
        let e = e?;
        cx.out.put("\t\t");
        cx.out.put_bytes(e.name());
        cx.out.put(" = [");
        if e.value.is_empty() {
            cx.out.put("\n");
            continue;
        }
        e.value.iter().for_each(|v| write!(cx.out, " {v} "));
        cx.out.put("]\n");
    }
    Ok(())
}
