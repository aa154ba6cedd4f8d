//! Options, by which client and server agree before the first request.
//!
//! # Theory
//! What a client wishes is taken apart here, all of it checked against its length; who answers it is the connection. Each answer to an option is a list
//! of messages of which the last is final.

use crate::abi::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, OPTION_REPLY_MAGIC, OptionReply, STRING_MAX, flag, info, opt, rep,
};
use crate::command::PAYLOAD_MAX;
use zerocopy::IntoBytes;

/// Most bytes of an option that are read. Longer ones are passed over and refused.
pub const OPTION_MAX: u32 = 64 << 10;

/// What a client wishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// To end.
    Abort,
    /// To know the exports.
    List,
    /// To know, or to use, an export.
    Choose(Choice),
    /// Structured replies.
    Structured,
    /// To know, or to use, metadata contexts of an export.
    Contexts(Contexts),
    /// An encrypted connection.
    Secure,
    /// Something that is not known here.
    Unknown,
}

/// An export that is to be told about, or used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Its name.
    pub name: String,
    /// Use it.
    pub go: bool,
    /// What is asked for by number beside the export's size ([`info`]).
    pub infos: Vec<u16>,
}

/// Metadata contexts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contexts {
    /// Of this export.
    pub name: String,
    /// Use them.
    pub set: bool,
    /// Whether `base:allocation` is among them.
    pub allocation: bool,
}

/// An option that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalid(pub &'static str);

/// What is left of an option.
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
    /// Takes an option apart.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn parse(option: u32, data: &[u8]) -> Result<Wish, Invalid> {
        let mut rest = Rest(data);
        Ok(match option {
            opt::EXPORT_NAME => Wish::Choose(Choice { name: text(data)?, go: true, infos: Vec::new() }),
            // What comes with it does not matter.
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
                // Whoever asks for nothing by name is told of all that there is.
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

/// What a client is told of an export before it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its name, as it is listed.
    pub name: String,
    /// Bytes in it.
    pub size: u64,
    /// Bytes of its blocks.
    pub block_size: u32,
    /// It can't be written.
    pub read_only: bool,
    /// What it is, for people.
    pub description: String,
}

impl About {
    /// Its transmission flags.
    pub fn flags(&self, structured: bool) -> u16 {
        let always = flag::HAS_FLAGS
            | flag::SEND_FLUSH
            | flag::SEND_FUA
            | flag::SEND_CACHE
            // Whatever connection a change came by, it is in one volume, and a flush is that volume's.
            | flag::CAN_MULTI_CONN;
        let written = match self.read_only {
            true => flag::READ_ONLY,
            false => flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO,
        };
        always | written | if structured { flag::SEND_DF } else { 0 }
    }

    /// The answer to [`opt::EXPORT_NAME`].
    pub fn old_style(&self, zeroes: bool, structured: bool) -> Vec<u8> {
        let mut out = self.size.to_be_bytes().to_vec();
        out.extend(self.flags(structured).to_be_bytes());
        out.resize(out.len() + if zeroes { 124 } else { 0 }, 0);
        out
    }

    /// The answer to [`opt::INFO`] and [`opt::GO`], but for its end.
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

/// A message that answers an option.
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

/// An entry of the list of exports.
pub fn listed(name: &str) -> Vec<u8> {
    let len = u32::try_from(name.len()).expect("names are short");
    answer(opt::LIST, rep::SERVER, &[&len.to_be_bytes(), name.as_bytes()].concat())
}

/// The one metadata context. Its number means something only where it was chosen.
pub fn context(option: u32) -> Vec<u8> {
    let id = if option == opt::SET_META_CONTEXT { BASE_ALLOCATION_ID } else { 0 };
    answer(option, rep::META_CONTEXT, &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()].concat())
}

#[cfg(test)]
mod tests;
