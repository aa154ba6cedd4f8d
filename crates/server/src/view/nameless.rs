//! Files of devices that were removed while in use.

use api::Nameless;
use spa::Spa;

/// The removed files of a pool. No file system is queried, since one may hang.
pub fn nameless(spa: &Spa) -> Vec<Nameless> {
    let tree = spa.tree();
    let gone: Vec<_> =
        tree.devices().filter_map(|(guid, device)| Some((guid, device.nameless()?, device.name()))).collect();
    let config = if gone.is_empty() { None } else { spa.config().vdev_tree.clone() };
    let of = |(guid, descriptor, name): (ondisk::Guid, i32, &str)| {
        let recorded = config.as_ref().and_then(|root| root.find(guid)?.path.clone());
        Nameless {
            guid: guid.0,
            path: recorded
                .map_or_else(|| name.to_owned(), |path| String::from_utf8_lossy(&path).into_owned()),
            still: format!("/proc/{}/fd/{descriptor}", std::process::id()),
        }
    };
    gone.into_iter().map(of).collect()
}
