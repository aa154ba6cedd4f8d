//! The `poolhouse` command, and the same binary under the names `zpool`, `zfs` and `zdb`.

use cli::cx::Cx;
use cli::terminal::Stdin;
use cli::{zfs, zpool};
use console::Clock;
use console::Out;
use program::DAEMON;
use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

/// Blocks are allocated and freed by the hundred thousand. With the system's allocator, large
/// blocks cost a page fault for each page.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const USAGE: &str = "\
usage: poolhouse COMMAND [ARGUMENT ...]

    zpool, zfs, zdb   OpenZFS's commands; links of these names to this program are the same
    zstream           show what stored send streams consist of, and change them
    zinject           let devices and blocks fail on purpose, to see what follows
    ls                list pools, datasets and files, with no mount
    cp                copy files out of a pool and into one, with no mount
    send              send a snapshot of a pool that is not imported, also a damaged one
    stream            verify or list stored send streams, with no pool
    export, unexport  offer volumes over NBD at an address, or no longer; exports lists what is offered and used
    afs               serve file systems as partitions of an AFS file server, and export their volumes
    attach, detach    make a volume a block device, /dev/zvol/POOL/VOLUME, or take that away
    man               write the manual pages below a folder
    bench             measure how long thousands of file systems take to mount
    serve             hold imported pools and their mounts; commands start it when they need it
    get, set          show and set tunables, and show kstats: numbers by OpenZFS's names
    arcstat           print what the cache does, line by line
    status            print a line for each pool: what users do now, and what limits them
    top               show what users do with datasets and AFS volumes, how long it takes, and locks
    ops               print what is under way now, how long already, and what it waits for
    slower            print slow operations, also of the past, and where their time went
    trace             count events of the daemon by who, what and where, or print them
    profile           sample what threads of the daemon work on and wait for, also as a flame graph
    cost              run a command, and say what it costs the daemon
    lockstat          print for which locks threads of the daemon wait, and where in its code
    txgs              print the newest transaction groups, why each closed, and where its time went
    arc_summary       report on the cache and what belongs to it
    web               serve a page for a browser that shows what pools and the daemon do
    metrics           print what pools, devices and the cache do, as Prometheus reads it
    histogram         print how numbers are distributed, and whether two samples differ
    estimate          say what a directory tree would take in a pool, by record size and compressor
    doctor            say what this machine lacks, and how to get it
    completion        print completions for a shell: bash, zsh or fish

poolhouse help COMMAND says more.
";

/// The commands that `USAGE` lists.
const COMMANDS: &str = "zpool zfs zdb zstream zinject ls cp send stream export unexport exports afs attach detach man bench serve get set \
                        arcstat status top ops slower trace profile cost lockstat txgs arc_summary web metrics histogram estimate doctor completion";

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let called = cli::title::own_name(&words.next().unwrap_or_default());
    let called = Path::new(&called).file_name().map(|n| n.to_string_lossy().into_owned());
    let mut words: Vec<OsString> = words.collect();
    // Under the program's own name, the first word is the command.
    let command = match called.as_deref() {
        Some(
            name @ ("zpool" | "zfs" | "zdb" | "zstream" | "zstreamdump" | "zinject" | "mount.zfs"
            | "zfs_ids_to_path" | "arcstat" | "arc_summary"),
        ) => name.to_owned(),
        _ if words.is_empty() => String::new(),
        _ => words.remove(0).to_string_lossy().into_owned(),
    };
    if command == "help" && !words.is_empty() {
        return help(&words);
    }
    if command == "serve" {
        return ExitCode::from(server::daemon::main(words, server::service::shared(cli::sysfs::facts())));
    }
    cli::title::prepare(&command, &words);
    let words: Vec<String> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    // Exit codes are 0, 1 and 2.
    ExitCode::from(run(&command, &words, out(), err()).clamp(0, 255) as u8)
}

