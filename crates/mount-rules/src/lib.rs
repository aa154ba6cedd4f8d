//! The mount plan of a file system, from its properties and mount options.
//!
//! # Theory
//! The daemon mounts a file system by its plan. `poolhouse cp` reads and writes it as if it were
//! mounted so. The rules are in a crate below both.
//!
//! # Absent
//! Mounting itself, and the order of several mounts.

use api::Reason;
use dsl::prop::{Kind, Prop, Value};
use fuse::tree::Statfs;
use std::path::PathBuf;
use zpl::{Atime, Policy};

/// The place of a file system (`mountpoint`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    /// This path, with the alternate root.
    Path(PathBuf),
    /// A place that `mount(8)` is given (`legacy`).
    Legacy,
    /// No place (`none`).
    None,
}

/// The property `canmount`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CanMount {
    /// It is never mounted.
    Off,
    /// It is mounted with all others.
    On,
    /// It is mounted only by name.
    NoAuto,
}

/// The property `snapdir`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapDir {
    /// `.zfs` can be entered, and is not listed.
    Hidden,
    /// `.zfs` is listed.
    Visible,
    /// There is no `.zfs`.
    Disabled,
}

/// A file system with its mount plan.
#[derive(Debug)]
pub struct Plan {
    /// The head or snapshot.
    pub dataset: dsl::Dataset,
    /// Its name.
    pub name: String,
    /// Its place.
    pub place: Where,
    /// When it may be mounted.
    pub can_mount: CanMount,
    /// Whether its key is missing.
    pub locked: bool,
    /// Whether it belongs to a container (`zoned`).
    pub zoned: bool,
    /// Whether it is partially received.
    pub partial: bool,
    /// Whether it was received redacted.
    pub redacted: bool,
    /// Whether it may be mounted on a directory that is not empty (`overlay`).
    pub overlay: bool,
    /// The visibility of `.zfs`.
    pub snapdir: SnapDir,
    /// Whether it shows extended attributes (`xattr`).
    pub xattrs: bool,
    /// The sizes that `statfs` shows.
    pub sizes: Statfs,
    /// Its write policy, from properties.
    pub policy: Policy,
    /// Its cache policy, from properties.
    pub cache: arc::Policy,
    /// Its options for the kernel.
    pub options: fuse::Options,
    /// The given mount options, which override properties.
    pub given: Vec<String>,
}

/// The properties that given mount options decide: the last of each pair of options.
pub fn decided(given: &[String]) -> Vec<(Prop, bool)> {
    let mut all: Vec<(Prop, bool)> = Vec::new();
    for option in given {
        let (prop, on) = match option.as_str() {
            "ro" => (Prop::Readonly, true),
            "rw" => (Prop::Readonly, false),
            "relatime" => (Prop::Relatime, true),
            "norelatime" => (Prop::Relatime, false),
            "suid" | "setuid" => (Prop::Setuid, true),
            "nosuid" | "nosetuid" => (Prop::Setuid, false),
            "dev" | "devices" => (Prop::Devices, true),
            "nodev" | "nodevices" => (Prop::Devices, false),
            "exec" => (Prop::Exec, true),
            "noexec" => (Prop::Exec, false),
            "atime" => (Prop::Atime, true),
            "noatime" => (Prop::Atime, false),
            "xattr" => (Prop::Xattr, true),
            "noxattr" => (Prop::Xattr, false),
            _ => continue,
        };
        all.retain(|(other, _)| *other != prop);
        all.push((prop, on));
    }
    all
}

/// The longest names, without and with `longname`.
const NAME_MAX: (u32, u32) = (255, 1023);
const DEFAULT_RECORD: u64 = 128 << 10;
impl Plan {
    /// Sets the place, if one is named.
    pub fn place_at(&mut self, at: Option<&str>) {
        if let Some(path) = at {
            self.place = Where::Path(PathBuf::from(path));
        }
    }

