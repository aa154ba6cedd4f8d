//! Hosts over a restart.

use super::*;
use crate::wire::wire_struct;

wire_struct! {
    /// A host as the file of promises has it.
    pub struct SavedHost {
        pub uuid: Uuid,
        pub address: u32,
        pub port: u32,
        pub unified: u32,
        pub epochs: [u32; EPOCHS],
    }
}

impl Hosts {
    /// The hosts that the server can know again, by their numbers. Such a host has a UUID, has
    /// heard of all that it was owed, and believes in no promise that the server still has.
    pub(in crate::server) fn save(&self) -> Vec<(u64, SavedHost)> {
        let save = |host: Arc<Host>| {
            let state = host.state.lock();
            let (Identity::Named(uuid), Some(at)) = (state.identity, state.address) else { return None };
            let is_settled = host.is_ready() && !state.busy && state.owed.is_empty();
            let epochs = std::array::from_fn(|n| host.epochs[n].load(Ordering::Relaxed));
            let (address, port) = (at.ip().to_bits(), at.port().into());
            let unified = host.wants_unified().into();
            let saved = SavedHost { uuid, address, port, unified, epochs };
            (is_settled && host.promises() == 0).then_some((host.number, saved))
        };
        self.all().into_iter().filter_map(save).collect()
    }

    /// Takes hosts back that another process has saved, before there are others. `None`: there is
    /// no place for it, so it is new when it calls.
    pub(in crate::server) fn restore(&self, saved: &[SavedHost]) -> Vec<Option<Arc<Host>>> {
        let seconds = self.seconds(Instant::now());
        let restore = |saved: &SavedHost| {
            let at = SocketAddrV4::new(saved.address.into(), u16::try_from(saved.port).ok()?);
            let mut by_uuid = self.by_uuid.lock();
            let mut shard = self.shard(at).write();
            let is_new = !by_uuid.contains_key(&saved.uuid) && !shard.contains_key(&at);
            if !is_new || self.count() >= self.options.hosts {
                return None;
            }
            let host = self.make(Some(at), Identity::Named(saved.uuid));
            host.state.lock().owed = Owed::default();
            host.unified.store(saved.unified != 0, Ordering::Relaxed);
            for (epoch, saved) in host.epochs.iter().zip(saved.epochs) {
                epoch.store(saved, Ordering::Relaxed);
            }
            host.called.store(seconds, Ordering::Relaxed);
            host.heard.store(seconds, Ordering::Relaxed);
            host.ready.store(true, Ordering::Release);
            by_uuid.insert(saved.uuid, Arc::clone(&host));
            shard.insert(at, Arc::clone(&host));
            self.count.fetch_add(1, Ordering::Relaxed);
            Some(host)
        };
        saved.iter().map(restore).collect()
    }
}
