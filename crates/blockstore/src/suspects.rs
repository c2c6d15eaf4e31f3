//! Replicas that a read or an operation could not be done with: each is looked at behind the reader, so that the namenode hears of one
//! that is bad or gone.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use hearth_types::ReplicaState;
use parking_lot::Mutex;

use crate::StoreEvent;
use crate::disk::copy;
use crate::error::{Result, StoreError};
use crate::replica::{Core, Replica};
use crate::store::Store;
use crate::volume::Volume;

/// Replicas of one volume that wait to be looked at; the next reader names one again that found no place.
const WAITING_MAX: usize = 1024;

/// Of one volume.
#[derive(Default)]
pub struct Suspects {
    waiting: Mutex<VecDeque<Weak<Replica>>>,
}

impl Suspects {
    /// Waits for no disk.
    pub fn add(&self, replica: &Arc<Replica>) {
        let entry = Arc::downgrade(replica);
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAITING_MAX && !waiting.iter().any(|other| other.ptr_eq(&entry)) {
            waiting.push_back(entry);
        }
    }

    fn take(&self) -> Option<Weak<Replica>> {
        self.waiting.lock().pop_front()
    }

    fn clear(&self) {
        self.waiting.lock().clear();
    }
}

impl StoreError {
    /// Whether the replica that it is about is to be looked at.
    pub(crate) fn makes_suspect(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::FilesMissing { .. })
    }
}

impl Store {
    /// Looks at `count` replicas of a volume, and at the volume before. Waits for the disk.
    pub fn look_at_suspects(&self, volume: &Arc<Volume>, count: usize) {
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
                tracing::warn!(%error, "a replica that could not be read was looked at");
            }
        }
    }

    /// The same, where the volume was not looked at before.
    pub fn forget_if_missing_from(&self, volume: &Arc<Volume>, replica: &Arc<Replica>) -> Result<bool> {
        let some_are = {
            let core = replica.core();
            missing_files(replica, &core)?.is_some()
        };
        if some_are && self.probe_volume(volume) { self.forget_if_missing(replica) } else { Ok(false) }
    }

    /// Takes out a replica of which the disk has lost the files; one of which it has lost one file is corrupt. Returns whether it did
    /// either. The volume was looked at before: its directories are there.
    pub fn forget_if_missing(&self, replica: &Arc<Replica>) -> Result<bool> {
        let _change = replica.change.lock();
        let mut core = replica.core();
        let Some(missing) = missing_files(replica, &core)? else { return Ok(false) };
        let block = replica.block(&core);
        if missing < FILES {
            let error = self.mark_corrupt(replica, &mut core, "its data file or its meta file is gone from the disk");
            tracing::error!(%error, "a replica is incomplete");
            return Ok(true);
        }
        drop(core);
        let summary = self.summary(replica);
        tracing::error!(%block, storage = %summary.storage, "the files of a replica are gone from the disk");
        self.discard(replica);
        self.event(StoreEvent::Missing(summary));
        Ok(true)
    }
}

/// A replica has a data file and a meta file.
const FILES: usize = 2;

/// How many files of a replica that is on disk alone are missing. `None`: nothing is, or that is not this function's to say.
fn missing_files(replica: &Replica, core: &Core) -> Result<Option<usize>> {
    let only_on_disk = core.memory.is_none() && core.writer.is_none() && core.recovery.is_none();
    if core.gone || !only_on_disk || core.corrupt.is_some() || core.state == ReplicaState::Temporary {
        return Ok(None);
    }
    let Some(disk) = core.disk else { return Ok(None) };
    let dirs = &replica.slice.dirs;
    let missing = copy::missing(dirs, replica.id, disk).map_err(StoreError::io("look for a replica in", &dirs.root))?;
    Ok((missing > 0).then_some(missing))
}
