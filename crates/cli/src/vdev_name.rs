//! Names of vdevs.

use api::Vdev;

use crate::cx::Cx;

/// How to name vdevs.
#[derive(Debug, Clone, Copy, Default)]
pub struct NameFlags {
    /// Name vdevs by guid: `-g` (`VDEV_NAME_GUID`).
    pub guid: bool,
    /// Name disks by their whole path: `-P` (`VDEV_NAME_PATH`).
    pub path: bool,
    /// Resolve symbolic links: `-L` (`VDEV_NAME_FOLLOW_LINKS`).
    pub follow: bool,
    /// Number the vdevs that have children: `mirror-0` (`VDEV_NAME_TYPE_ID`).
    pub type_id: bool,
}

impl NameFlags {
    /// These flags, and those that the environment sets.
    pub fn with_env(mut self, cx: &Cx) -> Self {
        self.path |= cx.env_is_set("ZPOOL_VDEV_NAME_PATH");
        self.guid |= cx.env_is_set("ZPOOL_VDEV_NAME_GUID");
        self.follow |= cx.env_is_set("ZPOOL_VDEV_NAME_FOLLOW_LINKS");
        self
    }

    /// These flags, with numbers for vdevs that have children.
    pub fn with_id(self) -> Self {
        Self { type_id: true, ..self }
    }
}

/// The name of a vdev (`zpool_vdev_name`). The root has its pool's name, if `pool` is given.
pub fn vdev_name(pool: Option<&str>, v: &Vdev, flags: NameFlags) -> String {
    if let (Some(name), "root") = (pool, v.kind.as_str()) {
        return name.to_owned();
    }
    if v.not_present || flags.guid {
        return v.guid.to_string();
    }
    if let Some(path) = &v.path {
        let mut name = path.clone();
        if flags.follow
            && let Ok(real) = std::fs::canonicalize(&name)
        {
            name = real.to_string_lossy().into_owned();
        }
        if v.kind == "disk" && !flags.path {
            name = strip_path(&name).to_owned();
        }
        if v.kind != "dspare" && v.whole_disk && !flags.path {
            name = strip_partition(&name);
        }
        return name;
    }
    let name = match v.kind.as_str() {
        "raidz" => format!("raidz{}", v.nparity),
        "draid" => {
            format!("draid{}:{}d:{}c:{}s", v.nparity, v.draid_ndata, v.children.len(), v.draid_nspares)
        }
        kind => kind.to_owned(),
    };
    if flags.type_id { format!("{name}-{}", v.id) } else { name }
}

/// A device's path without the usual folder of devices (`zfs_strip_path`).
fn strip_path(path: &str) -> &str {
    const FOLDERS: [&str; 9] = [
        "/dev/disk/by-vdev/",
        "/dev/mapper/",
        "/dev/disk/by-partlabel/",
        "/dev/disk/by-partuuid/",
        "/dev/disk/by-label/",
        "/dev/disk/by-uuid/",
        "/dev/disk/by-id/",
        "/dev/disk/by-path/",
        "/dev/",
    ];
    FOLDERS.iter().find_map(|f| path.strip_prefix(f)).unwrap_or(path)
}

/// A disk's name without its partition: `sda1`, `nvme0n1p1`, `wwn-0x5000-part1`
/// (`zfs_strip_partition`).
fn strip_partition(name: &str) -> String {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let cut = |at: usize, number: &str| if digits(number) { name[..at].to_owned() } else { name.to_owned() };
    if let Some(at) = name.find("-part").filter(|&at| at > 0) {
        return cut(at, &name[at + 5..]);
    }
    if let Some(at) = name.rfind('p').filter(|&at| at > 1 && name.as_bytes()[at - 1].is_ascii_digit()) {
        return cut(at, &name[at + 1..]);
    }
    let head = if name.starts_with("xvd") {
        3
    } else if ["hd", "sd", "vd"].iter().any(|p| name.starts_with(p)) {
        2
    } else {
        return name.to_owned();
    };
    let end = name.bytes().skip(head).position(|b| !b.is_ascii_alphabetic()).map_or(name.len(), |n| n + head);
    if end > head { cut(end, &name[end..]) } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    //! Names as they appear in transcripts.

    use super::*;

    fn leaf(kind: &str, path: &str, whole_disk: bool) -> Vdev {
        Vdev { kind: kind.into(), path: Some(path.into()), whole_disk, guid: 7, ..Vdev::default() }
    }

    /// Goal: files keep their path, disks lose the folder and whole disks the partition; `-g` and
    /// `-P` change that.
    #[test]
    fn leaves() {
        let f = NameFlags::default();
        assert_eq!(vdev_name(None, &leaf("file", "/fx/d0.img", false), f), "/fx/d0.img");
        assert_eq!(vdev_name(None, &leaf("disk", "/dev/loop0p1", false), f), "loop0p1");
        assert_eq!(vdev_name(None, &leaf("disk", "/dev/sda1", true), f), "sda");
        assert_eq!(vdev_name(None, &leaf("disk", "/dev/disk/by-id/wwn-0x5-part1", true), f), "wwn-0x5");
        assert_eq!(vdev_name(None, &leaf("disk", "/dev/nvme0n1p2", true), f), "nvme0n1");
        assert_eq!(
            vdev_name(None, &leaf("disk", "/dev/sda1", true), NameFlags { path: true, ..f }),
            "/dev/sda1"
        );
        assert_eq!(vdev_name(None, &leaf("disk", "/dev/sda1", true), NameFlags { guid: true, ..f }), "7");
        assert_eq!(vdev_name(None, &Vdev { not_present: true, ..leaf("disk", "/dev/sda1", true) }, f), "7");
    }

    /// Goal: vdevs with children show their geometry and number; the root has the pool's name.
    #[test]
    fn groups() {
        let id = NameFlags::default().with_id();
        let v = Vdev { kind: "raidz".into(), nparity: 2, id: 3, ..Vdev::default() };
        assert_eq!(vdev_name(None, &v, id), "raidz2-3");
        let children = vec![Vdev::default(); 5];
        let v = Vdev {
            kind: "draid".into(),
            nparity: 1,
            draid_ndata: 2,
            draid_nspares: 1,
            children,
            ..Vdev::default()
        };
        assert_eq!(vdev_name(None, &v, id), "draid1:2d:5c:1s-0");
        let root = Vdev { kind: "root".into(), ..Vdev::default() };
        assert_eq!(vdev_name(Some("tank"), &root, id), "tank");
        assert_eq!(vdev_name(None, &root, id), "root-0");
    }
}
