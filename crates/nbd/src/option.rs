//! Options, by which client and server negotiate before the first request.
//!
//! # Theory
//! This module decodes the options of a client, and checks all of an option against its length. The
//! connection decides on the answer. The answer to an option is a list of messages, of which the
//! last is final.

use crate::abi::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, OPTION_REPLY_MAGIC, OptionReply, STRING_MAX, flag, info, opt, rep,
};
use crate::command::PAYLOAD_MAX;
use zerocopy::IntoBytes;

/// The longest option that is read, in bytes. A longer one is skipped and refused.
pub const OPTION_MAX: u32 = 64 << 10;

/// An option of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// `NBD_OPT_ABORT`: end the connection.
    Abort,
    /// `NBD_OPT_LIST`: list the exports.
    List,
    /// `NBD_OPT_INFO`, `NBD_OPT_GO` or `NBD_OPT_EXPORT_NAME`: describe or use an export.
    Choose(Choice),
    /// `NBD_OPT_STRUCTURED_REPLY`: use structured replies.
    Structured,
    /// `NBD_OPT_LIST_META_CONTEXT` or `NBD_OPT_SET_META_CONTEXT`: list or select metadata contexts.
    Contexts(Contexts),
    /// `NBD_OPT_STARTTLS`: encrypt the connection.
    Secure,
    /// An option that this server doesn't know.
    Unknown,
}

/// The export to describe or use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The name of the export.
    pub name: String,
    /// Whether to use the export, rather than only describe it.
    pub go: bool,
    /// The information that the client requests besides the size, as numbers of [`info`].
    pub infos: Vec<u16>,
}

/// The metadata contexts to list or select.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contexts {
    /// The name of the export.
    pub name: String,
    /// Whether to select the contexts, rather than only list them.
    pub set: bool,
    /// Whether `base:allocation` is among them.
    pub allocation: bool,
}

/// An invalid option, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalid(pub &'static str);

/// The part of an option that is not yet decoded.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Invalid> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(Invalid("it is shorter than it says"))?;
        self.0 = tail;
        Ok(head)
    }

    fn u16(&mut self) -> Result<u16, Invalid> {
        Ok(u16::from_be_bytes(self.take(2)?.try_into().expect("two bytes were taken")))
    }

    fn u32(&mut self) -> Result<u32, Invalid> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().expect("four bytes were taken")))
    }

    fn string(&mut self) -> Result<String, Invalid> {
        let len = self.u32()? as usize;
        text(self.take(len)?)
    }

    fn end(&self) -> Result<(), Invalid> {
        if self.0.is_empty() { Ok(()) } else { Err(Invalid("it is longer than it says")) }
    }
}

