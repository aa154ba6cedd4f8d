//! `poolhouse afs`: file systems as partitions of an AFS server.
//!
//! # Theory
//! The daemon has the server. These commands make file systems partitions of it, and show what it
//! has: partitions, volumes, clients and locks. Volumes are made by OpenAFS's `vos`.
//!
//! # Absent
//! OpenZFS has no such commands: the grammar is our own.

mod report;

use api::{
    AFS_PAGE, AfsClient, AfsDisable, AfsEnable, AfsLock, AfsPartition, AfsQuery, AfsServer, AfsStatus,
    AfsVolume,
};
use console::getopt::{Found, Getopt, Long, Opt};
use console::{numbers, words};

use crate::cx::{Cx, Outcome, Stop};
use crate::json::{self, Json, Object};

const USAGE: &str = "\
usage: poolhouse afs enable [--create] [--partition LETTERS] [--config DIR] [--address IP] [--port N]
                            [--volume-port N] POOL/DATASET
       poolhouse afs disable [-f] POOL/DATASET
       poolhouse afs status [-j]
       poolhouse afs volumes [-Hjp] [--partition LETTERS] [VOLUME]
       poolhouse afs report [-Hjp] [-s COLUMN] [--partition LETTERS] [VOLUME ...]
       poolhouse afs report --estimate [-Hjp] [-r SIZE,...] [-c COMPRESSION,...] [-a ASHIFT] [--dedup]
                            [--sample SIZE] [--time SECONDS] [--seed N] [--svg FILE]
                            [-s COLUMN] [--partition LETTERS] [VOLUME ...]
       poolhouse afs clients [-Hj]
       poolhouse afs locks [-Hj] [--partition LETTERS] [VOLUME]
       poolhouse afs export [options] POOL[/DATASET] FOLDER [VOLUME ...]
       poolhouse afs adopt [-nq] VICEP POOL/DATASET [VOLUME ...]

Serves file systems as partitions of an AFS file server, and shows what it has. 'vos' makes the volumes.

enable serves a file system as /vicepLETTERS, now and whenever its pool is imported. The first one
starts the server, with the options that are stored with it:
    --create               create the file system
    --partition LETTERS    a to z, or aa to iv
    --config DIR           ThisCell, CellServDB, KeyFileExt, UserList, NetInfo and sysid are there,
                           instead of /etc/openafs/server and /var/lib/openafs/local
    --address IP           serve at this IPv4 address only
    --port N               the port of the file server: 7000
    --volume-port N        the port of the volume server: 7005

disable ends that. The volumes stay in the pool.
    -f                     end transactions of its volumes

report shows what volumes hold and what they take in their pools, by numbers or names, the largest
first, with a total. Sizes are as zfs list shows them.
    -s COLUMN              the order: id, name, type, files, logical, refer, used, ratio
    --estimate             also what their files would take with other record sizes and compressors;
                           its options are those of 'poolhouse estimate'

The others list partitions, volumes, clients and locks.
    -H                     no headers, and tabs between the columns
    -j                     JSON
    -p                     exact numbers

export writes dumps of the volumes of a pool that is not imported: 'poolhouse afs export --help'.
adopt takes volumes from a partition of OpenAFS's file server: 'poolhouse afs adopt --help'.
";

/// The verbs. `rescue` has the last two.
const VERBS: [&str; 9] =
    ["enable", "disable", "status", "volumes", "report", "clients", "locks", "export", "adopt"];

/// A long option with an argument.
const fn valued(name: &'static str) -> Long {
    Long { name, val: Opt::Named(name), arg: true }
}

const ENABLE: [Long; 6] = [
    Long { name: "create", val: Opt::Named("create"), arg: false },
    valued("partition"),
    valued("config"),
    valued("address"),
    valued("port"),
    valued("volume-port"),
];
const JSON: [Long; 1] = [Long { name: "json", val: Opt::Short('j'), arg: false }];
const LIST: [Long; 2] = [valued("partition"), Long { name: "json", val: Opt::Short('j'), arg: false }];

