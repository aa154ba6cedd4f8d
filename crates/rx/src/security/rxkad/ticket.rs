//! Tickets of Kerberos 5, and the keys of sessions in them.
//!
//! # Theory
//! A ticket names the client and holds the session key, encrypted with the cell's key. It comes in
//! two forms, which the response gives as a version of the key:
//!
//! | version | form |
//! |---|---|
//! | 256 | a whole `Ticket` of Kerberos 5 |
//! | 213 | only its `EncryptedData` |
//!
//! fcrypt needs a key of 8 bytes. A session key of DES is used as it is. Any other becomes one by
//! a derivation.
//!
//! # See
//! RFC 4120. OpenAFS: `src/rxkad/ticket5.c`, `src/rxkad/README.v5`.

use zeroize::{Zeroize, Zeroizing};

use super::der::{self, BITS, Der, INTEGER, OCTETS, SEQUENCE, STRING, TIME, application, field};
use super::keys::{Key, Keys};
use super::{SKEW, code, krb5};
use crate::Result;
use crate::security::refuse;

/// The version that says: a whole ticket.
pub(super) const WHOLE: i32 = 256;
/// The version that says: only the encrypted part.
pub(super) const PART: i32 = 213;
/// Bytes of a ticket.
pub(super) const LEAST: usize = 32;
pub(super) const MOST: usize = 12_000;
/// The longest life, and how long a ticket may have expired for its end to be the reason, in
/// seconds.
const LIFE: u32 = 30 * 24 * 3_600;
const DAY: u32 = 24 * 3_600;
/// The end of a ticket that does not end.
const NEVER: u32 = u32::MAX;
/// The longest name.
const NAME: usize = 63;

/// Services whose names change on the way from Kerberos 5 to AFS, and whose second part is a host
/// without its domain.
const HOSTS: [&str; 38] = [
    "host",
    "discuss",
    "rvdsrv",
    "sample",
    "olc",
    "pop",
    "sis",
    "rfs",
    "imap",
    "ftp",
    "ecat",
    "daemon",
    "gnats",
    "moira",
    "prms",
    "mandarin",
    "register",
    "changepw",
    "sms",
    "afpserver",
    "gdss",
    "news",
    "abs",
    "nfs",
    "tftp",
    "http",
    "khttp",
    "pgpsigner",
    "irc",
    "mandarin-agent",
    "write",
    "palladium",
    "smtp",
    "lmtp",
    "ldap",
    "acap",
    "argus",
    "mupdate",
];

/// What a ticket says.
pub(super) struct Ticket {
    pub(super) name: String,
    pub(super) realm: String,
    pub(super) expires: u32,
    pub(super) key: Zeroizing<[u8; 8]>,
}

/// Opens a ticket with the cell's keys. `now` is in seconds since 1970.
pub(super) fn open(keys: &Keys, version: i32, ticket: &[u8], now: u32) -> Result<Ticket> {
    let Some((enctype, kvno, cipher)) = encrypted(version, ticket) else { return refuse(code::BAD_TICKET) };
    let Some(key) = keys.find(kvno, enctype) else { return refuse(code::UNKNOWN_KEY) };
    let Some(text) = krb5::decrypt(enctype, &key.bytes, cipher) else { return refuse(code::BAD_TICKET) };
    let Some(content) = content(&text) else { return refuse(code::BAD_TICKET) };
    if content.invalid {
        return refuse(code::NO_AUTH);
    }
    check_times(content.start, content.end, now)?;
    let Some(name) = name(&content.names) else { return refuse(code::BAD_TICKET) };
    let Some(key) = session_key(content.key.0, content.key.1) else { return refuse(code::BAD_TICKET) };
    Ok(Ticket { name, realm: content.realm.to_owned(), expires: content.end, key })
}

/// The encryption type, the version of the key, and the encrypted bytes.
fn encrypted(version: i32, ticket: &[u8]) -> Option<(i32, i32, &[u8])> {
    let mut der = Der(ticket);
    let mut part = if version == WHOLE {
        let mut whole = der.element(application(1))?.element(SEQUENCE)?;
        if whole.typed(0, INTEGER)?.integer()? != 5 {
            return None;
        }
        whole.typed(1, STRING)?;
        whole.typed(2, SEQUENCE)?;
        whole.typed(3, SEQUENCE)?
    } else {
        der.element(SEQUENCE)?
    };
    let enctype = part.typed(0, INTEGER)?.integer()?;
    let kvno = match part.optional(field(1))? {
        Some(mut kvno) => kvno.element(INTEGER)?.integer()?,
        None => 0,
    };
    Some((enctype, kvno, part.typed(2, OCTETS)?.0))
}

