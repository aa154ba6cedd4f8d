//! The tar archives of the fixtures: plain files, directories and old GNU sparse files, nothing
//! else.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path};

const BLOCK: usize = 512;
/// Offset of the sparse map in a header, and the number of its entries there.
const SPARSE_AT: usize = 386;
const SPARSE_IN_HEADER: usize = 4;
/// An extension block has this many entries. The byte after them says whether another block
/// follows.
const SPARSE_IN_EXTENSION: usize = 21;

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Decodes octal digits, or a big-endian number if the first bit is set.
fn number(field: &[u8]) -> io::Result<u64> {
    if field[0] & 0x80 != 0 {
        return Ok(field[field.len() - 8..].iter().fold(0, |n, b| n << 8 | u64::from(*b)));
    }
    let text = std::str::from_utf8(field).map_err(|_| bad("tar: a number that is none"))?;
    let digits = text.trim_matches(|c| c == '\0' || c == ' ');
    if digits.is_empty() { Ok(0) } else { u64::from_str_radix(digits, 8).map_err(|_| bad("tar: bad octal")) }
}

fn sparse_entries(block: &[u8], count: usize, map: &mut Vec<(u64, u64)>) -> io::Result<()> {
    for entry in block.chunks_exact(24).take(count) {
        if entry[0] == 0 {
            break;
        }
        map.push((number(&entry[..12])?, number(&entry[12..24])?));
    }
    Ok(())
}

/// Unpacks the archive `input` into the directory `to`. Holes stay holes.
pub(crate) fn unpack(mut input: impl Read, to: &Path) -> io::Result<()> {
    let mut header = [0; BLOCK];
    let mut buf = vec![0; 1 << 20];
    loop {
        if let Err(e) = input.read_exact(&mut header) {
            return if e.kind() == io::ErrorKind::UnexpectedEof { Ok(()) } else { Err(e) };
        }
        if header.iter().all(|b| *b == 0) {
            return Ok(());
        }
        let name_len = header[..100].iter().position(|b| *b == 0).unwrap_or(100);
        let name = std::str::from_utf8(&header[..name_len]).map_err(|_| bad("tar: name is not UTF-8"))?;
        let relative = Path::new(name);
        if relative.components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir)) {
            return Err(bad("tar: a name that leaves the folder"));
        }
        let path = to.join(relative);
        let stored = number(&header[124..136])?;
        let (map, size) = match header[156] {
            b'5' => {
                fs::create_dir_all(&path)?;
                continue;
            }
            b'0' | 0 => (vec![(0, stored)], stored),
            b'S' => {
                let mut map = Vec::new();
                sparse_entries(&header[SPARSE_AT..], SPARSE_IN_HEADER, &mut map)?;
                let (size, mut more) = (number(&header[483..495])?, header[482] != 0);
                while more {
                    let mut block = [0; BLOCK];
                    input.read_exact(&mut block)?;
                    sparse_entries(&block, SPARSE_IN_EXTENSION, &mut map)?;
                    more = block[504] != 0;
                }
                (map, size)
            }
            _ => return Err(bad("tar: an entry that is neither file nor folder")),
        };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        write_file(&mut input, &path, size, &map, &mut buf)?;
        let padding = (BLOCK as u64 - stored % BLOCK as u64) % BLOCK as u64;
        input.read_exact(&mut buf[..padding as usize])?;
    }
}

fn write_file(
    input: &mut impl Read,
    path: &Path,
    size: u64,
    map: &[(u64, u64)],
    buf: &mut [u8],
) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(size)?;
    for (offset, len) in map {
        let (mut at, end) = (*offset, offset + len);
        while at < end {
            let want = buf.len().min((end - at) as usize);
            input.read_exact(&mut buf[..want])?;
            // Zeros that the archive stores as data become holes as well.
            for (i, page) in buf[..want].chunks(4096).enumerate() {
                if page.iter().any(|b| *b != 0) {
                    file.write_all_at(page, at + i as u64 * 4096)?;
                }
            }
            at += want as u64;
        }
    }
    Ok(())
}