    /// Turns off access times if it is read-only. `mounted_so` says that its mount is.
    pub fn rest_if_read_only(&mut self, mounted_so: bool) {
        if mounted_so || self.options.read_only {
            self.policy.atime = Atime::Never;
        }
    }

    /// Reads the plan from a dataset's properties.
    ///
    /// `None` if it is neither a file system nor a snapshot of one. A snapshot has no place of its
    /// own, and is read-only.
    ///
    /// # Errors
    /// * [`dsl::Error::Object`], [`dsl::Error::Pool`]: a property can't be read.
    /// * [`dsl::Error::Corrupt`]: a property is damaged.
    pub fn of(dataset: dsl::Dataset) -> dsl::Result<Option<Self>> {
        if dataset.head_kind()? != Some(Kind::Filesystem) {
            return Ok(None);
        }
        let snapshot = dataset.is_snapshot();
        let number = |prop, otherwise| {
            Ok::<u64, dsl::Error>(match dataset.property(prop)?.map(|property| property.value) {
                Some(Value::Number(number)) => number,
                Some(Value::Text(_)) | None => otherwise,
            })
        };
        let off = |prop| Ok::<bool, dsl::Error>(number(prop, 1)? == 0);
        let name = dataset.name();
        let place = match dataset.property(Prop::Mountpoint)?.map(|property| property.value) {
            Some(Value::Text(path)) if path.starts_with('/') => Where::Path(PathBuf::from(path)),
            Some(Value::Text(word)) if word == "legacy" => Where::Legacy,
            Some(Value::Text(_) | Value::Number(_)) | None => Where::None,
        };
        let record = number(Prop::Recordsize, DEFAULT_RECORD)?.clamp(512, 16 << 20);
        let unit = u32::try_from(record).expect("clamped to 16 MiB");
        let name_max = if number(Prop::Longname, 0)? == 0 { NAME_MAX.0 } else { NAME_MAX.1 };
        let posix_acl = number(Prop::Acltype, 0)? == 1;
        let options = fuse::Options {
            source: name.clone(),
            read_only: snapshot || number(Prop::Readonly, 0)? != 0,
            nosuid: off(Prop::Setuid)?,
            nodev: off(Prop::Devices)?,
            noexec: off(Prop::Exec)?,
            noatime: off(Prop::Atime)?,
            // Other users may use a mount where the kernel permits this process to allow them.
            allow_other: rustix::process::geteuid().is_root(),
            posix_acl,
        };
        Ok(Some(Self {
            place,
            can_mount: match number(Prop::Canmount, 1)? {
                _ if snapshot => CanMount::On,
                0 => CanMount::Off,
                2 => CanMount::NoAuto,
                _ => CanMount::On,
            },
            locked: dataset.dsl().keys().status(dataset.dir())? == dsl::keys::KeyStatus::Unavailable,
            zoned: number(Prop::Zoned, 0)? != 0,
            partial: dataset.is_inconsistent(),
            redacted: number(Prop::Redacted, 0)? != 0,
            overlay: !off(Prop::Overlay)?,
            snapdir: match number(Prop::Snapdir, 0)? {
                1 => SnapDir::Visible,
                2 => SnapDir::Disabled,
                _ => SnapDir::Hidden,
            },
            xattrs: !off(Prop::Xattr)?,
            sizes: Self::sizes_of(&dataset, unit, name_max)?,
            policy: Policy::of(&dataset)?,
            cache: arc::Policy {
                keep: arc::CacheType::of_number(number(Prop::Primarycache, 2)?),
                ahead: arc::CacheType::of_number(number(Prop::Prefetch, 2)?),
            },
            options,
            given: Vec::new(),
            name,
            dataset,
        }))
    }

