use super::*;

/// Errnos of Linux, their unified numbers as OpenAFS 1.8.9's installed header has them, and their
/// names without the E.
const KNOWN: [(i32, i32, &str); 122] = [
    (1, 49_733_376, "PERM"),
    (2, 49_733_377, "NOENT"),
    (3, 49_733_378, "SRCH"),
    (4, 49_733_379, "INTR"),
    (5, 49_733_380, "IO"),
    (6, 49_733_381, "NXIO"),
    (7, 49_733_382, "2BIG"),
    (8, 49_733_383, "NOEXEC"),
    (9, 49_733_384, "BADF"),
    (10, 49_733_385, "CHILD"),
    (11, 49_733_386, "AGAIN"),
    (12, 49_733_387, "NOMEM"),
    (13, 49_733_388, "ACCES"),
    (14, 49_733_389, "FAULT"),
    (15, 49_733_390, "NOTBLK"),
    (16, 49_733_391, "BUSY"),
    (17, 49_733_392, "EXIST"),
    (18, 49_733_393, "XDEV"),
    (19, 49_733_394, "NODEV"),
    (20, 49_733_395, "NOTDIR"),
    (21, 49_733_396, "ISDIR"),
    (22, 49_733_397, "INVAL"),
    (23, 49_733_398, "NFILE"),
    (24, 49_733_399, "MFILE"),
    (25, 49_733_400, "NOTTY"),
    (26, 49_733_401, "TXTBSY"),
    (27, 49_733_402, "FBIG"),
    (28, 49_733_403, "NOSPC"),
    (29, 49_733_404, "SPIPE"),
    (30, 49_733_405, "ROFS"),
    (31, 49_733_406, "MLINK"),
    (32, 49_733_407, "PIPE"),
    (33, 49_733_408, "DOM"),
    (34, 49_733_409, "RANGE"),
    (35, 49_733_410, "DEADLK"),
    (36, 49_733_411, "NAMETOOLONG"),
    (37, 49_733_412, "NOLCK"),
    (38, 49_733_413, "NOSYS"),
    (39, 49_733_414, "NOTEMPTY"),
    (40, 49_733_415, "LOOP"),
    (42, 49_733_417, "NOMSG"),
    (43, 49_733_418, "IDRM"),
    (44, 49_733_419, "CHRNG"),
    (45, 49_733_420, "L2NSYNC"),
    (46, 49_733_421, "L3HLT"),
    (47, 49_733_422, "L3RST"),
    (48, 49_733_423, "LNRNG"),
    (49, 49_733_424, "UNATCH"),
    (50, 49_733_425, "NOCSI"),
    (51, 49_733_426, "L2HLT"),
    (52, 49_733_427, "BADE"),
    (53, 49_733_428, "BADR"),
    (54, 49_733_429, "XFULL"),
    (55, 49_733_430, "NOANO"),
    (56, 49_733_431, "BADRQC"),
    (57, 49_733_432, "BADSLT"),
    (59, 49_733_433, "BFONT"),
    (60, 49_733_434, "NOSTR"),
    (61, 49_733_435, "NODATA"),
    (62, 49_733_436, "TIME"),
    (63, 49_733_437, "NOSR"),
    (64, 49_733_438, "NONET"),
    (65, 49_733_439, "NOPKG"),
    (66, 49_733_440, "REMOTE"),
    (67, 49_733_441, "NOLINK"),
    (68, 49_733_442, "ADV"),
    (69, 49_733_443, "SRMNT"),
    (70, 49_733_444, "COMM"),
    (71, 49_733_445, "PROTO"),
    (72, 49_733_446, "MULTIHOP"),
    (73, 49_733_447, "DOTDOT"),
    (74, 49_733_448, "BADMSG"),
    (75, 49_733_449, "OVERFLOW"),
    (76, 49_733_450, "NOTUNIQ"),
    (77, 49_733_451, "BADFD"),
    (78, 49_733_452, "REMCHG"),
    (79, 49_733_453, "LIBACC"),
    (80, 49_733_454, "LIBBAD"),
    (81, 49_733_455, "LIBSCN"),
    (82, 49_733_456, "LIBMAX"),
    (83, 49_733_457, "LIBEXEC"),
    (84, 49_733_458, "ILSEQ"),
    (85, 49_733_459, "RESTART"),
    (86, 49_733_460, "STRPIPE"),
    (87, 49_733_461, "USERS"),
    (88, 49_733_462, "NOTSOCK"),
    (89, 49_733_463, "DESTADDRREQ"),
    (90, 49_733_464, "MSGSIZE"),
    (91, 49_733_465, "PROTOTYPE"),
    (92, 49_733_466, "NOPROTOOPT"),
    (93, 49_733_467, "PROTONOSUPPORT"),
    (94, 49_733_468, "SOCKTNOSUPPORT"),
    (95, 49_733_469, "OPNOTSUPP"),
    (96, 49_733_470, "PFNOSUPPORT"),
    (97, 49_733_471, "AFNOSUPPORT"),
    (98, 49_733_472, "ADDRINUSE"),
    (99, 49_733_473, "ADDRNOTAVAIL"),
    (100, 49_733_474, "NETDOWN"),
    (101, 49_733_475, "NETUNREACH"),
    (102, 49_733_476, "NETRESET"),
    (103, 49_733_477, "CONNABORTED"),
    (104, 49_733_478, "CONNRESET"),
    (105, 49_733_479, "NOBUFS"),
    (106, 49_733_480, "ISCONN"),
    (107, 49_733_481, "NOTCONN"),
    (108, 49_733_482, "SHUTDOWN"),
    (109, 49_733_483, "TOOMANYREFS"),
    (110, 49_733_484, "TIMEDOUT"),
    (111, 49_733_485, "CONNREFUSED"),
    (112, 49_733_486, "HOSTDOWN"),
    (113, 49_733_487, "HOSTUNREACH"),
    (114, 49_733_488, "ALREADY"),
    (115, 49_733_489, "INPROGRESS"),
    (116, 49_733_490, "STALE"),
    (117, 49_733_491, "UCLEAN"),
    (118, 49_733_492, "NOTNAM"),
    (119, 49_733_493, "NAVAIL"),
    (120, 49_733_494, "ISNAM"),
    (121, 49_733_495, "REMOTEIO"),
    (122, 49_733_496, "DQUOT"),
    (123, 49_733_497, "NOMEDIUM"),
    (124, 49_733_498, "MEDIUMTYPE"),
];