fn text(bytes: &[u8]) -> Result<String, Invalid> {
    if bytes.len() > STRING_MAX {
        return Err(Invalid("a string is too long"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(Invalid("a string is not text")),
    }
}

impl Wish {
    /// Decodes an option.
    ///
    /// # Errors
    /// [`Invalid`], in these cases:
    ///
    /// * The parts of the option don't fit its length.
    /// * A string is not UTF-8, contains a NUL, or is longer than [`STRING_MAX`].
    /// * The name of a metadata context has no namespace.
    pub fn parse(option: u32, data: &[u8]) -> Result<Wish, Invalid> {
        let mut rest = Rest(data);
        Ok(match option {
            opt::EXPORT_NAME => Wish::Choose(Choice { name: text(data)?, go: true, infos: Vec::new() }),
            // Data of an abort are ignored.
            opt::ABORT => Wish::Abort,
            opt::LIST => {
                rest.end()?;
                Wish::List
            }
            opt::STARTTLS => {
                rest.end()?;
                Wish::Secure
            }
            opt::INFO | opt::GO => {
                let name = rest.string()?;
                let count = rest.u16()?;
                let infos = (0..count).map(|_| rest.u16()).collect::<Result<_, _>>()?;
                rest.end()?;
                Wish::Choose(Choice { name, go: option == opt::GO, infos })
            }
            opt::STRUCTURED_REPLY => {
                rest.end()?;
                Wish::Structured
            }
            opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => {
                let set = option == opt::SET_META_CONTEXT;
                let name = rest.string()?;
                let count = rest.u32()?;
                // A list without names means all contexts.
                let mut allocation = count == 0 && !set;
                for _ in 0..count {
                    let query = rest.string()?;
                    if !query.contains(':') {
                        return Err(Invalid("a context has no namespace"));
                    }
                    allocation |= query == BASE_ALLOCATION || (query == "base:" && !set);
                }
                rest.end()?;
                Wish::Contexts(Contexts { name, set, allocation })
            }
            _ => Wish::Unknown,
        })
    }
}

/// The description of an export, before a client uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The name, as in the list of exports.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Size of its blocks in bytes.
    pub block_size: u32,
    /// Whether it is read-only.
    pub read_only: bool,
    /// A description for people.
    pub description: String,
}

impl About {
    /// The transmission flags.
    pub fn flags(&self, structured: bool) -> u16 {
        let always = flag::HAS_FLAGS
            | flag::SEND_FLUSH
            | flag::SEND_FUA
            | flag::SEND_CACHE
            // All connections share one volume, and a flush covers the whole volume.
            | flag::CAN_MULTI_CONN;
        let written = match self.read_only {
            true => flag::READ_ONLY,
            false => flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO,
        };
        always | written | if structured { flag::SEND_DF } else { 0 }
    }

    /// The answer to [`opt::EXPORT_NAME`]. With `zeroes`, 124 zero bytes follow.
    pub fn old_style(&self, zeroes: bool, structured: bool) -> Vec<u8> {
        let mut out = self.size.to_be_bytes().to_vec();
        out.extend(self.flags(structured).to_be_bytes());
        out.resize(out.len() + if zeroes { 124 } else { 0 }, 0);
        out
    }

    /// The answer to [`opt::INFO`] and [`opt::GO`], without the final message.
    pub fn answer(&self, option: u32, structured: bool, infos: &[u16]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut one = |kind: u16, body: &[u8]| {
            let body = [&kind.to_be_bytes(), body].concat();
            out.extend(answer(option, rep::INFO, &body));
        };
        let size = [&self.size.to_be_bytes()[..], &self.flags(structured).to_be_bytes()].concat();
        one(info::EXPORT, &size);
        if infos.contains(&info::NAME) {
            one(info::NAME, self.name.as_bytes());
        }
        if infos.contains(&info::DESCRIPTION) {
            one(info::DESCRIPTION, self.description.as_bytes());
        }
        if infos.contains(&info::BLOCK_SIZE) {
            let sizes = [1, self.block_size.max(512), PAYLOAD_MAX];
            one(info::BLOCK_SIZE, &sizes.map(u32::to_be_bytes).concat());
        }
        out
    }
}

/// One message of the answer to an option.
///
/// # Panics
/// If the body has 4 GiB or more.
pub fn answer(option: u32, reply: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).expect("answers are short");
    let head = OptionReply {
        magic: OPTION_REPLY_MAGIC.into(),
        option: option.into(),
        reply: reply.into(),
        len: len.into(),
    };
    [head.as_bytes(), body].concat()
}

/// An entry in the list of exports.
///
/// # Panics
/// If the name has 4 GiB or more.
pub fn listed(name: &str) -> Vec<u8> {
    let len = u32::try_from(name.len()).expect("names are short");
    answer(opt::LIST, rep::SERVER, &[&len.to_be_bytes(), name.as_bytes()].concat())
}

/// The message that names the only metadata context. Its number is valid only if it was selected.
pub fn context(option: u32) -> Vec<u8> {
    let id = if option == opt::SET_META_CONTEXT { BASE_ALLOCATION_ID } else { 0 };
    answer(option, rep::META_CONTEXT, &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()].concat())
}

#[cfg(test)]
mod tests;
