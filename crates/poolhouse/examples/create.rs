//! Creates a pool on an image file, and uses it as most programs do: files, a snapshot, a clone, a
//! volume. It needs no mount, no daemon and no root.
//!
//! ```text
//! cargo run -p poolhouse --example create -- /tmp/tour.img
//! ```

#![allow(clippy::print_stdout, reason = "an example tells what it found")]

use poolhouse::{OpenOptions, Pool};
use std::error::Error;
use std::io::Write;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(image) = std::env::args_os().nth(1) else {
        return Err("usage: create IMAGE, a file that is made and must not be there".into());
    };
    let image = Path::new(&image);
    std::fs::File::create_new(image)?.set_len(256 << 20)?;

    let pool = Pool::create("tour", &[&[image]])?;
    let docs = pool.create_filesystem("tour/docs")?;
    pool.set("tour/docs", "compression", "zstd")?;
    docs.create_dir("/notes")?;
    let mut file = docs.create_file("/notes/today.txt")?;
    writeln!(file, "written by the library")?;
    file.sync()?;

    let monday = pool.snapshot("tour/docs@monday")?;
    file.set_len(0)?;
    println!("{} has:", monday.name());
    for entry in monday.read_dir("/notes")? {
        println!("  {}", String::from_utf8_lossy(&entry?.name));
    }

    let draft = pool.clone_snapshot("tour/docs@monday", "tour/draft")?;
    draft.create_file("/notes/draft.txt")?.write_at(b"a clone is written on its own\n", 0)?;

    let volume = pool.create_volume("tour/disk", 32 << 20)?.volume_for_writing()?;
    volume.write_at(b"a boot sector", 0)?;
    volume.flush()?;

    // A handle keeps its pool open. The pool closes when the last one is dropped.
    drop((file, volume));
    pool.export()?;
    drop((pool, docs, monday, draft));

    let pool = Pool::open(&[image], &OpenOptions::default())?;
    let mut text = vec![0; 64];
    let n = pool.dataset("tour/docs@monday")?.open("/notes/today.txt")?.read_at(&mut text, 0)?;
    print!("{}", String::from_utf8_lossy(&text[..n]));
    for name in pool.dataset_names(true)?.names {
        println!("{name}");
    }
    Ok(())
}
