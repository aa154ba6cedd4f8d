//! `poolhouse export`, `unexport` and `exports` for volumes over NBD; `attach` and `detach` for
//! volumes as block devices.
//!
//! # Theory
//! A daemon serves all its volumes to its own user, on a socket of its own, without a command.
//! These commands offer volumes to other clients. They print URIs, which clients accept as names.
//!
//! # Absent
//! OpenZFS has no such commands: the grammar is our own.

use api::{AttachRequest, DetachRequest, ExportList, OfferRequest, Reason, WithdrawRequest};

use crate::cx::{Cx, Outcome, Stop};
use console::getopt::{Found, Getopt, Opt};

const EXPORT: &str = "\
usage: poolhouse export [-r] [-T DIR] -l ADDRESS POOL/VOLUME[@SNAPSHOT] ...

Offers volumes over NBD at an address, until they are taken back (unexport) or the daemon ends, and prints their URIs. The address is the path of
a Unix socket, which is for this user and root, or an IP address, with or without a port (10809). Whoever reaches an IP
address without TLS has what is offered there. Where one volume is offered, it is the one that a client gets who names none.

    -l ADDRESS   where
    -r           nobody may write to it that way
    -T DIR       with TLS, by DIR/server-cert.pem and DIR/server-key.pem; where there is a DIR/ca-cert.pem, only for clients whose certificate
                 is signed by it, and is not in DIR/ca-crl.pem if there is one

This user reaches every volume at the daemon's own socket, which `poolhouse exports` names.
";

const UNEXPORT: &str = "\
usage: poolhouse unexport [-l ADDRESS] -a | POOL/VOLUME[@SNAPSHOT] ...

Offers volumes no longer, at one address or at all. Connections that are there go on.

    -a           all volumes
    -l ADDRESS   there only
";

const EXPORTS: &str = "\
usage: poolhouse exports [-H]

Lists where volumes are served, and which are used.

    -H           no headers, and tabs between the columns
";

const ATTACH: &str = "\
usage: poolhouse attach [-r] POOL/VOLUME[@SNAPSHOT] ...

Makes volumes block devices, /dev/zvol/POOL/VOLUME, and prints their names: loop devices over files that the daemon serves. Takes root.

    -r           read-only
";

const DETACH: &str = "\
usage: poolhouse detach [-f] POOL/VOLUME[@SNAPSHOT] ...

Takes the block devices of volumes away.

    -f           also if they are mounted: their users get errors
";

/// Runs one of the commands with the arguments after its name. Returns the exit code.
pub fn run(cx: &mut Cx, command: &str, args: &[String]) -> i32 {
    let (usage, outcome) = match command {
        _ if args.iter().any(|arg| arg == "--help") => {
            cx.out.put(usage_of(command));
            return 0;
        }
        "export" => (EXPORT, export(cx, args)),
        "unexport" => (UNEXPORT, unexport(cx, args)),
        "attach" => (ATTACH, attach(cx, args, true)),
        "detach" => (DETACH, attach(cx, args, false)),
        _ => (EXPORTS, exports(cx, args)),
    };
    match outcome {
        Ok(code) | Err(Stop::Fail(code)) => code,
        Err(Stop::Usage(message)) => {
            cx.err.put(&message);
            cx.err.put(usage);
            2
        }
    }
}

fn usage_of(command: &str) -> &'static str {
    match command {
        "export" => EXPORT,
        "unexport" => UNEXPORT,
        "attach" => ATTACH,
        "detach" => DETACH,
        _ => EXPORTS,
    }
}

fn export(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut request, mut tls) = (OfferRequest::default(), None);
    let mut g = Getopt::new(args, "l:rT:", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('l'), place) => request.listen = place,
            Found::Is(Opt::Short('T'), dir) => tls = Some(dir),
            Found::Is(..) => request.read_only = true,
            Found::Invalid(c) => return Err(Stop::invalid(c)),
            Found::Missing(c) => return Err(Stop::missing(c)),
        }
    }
    request.datasets = g.operands();
    if request.listen.is_empty() {
        return Err(Stop::usage("missing address\n"));
    }
    if request.datasets.is_empty() {
        return Err(Stop::usage("missing volume argument\n"));
    }
    // The daemon has a working directory of its own.
    let absolute = |dir: String| std::path::absolute(&dir).map_or(dir, |path| path.display().to_string());
    request.tls = tls.map(absolute);
    let service = cx.service()?;
    match service.offer(&request) {
        Ok(offered) => {
            for offer in offered {
                writeln!(cx.out, "{}", offer.uri);
            }
            Ok(0)
        }
        Err(e) => Err(cx.fail(&format!("cannot export '{}'", e.about), &e)),
    }
}