/// Goal: each errno with a unified number has OpenAFS's, and comes back; no other number changes.
#[test]
fn unified_numbers_are_those_of_openafs() {
    for number in -1000..100_000 {
        let known = KNOWN.iter().find(|(errno, _, _)| *errno == number);
        let is_of_volumes = (101..=112).contains(&number) || number == 120;
        match known {
            Some((_, unified, name)) if !is_of_volumes => {
                assert_eq!(to_unified(number), *unified, "{name}");
            }
            _ => assert_eq!(to_unified(number), number),
        }
        assert_eq!(from_unified(number), number);
    }
    for (errno, unified, name) in KNOWN {
        assert_eq!(from_unified(unified), errno, "{name}");
    }
    // EWOULDBLOCK has a place in the table, and on Linux no number of its own.
    for unused in [UAE_BASE - 1, UAE_BASE + 40, UAE_BASE + 123, i32::MAX, i32::MIN] {
        assert_eq!(from_unified(unused), unused);
    }
    for (code, name) in NAMES {
        assert_eq!(to_unified(*code), *code, "{name}");
        assert_eq!(from_unified(*code), *code, "{name}");
    }
}

/// Goal: the constants of Unix are those of the table.
#[test]
fn constants_of_unix_have_their_numbers() {
    use errno::*;
    let constants = [
        (EPERM, "PERM"),
        (ENOENT, "NOENT"),
        (EIO, "IO"),
        (E2BIG, "2BIG"),
        (EAGAIN, "AGAIN"),
        (ENOMEM, "NOMEM"),
        (EACCES, "ACCES"),
        (EEXIST, "EXIST"),
        (EXDEV, "XDEV"),
        (ENOTDIR, "NOTDIR"),
        (EISDIR, "ISDIR"),
        (EINVAL, "INVAL"),
        (EFBIG, "FBIG"),
        (ENOSPC, "NOSPC"),
        (EROFS, "ROFS"),
        (EMLINK, "MLINK"),
        (ENAMETOOLONG, "NAMETOOLONG"),
        (ENOTEMPTY, "NOTEMPTY"),
        (EDQUOT, "DQUOT"),
    ];
    for (number, name) in constants {
        assert!(KNOWN.iter().any(|(errno, _, known)| (*errno, *known) == (number, name)), "{name}");
    }
}

/// Goal: numbers have one name each.
#[test]
fn numbers_have_names() {
    assert_eq!(name(volume::VNOVNODE), Some("VNOVNODE"));
    assert_eq!(name(rxgen::RXGEN_OPCODE), Some("RXGEN_OPCODE"));
    assert_eq!(name(errno::EIO), None);
    let mut numbers: Vec<_> = NAMES.iter().map(|(code, _)| code).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), NAMES.len());
}
