//! Cleaning up after a daemon that was killed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::run_dir::{RunDir, choice};

/// How long the search for dead mounts may take. A hanging mount of another daemon would block it
/// for ever.
const CLEANING: Duration = Duration::from_secs(5);

/// Removes what a dead daemon of this folder left: devices over its volumes, then mounts.
///
/// The user's usual daemon does so for all of the user's folders, since some of them will never
/// have another daemon. The daemon of a named folder leaves the mounts of other folders alone.
/// Their next daemon mounts again what it finds.
pub(super) fn remove(place: &RunDir, tree: Option<&Path>) {
    let (done, wait) = std::sync::mpsc::channel();
    let (place, tree) = (place.clone(), tree.map(Path::to_owned));
    let clean = move || {
        crate::volumes::attach::detach_dead(&place.attached());
        match fuse::system::ours() {
            Ok(ours) => {
                let noted = crate::mounts::journal::remember(place.dir(), &ours);
                // Without the journal it is unknown which mounts are this folder's.
                let all = noted.is_err() || choice::is_usual(&place);
                let own = noted.unwrap_or_else(|error| {
                    tracing::warn!(%error, "what a dead daemon had mounted does not come back by itself");
                    Vec::new()
                });
                let of_folder = |mount: &fuse::system::Mounted| {
                    own.contains(mount)
                        || mount.target.starts_with(place.dir())
                        || tree.as_ref().is_some_and(|tree| *tree == mount.target)
                };
                let (own, others): (Vec<_>, Vec<_>) = ours.into_iter().partition(of_folder);
                detach_dead(own);
                if all {
                    detach_dead(others);
                }
            }
            Err(error) => tracing::warn!(%error, "dead mounts can't be found"),
        }
        // The receiver may have given up.
        done.send(()).unwrap_or_default();
    };
    let cleaner = std::thread::Builder::new().name("cleaner".to_owned()).spawn(clean);
    if cleaner.is_err() || wait.recv_timeout(CLEANING).is_err() {
        tracing::warn!("a mount does not answer; dead mounts may be left");
    }
}

/// Removes those of these mounts that no process serves. Each has a thread of its own for the
/// query, since the server of a mount may hang.
fn detach_dead(mounts: Vec<fuse::system::Mounted>) {
    let targets: Vec<PathBuf> = mounts.into_iter().map(|mount| mount.target).collect();
    let dead = spa::ask_each(&targets, fuse::system::is_orphan);
    for (target, _) in targets.iter().zip(dead).filter(|(_, dead)| *dead == Some(true)) {
        // Meanwhile a daemon may have unmounted its own mount, and mounted another one there.
        let again = spa::ask_each(std::slice::from_ref(target), fuse::system::is_orphan);
        if again != [Some(true)] {
            continue;
        }
        tracing::warn!(target = %target.display(), "unmounting what a dead daemon left");
        if let Err(error) = fuse::system::detach(target, fuse::Detach::Lazy) {
            tracing::warn!(%error, "it stays");
        }
    }
}