/// Prints the help of the command that the first word names. For `zpool` and `zfs`, another word
/// names the manual page of a verb.
fn help(words: &[OsString]) -> ExitCode {
    let words: Vec<String> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    let command = words[0].as_str();
    if !COMMANDS.split_whitespace().any(|known| known == command) {
        return ExitCode::from(run(command, &[], out(), err()) as u8);
    }
    match (command, words.len()) {
        ("zpool" | "zfs", 2) => {
            let words = ["help".to_owned(), words[1].clone()];
            ExitCode::from(run(command, &words, out(), err()).clamp(0, 255) as u8)
        }
        (_, 2..) => {
            err().put("too many arguments\nusage: poolhouse help [COMMAND]\n");
            ExitCode::from(2)
        }
        ("serve", _) => {
            let option = [OsString::from("--help")];
            ExitCode::from(server::daemon::main(option, server::service::shared(cli::sysfs::facts())))
        }
        _ => {
            let option = if command == "zinject" { "-h" } else { "--help" };
            // Some of OpenZFS's commands take a request for help as an error.
            run(command, &[option.to_owned()], out(), out());
            ExitCode::SUCCESS
        }
    }
}

fn out() -> Out {
    let sink = Box::new(BufWriter::new(std::io::stdout()));
    let out = if std::io::stdout().is_terminal() { Out::terminal(sink) } else { Out::new(sink) };
    match std::io::stdout().as_fd().try_clone_to_owned() {
        Ok(file) => out.with_file(file),
        Err(_) => out,
    }
}

fn err() -> Out {
    let sink = Box::new(std::io::stderr());
    if std::io::stderr().is_terminal() { Out::terminal(sink) } else { Out::new(sink) }
}

fn run(command: &str, words: &[String], mut out: Out, mut err: Out) -> i32 {
    let code = match command {
        "afs" if words.first().is_some_and(|verb| verb == "export" || verb == "adopt") => {
            return rescued(command, words, out, err);
        }
        "zpool" | "zfs" | "afs" | "status" | "top" | "ops" | "slower" | "trace" | "profile" | "cost"
        | "lockstat" | "txgs" | "export" | "unexport" | "exports" | "attach" | "detach" => {
            return openzfs(command, words, out, err);
        }
        "zdb" => return zdb::run(words, &mut out, &mut err, &Clock::system()),
        "stream" if words.first().is_some_and(|verb| verb == "ls") => {
            return rescued(command, words, out, err);
        }
        "zstream" | "zstreamdump" | "stream" => streams(command, words, &mut out, &mut err),
        "ls" | "cp" | "send" => return rescued(command, words, out, err),
        "mount.zfs" => {
            let service = server::service::connect();
            cli::mount_zfs::run(&mut out, &mut err, &service, words)
        }
        "zinject" => {
            let service = server::service::connect();
            cli::zinject::run(&mut out, &mut err, &service, words)
        }
        "zfs_ids_to_path" => cli::ids_to_path::run(&mut out, &mut err, &server::service::connect(), words),
        "get" | "set" => {
            let service = server::service::connect();
            cli::stats::run(&mut out, &mut err, &service, command, words)
        }
        "arcstat" => {
            let service = server::service::connect();
            cli::arcstat::run(&mut out, &mut err, &service, words, &Clock::system())
        }
        "arc_summary" => {
            let service = server::service::connect();
            cli::arc_summary::run(&mut out, &mut err, &service, words, &Clock::system())
        }
        "metrics" => {
            let service = server::service::connect();
            cli::stats::metrics(&mut out, &mut err, &service, words, &DAEMON)
        }
        "web" => page(words, &mut out, &mut err),
        "histogram" => cli::histogram::run(&mut out, &mut err, words),
        "estimate" => cli::estimate::run(&mut out, &mut err, words),
        "doctor" => cli::doctor::run(&mut out, &mut err, words, &DAEMON),
        "completion" => cli::completion::run(&mut out, &mut err, words),
        "bench" => program::bench::run(words, &mut out, &mut err),
        "help" | "--help" | "-h" => {
            out.put(USAGE);
            0
        }
        "man" => cli::manual::run(words, &mut out, &mut err),
        "version" | "--version" | "-V" => {
            writeln!(out, "poolhouse {}", env!("CARGO_PKG_VERSION"));
            0
        }
        "" => {
            err.put("missing command\n");
            err.put(USAGE);
            2
        }
        other => {
            writeln!(err, "unrecognized command '{other}'");
            err.put(USAGE);
            2
        }
    };
    if out.flush() { code } else { 1 }
}

