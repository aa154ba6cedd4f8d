//! The numbers by which calls fail.
//!
//! # Theory
//! A server ends a failed call with one number. It is one of these:
//!
//! | numbers | meaning |
//! | --- | --- |
//! | below 0 | Rx, or rxgen's code: the call itself failed |
//! | 101 to 112, 120 | volumes; clients act on them |
//! | other small ones | a Unix errno, by Linux's numbers |
//! | 49,733,376 and above | the same errno, in a form that does not depend on the system (UAE) |
//! | other large ones | the table of a service: volume server, VLDB, protection database, rxkad |
//!
//! A client says whether it wants UAE numbers ([`to_unified`]). Numbers of volumes are always sent
//! as they are. So an errno that has the number of a volume error can't be sent: it is one of the
//! network.
//!
//! # See
//! OpenAFS: `src/util/errors.h`, `src/afs/unified_afs.et`, `src/volser/volerr.et`,
//! `src/viced/afsfileprocs.c` (`sys_error_to_et`).

#[cfg(test)]
mod tests;

/// Constants by group, and their names.
macro_rules! codes {
    ($($(#[$doc:meta])* $group:ident { $($name:ident = $value:literal,)* })*) => {
        $($(#[$doc])*
        #[allow(missing_docs, reason = "the names are OpenAFS's, and its tables explain them")]
        pub mod $group {
            $(pub const $name: i32 = $value;)*
        })*

        /// All numbers with a name, except those of Unix.
        const NAMES: &[(i32, &str)] = &[$($(($value, stringify!($name)),)*)*];
    };
}

codes! {
    /// Errors of volumes and vnodes.
    volume {
        VSALVAGE = 101,
        VNOVNODE = 102,
        VNOVOL = 103,
        VVOLEXISTS = 104,
        VNOSERVICE = 105,
        VOFFLINE = 106,
        VONLINE = 107,
        VDISKFULL = 108,
        VOVERQUOTA = 109,
        VBUSY = 110,
        VMOVED = 111,
        VIO = 112,
        VRESTRICTED = 120,
    }
    /// Errors of Rx.
    rx {
        RX_CALL_DEAD = -1,
        RX_INVALID_OPERATION = -2,
        RX_CALL_TIMEOUT = -3,
        RX_EOF = -4,
        RX_PROTOCOL_ERROR = -5,
        RX_USER_ABORT = -6,
        RX_ADDRINUSE = -7,
        RX_MSGSIZE = -8,
        RX_RESTARTING = -100,
    }
    /// Errors of the code that takes calls apart.
    rxgen {
        RXGEN_CC_MARSHAL = -450,
        RXGEN_CC_UNMARSHAL = -451,
        RXGEN_SS_MARSHAL = -452,
        RXGEN_SS_UNMARSHAL = -453,
        RXGEN_DECODE = -454,
        RXGEN_OPCODE = -455,
        RXGEN_SS_XDRFREE = -456,
        RXGEN_CC_XDRFREE = -457,
    }
    /// Errors of the volume server.
    volser {
        VOLSERTRELE_ERROR = 1_492_325_120,
        VOLSERNO_OP = 1_492_325_121,
        VOLSERREAD_DUMPERROR = 1_492_325_122,
        VOLSERDUMPERROR = 1_492_325_123,
        VOLSERATTACH_ERROR = 1_492_325_124,
        VOLSERILLEGAL_PARTITION = 1_492_325_125,
        VOLSERDETACH_ERROR = 1_492_325_126,
        VOLSERBAD_ACCESS = 1_492_325_127,
        VOLSERVLDB_ERROR = 1_492_325_128,
        VOLSERBADNAME = 1_492_325_129,
        VOLSERVOLMOVED = 1_492_325_130,
        VOLSERBADOP = 1_492_325_131,
        VOLSERBADRELEASE = 1_492_325_132,
        VOLSERVOLBUSY = 1_492_325_133,
        VOLSERNO_MEMORY = 1_492_325_134,
        VOLSERNOVOL = 1_492_325_135,
        VOLSERMULTIRWVOL = 1_492_325_136,
        VOLSERFAILEDOP = 1_492_325_137,
    }
    /// Errors of the VLDB that a server meets.
    vldb {
        VL_IO = 363_521,
        VL_NOENT = 363_524,
        VL_PERM = 363_546,
        VL_MULTIPADDR = 363_550,
        VL_DBBAD = 363_552,
    }
    /// Errors of the protection database that a server meets.
    protection {
        PRDBFAIL = 267_267,
        PRNOENT = 267_268,
        PRPERM = 267_269,
        PRDBBAD = 267_275,
        PRTOOMANY = 267_279,
        PRNAMETOOLONG = 267_282,
    }
    /// Errors of the replicated databases that a server meets.
    ubik {
        UNOQUORUM = 5_376,
        UNOTSYNC = 5_377,
        USYNC = 5_381,
    }
    /// Errors of rxkad.
    rxkad {
        RXKADINCONSISTENCY = 19_270_400,
        RXKADPACKETSHORT = 19_270_401,
        RXKADLEVELFAIL = 19_270_402,
        RXKADTICKETLEN = 19_270_403,
        RXKADOUTOFSEQUENCE = 19_270_404,
        RXKADNOAUTH = 19_270_405,
        RXKADBADKEY = 19_270_406,
        RXKADBADTICKET = 19_270_407,
        RXKADUNKNOWNKEY = 19_270_408,
        RXKADEXPIRED = 19_270_409,
        RXKADSEALEDINCON = 19_270_410,
        RXKADDATALEN = 19_270_411,
        RXKADILLEGALLEVEL = 19_270_412,
    }
}

/// Constants of Unix, and their names.
macro_rules! errnos {
    ($($name:ident = $value:literal,)*) => {
        /// Numbers of Unix that servers use, as Linux has them.
        #[allow(missing_docs, reason = "the names are those of Unix")]
        pub mod errno {
            $(pub const $name: i32 = $value;)*
        }

        const ERRNOS: &[(i32, &str)] = &[$(($value, stringify!($name)),)*];
    };
}

errnos! {
    EPERM = 1,
    ENOENT = 2,
    EIO = 5,
    E2BIG = 7,
    EAGAIN = 11,
    ENOMEM = 12,
    EACCES = 13,
    EEXIST = 17,
    EXDEV = 18,
    ENODEV = 19,
    ENOTDIR = 20,
    EISDIR = 21,
    EINVAL = 22,
    EFBIG = 27,
    ENOSPC = 28,
    EROFS = 30,
    EMLINK = 31,
    ENAMETOOLONG = 36,
    ENOTEMPTY = 39,
    EDQUOT = 122,
}

/// The first number of the form that does not depend on the system (`UAEPERM`).
pub const UAE_BASE: i32 = 49_733_376;

/// The errnos of Linux that have a unified form: the first and the last of a run, and what to
/// subtract for the place in the table of unified errors.
///
/// Between the runs are numbers that Linux does not use. Linux has one number for EAGAIN and
/// EWOULDBLOCK, and one for EDEADLK and EDEADLOCK.
const RUNS: [(i32, i32, i32); 3] = [(1, 40, 1), (42, 57, 1), (59, 124, 2)];

/// Whether a number is sent as it is, although it is also that of an errno.
fn is_of_volumes(code: i32) -> bool {
    matches!(code, volume::VSALVAGE..=volume::VIO | volume::VRESTRICTED)
}

/// The number for a client that wants unified ones (`sys_error_to_et`).
///
/// Numbers of volumes, of Rx and of services stay as they are, and so does an errno without a
/// unified form.
pub fn to_unified(code: i32) -> i32 {
    if is_of_volumes(code) {
        return code;
    }
    let run = RUNS.iter().find(|(first, last, _)| (*first..=*last).contains(&code));
    run.map_or(code, |(_, _, shift)| UAE_BASE + code - shift)
}

/// The errno of a unified number (`et_to_sys_error`). Other numbers stay as they are.
pub fn from_unified(code: i32) -> i32 {
    let Some(index) = code.checked_sub(UAE_BASE) else { return code };
    let run = RUNS.iter().find(|(first, last, shift)| (first - shift..=last - shift).contains(&index));
    run.map_or(code, |(_, _, shift)| index + shift)
}

/// The name of a number that is no errno, for logs.
pub fn name(code: i32) -> Option<&'static str> {
    NAMES.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

/// The name of a number, also of an errno that servers use.
pub fn any_name(code: i32) -> Option<&'static str> {
    let of_unix = || ERRNOS.iter().find(|(known, _)| *known == code).map(|(_, name)| *name);
    name(code).or_else(of_unix)
}
