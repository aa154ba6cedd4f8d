//! What a server knows of its cell, and the registration of the server.
//!
//! OpenAFS's `ptserver` and `vlserver` judge the crate's clients by it.
//!
//! Usage: `cell_member CONFIG-FOLDER LOCAL-FOLDER [NAME | ADDRESS]...`
//!
//! The first folder has ThisCell, CellServDB and KeyFileExt. The second has sysid, NetInfo and
//! NetRestrict.

use std::error::Error;
use std::io::{BufRead, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use afs::cell::location::{Addresses, server_uuid};
use afs::cell::{Databases, PR_PORT, PR_SERVICE, Protection, PtServer, Registration, VL_PORT, VL_SERVICE};
use afs::config::{CellServDb, this_cell};
use afs::types::PrincipalId;
use rx::Endpoint;
use rx::security::Level;
use rx::security::rxkad::Keys;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Shows users by name, and hosts by address.
fn show(protection: &PtServer, what: &str, out: &mut impl Write) -> Outcome<()> {
    if let Ok(address) = what.parse::<Ipv4Addr>() {
        match protection.host(address) {
            Ok(groups) => writeln!(out, "host {what} groups {groups:?}")?,
            Err(code) => writeln!(out, "host {what} error {code}")?,
        }
        return Ok(());
    }
    match protection.user(what) {
        Ok(user) => {
            let groups: Vec<i32> = user.groups.iter().map(|group| group.0).collect();
            let names = protection.names(&user.groups).map_err(|code| format!("code {code}"))?;
            let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
            let ids = protection.ids(&[what.into()]).map_err(|code| format!("code {code}"))?;
            assert_eq!(ids, [user.id], "both ways to look a name up agree");
            writeln!(
                out,
                "user {what} id {} groups {groups:?} {names:?} administrator {}",
                user.id, user.is_administrator
            )?;
        }
        Err(code) => writeln!(out, "user {what} error {code}")?,
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [config, local, names @ ..] = &args[..] else {
        return Err("usage: cell_member CONFIG-FOLDER LOCAL-FOLDER [NAME | ADDRESS]...".into());
    };
    let (config, local) = (PathBuf::from(config), PathBuf::from(local));
    let cell = this_cell(&std::fs::read(config.join("ThisCell"))?)?;
    let servers = CellServDb::parse(&std::fs::read(config.join("CellServDB"))?)?;
    let hosts = servers.cell(&cell).ok_or("CellServDB does not have the cell")?.hosts.clone();
    let keys = Arc::new(Keys::of_file(config.join("KeyFileExt"))?);
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    let endpoint = Arc::new(Endpoint::bind(any, rx::Options::default())?);
    let databases = |name, port, service, level| {
        let at: Vec<_> = hosts.iter().map(|host| SocketAddrV4::new(host.address, port)).collect();
        Databases::new(name, Arc::clone(&endpoint), service, Arc::clone(&keys), level, &at)
    };
    let mut out = std::io::stdout().lock();
    let protection = PtServer::new(databases("protection", PR_PORT, PR_SERVICE, Level::Crypt));
    let anonymous = protection.anonymous().map_err(|code| format!("code {code}"))?;
    writeln!(out, "cell {cell} anonymous {:?}", anonymous.groups)?;
    for name in names {
        show(&protection, name, &mut out)?;
    }

    let addresses = Addresses { net_info: local.join("NetInfo"), net_restrict: local.join("NetRestrict") };
    let uuid = server_uuid(&local.join("sysid"), &addresses.choose()?)?;
    let vl = databases("location", VL_PORT, VL_SERVICE, Level::Crypt);
    let registration = Registration::start(vl, uuid, addresses)?;
    let status = registration.wait(Duration::from_secs(60));
    let problem = status.problem.map(|(problem, _)| problem.to_string());
    writeln!(out, "registered {} {:?} {problem:?}", status.is_registered, status.addresses)?;

    // Each further line is a name to look up, or "flush".
    for line in std::io::stdin().lock().lines() {
        match line?.trim() {
            "flush" => protection.flush(&[PrincipalId(1), PrincipalId::ANONYMOUS], &[]),
            name => show(&protection, name, &mut out)?,
        }
    }
    Ok(())
}
