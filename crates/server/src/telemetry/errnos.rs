//! Names of errnos.

use rustix::io::Errno;

/// The names of errnos with which operations fail.
const ERRNOS: [(Errno, &str); 36] = [
    (Errno::PERM, "EPERM"),
    (Errno::NOENT, "ENOENT"),
    (Errno::INTR, "EINTR"),
    (Errno::IO, "EIO"),
    (Errno::NXIO, "ENXIO"),
    (Errno::TOOBIG, "E2BIG"),
    (Errno::BADF, "EBADF"),
    (Errno::AGAIN, "EAGAIN"),
    (Errno::NOMEM, "ENOMEM"),
    (Errno::ACCESS, "EACCES"),
    (Errno::BUSY, "EBUSY"),
    (Errno::EXIST, "EEXIST"),
    (Errno::XDEV, "EXDEV"),
    (Errno::NODEV, "ENODEV"),
    (Errno::NOTDIR, "ENOTDIR"),
    (Errno::ISDIR, "EISDIR"),
    (Errno::INVAL, "EINVAL"),
    (Errno::NFILE, "ENFILE"),
    (Errno::NOTTY, "ENOTTY"),
    (Errno::FBIG, "EFBIG"),
    (Errno::NOSPC, "ENOSPC"),
    (Errno::ROFS, "EROFS"),
    (Errno::MLINK, "EMLINK"),
    (Errno::RANGE, "ERANGE"),
    (Errno::NAMETOOLONG, "ENAMETOOLONG"),
    (Errno::NOTEMPTY, "ENOTEMPTY"),
    (Errno::LOOP, "ELOOP"),
    (Errno::NODATA, "ENODATA"),
    (Errno::PROTO, "EPROTO"),
    (Errno::OVERFLOW, "EOVERFLOW"),
    (Errno::ILSEQ, "EILSEQ"),
    (Errno::OPNOTSUPP, "EOPNOTSUPP"),
    (Errno::NOTCONN, "ENOTCONN"),
    (Errno::SHUTDOWN, "ESHUTDOWN"),
    (Errno::STALE, "ESTALE"),
    (Errno::DQUOT, "EDQUOT"),
];

/// The code of an errno, from its name or its number. 0 is no failure.
pub(super) fn errno_of(word: &str) -> Option<u64> {
    let named = ERRNOS.iter().find(|(_, name)| *name == word).map(|(errno, _)| errno.raw_os_error());
    named.map_or_else(|| word.parse().ok(), |code| u64::try_from(code).ok())
}

/// The name of an errno, or its number.
pub(super) fn errno_name(code: i32) -> String {
    let known = ERRNOS.iter().find(|(errno, _)| errno.raw_os_error() == code);
    known.map_or_else(|| code.to_string(), |(_, name)| (*name).to_owned())
}
