//! The parameters of the module `spl` that apply here: the identity of this host, as pools record
//! it.
//!
//! # Absent
//! * Parameters of a kernel's caches, task queues and timers: there are none.
//! * Setting them: `/etc/hostid` has the host's identity.

use api::SplParameter;
use spa::Host;

/// The names of the parameters.
pub(crate) const NAMES: [&str; 2] = ["spl_hostid", "spl_hostid_path"];

/// All parameters.
pub(crate) fn parameters(host: &Host) -> Vec<SplParameter> {
    let values = [
        (host.hostid.to_string(), "the host's id, which pools record; 0 where it has none"),
        (spa::discovery::host::HOSTID_FILE.to_owned(), "the file that it is read from"),
    ];
    let told = NAMES.into_iter().zip(values);
    told.map(|(name, (value, what))| SplParameter { name: name.into(), value, what: what.into() }).collect()
}
