//! An NBD client that sends exactly the bytes that a test wants.
#![allow(dead_code, reason = "each test file uses some of it")]

use nbd::abi::{self, cmd, opt, rep};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A connection.
pub struct Client {
    pub stream: UnixStream,
    pub size: u64,
    pub flags: u16,
    pub cookie: u64,
}

/// The answer to a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub cookie: u64,
    pub error: u32,
    /// The data of a read by offset in the export, with holes as zeros.
    pub data: Vec<(u64, Vec<u8>)>,
    /// How many of the parts were holes.
    pub holes: usize,
    pub extents: Vec<(u32, u32)>,
    pub words: String,
}

/// The messages that answer an option: types and bodies.
pub type Said = Vec<(u32, Vec<u8>)>;

pub fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

impl Client {
    /// Connects and completes the greeting.
    pub fn connect(socket: &Path) -> Client {
        Client::greet(UnixStream::connect(socket).unwrap(), 3)
    }

    pub fn greet(stream: UnixStream, flags: u32) -> Client {
        let mut client = Client { stream, size: 0, flags: 0, cookie: 0 };
        let hello = client.take(18);
        assert_eq!(hello, b"NBDMAGICIHAVEOPT\0\x03");
        client.stream.write_all(&flags.to_be_bytes()).unwrap();
        client
    }

    /// Connects and selects an export, with structured replies and status.
    pub fn of(socket: &Path, name: &str) -> Client {
        let mut client = Client::connect(socket);
        assert_eq!(client.option(opt::STRUCTURED_REPLY, b""), [(rep::ACK, vec![])]);
        let query = [string(name), 1u32.to_be_bytes().to_vec(), string("base:allocation")].concat();
        assert_eq!(client.option(opt::SET_META_CONTEXT, &query).len(), 2);
        client.go(name).unwrap();
        client
    }

    pub fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).try_into().unwrap())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    pub fn send_option(&mut self, option: u32, data: &[u8]) {
        let head = [&b"IHAVEOPT"[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes()].concat();
        self.stream.write_all(&[&head, data].concat()).unwrap();
    }

    pub fn option(&mut self, option: u32, data: &[u8]) -> Said {
        self.send_option(option, data);
        let mut said = Vec::new();
        loop {
            assert_eq!(self.u64(), abi::OPTION_REPLY_MAGIC);
            assert_eq!(self.u32(), option);
            let (reply, len) = (self.u32(), self.u32());
            said.push((reply, self.take(len as usize)));
            if reply == rep::ACK || reply >> 31 == 1 {
                return said;
            }
        }
    }

    /// Selects an export, or returns the error.
    pub fn go(&mut self, name: &str) -> Result<(), u32> {
        let said = self.option(opt::GO, &[string(name), vec![0, 1, 0, 3]].concat());
        if said.last().unwrap().0 != rep::ACK {
            return Err(said.last().unwrap().0);
        }
        let export = &said[0].1;
        assert_eq!((said[0].0, export.len()), (rep::INFO, 12));
        self.size = u64::from_be_bytes(export[2..10].try_into().unwrap());
        self.flags = u16::from_be_bytes(export[10..].try_into().unwrap());
        Ok(())
    }

    /// Sends a request, and returns the cookie of its answer.
    pub fn send(&mut self, command: u16, flags: u16, offset: u64, len: u32, data: &[u8]) -> u64 {
        self.cookie += 1;
        let head = [
            &abi::REQUEST_MAGIC.to_be_bytes()[..],
            &flags.to_be_bytes(),
            &command.to_be_bytes(),
            &self.cookie.to_be_bytes(),
            &offset.to_be_bytes(),
            &len.to_be_bytes(),
            data,
        ];
        self.stream.write_all(&head.concat()).unwrap();
        self.cookie
    }

    /// Reads the next complete answer.
    pub fn answer(&mut self) -> Answer {
        let mut answer = Answer::default();
        loop {
            if self.chunk(&mut answer) {
                return answer;
            }
        }
    }

    /// Reads a chunk. Returns whether it was the last. The server sends the chunks of one answer
    /// together.
    fn chunk(&mut self, answer: &mut Answer) -> bool {
        let magic = self.u32();
        if magic == abi::SIMPLE_REPLY_MAGIC {
            answer.error = self.u32();
            answer.cookie = self.u64();
            return true;
        }
        assert_eq!(magic, abi::STRUCTURED_REPLY_MAGIC);
        let (flags, kind) = (self.u16(), self.u16());
        answer.cookie = self.u64();
        let len = self.u32() as usize;
        match kind {
            abi::chunk::NONE => assert_eq!((len, flags), (0, 1)),
            abi::chunk::OFFSET_DATA => {
                let at = self.u64();
                let data = self.take(len - 8);
                answer.data.push((at, data));
            }
            abi::chunk::OFFSET_HOLE => {
                let (at, len) = (self.u64(), self.u32());
                answer.holes += 1;
                answer.data.push((at, vec![0; len as usize]));
            }
            abi::chunk::BLOCK_STATUS => {
                assert_eq!(self.u32(), abi::BASE_ALLOCATION_ID);
                answer.extents = (0..(len - 4) / 8).map(|_| (self.u32(), self.u32())).collect();
            }
            abi::chunk::ERROR => {
                answer.error = self.u32();
                let len = self.u16();
                answer.words = String::from_utf8(self.take(len.into())).unwrap();
            }
            other => panic!("chunk {other}"),
        }
        flags & abi::chunk::DONE != 0
    }

    /// Sends a request and reads its answer.
    pub fn ask(&mut self, command: u16, flags: u16, offset: u64, len: u32, data: &[u8]) -> Answer {
        let cookie = self.send(command, flags, offset, len, data);
        let answer = self.answer();
        assert_eq!(answer.cookie, cookie);
        answer
    }

    /// Sends a request to a server that may disconnect at any byte.
    pub fn try_ask(&mut self, command: u16, offset: u64, data: &[u8]) -> std::io::Result<()> {
        let head = [
            &abi::REQUEST_MAGIC.to_be_bytes()[..],
            &[0, 0],
            &command.to_be_bytes(),
            &[0; 8],
            &offset.to_be_bytes(),
            &(data.len() as u32).to_be_bytes(),
            data,
        ];
        self.stream.write_all(&head.concat())?;
        let mut reply = [0; 20];
        self.stream.read_exact(&mut reply)?;
        assert_eq!(reply[..8], [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 0], "{reply:?}");
        Ok(())
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let answer = self.ask(cmd::WRITE, 0, offset, data.len() as u32, data);
        assert_eq!(answer.error, 0, "{}", answer.words);
    }

    pub fn read(&mut self, offset: u64, len: u32) -> Vec<u8> {
        let answer = self.ask(cmd::READ, 0, offset, len, b"");
        assert_eq!(answer.error, 0, "{}", answer.words);
        let mut at = offset;
        for (place, data) in &answer.data {
            assert_eq!(*place, at);
            at += data.len() as u64;
        }
        assert_eq!(at, offset + u64::from(len));
        answer.data.into_iter().flat_map(|(_, data)| data).collect()
    }

    pub fn flush(&mut self) {
        assert_eq!(self.ask(cmd::FLUSH, 0, 0, 0, b"").error, 0);
    }

    /// Disconnects, and waits until the server has disconnected, too.
    pub fn bye(mut self) {
        self.send(cmd::DISC, 0, 0, 0, b"");
        assert!(self.is_over());
    }

    /// Whether the server has disconnected.
    pub fn is_over(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}
