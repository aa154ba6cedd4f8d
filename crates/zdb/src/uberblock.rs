//! `zdb -u`: uberblocks.

use super::ctx::Ctx;
use super::text;
use ondisk::uberblock::MMP_MAGIC;
use ondisk::{Blkptr, Uberblock};

/// Shows an uberblock between two texts (`dump_uberblock`).
///
/// `mmp_magic` is the word in the field of the multihost magic number.
pub fn dump(cx: &mut Ctx<'_>, ub: &Uberblock, mmp_magic: u64, header: &str, footer: &str) {
    let time = cx.clock.ctime(ub.timestamp);
    let bp = Blkptr::decode(&ub.rootbp).map_or_else(|e| format!("<{e}>"), |bp| text::blkptr(&bp));
    cx.out.put(header);
    writeln!(cx.out, "\tmagic = {:016x}", ondisk::uberblock::UBERBLOCK_MAGIC);
    writeln!(cx.out, "\tversion = {}", ub.version);
    writeln!(cx.out, "\ttxg = {}", ub.txg.0);
    writeln!(cx.out, "\tguid_sum = {}", ub.guid_sum);
    writeln!(cx.out, "\ttimestamp = {} UTC = {time}", ub.timestamp);
    writeln!(cx.out, "\tbp = {bp}");
    writeln!(cx.out, "\tmmp_magic = {mmp_magic:016x}");
    if let Some(mmp) = ub.mmp {
        writeln!(cx.out, "\tmmp_delay = {}", mmp.delay_ns);
        // Invalid fields are left out. A multihost pool sets all three.
        if let Some(seq) = mmp.seq() {
            writeln!(cx.out, "\tmmp_seq = {seq}");
        }
        if let Some(fail) = mmp.fail_intervals() {
            writeln!(cx.out, "\tmmp_fail = {fail}");
        }
        if let Some(interval) = mmp.interval_ms() {
            writeln!(cx.out, "\tmmp_write = {interval}");
        }
        writeln!(cx.out, "\tmmp_valid = {:x}", mmp.valid_bits());
    }
    if cx.opts.count('u') >= 4 {
        writeln!(cx.out, "\trootbp = {bp}");
    }
    writeln!(cx.out, "\tcheckpoint_txg = {}", ub.checkpoint_txg.0);
    let reflow = ub.raidz_reflow;
    writeln!(cx.out, "\traidz_reflow state={} off={}", reflow.scratch as u16, reflow.offset);
    cx.out.put(footer);
}

/// Shows the uberblock of an open pool.
pub fn current(cx: &mut Ctx<'_>, ub: &Uberblock, header: &str) {
    let magic = if ub.mmp.is_some() { MMP_MAGIC } else { 0 };
    dump(cx, ub, magic, header, "\n");
}
