//! What a namenode has still to be told about single replicas: the incremental block report.
//!
//! Every namenode of a pool has its own [`PendingReports`], because each must hear everything, at its own pace.
//! RECEIVED wakes the sender at once (a client's `close()` waits for it); the others go with the next turn.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use hearth_types::{Block, BlockId, DatanodeInfo, ExtendedBlock, StorageId, StorageType};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// What happened to a replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplicaEvent {
    /// A pipeline has begun to write it.
    Receiving,
    /// It is finalized. `delete_hint`: the UUID of the datanode whose copy this one replaces (balancer).
    Received { delete_hint: Option<String> },
    /// It is gone.
    Deleted,
}

/// One event with its replica, ready to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportedReplica {
    pub block: Block,
    pub event: ReplicaEvent,
}

/// Things a namenode is told in calls of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The replica of `block` at `datanode` is corrupt.
    BadReplica { block: ExtendedBlock, datanode: Box<DatanodeInfo>, storage: Option<(StorageId, StorageType)> },
    /// A block that was to be sent is not here, or not finalized (errorReport, INVALID_BLOCK).
    InvalidBlock { message: String },
    /// A storage directory failed (errorReport, DISK_ERROR).
    DiskError { message: String },
    /// Too many have failed to go on (errorReport, FATAL_DISK_ERROR): the namenode takes this datanode for dead.
    FatalDiskError { message: String },
}

/// Notices that wait at most; the oldest are dropped.
const NOTICES_MAX: usize = 1000;

/// Events that wait at most; beyond that they are dropped and a full report makes up for it.
const EVENTS_MAX: usize = 1 << 20;

/// The events that one namenode has not been told yet; at most one for each replica, the newest.
#[derive(Default)]
pub struct PendingReports {
    events: Mutex<Events>,
    notices: Mutex<VecDeque<Notice>>,
    wake: Notify,
    /// Events were dropped: only a full report can tell now.
    overflowed: AtomicBool,
}

#[derive(Default)]
struct Events {
    by_storage: HashMap<StorageId, HashMap<BlockId, (u64, ReportedReplica)>>,
    count: usize,
    /// Orders events, so that those put back after a failed call never replace newer ones, and are sent in order.
    sequence: u64,
}

impl PendingReports {
    /// Adds an event; an older one of the same replica on the same storage is forgotten.
    pub fn add(&self, storage: &StorageId, block: Block, event: ReplicaEvent) {
        let urgent = matches!(event, ReplicaEvent::Received { .. });
        {
            let mut events = self.events.lock();
            if events.count >= EVENTS_MAX {
                events.by_storage.clear();
                events.count = 0;
                self.overflowed.store(true, Ordering::Relaxed);
            }
            events.sequence += 1;
            let sequence = events.sequence;
            let of_storage = events.by_storage.entry(storage.clone()).or_default();
            if of_storage.insert(block.id, (sequence, ReportedReplica { block, event })).is_none() {
                events.count += 1;
            }
        }
        if urgent {
            self.wake.notify_one();
        }
    }

    /// Takes everything that waits, per storage and in the order it happened.
    pub fn take(&self) -> Vec<(StorageId, Vec<ReportedReplica>)> {
        let by_storage = {
            let mut events = self.events.lock();
            events.count = 0;
            std::mem::take(&mut events.by_storage)
        };
        by_storage
            .into_iter()
            .map(|(storage, replicas)| {
                let mut replicas: Vec<_> = replicas.into_values().collect();
                replicas.sort_unstable_by_key(|(sequence, _)| *sequence);
                (storage, replicas.into_iter().map(|(_, replica)| replica).collect())
            })
            .filter(|(_, replicas): &(StorageId, Vec<ReportedReplica>)| !replicas.is_empty())
            .collect()
    }

    /// Puts back what a failed call could not deliver, except where something newer has happened since.
    pub fn put_back(&self, taken: Vec<(StorageId, Vec<ReportedReplica>)>) {
        let mut events = self.events.lock();
        for (storage, replicas) in taken {
            for replica in replicas {
                events.sequence += 1;
                let sequence = events.sequence;
                let of_storage = events.by_storage.entry(storage.clone()).or_default();
                if let std::collections::hash_map::Entry::Vacant(vacant) = of_storage.entry(replica.block.id) {
                    vacant.insert((sequence, replica));
                    events.count += 1;
                }
            }
        }
    }

    /// Adds a notice, and wakes the sender.
    pub fn add_notice(&self, notice: Notice) {
        let mut notices = self.notices.lock();
        if notices.len() >= NOTICES_MAX {
            notices.pop_front();
        }
        notices.push_back(notice);
        drop(notices);
        self.wake.notify_one();
    }

    /// The oldest notice.
    pub fn take_notice(&self) -> Option<Notice> {
        self.notices.lock().pop_front()
    }

    /// Puts back one that could not be delivered.
    pub fn put_back_notice(&self, notice: Notice) {
        let mut notices = self.notices.lock();
        if notices.len() < NOTICES_MAX {
            notices.push_front(notice);
        }
    }

    /// Drops everything: the namenode will be told by a full report.
    pub fn clear(&self) {
        let mut events = self.events.lock();
        events.by_storage.clear();
        events.count = 0;
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.events.lock().count == 0
    }

    /// Events waiting.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.events.lock().count
    }

    /// True once after events had to be dropped.
    pub fn take_overflow(&self) -> bool {
        self.overflowed.swap(false, Ordering::Relaxed)
    }

    /// Waits until something urgent has been added since the last call.
    pub async fn urgent(&self) {
        self.wake.notified().await;
    }

    /// Wakes the sender without an event (an administrator asked).
    pub fn flush(&self) {
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::GenerationStamp;

    use super::*;

    fn block(id: i64, length: u64) -> Block {
        Block { id: BlockId(id), stamp: GenerationStamp(1001), length }
    }

    #[test]
    fn the_newest_event_of_a_replica_wins_even_over_one_put_back() {
        let reports = PendingReports::default();
        let storage = StorageId("DS-1".into());
        reports.add(&storage, block(1, 0), ReplicaEvent::Receiving);
        reports.add(&storage, block(2, 0), ReplicaEvent::Receiving);
        let taken = reports.take();
        assert!(reports.is_empty());
        assert_eq!(taken[0].1.iter().map(|replica| replica.block.id.0).collect::<Vec<_>>(), [1, 2]);

        reports.add(&storage, block(1, 7), ReplicaEvent::Received { delete_hint: None });
        reports.put_back(taken);
        let taken = reports.take();
        let of = |id| taken[0].1.iter().find(|replica| replica.block.id.0 == id).unwrap().clone();
        assert_eq!(of(1), ReportedReplica { block: block(1, 7), event: ReplicaEvent::Received { delete_hint: None } });
        assert_eq!(of(2).event, ReplicaEvent::Receiving);
    }

    #[tokio::test]
    async fn only_received_wakes_the_sender() {
        let reports = PendingReports::default();
        let storage = StorageId("DS-1".into());
        let short = std::time::Duration::from_millis(20);
        reports.add(&storage, block(1, 0), ReplicaEvent::Receiving);
        assert!(tokio::time::timeout(short, reports.urgent()).await.is_err());
        reports.add(&storage, block(1, 0), ReplicaEvent::Received { delete_hint: None });
        assert!(tokio::time::timeout(short, reports.urgent()).await.is_ok());
    }
}