struct Content<'a> {
    invalid: bool,
    key: (i32, &'a [u8]),
    realm: &'a str,
    names: Vec<&'a str>,
    start: u32,
    end: u32,
}

/// What the encrypted part says.
fn content(text: &[u8]) -> Option<Content<'_>> {
    let mut part = Der(text).element(application(3))?.element(SEQUENCE)?;
    // Bit 7 of the flags; the first byte says how many bits at the end are unused.
    let flags = part.typed(0, BITS)?.0;
    let invalid = flags.get(1)? & 1 != 0;
    let mut key = part.typed(1, SEQUENCE)?;
    let key = (key.typed(0, INTEGER)?.integer()?, key.typed(1, OCTETS)?.0);
    let realm = part.typed(2, STRING)?.text()?;
    let mut principal = part.typed(3, SEQUENCE)?;
    principal.typed(0, INTEGER)?;
    let (mut list, mut names) = (principal.typed(1, SEQUENCE)?, Vec::new());
    while !list.0.is_empty() && names.len() < 3 {
        names.push(list.element(STRING)?.text()?);
    }
    part.typed(4, SEQUENCE)?;
    let authenticated = part.typed(5, TIME)?.time()?;
    let start = match part.optional(field(6))? {
        Some(mut start) => start.element(TIME)?.time()?,
        None => authenticated,
    };
    let end = part.typed(7, TIME)?.time()?;
    Some(Content { invalid, key, realm, names, start, end })
}

/// Whether bytes are what a ticket has inside.
pub(super) fn is_content(text: &[u8]) -> bool {
    let valid = |content: Content<'_>| {
        name(&content.names).is_some() && session_key(content.key.0, content.key.1).is_some()
    };
    content(text).is_some_and(valid)
}

/// The name of the client as AFS writes it: `user` or `user.instance`.
fn name(names: &[&str]) -> Option<String> {
    let name = match *names {
        [user] => user.to_owned(),
        [user, instance] => {
            let host = HOSTS.contains(&user);
            let user = if user == "host" { "rcmd" } else { user };
            let instance = if host { instance.split_once('.')?.0 } else { instance };
            if instance.len() > NAME {
                return None;
            }
            format!("{user}.{instance}")
        }
        _ => return None,
    };
    // A dot in the first part could pretend to be another user's instance.
    let first = names.first()?;
    (!first.is_empty() && !first.contains('.') && first.len() <= NAME).then_some(name)
}

/// Whether a ticket is valid now. A start of 0 means: always.
///
/// Clocks may differ at both ends, as in OpenAFS's `tkt_CheckTimes`. For tickets of Kerberos 5, its
/// `ticket5.c` allows no difference at the end, and so clients renew their tickets in time.
fn check_times(start: u32, end: u32, now: u32) -> Result<()> {
    if start >= end || start > now.saturating_add(SKEW + LIFE) {
        return refuse(code::BAD_TICKET);
    }
    if end != NEVER && end.saturating_add(SKEW) < now {
        let long_ago = start != 0 && now - start > LIFE + DAY;
        return refuse(if long_ago { code::BAD_TICKET } else { code::EXPIRED });
    }
    if start != 0 && end != NEVER && end - start > LIFE {
        return refuse(code::BAD_TICKET);
    }
    if start > now.saturating_add(SKEW) { refuse(code::NO_AUTH) } else { Ok(()) }
}

/// The key for fcrypt that a session key stands for.
pub(super) fn session_key(enctype: i32, key: &[u8]) -> Option<Zeroizing<[u8; 8]>> {
    match enctype {
        1..=3 => key.try_into().ok().map(Zeroizing::new),
        5 | 7 | 16 => derive(&compress(key)?),
        17.. => derive(key),
        _ => None,
    }
}

