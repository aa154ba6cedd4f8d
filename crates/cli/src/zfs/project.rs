//! `zfs project`: the projects of files and directories (`zfs_project.c`).
//!
//! # Theory
//! The command makes system calls for each file, on any file system, with the rights of the user
//! who runs it. It makes no requests to a daemon.
//!
//! Only plain files and directories have a project. Below a directory, everything else is skipped,
//! because opening it could block or lead elsewhere.
//!
//! A link is followed if it is named on the command line, and never below a directory. Any user who
//! may write there could put a link in the command's way.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use device::Project;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::cx::{Cx, Outcome, Stop};
use console::getopt::{Found, Getopt, Opt};
use console::words;

/// OpenZFS's exit code for a file that can't be handled.
const FAILED: i32 = 255;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    List,
    Check,
    Clear,
    Set,
}

struct Ask {
    op: Op,
    id: Option<u32>,
    dir_only: bool,
    recursive: bool,
    keep_id: bool,
    lines: bool,
    set_flag: bool,
}

/// Runs `zfs project` (`zfs_do_project`).
///
/// ```text
/// zfs project [-d|-r] <file|directory> ...
/// zfs project -c [-0] [-d|-r] [-p id] <file|directory> ...
/// zfs project -C [-k] [-r] <file|directory> ...
/// zfs project [-p id] [-r] [-s] <file|directory> ...
/// ```
///
/// # Errors
/// See [`Outcome`].
pub fn run(cx: &mut Cx, args: &[String]) -> Outcome {
    if args.is_empty() {
        return Err(Stop::usage("missing file or directory target(s)\n"));
    }
    let (ask, targets) = read(args)?;
    let mut code = 0;
    for target in &targets {
        if !handle(cx, Path::new(target), &ask) {
            code = FAILED;
        }
    }
    Ok(code)
}

fn read(args: &[String]) -> Result<(Ask, Vec<String>), Stop> {
    let mut op = None;
    let mut ask = Ask {
        op: Op::List,
        id: None,
        dir_only: false,
        recursive: false,
        keep_id: false,
        lines: true,
        set_flag: false,
    };
    let mut g = Getopt::new(args, "0Ccdkp:rs", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('0'), _) => ask.lines = false,
            Found::Is(Opt::Short('d'), _) => (ask.dir_only, ask.recursive) = (true, false),
            Found::Is(Opt::Short('r'), _) => (ask.dir_only, ask.recursive) = (false, true),
            Found::Is(Opt::Short('k'), _) => ask.keep_id = true,
            Found::Is(Opt::Short('p'), arg) => ask.id = Some(parse_id(&arg)?),
            Found::Is(Opt::Short(c), _) => {
                if op.is_some() {
                    return Err(Stop::usage("cannot specify '-C' '-c' '-s' together\n"));
                }
                op = Some(match c {
                    'C' => Op::Clear,
                    'c' => Op::Check,
                    _ => Op::Set,
                });
            }
            Found::Is(..) => {}
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    ask.set_flag = op == Some(Op::Set);
    ask.op = op.unwrap_or(if ask.id.is_some() { Op::Set } else { Op::List });
    let useless = |is: bool, words: &str| if is { Err(Stop::usage(words)) } else { Ok(()) };
    if ask.op == Op::Clear {
        useless(ask.dir_only, "'-d' is useless together with '-C'\n")?;
    }
    if ask.op == Op::Set {
        useless(ask.dir_only, "'-d' is useless for set project ID and/or inherit flag\n")?;
    }
    useless(ask.op != Op::Clear && ask.keep_id, "'-k' is only valid together with '-C'\n")?;
    useless(ask.op != Op::Check && !ask.lines, "'-0' is only valid together with '-c'\n")?;
    useless(ask.op == Op::Clear && ask.id.is_some(), "'-p' is useless together with '-C'\n")?;
    let targets = g.operands();
    useless(targets.is_empty(), "missing file or directory target(s)\n")?;
    Ok((ask, targets))
}

/// Parses a number as `strtoull` does with base 0. Every 32-bit number except for the largest is a
/// project.
fn parse_id(arg: &str) -> Result<u32, Stop> {
    let text = arg.trim_start();
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(&text[1..], 8),
        // A negative number wraps around to a large one.
        None => text.parse::<u64>().or_else(|e| text.parse::<i64>().map(i64::cast_unsigned).map_err(|_| e)),
    };
    let number = number.map_err(|_| Stop::usage("project ID must be less than 4294967295\n"))?;
    u32::try_from(number).ok().filter(|id| *id != u32::MAX).ok_or_else(|| Stop::usage("invalid project ID\n"))
}

/// Reports why a file can't be handled. Returns `false`.
fn complain(cx: &mut Cx, what: &str, path: &Path, error: &io::Error) -> bool {
    cx.out.flush();
    writeln!(cx.err, "{what} {}: {}", path.display(), words::io(error));
    false
}

const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NOCTTY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Opens a path from the command line, which may be a link.
fn open(path: &Path) -> io::Result<File> {
    Ok(rustix::fs::open(path, FLAGS, Mode::empty())?.into())
}

/// Opens an entry of a directory. Fails if a link has taken its place.
fn open_in(dir: &File, name: &OsStr) -> io::Result<File> {
    Ok(rustix::fs::openat(dir, name, FLAGS | OFlags::NOFOLLOW, Mode::empty())?.into())
}

