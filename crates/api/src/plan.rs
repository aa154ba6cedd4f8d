//! What a file system's properties say about mounting it.

use crate::Reason;
use dsl::prop::{Kind, Prop, Value};
use fuse::tree::Statfs;
use std::path::PathBuf;
use zpl::{Atime, Policy};

/// Where a file system belongs (`mountpoint`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    /// There, the alternate root included.
    Path(PathBuf),
    /// Where `mount(8)` puts it (`legacy`).
    Legacy,
    /// Nowhere (`none`).
    None,
}

/// `canmount`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CanMount {
    /// Never.
    Off,
    /// With everything else.
    On,
    /// When it is asked for by name.
    NoAuto,
}

/// `snapdir`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapDir {
    /// `.zfs` can be walked into and isn't listed.
    Hidden,
    /// It is listed.
    Visible,
    /// There is none.
    Disabled,
}

/// A file system and how to mount it.
#[derive(Debug)]
pub struct Plan {
    /// The head.
    pub dataset: dsl::Dataset,
    /// Its name.
    pub name: String,
    /// Where it belongs.
    pub place: Where,
    /// When it is mounted.
    pub can_mount: CanMount,
    /// Whether its key is missing.
    pub locked: bool,
    /// Whether it belongs to a container (`zoned`).
    pub zoned: bool,
    /// Whether it was received in part.
    pub partial: bool,
    /// Whether it was received redacted.
    pub redacted: bool,
    /// Whether it may cover what is in the mountpoint (`overlay`).
    pub overlay: bool,
    /// `snapdir`.
    pub snapdir: SnapDir,
    /// Whether it shows extended attributes (`xattr`).
    pub xattrs: bool,
    /// Sizes that `statfs` shows.
    pub sizes: Statfs,
    /// What properties say about writing.
    pub policy: Policy,
    /// What properties say about its blocks in memory.
    pub cache: arc::Policy,
    /// What the kernel is told.
    pub options: fuse::Options,
    /// Mount options that were given, which go before properties.
    pub given: Vec<String>,
}

/// What mount options that were given decide of properties: the last of each pair.
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

/// Longest names, without and with `longname`.
const NAME_MAX: (u32, u32) = (255, 1023);
const DEFAULT_RECORD: u64 = 128 << 10;
impl Plan {
    /// Mounts it at this place, if one is named.
    pub fn place_at(&mut self, at: Option<&str>) {
        if let Some(path) = at {
            self.place = Where::Path(PathBuf::from(path));
        }
    }

    /// Reading changes nothing of what is read only.
    pub fn rest_if_read_only(&mut self, mounted_so: bool) {
        if mounted_so || self.options.read_only {
            self.policy.atime = Atime::Never;
        }
    }

    /// Reads a dataset's properties. `None` for what is no file system, nor a snapshot of one, which belongs nowhere and can only be read.
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
            // Others may come in where the kernel lets a mount of ours have them.
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
            policy: poolhouse::policy_of(&dataset)?,
            cache: arc::Policy {
                keep: arc::Which::of_number(number(Prop::Primarycache, 2)?),
                ahead: arc::Which::of_number(number(Prop::Prefetch, 2)?),
            },
            options,
            given: Vec::new(),
            name,
            dataset,
        }))
    }

    /// What `statfs` shows of a dataset whose records are `unit` bytes large.
    ///
    /// # Errors
    /// As reading fails.
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
            blocks: referenced.saturating_add(available) / u64::from(unit),
            free: available / u64::from(unit),
            files: files_free.saturating_add(used_objects),
            files_free,
            name_max,
        })
    }

    /// Why this file system isn't mounted, if so. Some reasons hold always, the others unless it was asked for by name
    /// (the second of the pair); what keeps one from being mounted with the rest is passed over in silence.
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

    /// Applies mount options (`-o`). The option that isn't known comes back.
    pub fn apply(&mut self, options: &[String]) -> Result<(), String> {
        self.given.extend_from_slice(options);
        for option in options {
            let (to, atime) = (&mut self.options, &mut self.policy.atime);
            match option.as_str() {
                "ro" => to.read_only = true,
                // Of a snapshot it is asked in vain.
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
