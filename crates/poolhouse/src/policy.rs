//! The policy of a file system, by its properties.

use dsl::{Prop, Value};
use zpl::{AclInherit, AclMode, Atime, LogPolicy, Policy, SyncMode};

/// The longest names in bytes, without and with `longname`.
const NAME_MAX: (usize, usize) = (255, 1023);
const DEFAULT_RECORD: u64 = 128 << 10;
/// `xattr=sa`.
const XATTR_SA: u64 = 2;
/// `dnodesize=auto`: 1 KiB.
const DNODE_AUTO: u64 = 1;

/// Slots of a new dnode, by the property `dnodesize`.
fn slots(dnodesize: u64) -> u8 {
    match dnodesize {
        DNODE_AUTO => 2,
        bytes => u8::try_from(bytes.div_ceil(512)).unwrap_or(1).clamp(1, 32),
    }
}

/// Reads the properties of a file system, or of a snapshot of one.
///
/// # Errors
/// [`dsl::Error`]: a property can't be read.
pub fn policy_of(dataset: &dsl::Dataset) -> dsl::Result<Policy> {
    let number = |prop, otherwise| {
        Ok::<u64, dsl::Error>(match dataset.property(prop)?.map(|property| property.value) {
            Some(Value::Number(number)) => number,
            Some(Value::Text(_)) | None => otherwise,
        })
    };
    let record = number(Prop::Recordsize, DEFAULT_RECORD)?.clamp(512, 16 << 20);
    Ok(Policy {
        recordsize: u32::try_from(record).expect("clamped to 16 MiB").next_power_of_two(),
        xattr_sa: number(Prop::Xattr, XATTR_SA)? == XATTR_SA,
        posix_acl: number(Prop::Acltype, 0)? == 1,
        slots: slots(number(Prop::Dnodesize, 0)?),
        name_max: if number(Prop::Longname, 0)? == 0 { NAME_MAX.0 } else { NAME_MAX.1 },
        atime: match (number(Prop::Atime, 1)? != 0, number(Prop::Relatime, 1)? != 0) {
            (false, _) => Atime::Never,
            (true, true) => Atime::Relative,
            (true, false) => Atime::Always,
        },
        log: LogPolicy {
            sync: match number(Prop::Sync, 0)? {
                1 => SyncMode::Always,
                2 => SyncMode::Disabled,
                _ => SyncMode::Standard,
            },
            throughput: number(Prop::Logbias, 0)? == 1,
        },
        acl_mode: match number(Prop::Aclmode, 0)? {
            2 => AclMode::GroupMask,
            3 => AclMode::Passthrough,
            4 => AclMode::Restricted,
            _ => AclMode::Discard,
        },
        acl_inherit: match number(Prop::Aclinherit, 4)? {
            0 => AclInherit::Discard,
            1 => AclInherit::NoAllow,
            3 => AclInherit::Passthrough,
            5 => AclInherit::PassthroughX,
            _ => AclInherit::Restricted,
        },
    })
}
