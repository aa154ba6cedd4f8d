//! The `poolhouse` command, and the same binary under the names `zpool`, `zfs` and `zdb`.

use cli::cx::Out;
use cli::rescue;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: poolhouse COMMAND [ARGUMENT ...]

    ls        list pools, datasets and files, straight from the devices
    cp        copy files out of a pool, straight from the devices

poolhouse COMMAND --help says more.
";

fn main() -> ExitCode {
    let mut words = std::env::args_os().map(|w| w.to_string_lossy().into_owned());
    let called = words.next().unwrap_or_default();
    let mut words: Vec<String> = words.collect();
    let called = Path::new(&called).file_name().map(|n| n.to_string_lossy().into_owned());
    // Under its own name the first word is the command.
    let command = match called.as_deref() {
        Some(name @ ("zpool" | "zfs" | "zdb")) => name.to_owned(),
        _ if words.is_empty() => String::new(),
        _ => words.remove(0),
    };
    ExitCode::from(run(&command, &words) as u8)
}

fn run(command: &str, words: &[String]) -> i32 {
    let mut io = rescue::Io {
        out: Out::new(Box::new(std::io::stdout())),
        err: Out::new(Box::new(std::io::stderr())),
        terminal: std::io::stderr().is_terminal(),
    };
    match command {
        "ls" => rescue::ls(&mut io, words),
        "cp" => rescue::cp(&mut io, words),
        "help" | "--help" | "-h" => {
            io.out.put(USAGE);
            0
        }
        "" => {
            io.err.put("missing command\n");
            io.err.put(USAGE);
            2
        }
        other => {
            writeln!(io.err, "unrecognized command '{other}'");
            io.err.put(USAGE);
            2
        }
    }
}
