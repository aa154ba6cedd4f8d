use super::*;
use crate::error::Words;

fn refused(text: &str) -> Error {
    Error::HelperRefused { target: "/mnt".into(), message: Words(text.as_bytes().to_vec()) }
}

/// Goal: each cause of a failed mount has a text of its own that says what to do.
#[test]
fn each_cause_has_its_advice() {
    let root = Means { is_root: true, may_administer: true, proc: true, device: true, ..Means::default() };
    let user = Means { is_root: false, helper: Some(("/usr/bin/fusermount3".into(), true)), ..root.clone() };
    let user = Means { may_administer: false, ..user };
    let mount = |source| Error::Mount { target: "/mnt".into(), source };
    let helper = Error::Helper { source: std::io::ErrorKind::NotFound.into() };
    for (error, means, words) in [
        (Error::Device { source: Errno::NOENT }, root.clone(), "--device /dev/fuse"),
        (Error::Device { source: Errno::PERM }, root.clone(), "chmod 666 /dev/fuse"),
        (mount(Errno::PERM), Means { may_administer: false, ..root.clone() }, "--cap-add SYS_ADMIN"),
        (mount(Errno::PERM), Means { namespace: true, ..root.clone() }, "unshare -rm"),
        (mount(Errno::PERM), root.clone(), "seccomp=unconfined"),
        (mount(Errno::NOENT), Means { proc: false, ..root.clone() }, "mount -t proc"),
        (mount(Errno::NODEV), root.clone(), "modprobe fuse"),
        (helper, user.clone(), "install the package fuse3"),
        (refused("too many FUSE filesystems mounted; mount_max=N can be set"), user.clone(), "mount_max in"),
        (refused("user has no write access to mountpoint /mnt"), user.clone(), "zfs set mountpoint"),
        (refused("mountpoint /mnt not owned by user"), user.clone(), "zfs set mountpoint"),
        (refused("could not determine username"), user.clone(), "/etc/passwd"),
        (refused("fuse device not found, try 'modprobe fuse' first"), user.clone(), "--device /dev/fuse"),
        (refused("failed to open /dev/fuse: Permission denied"), user.clone(), "chmod 666"),
        (
            refused("mount failed: Operation not permitted"),
            Means { helper: Some(("/usr/bin/fusermount3".into(), false)), ..user.clone() },
            "chmod u+s /usr/bin/fusermount3",
        ),
        (
            refused("mount failed: Operation not permitted"),
            Means { namespace: true, helper: Some(("/usr/bin/fusermount3".into(), false)), ..user.clone() },
            "unshare -rm",
        ),
        (
            refused("mount failed: Operation not permitted"),
            Means { confined: true, ..user.clone() },
            "no_new_privs",
        ),
        (
            refused("mount failed: Operation not permitted"),
            Means { barred: true, namespace: true, ..user.clone() },
            "--cap-add SYS_ADMIN",
        ),
        (
            refused("mount failed: Operation not permitted"),
            Means { namespace: true, ..user.clone() },
            "unshare -rm",
        ),
    ] {
        let advice = error.advice_to(&means).unwrap_or_default();
        assert!(advice.contains(words), "{error}: {advice}");
    }
    // Errors that the kernel's text explains have no advice.
    assert_eq!(mount(Errno::BUSY).advice_to(&root), None);
    assert_eq!(refused("failed to access mountpoint /mnt: No such file or directory").advice_to(&user), None);
    assert_eq!(root.obstacle(), None);
    // An obstacle is known before a mount is tried; `poolhouse doctor` prints it.
    assert_eq!(user.obstacle(), None);
    assert!(Means { barred: true, ..user }.obstacle().is_some_and(|advice| advice.contains("SYS_ADMIN")));
}