/// Runs a verb with the arguments after `afs`. Returns the exit code.
pub fn run(cx: &mut Cx, args: &[String]) -> i32 {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        cx.out.put(USAGE);
        return 0;
    }
    let outcome = match args {
        [] => Err(Stop::usage("missing verb\n")),
        [verb, rest @ ..] => match verb.as_str() {
            "enable" => enable(cx, rest),
            "disable" => disable(cx, rest),
            "status" => status(cx, rest),
            "volumes" => volumes(cx, rest),
            "report" => report::run(cx, rest),
            "clients" => clients(cx, rest),
            "locks" => locks(cx, rest),
            other => Err(Stop::usage(format!("unknown verb '{other}': {}\n", VERBS.join(", ")))),
        },
    };
    match outcome {
        Ok(code) | Err(Stop::Fail(code)) => code,
        Err(Stop::Usage(message)) => {
            cx.err.put(&message);
            cx.err.put(USAGE);
            2
        }
    }
}

/// The error for an option that the grammar lacks, by the word that the user typed.
fn invalid(g: &Getopt<'_>) -> Stop {
    Stop::usage(format!("invalid option '{}'\n", g.word()))
}

fn missing(g: &Getopt<'_>) -> Stop {
    Stop::usage(format!("missing argument for option '{}'\n", g.word()))
}

/// The only operand.
fn dataset(mut operands: Vec<String>) -> Result<String, Stop> {
    match operands.len() {
        0 => Err(Stop::usage("missing file system argument\n")),
        1 => Ok(operands.remove(0)),
        _ => Err(Stop::usage("too many arguments\n")),
    }
}

/// A port from the command line. Others than 1 to 65535 are refused.
fn port(option: &str, text: &str) -> Result<Option<u16>, Stop> {
    match text.parse::<u16>() {
        Ok(number) if number != 0 => Ok(Some(number)),
        _ => Err(Stop::usage(format!("invalid value '{text}' of option '--{option}': choose 1 to 65535\n"))),
    }
}

fn enable(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut request = AfsEnable::default();
    let mut g = Getopt::new(args, "", &ENABLE);
    while let Some(found) = g.next() {
        match found {
            Found::Is(Opt::Named("create"), _) => request.create = true,
            Found::Is(Opt::Named("partition"), letters) => request.partition = Some(letters),
            // The daemon has a working directory of its own.
            Found::Is(Opt::Named("config"), dir) => {
                let path = std::path::absolute(&dir).map_or(dir, |path| path.display().to_string());
                request.config = Some(path);
            }
            Found::Is(Opt::Named("address"), address) => request.address = Some(address),
            Found::Is(Opt::Named("port"), number) => request.port = port("port", &number)?,
            Found::Is(_, number) => request.volume_port = port("volume-port", &number)?,
            Found::Invalid(_) => return Err(invalid(&g)),
            Found::Missing(_) => return Err(missing(&g)),
        }
    }
    request.dataset = dataset(g.operands())?;
    let about = request.dataset.clone();
    match cx.service()?.afs_enable(&request) {
        Ok(partition) => {
            writeln!(cx.out, "{about} is served as {}", partition.name);
            Ok(0)
        }
        Err(error) => {
            let stop = cx.fail(&format!("cannot serve '{about}' over AFS"), &error);
            if error.reason == api::Reason::NoSuchDataset && !request.create {
                writeln!(cx.err, "'poolhouse afs enable --create' creates it");
            }
            Err(stop)
        }
    }
}

fn disable(cx: &mut Cx, args: &[String]) -> Outcome {
    let mut request = AfsDisable::default();
    let mut g = Getopt::new(args, "f", &[]);
    while let Some(found) = g.next() {
        match found {
            Found::Is(..) => request.force = true,
            Found::Invalid(_) | Found::Missing(_) => return Err(invalid(&g)),
        }
    }
    request.dataset = dataset(g.operands())?;
    let about = format!("cannot end the service of '{}'", request.dataset);
    let done = cx.service()?.afs_disable(&request);
    done.map(|()| 0).map_err(|error| cx.fail(&about, &error))
}

/// How a list is printed, and of what.
#[derive(Default)]
struct Wanted {
    json: bool,
    scripted: bool,
    exact: bool,
    query: AfsQuery,
}

