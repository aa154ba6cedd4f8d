//! `poolhouse web`: a page in a browser that shows what pools and the daemon do.
//!
//! # Theory
//! The command is a small web server on the loopback interface. It sends the page, and passes the
//! page's requests to the daemon, with the rights of the user who runs the command. The page itself
//! turns the answers into rates, charts and tables. The daemon keeps nothing for it.
//!
//! Each request to the daemon needs the token that the command prints as the fragment of the URL.
//! Browsers don't send fragments, so the token is in no log. It ends with the command.
//!
//! | module | content |
//! |---|---|
//! | [`access`] | which requests are served: token, `Host`, `Origin`, methods that only read |
//! | [`assets`] | the files of the page, in the program |
//! | [`listener`] | HTTP, and its limits |
//!
//! # Absent
//! * Changes: only methods that read are passed on.
//! * Addresses beyond the loopback interface, and TLS: `ssh -L` carries the page to other machines.
//! * A past before the page was opened: the page keeps what it has seen.

pub mod access;
pub mod assets;
pub mod listener;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use console::Out;
use console::getopt::{Found, Getopt, Long, Opt};

use access::Token;
use listener::Forward;

const USAGE: &str = "\
usage: poolhouse web [-l [ADDRESS:]PORT]

Serves a page that shows pools, devices, datasets, times of operations, the cache, transaction groups,
slow operations and events, live, and prints its URL. The page only reads. It has the rights of the user
who runs the command, and ends with it (Ctrl-C).

    -l, --listen [ADDRESS:]PORT  the port of the loopback interface; a free one by default
";

/// The last lines of the help.
const NOTE: &str = "\
\nThe URL has a token, without which the server answers no request for data. To see the page of another
machine:

    ssh -t -L 9135:127.0.0.1:9135 HOST poolhouse web -l 9135
";

const LONG: [Long; 2] = [
    Long { name: "listen", val: Opt::Short('l'), arg: true },
    Long { name: "help", val: Opt::Named("help"), arg: false },
];

/// What the command needs of the program.
pub struct Io<'a> {
    /// The output.
    pub out: &'a mut Out,
    /// The errors.
    pub err: &'a mut Out,
    /// Passes a request to the daemon.
    pub forward: Forward,
}

/// The address of a command line.
fn address(text: &str) -> Result<SocketAddr, String> {
    let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let local = text.replace("localhost:", "127.0.0.1:");
    let address = match text.parse::<u16>() {
        Ok(port) => loopback(port),
        Err(_) => local.parse::<SocketAddr>().map_err(|_| {
            format!("'{text}' is neither a port nor an address with a port, as in 127.0.0.1:9135\n")
        })?,
    };
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err(format!(
            "'{text}' is not on the loopback interface, and the page is served without encryption\n\
             from another machine: ssh -t -L {port}:127.0.0.1:{port} HOST poolhouse web -l {port}\n",
            port = address.port()
        ))
    }
}

/// The address to listen at. `Ok(None)`: the user wants help.
fn read(words: &[String]) -> Result<Option<SocketAddr>, String> {
    let mut listen = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let mut g = Getopt::new(words, "l:h", &LONG);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('l'), text) => listen = address(&text)?,
            Found::Is(_, _) => return Ok(None),
            Found::Invalid(option) => return Err(format!("invalid option '{option}'\n")),
            Found::Missing(option) => return Err(format!("missing argument for option '{option}'\n")),
        }
    }
    if g.operands().is_empty() { Ok(Some(listen)) } else { Err("too many arguments\n".to_owned()) }
}

/// Runs `web` with the arguments after it, until the process ends. Returns the exit code.
pub fn run(io: Io<'_>, words: &[String]) -> i32 {
    let Io { out, err, forward } = io;
    let listen = match read(words) {
        Ok(Some(listen)) => listen,
        Ok(None) => {
            out.put(USAGE);
            out.put(NOTE);
            return 0;
        }
        Err(message) => {
            err.put(&message);
            err.put(USAGE);
            return 2;
        }
    };
    let token = match Token::new() {
        Ok(token) => token,
        Err(error) => {
            writeln!(err, "cannot make a token: {error}");
            return 1;
        }
    };
    let listener = match std::net::TcpListener::bind(listen) {
        Ok(listener) => listener,
        Err(error) => {
            writeln!(err, "cannot listen at {listen}: {error}");
            if error.kind() == std::io::ErrorKind::AddrInUse {
                err.put("without -l, a free port is taken\n");
            }
            return 1;
        }
    };
    let at = listener.local_addr().unwrap_or(listen);
    writeln!(out, "http://{at}/#token={}", token.text());
    err.put("open this URL in a browser; Ctrl-C ends the page\n");
    out.flush();
    match listener::serve(listener, token, forward) {
        Ok(()) => 0,
        Err(error) => {
            writeln!(err, "the page has ended: {error}");
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    /// Goal: the page is served on the loopback interface alone, and a wrong command line says why.
    #[test]
    fn options() {
        let port = |line: &str| read(&words(line)).expect("an address").map(|address| address.to_string());
        assert_eq!(port("").as_deref(), Some("127.0.0.1:0"));
        assert_eq!(port("-l 9135").as_deref(), Some("127.0.0.1:9135"));
        assert_eq!(port("--listen localhost:80").as_deref(), Some("127.0.0.1:80"));
        assert_eq!(port("-l [::1]:9135").as_deref(), Some("[::1]:9135"));
        assert_eq!(port("--help"), None);
        for (line, why) in [
            ("-l 0.0.0.0:9135", "'0.0.0.0:9135' is not on the loopback interface"),
            ("-l [::]:9135", "'[::]:9135' is not on the loopback interface"),
            ("-l 192.168.1.2:9135", "ssh -t -L 9135:127.0.0.1:9135 HOST"),
            ("-l 70000", "'70000' is neither a port nor an address"),
            ("-l host:1", "'host:1' is neither a port nor an address"),
            ("-l", "missing argument"),
            ("-x", "invalid option 'x'"),
            ("now", "too many arguments"),
        ] {
            let said = read(&words(line)).expect_err(line);
            assert!(said.contains(why), "{line}: {said}");
        }
    }
}
