//! ThisCell and CellServDB.

use std::net::Ipv4Addr;

use super::{digits, lines, word};
use crate::{Error, Place, Record, Result};

/// Most database servers of a cell (`MAXHOSTSPERCELL`). OpenAFS drops the others.
pub const MAX_HOSTS: usize = 8;
/// Longest name of a cell in bytes (`MAXCELLCHARS` without its NUL).
const MAX_CELL: usize = 63;

fn name(text: &[u8], line: usize) -> Result<String> {
    let place = Place { record: Record::Line(line), at: 0 };
    if text.len() > MAX_CELL {
        return Err(Error::TooLong { place, field: "a name", max: MAX_CELL });
    }
    let name = std::str::from_utf8(text).ok().filter(|name| !name.is_empty());
    name.map(str::to_owned).ok_or(Error::Shape { place, why: "a name is missing, or is no text" })
}

/// The name of the cell in ThisCell: the first word of its first line.
///
/// # Errors
/// * [`Error::Shape`]: there is none.
/// * [`Error::TooLong`]: it has more than 63 bytes.
pub fn this_cell(file: &[u8]) -> Result<String> {
    let first = lines(file).next().map_or(&b""[..], |(_, line)| line);
    name(word(first).0, 1)
}

/// A database server of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellHost {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its name, which is a comment.
    pub name: String,
    /// Whether it never becomes the site for changes: `[address]`.
    pub is_clone: bool,
}

/// A cell in CellServDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The name.
    pub name: String,
    /// The cell whose servers are used, too.
    pub linked: Option<String>,
    /// The database servers.
    pub hosts: Vec<CellHost>,
}

/// The cells of CellServDB.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CellServDb {
    cells: Vec<Cell>,
}

impl CellServDb {
    /// Reads CellServDB. OpenAFS uses none of it if a line is wrong.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::TooLong`], with the number of the line.
    pub fn parse(file: &[u8]) -> Result<Self> {
        let mut cells: Vec<Cell> = Vec::new();
        for (number, line) in lines(file) {
            let line = line.trim_ascii_start();
            if line.is_empty() {
                continue;
            }
            if let Some(rest) = line.strip_prefix(b">") {
                cells.push(cell(rest, number)?);
                continue;
            }
            let place = Place { record: Record::Line(number), at: 0 };
            let Some(cell) = cells.last_mut() else {
                return Err(Error::Shape { place, why: "a server comes before the first cell" });
            };
            if cell.hosts.len() < MAX_HOSTS {
                let why = "this is not an address with a name: 1.2.3.4 #name";
                cell.hosts.push(host(line).ok_or(Error::Shape { place, why })?);
            }
        }
        Ok(Self { cells })
    }

    /// The cell with this name. Of two, the last one counts, as in OpenAFS.
    pub fn cell(&self, name: &str) -> Option<&Cell> {
        self.cells.iter().rfind(|cell| cell.name.eq_ignore_ascii_case(name))
    }

    /// All cells in the order of the file.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }
}

/// `name linked #comment`, after the ">".
fn cell(rest: &[u8], line: usize) -> Result<Cell> {
    let (first, rest) = word(rest);
    let linked = word(rest).0;
    let has_link = !linked.is_empty() && !linked.starts_with(b"#");
    let linked = has_link.then(|| name(linked, line)).transpose()?;
    Ok(Cell { name: name(first, line)?, linked, hosts: Vec::new() })
}

/// `1.2.3.4 #name` or `[1.2.3.4] #name`.
fn host(line: &[u8]) -> Option<CellHost> {
    let (address, rest, is_clone) = match line.strip_prefix(b"[") {
        Some(rest) => {
            let end = rest.iter().position(|byte| *byte == b']')?;
            (&rest[..end], &rest[end + 1..], true)
        }
        None => {
            let end = line.iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'#')?;
            (&line[..end], &line[end..], false)
        }
    };
    let name = word(rest.trim_ascii_start().strip_prefix(b"#")?).0;
    let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty())?.to_owned();
    let bytes: Vec<u8> = address
        .split(|byte| *byte == b'.')
        .map(|part| u8::try_from(digits(part)?).ok())
        .collect::<Option<_>>()?;
    let address: [u8; 4] = bytes.try_into().ok()?;
    Some(CellHost { address: address.into(), name, is_clone })
}