/// Seven bytes of each eight of a key of triple DES: the last one's bits go where the parity was.
fn compress(key: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (groups, rest) = key.as_chunks::<8>();
    if !rest.is_empty() {
        return None;
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(groups.len() * 7));
    for group in groups {
        bytes.extend((0..7).map(|at| group[at] & 0xfe | group[7] >> (at + 1) & 1));
    }
    Some(bytes)
}

/// HMAC-MD5 in counter mode (NIST SP 800-108), until the result is no weak key of DES.
fn derive(key: &[u8]) -> Option<Zeroizing<[u8; 8]>> {
    if key.len() < 7 {
        return None;
    }
    for counter in 1..=u8::MAX {
        let message = [&[counter], &b"rxkad\0"[..], &64u32.to_be_bytes()].concat();
        let mut digest = krb5::hmac_md5(key, &message)?;
        let mut bytes = Zeroizing::new([0; 8]);
        bytes.copy_from_slice(&digest[..8]);
        digest.zeroize();
        odd_parity(&mut bytes);
        if !is_weak(&bytes) {
            return Some(bytes);
        }
    }
    None
}

/// Sets the low bit of each byte so that the byte has an odd number of bits.
fn odd_parity(key: &mut [u8; 8]) {
    for byte in key {
        *byte = *byte & 0xfe | u8::from((*byte & 0xfe).count_ones().is_multiple_of(2));
    }
}

/// Whether DES with this key is its own inverse, or that of another such key.
fn is_weak(key: &[u8; 8]) -> bool {
    const HALVES: [[u8; 2]; 4] = [[0x01, 0x01], [0xfe, 0xfe], [0xe0, 0xf1], [0x1f, 0x0e]];
    let half = |byte: u8, at: usize| HALVES.iter().position(|half| half[usize::from(at >= 4)] == byte);
    let found: Vec<_> = key.iter().enumerate().map(|(at, byte)| half(*byte, at)).collect();
    let alternates = (0..8).all(|at| found[at].is_some() && found[at] == found[at % 2]);
    alternates && found[0].is_some()
}

/// A random session key.
pub(super) fn random_key(mut random: impl FnMut(&mut [u8]) -> Result<()>) -> Result<Zeroizing<[u8; 8]>> {
    let mut key = Zeroizing::new([0; 8]);
    loop {
        random(&mut key[..])?;
        odd_parity(&mut key);
        if !is_weak(&key) {
            return Ok(key);
        }
    }
}

/// Makes the encrypted part of a ticket for a user of the local cell.
pub(super) fn make(key: &Key, name: &str, end: u32, session: &[u8; 8], random: &[u8; 16]) -> Option<Vec<u8>> {
    let names: Vec<u8> = name.split('.').flat_map(|part| der::wrap(STRING, part.as_bytes())).collect();
    let principal =
        [der::wrap(field(0), &der::integer(1)), der::wrap(field(1), &der::wrap(SEQUENCE, &names))];
    let session_key =
        [der::wrap(field(0), &der::integer(1)), der::wrap(field(1), &der::wrap(OCTETS, session))];
    let transited = [der::wrap(field(0), &der::integer(0)), der::wrap(field(1), &der::wrap(OCTETS, &[]))];
    // The path of realms was checked: bit 12.
    let flags = [0, 0, 0x08, 0, 0];
    let fields = [
        der::wrap(field(0), &der::wrap(BITS, &flags)),
        der::wrap(field(1), &der::wrap(SEQUENCE, &session_key.concat())),
        der::wrap(field(2), &der::wrap(STRING, &[])),
        der::wrap(field(3), &der::wrap(SEQUENCE, &principal.concat())),
        der::wrap(field(4), &der::wrap(SEQUENCE, &transited.concat())),
        der::wrap(field(5), &der::wrap(TIME, &der::time(0))),
        der::wrap(field(7), &der::wrap(TIME, &der::time(end))),
    ];
    let text = Zeroizing::new(der::wrap(application(3), &der::wrap(SEQUENCE, &fields.concat())));
    let cipher = krb5::encrypt(key.enctype, &key.bytes, random, &text)?;
    let part = [
        der::wrap(field(0), &der::integer(key.enctype)),
        der::wrap(field(1), &der::integer(key.kvno)),
        der::wrap(field(2), &der::wrap(OCTETS, &cipher)),
    ];
    Some(der::wrap(SEQUENCE, &part.concat()))
}