/// Serves the page of `poolhouse web`.
fn page(words: &[String], out: &mut Out, err: &mut Out) -> i32 {
    let forward = |method: &str, arguments: &[u8]| {
        server::service::forward(method, arguments).map_err(|error| api::chain(&error))
    };
    web::run(web::Io { out, err, forward: std::sync::Arc::new(forward) }, words)
}

/// Runs a command that gets data out of pools without mounts.
fn rescued(command: &str, words: &[String], out: Out, err: Out) -> i32 {
    let terminal = std::io::stderr().is_terminal();
    let service = Box::new(server::service::connect());
    let stream = || Ok(std::io::stdout().as_fd().try_clone_to_owned()?.into());
    let (visit, adopt) = (api::client::visit, api::client::adopt);
    let mut io = rescue::Io { out, err, terminal, service, stream, visit, adopt };
    let code = match command {
        "ls" => rescue::ls(&mut io, words),
        "cp" => rescue::cp(&mut io, words),
        "stream" => rescue::stream_ls(&mut io, &words[1..]),
        "afs" if words[0] == "adopt" => rescue::afs_adopt(&mut io, &words[1..]),
        "afs" => rescue::afs_export(&mut io, &words[1..]),
        _ => rescue::send(&mut io, words),
    };
    if io.out.flush() { code } else { 1 }
}

/// Runs a command about stored streams. `zstreamdump` is an old name of `zstream dump`.
fn streams(command: &str, words: &[String], out: &mut Out, err: &mut Out) -> i32 {
    let (input, terminal) = (Box::new(std::io::stdin().lock()), std::io::stdin().is_terminal());
    let mut io = zstream::Io { out, err, input, terminal };
    match command {
        "stream" => zstream::files::run(&mut io, words),
        "zstreamdump" => zstream::run(&mut io, &[&["dump".to_owned()], words].concat()),
        _ => zstream::run(&mut io, words),
    }
}

/// Runs `zpool`, `zfs` or a command about exports against the service that holds this user's pools.
fn openzfs(command: &str, words: &[String], out: Out, err: Out) -> i32 {
    let connect = Box::new(|| Ok(Rc::new(server::service::connect()) as Rc<dyn api::Requests>));
    let mut cx = Cx::new(out, err, Clock::system(), Box::new(Stdin), connect);
    cx.color = colors(&cx);
    cx.another = Some(|| Box::new(server::service::connect()));
    cx.overshadowed = Some(api::client::own_before_roots);
    if std::io::stdout().is_terminal() {
        cx.watcher = Some(|| Box::new(server::service::connect()));
    }
    let code = match command {
        "zpool" => zpool::run(&mut cx, words),
        "zfs" => zfs::run(&mut cx, words),
        "afs" => cli::afs::run(&mut cx, words),
        "status" => cli::status::run(&mut cx, words),
        "top" => cli::top::run(&mut cx, words),
        "ops" => cli::ops::run(&mut cx, words),
        "slower" => cli::slower::run(&mut cx, words),
        "trace" => cli::trace::run(&mut cx, words),
        "profile" => cli::profile::run(&mut cx, words),
        "cost" => cli::cost::run(&mut cx, words),
        "lockstat" => cli::lockstat::run(&mut cx, words),
        "txgs" => cli::txgs::run(&mut cx, words),
        _ => cli::exports::run(&mut cx, command, words),
    };
    // `ZFS_ABORT` makes a finished command dump core, for debuggers of its memory.
    if matches!(command, "zpool" | "zfs") && (cx.env)("ZFS_ABORT").is_some() {
        cx.out.put("dumping core by request\n");
        cx.out.flush();
        std::process::abort();
    }
    if cx.out.flush() { code } else { code.max(1) }
}

/// Whether to use colours: the user requests them and the terminal supports them (`use_color`).
fn colors(cx: &Cx) -> bool {
    let able = (cx.env)("TERM").is_some_and(|term| term != "dumb" && term != "unknown");
    cx.env_is_set("ZFS_COLOR") && !cx.env_is_set("NO_COLOR") && std::io::stdout().is_terminal() && able
}
