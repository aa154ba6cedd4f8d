//! The lists of hot spares and cache devices.

use dmu::Tx;
use ondisk::{Guid, Nvlist, Value, VdevConfig, VdevKind, mos};
use vdev::{VdevAux, VdevState};

use crate::import::aux::AuxVdev;
use crate::pool_core::PoolCore;
use crate::pool_core::errors::SyncError;
use crate::pool_core::state::AuxLists;

/// The distributed spares of the draid vdevs among these.
fn distributed(tops: &[VdevConfig], random: &mut dyn FnMut() -> u64) -> Vec<AuxVdev> {
    let mut all = Vec::new();
    for top in tops {
        let (Some(draid), VdevKind::Draid) = (top.draid, top.kind) else { continue };
        for n in 0..draid.nspares {
            let mut config = VdevConfig::new(VdevKind::DraidSpare, Guid(random().max(1)));
            config.path = Some(format!("draid{}-{}-{n}", top.nparity.unwrap_or(1), top.id).into_bytes());
            config.draid_spare = Some((top.guid, n));
            (config.is_spare, config.whole_disk) = (true, Some(true));
            (config.ashift, config.create_txg) = (top.ashift, top.create_txg);
            all.push(AuxVdev { config, place: None, state: VdevState::Healthy, aux: VdevAux::None });
        }
    }
    all
}

impl PoolCore {
    /// Writes both lists, as they are from this txg on.
    pub(crate) fn put_aux(&self, tx: &Tx, aux: &AuxLists) -> Result<(), SyncError> {
        let txg = tx.txg();
        for (name, list) in [(mos::SPARES, &aux.spares), (mos::L2CACHE, &aux.l2cache)] {
            if list.is_empty() && self.sync_mos.dir(name).is_ok_and(|d| d.is_none()) {
                continue;
            }
            let mut nv = Nvlist::new();
            nv.set(name, Value::ListArray(list.iter().map(|a| a.config.to_aux_nvlist()).collect()));
            self.sync_mos
                .write_named_nvlist(tx, name, &nv)
                .map_err(|source| SyncError::Metadata { txg, source })?;
        }
        *self.aux.write() = aux.clone();
        Ok(())
    }

    /// Lists the distributed spares of new draid vdevs, in the txg that adds these.
    pub(crate) fn list_distributed(&self, tx: &Tx, tops: &[VdevConfig]) -> Result<(), SyncError> {
        let new = distributed(tops, &mut || self.world.random());
        if new.is_empty() {
            return Ok(());
        }
        let mut aux = self.aux.read().clone();
        aux.spares.extend(new);
        self.put_aux(tx, &aux)
    }
}