fn unexport(cx: &mut Cx, args: &[String]) -> Outcome {
    let (mut request, mut all) = (WithdrawRequest::default(), false);
    let mut g = Getopt::new(args, "al:", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(Opt::Short('l'), place) => request.listen = Some(place),
            Found::Is(..) => all = true,
            Found::Invalid(c) => return Err(Stop::invalid(c)),
            Found::Missing(c) => return Err(Stop::missing(c)),
        }
    }
    request.datasets = g.operands();
    if all != request.datasets.is_empty() {
        return Err(Stop::usage(if all { "too many arguments\n" } else { "missing volume argument\n" }));
    }
    let service = cx.service()?;
    match service.withdraw(&request) {
        Ok(()) => Ok(0),
        Err(e) => Err(cx.fail(&format!("cannot unexport '{}'", e.about), &e)),
    }
}

/// Attaches or detaches volumes. A failure does not stop the others.
fn attach(cx: &mut Cx, args: &[String], on: bool) -> Outcome {
    let mut flag = false;
    let mut g = Getopt::new(args, if on { "r" } else { "f" }, &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(..) => flag = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    let names = g.operands();
    if names.is_empty() {
        return Err(Stop::usage("missing volume argument\n"));
    }
    let service = cx.service()?;
    let mut code = 0;
    for dataset in names {
        let done = match on {
            true => {
                let request = AttachRequest { dataset: dataset.clone(), read_only: flag };
                service.attach(&request).map(|path| writeln!(cx.out, "{path}"))
            }
            false => service.detach(&DetachRequest { dataset: dataset.clone(), force: flag }),
        };
        if let Err(e) = done {
            let what = format!("cannot {} '{dataset}'", if on { "attach" } else { "detach" });
            match e.reason {
                // Only root may do this, so no other advice helps.
                Reason::Permission => {
                    writeln!(cx.err, "{what}: permission denied: only root attaches and detaches volumes");
                }
                _ => cx.complain(&what, &e),
            }
            code = 1;
        }
    }
    Ok(code)
}

fn exports(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut scripted = false;
    let mut g = Getopt::new(args, "H", &[]);
    for found in g.by_ref() {
        match found {
            Found::Is(..) => scripted = true,
            Found::Invalid(c) | Found::Missing(c) => return Err(Stop::invalid(c)),
        }
    }
    if !g.operands().is_empty() {
        return Err(Stop::usage("too many arguments\n"));
    }
    let service = cx.service()?;
    let list = service.exports().map_err(|e| cx.fail("cannot list exports", &e))?;
    show(cx, &list, scripted);
    Ok(0)
}

/// Prints a line for each offer, and lines for the daemon's own socket.
///
/// The latter show the volumes that are in use there and not offered, and then the socket's own
/// URI.
fn show(cx: &mut Cx, list: &ExportList, scripted: bool) {
    let used = |name: &str| list.used.iter().find(|(used, _)| used == name).map_or(0, |(_, n)| *n);
    let mut lines: Vec<[String; 4]> = Vec::new();
    let mut line = |name: &str, mode: &str, clients: u64, uri: String| {
        lines.push([name.to_owned(), mode.to_owned(), clients.to_string(), uri]);
    };
    for offer in &list.offered {
        let mode = if offer.read_only { "ro" } else { "rw" };
        line(&offer.dataset, mode, used(&offer.dataset), offer.uri.clone());
    }
    if let Some(socket) = &list.socket {
        let uri = |name: &str| format!("nbd+unix:///{name}?socket={socket}");
        for (name, clients) in &list.used {
            if list.offered.iter().all(|offer| offer.dataset != *name) {
                line(name, if name.contains('@') { "ro" } else { "rw" }, *clients, uri(name));
            }
        }
        line("*", "rw", 0, uri("POOL/VOLUME"));
    }
    if scripted {
        lines.iter().for_each(|line| writeln!(cx.out, "{}", line.join("\t")));
        return;
    }
    let head = ["NAME", "MODE", "CLIENTS", "URI"].map(str::to_owned);
    let wide = lines.iter().map(|line| line[0].chars().count()).max().unwrap_or(0).max(4);
    for line in std::iter::once(&head).chain(&lines) {
        writeln!(cx.out, "{:<wide$}  {:<4}  {:>7}  {}", line[0], line[1], line[2], line[3]);
    }
}
