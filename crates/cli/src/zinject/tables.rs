//! Faults as `zinject` shows them: a table for each kind, and the fault that was added.

use api::{Ailment, DeviceFault, Injected, Spell};

use super::{ERRORS, MOS_TYPES};
use console::Out;

/// The head of a table and the line under it. Each is shown before the table's first row.
type Head = [&'static str; 2];

const DEVICES: Head = [
    " ID  POOL             GUID              TYPE   ERROR       FREQ     ",
    "---  ---------------  ----------------  -----  ----------  ---------",
];
const DELAYS: Head = [
    " ID  POOL             DELAY (ms)       LANES            GUID",
    "---  ---------------  ---------------  ---------------  ----------------",
];
const BLOCKS: Head = [
    " ID  POOL             OBJSET  OBJECT  TYPE      LVL  DVAs  RANGE          ",
    "---  ---------------  ------  ------  --------  ---  ----  ---------------",
];
const PASSES: Head =
    [" ID  POOL                 DELAY (sec)  COMMAND", "---  -------------------  -----------  -------"];
/// OpenZFS has no table for these, and shows them nowhere.
const LOST: Head = [" ID  POOL             LOST WRITES", "---  ---------------  ---------------"];

/// Prints all faults, one kind after another (`print_all_handlers`).
pub(super) fn list(out: &mut Out, all: &[Injected]) {
    if all.is_empty() {
        out.put("No handlers registered.\nRun 'zinject -h' for usage information.\n");
    }
    let tables: [(Head, Row); 5] =
        [(DEVICES, device), (DELAYS, delay), (BLOCKS, blocks), (PASSES, pass), (LOST, lost)];
    for (head, row) in tables {
        let rows: Vec<String> = all.iter().filter_map(row).collect();
        if !rows.is_empty() {
            head.iter().for_each(|line| writeln!(out, "{line}"));
            rows.iter().for_each(|row| writeln!(out, "{row}"));
            writeln!(out);
        }
    }
}

type Row = fn(&Injected) -> Option<String>;

fn device(one: &Injected) -> Option<String> {
    let Ailment::Device { guid, on, wrong, often, .. } = &one.what else { return None };
    let error = match wrong {
        DeviceFault::Delay(..) => return None,
        DeviceFault::Corrupt => "corrupt",
        DeviceFault::Noop => "noop",
        DeviceFault::Error(code) => {
            ERRORS.iter().find(|(_, one)| one == code).map_or("[unknown]", |(name, _)| name)
        }
    };
    let percent = f64::from(*often) / f64::from(u32::MAX) * 100.0;
    Some(format!("{:>3}  {:<15}  {guid:x}  {on:<5}  {error:<10}  {percent:>8.4}%", one.id, one.pool))
}

fn delay(one: &Injected) -> Option<String> {
    let Ailment::Device { guid, wrong: DeviceFault::Delay(ms, lanes), .. } = &one.what else { return None };
    Some(format!("{:>3}  {:<15}  {ms:<15}  {lanes:<15}  {guid:x}", one.id, one.pool))
}

fn blocks(one: &Injected) -> Option<String> {
    let Ailment::Data { objset, object, kind, level, copies, range } = &one.what else { return None };
    let named = MOS_TYPES.iter().find(|(_, of)| *kind != 0 && of.to_disk() == *kind);
    let named = named.map_or("-", |(name, _)| name);
    let range = range.map_or_else(|| "all".to_owned(), |(from, to)| format!("[{from}, {to}]"));
    let of = format!("{objset:<6}  {object:<6}  {named:<8}  {level:<3}  {copies:#04x}");
    Some(format!("{:>3}  {:<15}  {of}  {range}", one.id, one.pool))
}

fn pass(one: &Injected) -> Option<String> {
    let Ailment::Pass { import, seconds } = &one.what else { return None };
    let what = if *import { "import" } else { "export" };
    Some(format!("{:>3}  {:<19}  {seconds:<11}  {what}", one.id, one.pool))
}

fn lost(one: &Injected) -> Option<String> {
    let spell = match one.what {
        Ailment::LostWrites(Spell::Seconds(seconds)) => format!("{seconds} seconds"),
        Ailment::LostWrites(Spell::Groups(groups)) => format!("{groups} txgs"),
        _ => return None,
    };
    Some(format!("{:>3}  {:<15}  {spell}", one.id, one.pool))
}

/// Prints the fault that was added (`register_handler`).
pub(super) fn added(out: &mut Out, one: &Injected) {
    writeln!(out, "Added handler {} with the following properties:", one.id);
    writeln!(out, "  pool: {}", one.pool);
    match &one.what {
        Ailment::Device { guid, .. } => writeln!(out, "  vdev: {guid:x}"),
        Ailment::LostWrites(Spell::Groups(groups)) => writeln!(out, " txgs: {groups} "),
        Ailment::Pass { seconds, .. } | Ailment::LostWrites(Spell::Seconds(seconds)) => {
            writeln!(out, " time: {seconds} seconds")
        }
        Ailment::Data { objset, object, kind, level, copies, range } => {
            writeln!(out, "objset: {objset}");
            writeln!(out, "object: {object}");
            writeln!(out, "  type: {kind}");
            writeln!(out, " level: {level}");
            match range {
                None => writeln!(out, " range: all"),
                Some((from, to)) => writeln!(out, " range: [{from}, {})", to.saturating_add(1)),
            }
            writeln!(out, "  dvas: {copies:#x}");
        }
    }
}
