//! How the properties of a dataset steer changes of its files.

use super::{AclInherit, AclMode, Atime};
use dsl::Prop;
use observe::lock::RwLock;
use std::sync::Arc;
use zil::LogPolicy;

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

/// The dataset properties that steer changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Largest block of a file in bytes, a power of two (`recordsize`).
    pub recordsize: u32,
    /// Extended attributes are stored as a system attribute where they fit (`xattr=sa`).
    pub xattr_sa: bool,
    /// POSIX ACLs apply: new files inherit from their directory (`acltype=posix`).
    pub posix_acl: bool,
    /// Slots of a new file's dnode (`dnodesize`). More than one needs the feature `large_dnode`.
    pub slots: u8,
    /// Longest name in bytes: 255, or 1023 with `longname=on`.
    pub name_max: usize,
    /// When reading changes the access time (`atime`, `relatime`).
    pub atime: Atime,
    /// When changes are durable, and where they are logged (`sync`, `logbias`).
    pub log: LogPolicy,
    /// What a new mode does to an NFSv4 ACL that says more than a mode (`aclmode`).
    pub acl_mode: AclMode,
    /// What a new file inherits from its directory's NFSv4 ACL (`aclinherit`).
    pub acl_inherit: AclInherit,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            recordsize: 128 << 10,
            xattr_sa: true,
            posix_acl: false,
            slots: 1,
            name_max: 255,
            atime: Atime::Relative,
            log: LogPolicy::default(),
            acl_mode: AclMode::Discard,
            acl_inherit: AclInherit::Restricted,
        }
    }
}

impl Policy {
    /// Reads the properties of a file system, or of a snapshot of one.
    ///
    /// # Errors
    /// [`dsl::Error`]: a property can't be read.
    pub fn of(dataset: &dsl::Dataset) -> dsl::Result<Policy> {
        let number =
            |prop, otherwise| Ok::<u64, dsl::Error>(dataset.stored_number(prop)?.unwrap_or(otherwise));
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
            log: LogPolicy::from_properties(number(Prop::Sync, 0)?, number(Prop::Logbias, 0)?),
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
}

/// The current [`Policy`], which may change while the file system is in use; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Policies(Arc<RwLock<Policy>>);

impl Policies {
    /// Starts with this policy.
    pub fn new(policy: Policy) -> Self {
        Policies(Arc::new(RwLock::new(policy)))
    }

    /// The current policy.
    pub fn get(&self) -> Policy {
        *self.0.read()
    }

    /// Replaces the policy.
    pub fn set(&self, policy: Policy) {
        *self.0.write() = policy;
    }
}
