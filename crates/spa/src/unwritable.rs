//! Devices that are readable but not writable.

use crate::Candidate;
use rustix::io::Errno;
use std::path::Path;

/// The first device of a candidate that is readable but not writable, and why.
pub fn unwritable(candidate: &Candidate) -> Option<(&Path, Errno)> {
    candidate.members.iter().find_map(|member| {
        let device = member.place.path.as_path();
        Some((device, kept_from_writing(device)?))
    })
}

fn kept_from_writing(device: &Path) -> Option<Errno> {
    use std::os::unix::fs::OpenOptionsExt;
    // Opening a device may block until its other end or a medium is present.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let open = |write| std::fs::File::options().read(true).write(write).custom_flags(flags).open(device);
    let errno = match (open(false), open(true)) {
        (Ok(_), Err(error)) => Errno::from_io_error(&error)?,
        _ => return None,
    };
    [Errno::ACCESS, Errno::PERM, Errno::ROFS].contains(&errno).then_some(errno)
}
