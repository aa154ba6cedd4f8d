//! Lists the datasets of a pool, a directory of one, or prints a file. It reads the devices alone:
//! no mount, no daemon and no root, and it writes nothing.
//!
//! ```text
//! cargo run -p poolhouse --example list -- /tmp/tour.img
//! cargo run -p poolhouse --example list -- /tmp/tour.img tour/docs /notes
//! cargo run -p poolhouse --example list -- /tmp/tour.img tour/docs@monday /notes/today.txt
//! ```

#![allow(clippy::print_stdout, reason = "an example prints what it reads")]

use poolhouse::zpl::FileType;
use poolhouse::{OpenOptions, Pool};
use std::error::Error;
use std::io::Write;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let Some(image) = words.next() else {
        return Err("usage: list IMAGE [DATASET [PATH]]".into());
    };
    let pool = Pool::open(&[image], &OpenOptions::default())?;
    let Some(name) = words.next() else {
        for name in pool.dataset_names(true)?.names {
            println!("{name}");
        }
        return Ok(());
    };
    let dataset = pool.dataset(&name)?;
    let path = words.next().unwrap_or_else(|| "/".to_owned());
    let file = dataset.open(&path)?;
    if file.attr().kind == FileType::Directory {
        for entry in file.read_dir()? {
            println!("{}", String::from_utf8_lossy(&entry?.name));
        }
        return Ok(());
    }
    let (mut part, mut at) = (vec![0; 1 << 20], 0);
    loop {
        let n = file.read_at(&mut part, at)?;
        if n == 0 {
            return Ok(());
        }
        std::io::stdout().write_all(&part[..n])?;
        at += n as u64;
    }
}