    /// The sizes that `statfs` shows. `unit` is the record size in bytes.
    ///
    /// # Errors
    /// * [`dsl::Error::Object`], [`dsl::Error::Pool`]: a property can't be read.
    /// * [`dsl::Error::Corrupt`]: a property is damaged.
    pub fn sizes_of(dataset: &dsl::Dataset, unit: u32, name_max: u32) -> dsl::Result<Statfs> {
        let number = |prop| {
            Ok::<u64, dsl::Error>(match dataset.property(prop)?.map(|property| property.value) {
                Some(Value::Number(number)) => number,
                Some(Value::Text(_)) | None => 0,
            })
        };
        let (referenced, available) = (number(Prop::Referenced)?, number(Prop::Available)?);
        let used_objects = dataset.phys().bp.stored().map_or(0, |stored| stored.fill);
        let files_free = available / 512;
        Ok(Statfs {
            unit,
            transfer: unit,
            // `df` leaves out file systems of no block (`zfs_statvfs`).
            blocks: (referenced.saturating_add(available) / u64::from(unit)).max(1),
            free: available / u64::from(unit),
            files: files_free.saturating_add(used_objects),
            files_free,
            name_max,
        })
    }

    /// Why this file system can't be mounted, if so.
    ///
    /// Some reasons always apply, and others only if the user did not name it (`by_name`). A mount
    /// of all file systems skips it silently.
    pub fn obstacle(&self, by_name: bool, redacted_too: bool) -> Option<Reason> {
        match &self.place {
            Where::Legacy => return Some(Reason::LegacyMountpoint),
            Where::None => return Some(Reason::NoMountpoint),
            Where::Path(_) => {}
        }
        match self.can_mount {
            CanMount::Off => return Some(Reason::CanmountOff),
            CanMount::NoAuto if !by_name => return Some(Reason::CanmountOff),
            CanMount::NoAuto | CanMount::On => {}
        }
        if self.zoned {
            Some(Reason::Zoned)
        } else if self.locked {
            Some(Reason::KeyNotLoaded)
        } else if self.partial {
            Some(Reason::PartiallyReceived)
        } else if self.redacted && !redacted_too {
            Some(Reason::Redacted)
        } else {
            None
        }
    }

    /// Applies mount options (`-o`).
    ///
    /// # Errors
    /// The first option that is unknown.
    pub fn apply(&mut self, options: &[String]) -> Result<(), String> {
        self.given.extend_from_slice(options);
        for option in options {
            let (to, atime) = (&mut self.options, &mut self.policy.atime);
            match option.as_str() {
                "ro" => to.read_only = true,
                // A snapshot can't be writable.
                "rw" => to.read_only = self.dataset.is_snapshot(),
                "defaults" | "remount" | "nomand" | "mand" => {}
                "relatime" if *atime != Atime::Never => *atime = Atime::Relative,
                "norelatime" if *atime != Atime::Never => *atime = Atime::Always,
                "relatime" | "norelatime" => {}
                "suid" | "setuid" => to.nosuid = false,
                "nosuid" | "nosetuid" => to.nosuid = true,
                "dev" | "devices" => to.nodev = false,
                "nodev" | "nodevices" => to.nodev = true,
                "exec" => to.noexec = false,
                "noexec" => to.noexec = true,
                "atime" => {
                    to.noatime = false;
                    if *atime == Atime::Never {
                        *atime = Atime::Relative;
                    }
                }
                "noatime" => {
                    to.noatime = true;
                    *atime = Atime::Never;
                }
                "allow_other" => to.allow_other = true,
                "xattr" => self.xattrs = true,
                "noxattr" => self.xattrs = false,
                other => match other.strip_prefix("mntpoint=") {
                    Some(path) if path.starts_with('/') => self.place = Where::Path(PathBuf::from(path)),
                    Some(_) | None => return Err(option.clone()),
                },
            }
        }
        Ok(())
    }

    /// The options as `mount` shows them.
    pub fn words(&self, read_only: bool) -> String {
        let options = &self.options;
        let mut words = vec![if read_only { "ro" } else { "rw" }];
        for (set, word) in [
            (options.nosuid, "nosuid"),
            (options.nodev, "nodev"),
            (options.noexec, "noexec"),
            (options.noatime, "noatime"),
            (self.xattrs, "xattr"),
            (options.posix_acl, "posixacl"),
        ] {
            if set {
                words.push(word);
            }
        }
        words.join(",")
    }
}
