//! Replicas that caused an error in a read or another operation. Each is checked in the background, so that a bad or
//! missing one is reported to the NameNode.

use std::sync::Arc;

use hearth_types::ReplicaState;

use crate::StoreEvent;
use crate::blockstore::Blockstore;
use crate::disk::copy;
use crate::error::{Result, StoreError};
use crate::replica::{Core, Replica};
use crate::volume::Volume;

impl StoreError {
    /// Returns whether the replica that the error is about needs a check.
    pub(crate) fn makes_suspect(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::FilesMissing { .. })
    }
}

impl Blockstore {
    /// Checks replicas that could not be read, and the volumes. The store's own threads do this; tests without threads
    /// call it.
    pub fn look_at_suspects(&self) {
        for volume in &self.volumes {
            self.check_suspects(volume, usize::MAX);
            self.probe_volume(volume);
        }
    }

    /// Checks the volume, then up to `count` suspect replicas of it. Waits for the disk.
    pub(crate) fn check_suspects(&self, volume: &Arc<Volume>, count: usize) {
        for _ in 0..count {
            let Some(entry) = volume.suspects.take() else { return };
            let Some(replica) = entry.upgrade() else { continue };
            if !self.check_volume(volume) {
                volume.suspects.clear();
                return;
            }
            let looked = match self.forget_if_missing(&replica) {
                Ok(false) => self.verify_replica(&replica, &mut |_| !self.threads.is_stopping()),
                other => other.map(drop),
            };
            if let Err(error) = looked {
                tracing::warn!(%error, "check of a replica with a failed read found an error");
            }
        }
    }

    /// Like [`Self::forget_if_missing`], if the volume has not been checked before.
    pub(crate) fn forget_if_missing_from(&self, volume: &Arc<Volume>, replica: &Arc<Replica>) -> Result<bool> {
        let some_are = {
            let core = replica.core();
            missing_files(replica, &core)?.is_some()
        };
        if some_are && self.probe_volume(volume) { self.forget_if_missing(replica) } else { Ok(false) }
    }

    /// Removes a replica whose files are gone from the disk. If only one of its files is gone, marks it corrupt.
    /// Returns whether it did either. The caller has checked that the volume's directories exist.
    pub(crate) fn forget_if_missing(&self, replica: &Arc<Replica>) -> Result<bool> {
        let _change = replica.change.lock();
        let mut core = replica.core();
        let Some(missing) = missing_files(replica, &core)? else { return Ok(false) };
        let block = replica.block(&core);
        if missing < FILES {
            let error = self.mark_corrupt(replica, &mut core, "its data file or its meta file is gone from the disk");
            tracing::error!(%error, "replica is incomplete");
            return Ok(true);
        }
        drop(core);
        let summary = replica.summary();
        tracing::error!(%block, storage = %summary.storage, "files of a replica are gone from the disk");
        self.discard(replica);
        self.event(StoreEvent::Missing(summary));
        Ok(true)
    }
}

/// A replica has a data file and a meta file.
const FILES: usize = 2;

/// Returns the number of missing files of a replica that is only on disk. `None`: none is missing, or the replica is
/// not one that this check covers.
fn missing_files(replica: &Replica, core: &Core) -> Result<Option<usize>> {
    let only_on_disk =
        !core.copies.is_in_memory() && core.copies.writer().is_none() && core.lifecycle.recovery().is_none();
    if core.lifecycle.is_gone()
        || !only_on_disk
        || core.lifecycle.is_corrupt()
        || core.lifecycle.state() == ReplicaState::Temporary
    {
        return Ok(None);
    }
    let Some(disk) = core.copies.disk() else { return Ok(None) };
    let dirs = &replica.slice.dirs;
    let missing = copy::missing(dirs, replica.id, disk).map_err(StoreError::io("look for a replica in", &dirs.root))?;
    Ok((missing > 0).then_some(missing))
}
