//! NetInfo and NetRestrict: by which addresses clients reach a server.

use std::net::Ipv4Addr;

use super::{digits, lines};

/// Addresses that agree in their first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Net {
    address: u32,
    mask: u32,
}

impl Net {
    fn has(self, address: u32) -> bool {
        address & self.mask == self.address & self.mask
    }
}

/// `1.2.3.4`, `1.2.3.4/24` or `10.1/16`, and anything after white space. `Ok(None)`: the line is
/// empty.
fn net(line: &[u8]) -> std::result::Result<Option<Net>, ()> {
    let line = line.trim_ascii_start();
    if line.is_empty() {
        return Ok(None);
    }
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (address, length) = match line[..end].iter().position(|byte| *byte == b'/') {
        Some(slash) => (&line[..slash], Some(&line[slash + 1..end])),
        None => (&line[..end], None),
    };
    let bits = match length {
        None => 32,
        Some(length) => digits(length).filter(|bits| (1..=32).contains(bits)).ok_or(())?,
    };
    // OpenAFS takes one dot after the address.
    let address = address.strip_suffix(b".").unwrap_or(address);
    let mut bytes = [0; 4];
    let mut count = 0;
    for part in address.split(|byte| *byte == b'.') {
        let byte = digits(part).and_then(|number| u8::try_from(number).ok());
        *bytes.get_mut(count).ok_or(())? = byte.ok_or(())?;
        count += 1;
    }
    // Missing bytes are 0, but only before a length.
    if count < 4 && length.is_none() {
        return Err(());
    }
    Ok(Some(Net { address: u32::from_be_bytes(bytes), mask: u32::MAX << (32 - bits) }))
}

/// Which of its addresses a server registers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetInfo {
    /// Nets in the order of the file. A fake address need not exist on the host.
    nets: Vec<(Net, bool)>,
    /// The numbers of lines that are wrong.
    pub wrong_lines: Vec<usize>,
}

impl NetInfo {
    /// Reads NetInfo. Wrong lines are skipped.
    pub fn parse(file: &[u8]) -> Self {
        let mut info = Self::default();
        for (number, line) in lines(file) {
            let line = line.trim_ascii_start();
            let fake = line.strip_prefix(b"f").or_else(|| line.strip_prefix(b"F"));
            match net(fake.unwrap_or(line)) {
                Ok(None) => {}
                Ok(Some(net)) if fake.is_none() || net.mask == u32::MAX => {
                    info.nets.push((net, fake.is_some()));
                }
                _ => info.wrong_lines.push(number),
            }
        }
        info
    }

    /// The addresses to register, of those that the host has.
    ///
    /// Each line chooses the first address that it has, and a fake address chooses itself. If the
    /// file chooses none, all addresses of the host count.
    pub fn choose(&self, of_host: &[Ipv4Addr]) -> Vec<Ipv4Addr> {
        let chosen = self.chosen(of_host);
        if chosen.is_empty() {
            return of_host.to_vec();
        }
        chosen.into_iter().map(Ipv4Addr::from_bits).collect()
    }

    /// Whether the file has lines, and none chooses an address.
    pub fn misses(&self, of_host: &[Ipv4Addr]) -> bool {
        !self.nets.is_empty() && self.chosen(of_host).is_empty()
    }

    fn chosen(&self, of_host: &[Ipv4Addr]) -> Vec<u32> {
        let mut chosen: Vec<u32> = Vec::new();
        for (net, is_fake) in &self.nets {
            let existing = of_host.iter().map(|address| address.to_bits()).find(|address| net.has(*address));
            let wanted = if *is_fake { Some(net.address) } else { existing };
            if let Some(address) = wanted
                && !chosen.iter().any(|other| net.has(*other))
            {
                chosen.push(address);
            }
        }
        chosen
    }
}

/// Which of its addresses a server does not register.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetRestrict {
    nets: Vec<Net>,
    /// The numbers of lines that are wrong.
    pub wrong_lines: Vec<usize>,
}

impl NetRestrict {
    /// Reads NetRestrict. Wrong lines are skipped.
    pub fn parse(file: &[u8]) -> Self {
        let mut restrict = Self::default();
        for (number, line) in lines(file) {
            match net(line) {
                Ok(None) => {}
                Ok(Some(net)) => restrict.nets.push(net),
                Err(()) => restrict.wrong_lines.push(number),
            }
        }
        restrict
    }

    /// The addresses that the file does not exclude.
    pub fn keep(&self, addresses: &[Ipv4Addr]) -> Vec<Ipv4Addr> {
        let is_kept = |address: &&Ipv4Addr| !self.nets.iter().any(|net| net.has(address.to_bits()));
        addresses.iter().filter(is_kept).copied().collect()
    }
}