/// Opens a directory below another one, through no link.
fn below(top: &File, path: &Path) -> io::Result<File> {
    let mut dir = top.try_clone()?;
    for name in path {
        let flags = FLAGS | OFlags::NOFOLLOW | OFlags::DIRECTORY;
        dir = rustix::fs::openat(&dir, name, flags, Mode::empty())?.into();
    }
    Ok(dir)
}

/// Whether an entry disappeared after it was read: it was removed, or replaced by something else.
fn is_gone(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOENT | Errno::LOOP | Errno::NOTDIR))
}

/// Handles one operand. Returns `false` after a failure, which is reported.
fn handle(cx: &mut Cx, path: &Path, ask: &Ask) -> bool {
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) => return complain(cx, "failed to stat", path, &e),
    };
    if !meta.is_file() && !meta.is_dir() {
        cx.err.put("only support project quota on regular file or directory\n");
        return false;
    }
    for (is, option) in [(ask.dir_only, 'd'), (ask.recursive, 'r')] {
        if is && !meta.is_dir() {
            writeln!(cx.err, "'-{option}' option on non-dir target {}", path.display());
            return false;
        }
    }
    let mut id = ask.id;
    if matches!(ask.op, Op::Set | Op::Check) && id.is_none() {
        let file = match open(path) {
            Ok(file) => file,
            Err(e) => return complain(cx, "failed to open", path, &e),
        };
        match Project::of(&file) {
            Ok(project) => id = Some(project.id()),
            Err(e) => return complain(cx, "failed to get xattr for", path, &e),
        }
    }
    let id = id.unwrap_or(0);
    let top = match open(path) {
        Ok(file) => file,
        Err(e) => return complain(cx, "failed to open", path, &e),
    };
    if !one(cx, path, &top, ask, id) {
        return false;
    }
    if !meta.is_dir() || ask.dir_only || (!ask.recursive && !matches!(ask.op, Op::List | Op::Check)) {
        return true;
    }
    // Directories by their paths below the operand.
    let mut todo = VecDeque::from([PathBuf::new()]);
    while let Some(dir) = todo.pop_front() {
        if !directory(cx, (path, &top), &dir, ask, id, &mut todo) {
            return false;
        }
    }
    true
}

/// Handles all entries of a directory.
///
/// What was removed meanwhile is skipped. The operand itself must exist.
fn directory(
    cx: &mut Cx,
    (named, top): (&Path, &File),
    at: &Path,
    ask: &Ask,
    id: u32,
    todo: &mut VecDeque<PathBuf>,
) -> bool {
    let is_top = at.as_os_str().is_empty();
    let dir = if is_top { named.to_owned() } else { named.join(at) };
    let opened = below(top, at).and_then(|file| Ok((rustix::fs::Dir::read_from(&file)?, file)));
    let (entries, file) = match opened {
        Ok(opened) => opened,
        Err(e) if is_gone(&e) && !is_top => return true,
        Err(e) => return complain(cx, "failed to opendir", &dir, &e),
    };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) => return complain(cx, "failed to readdir", &dir, &e.into()),
        };
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let kind = match entry.file_type() {
            // Some file systems do not return the type.
            FileType::Unknown => kind_of(&file, name),
            kind => kind,
        };
        if name == "." || name == ".." || !matches!(kind, FileType::RegularFile | FileType::Directory) {
            continue;
        }
        let path = dir.join(name);
        let child = match open_in(&file, name) {
            Ok(child) => child,
            Err(e) if is_gone(&e) => continue,
            Err(e) => return complain(cx, "failed to open", &path, &e),
        };
        if !one(cx, &path, &child, ask, id) {
            return false;
        }
        if ask.recursive && kind == FileType::Directory {
            todo.push_back(at.join(name));
        }
    }
    true
}

fn kind_of(dir: &File, name: &OsStr) -> FileType {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}

/// Handles one file (`zfs_project_handle_one`).
fn one(cx: &mut Cx, path: &Path, file: &File, ask: &Ask, id: u32) -> bool {
    let project = match Project::of(file) {
        Ok(project) => project,
        Err(e) => return complain(cx, "failed to get xattr for", path, &e),
    };
    let name = path.as_os_str().as_bytes();
    let new = match ask.op {
        Op::List => {
            write!(cx.out, "{:5} {} ", project.id(), if project.inherits() { 'P' } else { '-' });
            cx.out.put_bytes(name);
            cx.out.put("\n");
            return true;
        }
        Op::Check => {
            check(cx, name, project, ask, id);
            return true;
        }
        Op::Clear if !project.inherits() && (ask.keep_id || project.id() == 0) => return true,
        Op::Clear => {
            let cleared = project.with_inherits(false);
            if ask.keep_id { cleared } else { cleared.with_id(0) }
        }
        Op::Set if project.id() == id && (!ask.set_flag || project.inherits()) => return true,
        Op::Set => project.with_id(id).with_inherits(ask.set_flag || project.inherits()),
    };
    match new.give(file) {
        Ok(()) => true,
        Err(e) => complain(cx, "failed to set xattr for", path, &e),
    }
}

/// Reports which of a file's project settings differ from the expected ones.
fn check(cx: &mut Cx, name: &[u8], project: Project, ask: &Ask, id: u32) {
    if project.id() == id && project.inherits() {
        return;
    }
    if !ask.lines {
        cx.out.put_bytes(name);
        return cx.out.put_bytes(&[0]);
    }
    if project.id() != id {
        cx.out.put_bytes(name);
        writeln!(cx.out, " - project ID is not set properly ({}/{id})", project.id());
    }
    if !project.inherits() {
        cx.out.put_bytes(name);
        cx.out.put(" - project inherit flag is not set\n");
    }
}
