//! `rxnull`: no security.

use std::ops::Range;

use super::{Accepted, Class, ConnectionId, NULL, Outgoing, Session, refuse};
use crate::packet::{CHANNELS, Header, debug};
use crate::{Result, code};

/// The class without security, for clients and servers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Null;

impl Class for Null {
    fn index(&self) -> u8 {
        NULL
    }

    fn server(&self, _: ConnectionId, _: u32) -> Result<Box<dyn Session>> {
        Ok(Box::new(Null))
    }

    fn client(&self, _: ConnectionId) -> Result<Box<dyn Session>> {
        Ok(Box::new(Null))
    }
}

impl Session for Null {
    fn overhead(&self) -> (usize, usize) {
        (0, 1)
    }

    fn seal(&mut self, _: &mut [Outgoing]) {}

    fn open(&mut self, _: &Header, body: &mut [u8]) -> Result<Range<usize>> {
        Ok(0..body.len())
    }

    fn challenge(&mut self) -> Option<Vec<u8>> {
        None
    }

    fn accept(&mut self, _: &[u8], _: u32) -> Result<Accepted> {
        refuse(code::PROTOCOL_ERROR)
    }

    fn respond(&mut self, _: &[u8], _: [u32; CHANNELS]) -> Result<Vec<u8>> {
        refuse(code::PROTOCOL_ERROR)
    }

    fn stats(&self) -> debug::Security {
        debug::Security { kind: 1, ..debug::Security::default() }
    }
}