impl Wanted {
    /// Reads the options of a list. One with `--partition` may be of one volume.
    fn read(args: &[String], short: &'static str, long: &'static [Long]) -> Result<Self, Stop> {
        let mut wanted = Self::default();
        let mut g = Getopt::new(args, short, long);
        while let Some(found) = g.next() {
            match found {
                Found::Is(Opt::Short('j'), _) => wanted.json = true,
                Found::Is(Opt::Short('H'), _) => wanted.scripted = true,
                Found::Is(Opt::Short('p'), _) => wanted.exact = true,
                Found::Is(_, letters) => wanted.query.partition = Some(letters),
                Found::Invalid(_) => return Err(invalid(&g)),
                Found::Missing(_) => return Err(missing(&g)),
            }
        }
        let is_of_volumes = long.iter().any(|option| option.name == "partition");
        match &g.operands()[..] {
            [] => {}
            [volume] if is_of_volumes => {
                let number = volume.parse().ok().filter(|number| *number != 0);
                let wrong = || Stop::usage(format!("'{volume}' is no volume: give its number\n"));
                wanted.query.volume = Some(number.ok_or_else(wrong)?);
            }
            _ => return Err(Stop::usage("too many arguments\n")),
        }
        Ok(wanted)
    }

    /// Prints rows under their heads. Columns are right-aligned where the head says so.
    fn print(&self, cx: &mut Cx, head: &[(&str, bool)], rows: &[Vec<String>]) {
        if self.scripted {
            rows.iter().for_each(|row| writeln!(cx.out, "{}", row.join("\t")));
            return;
        }
        let width = |at: usize| {
            let cells = rows.iter().map(|row| row[at].chars().count());
            cells.max().unwrap_or(0).max(head[at].0.len())
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let names = head.iter().map(|(name, _)| (*name).to_owned()).collect();
        for row in std::iter::once(&names).chain(rows) {
            let cell = |(at, cell): (usize, &String)| match head[at].1 {
                true => format!("{cell:>0$}", widths[at]),
                false => format!("{cell:<0$}", widths[at]),
            };
            let line: Vec<String> = row.iter().enumerate().map(cell).collect();
            writeln!(cx.out, "{}", line.join("  ").trim_end());
        }
    }
}

fn texts(of: &[String]) -> Json {
    Json::Texts(of.to_vec())
}

fn server_json(server: &AfsServer) -> Object {
    let mut shown = Object::new();
    shown.text("cell", &server.cell);
    shown.text("config", &server.config);
    shown.text("files", &server.files);
    shown.text("volumes", &server.volumes);
    shown.text("uuid", &server.uuid);
    shown.put("registered", Json::Bool(server.registered));
    shown.put("addresses", texts(&server.addresses));
    if let Some(at) = server.registered_at {
        shown.number("registered_at", at);
    }
    if let Some(problem) = &server.registration_problem {
        shown.text("registration_problem", problem);
    }
    shown.put("protection_away", Json::Bool(server.protection_away));
    shown.put("keys", texts(&server.keys.iter().map(ToString::to_string).collect::<Vec<_>>()));
    shown.put("superusers", texts(&server.superusers));
    shown.number("clients", server.clients);
    shown.number("promises", server.promises);
    for (name, number) in [
        ("sent", server.sent),
        ("sent_bytes", server.sent_bytes),
        ("unchanged", server.unchanged),
        ("received", server.received),
        ("received_bytes", server.received_bytes),
        ("dumps", server.dumps),
    ] {
        shown.number(name, number);
    }
    let mut transactions = Object::new();
    for found in &server.transactions {
        let mut one = Object::new();
        one.number("volume", found.volume.into());
        one.text("call", &found.call);
        one.put("running", Json::Bool(found.running));
        one.number("begun", found.begun);
        transactions.object(found.id.to_string(), one);
    }
    shown.object("transactions", transactions);
    shown
}

fn partition_json(cx: &Cx, partition: &AfsPartition) -> Object {
    let mut shown = Object::new();
    shown.text("partition", &partition.name);
    shown.put("served", Json::Bool(partition.served));
    if let Some(reason) = &partition.problem {
        shown.text("problem", words::reason(reason, &cx.clock));
    }
    shown.number("volumes", partition.volumes);
    shown.number("total_kib", partition.total);
    shown.number("free_kib", partition.free);
    shown
}

fn status(cx: &mut Cx, args: &[String]) -> Outcome {
    let wanted = Wanted::read(args, "j", &JSON)?;
    let status =
        cx.service()?.afs_status().map_err(|error| cx.fail("cannot get the status of AFS", &error))?;
    if wanted.json {
        let mut root = json::schema("poolhouse afs status");
        if let Some(server) = &status.server {
            root.object("server", server_json(server));
        }
        let mut partitions = Object::new();
        for partition in &status.partitions {
            partitions.object(&partition.dataset, partition_json(cx, partition));
        }
        root.object("partitions", partitions);
        writeln!(cx.out, "{}", root.line());
        return Ok(0);
    }
    if let Some(server) = &status.server {
        server_text(cx, server);
    }
    partitions_text(cx, &status);
    Ok(0)
}

fn server_text(cx: &mut Cx, server: &AfsServer) {
    let mut line = |name: &str, text: &str| writeln!(cx.out, "{name:>12}: {text}");
    line("cell", &server.cell);
    line("config", &server.config);
    line("files", &server.files);
    line("volumes", &server.volumes);
    line("uuid", &server.uuid);
    let registered = match (&server.registration_problem, server.registered) {
        (None, true) => format!("as {}", server.addresses.join(", ")),
        (Some(problem), _) => format!("no: {problem}"),
        (None, false) => "not yet".to_owned(),
    };
    line("registered", &registered);
    let users = if server.protection_away {
        "no protection server answers; known users are served"
    } else {
        "by the cell's protection servers"
    };
    line("users", users);
    let kvnos: Vec<String> = server.keys.iter().map(ToString::to_string).collect();
    line("keys", &kvnos.join(", "));
    let superusers = if server.superusers.is_empty() {
        "only by the key".to_owned()
    } else {
        server.superusers.join(", ")
    };
    line("superusers", &superusers);
    line("clients", &format!("{}, with {} promises", server.clients, server.promises));
    if server.sent + server.unchanged + server.received + server.dumps > 0 {
        let (sent, received) = (numbers::bytes(server.sent_bytes), numbers::bytes(server.received_bytes));
        let text = format!(
            "{} volumes sent as blocks ({sent}), {} as a header alone, {} received ({received}), {} sent as dumps",
            server.sent, server.unchanged, server.received, server.dumps
        );
        line("transfers", &text);
    }
    for found in &server.transactions {
        let state = if found.running { "running" } else { "idle" };
        let text = format!("{} on volume {}: {}, {state}", found.id, found.volume, found.call);
        line("transaction", &text);
    }
    writeln!(cx.out);
}

fn partitions_text(cx: &mut Cx, status: &AfsStatus) {
    if status.partitions.is_empty() {
        cx.out.put("no partitions; 'poolhouse afs enable' makes a file system one\n");
        return;
    }
    let size = |kib: u64| numbers::bytes(kib.saturating_mul(1024));
    let row = |partition: &AfsPartition| {
        let state = match (partition.served, partition.moving) {
            (true, _) => "served",
            (false, true) => "moving",
            (false, false) => "failed",
        };
        let (free, total) = (size(partition.free), size(partition.total));
        let of_served = |text: String| if partition.served { text } else { "-".to_owned() };
        vec![
            partition.name.clone(),
            state.to_owned(),
            of_served(partition.volumes.to_string()),
            of_served(free),
            of_served(total),
            partition.dataset.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = status.partitions.iter().map(row).collect();
    let head = [
        ("PARTITION", false),
        ("STATE", false),
        ("VOLUMES", true),
        ("FREE", true),
        ("TOTAL", true),
        ("DATASET", false),
    ];
    Wanted::default().print(cx, &head, &rows);
    for partition in &status.partitions {
        if let Some(reason) = &partition.problem {
            writeln!(cx.out, "\n{}: {}", partition.dataset, words::reason(reason, &cx.clock));
        }
    }
}

/// All pages of a list.
fn pages<T>(
    cx: &mut Cx,
    wanted: &Wanted,
    what: &str,
    page: impl Fn(&dyn api::Requests, &AfsQuery) -> Result<Vec<T>, api::Error>,
    last: impl Fn(&T) -> u64,
) -> Result<Vec<T>, Stop> {
    let service = cx.service()?;
    let (mut all, mut query) = (Vec::new(), wanted.query.clone());
    loop {
        let some = page(&*service, &query).map_err(|error| cx.fail(what, &error))?;
        let is_last = some.len() < AFS_PAGE;
        query.after = some.last().map_or(query.after, &last);
        all.extend(some);
        if is_last {
            return Ok(all);
        }
    }
}

fn volumes(cx: &mut Cx, args: &[String]) -> Outcome {
    let wanted = Wanted::read(args, "Hjp", &LIST)?;
    let of = |service: &dyn api::Requests, query: &AfsQuery| service.afs_volumes(query);
    let all = pages(cx, &wanted, "cannot list volumes", of, |volume| volume.id.into())?;
    if wanted.json {
        let mut volumes = Object::new();
        all.iter().for_each(|volume| volumes.object(volume.id.to_string(), volume_json(volume)));
        let mut root = json::schema("poolhouse afs volumes");
        root.object("volumes", volumes);
        writeln!(cx.out, "{}", root.line());
        return Ok(0);
    }
    let size = |kib: u64| match wanted.exact {
        true => kib.saturating_mul(1024).to_string(),
        false => numbers::bytes(kib.saturating_mul(1024)),
    };
    let quota = |kib: u64| if kib == 0 && !wanted.exact { "none".to_owned() } else { size(kib) };
    let row = |volume: &AfsVolume| {
        vec![
            volume.id.to_string(),
            volume.name.clone(),
            volume.kind.clone(),
            volume.partition.clone(),
            volume.state.clone(),
            size(volume.size),
            quota(volume.quota),
            volume.files.to_string(),
            volume.promises.to_string(),
            volume.dataset.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let head = [
        ("ID", true),
        ("NAME", false),
        ("KIND", false),
        ("PARTITION", false),
        ("STATE", false),
        ("SIZE", true),
        ("QUOTA", true),
        ("FILES", true),
        ("PROMISES", true),
        ("DATASET", false),
    ];
    wanted.print(cx, &head, &rows);
    Ok(0)
}

fn volume_json(volume: &AfsVolume) -> Object {
    let mut shown = Object::new();
    shown.text("name", &volume.name);
    shown.text("kind", &volume.kind);
    shown.text("partition", &volume.partition);
    shown.text("dataset", &volume.dataset);
    shown.text("state", &volume.state);
    shown.number("size_kib", volume.size);
    shown.number("quota_kib", volume.quota);
    shown.number("files", volume.files);
    shown.number("updated", volume.updated);
    shown.number("promises", volume.promises);
    shown
}

fn clients(cx: &mut Cx, args: &[String]) -> Outcome {
    let wanted = Wanted::read(args, "Hj", &JSON)?;
    let of = |service: &dyn api::Requests, query: &AfsQuery| service.afs_clients(query);
    let all = pages(cx, &wanted, "cannot list clients", of, |client| client.number)?;
    if wanted.json {
        let mut clients = Object::new();
        for client in &all {
            let mut shown = Object::new();
            if let Some(uuid) = &client.uuid {
                shown.text("uuid", uuid);
            }
            shown.put("answers", Json::Bool(client.answers));
            shown.number("promises", client.promises);
            shown.number("idle", client.idle);
            clients.object(&client.address, shown);
        }
        let mut root = json::schema("poolhouse afs clients");
        root.object("clients", clients);
        writeln!(cx.out, "{}", root.line());
        return Ok(0);
    }
    let row = |client: &AfsClient| {
        vec![
            client.address.clone(),
            if client.answers { "yes" } else { "no" }.to_owned(),
            client.promises.to_string(),
            client.idle.to_string(),
            client.uuid.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let head = [("ADDRESS", false), ("ANSWERS", false), ("PROMISES", true), ("IDLE", true), ("UUID", false)];
    wanted.print(cx, &head, &rows);
    Ok(0)
}

fn locks(cx: &mut Cx, args: &[String]) -> Outcome {
    let wanted = Wanted::read(args, "Hj", &LIST)?;
    let of = |service: &dyn api::Requests, query: &AfsQuery| service.afs_locks(query);
    let all = pages(cx, &wanted, "cannot list locks", of, |lock| lock.volume.into())?;
    if wanted.json {
        let mut volumes = Object::new();
        for of_volume in all.chunk_by(|a, b| a.volume == b.volume) {
            let mut files = Object::new();
            for lock in of_volume {
                let mut shown = Object::new();
                shown.put("write", Json::Bool(lock.write));
                shown.number("readers", lock.readers.into());
                files.object(lock.vnode.to_string(), shown);
            }
            volumes.object(of_volume[0].volume.to_string(), files);
        }
        let mut root = json::schema("poolhouse afs locks");
        root.object("locks", volumes);
        writeln!(cx.out, "{}", root.line());
        return Ok(0);
    }
    let row = |lock: &AfsLock| {
        let kind = if lock.write { "write" } else { "read" };
        vec![lock.volume.to_string(), lock.vnode.to_string(), kind.to_owned(), lock.readers.to_string()]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    wanted.print(cx, &[("VOLUME", true), ("VNODE", true), ("LOCK", false), ("READERS", true)], &rows);
    Ok(0)
}
