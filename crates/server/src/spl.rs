//! Parameters of the module `spl` that mean something here: who this host is, as pools record it.
//!
//! # Absent
//! Those of caches, task queues and timers of a kernel, which is none; setting them: who the host is, `/etc/hostid` says.

use api::SplParameter;
use spa::Host;

/// Their names.
pub(crate) const NAMES: [&str; 2] = ["spl_hostid", "spl_hostid_path"];

/// All of them.
pub(crate) fn parameters(host: &Host) -> Vec<SplParameter> {
    let values = [
        (host.hostid.to_string(), "the host's id, which pools record; 0 where it has none"),
        (spa::discovery::host::HOSTID_FILE.to_owned(), "the file that it is read from"),
    ];
    let told = NAMES.into_iter().zip(values);
    told.map(|(name, (value, what))| SplParameter { name: name.into(), value, what: what.into() }).collect()
}
