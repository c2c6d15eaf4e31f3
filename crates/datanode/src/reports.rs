//! Incremental block reports: events of single replicas that a NameNode has not received yet.
//!
//! Every NameNode of a pool has its own [`PendingReports`], because each must receive everything, at its own pace.
//! RECEIVED wakes the sender at once (a client's `close()` waits for it); the others are sent with the next turn.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use hearth_types::{Block, BlockId, DatanodeInfo, ExtendedBlock, StorageId, StorageType};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Event of a replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplicaEvent {
    /// A pipeline has begun to write it.
    Receiving,
    /// It is finalized. `delete_hint`: the UUID of the DataNode whose copy this one replaces (balancer).
    Received { delete_hint: Option<String> },
    /// It was deleted.
    Deleted,
}

/// One event with its replica, ready to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingEvent {
    pub block: Block,
    pub event: ReplicaEvent,
}

/// Notices that are sent to a NameNode in calls of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The replica of `block` at `datanode` is corrupt.
    BadReplica { block: ExtendedBlock, datanode: Box<DatanodeInfo>, storage: Option<(StorageId, StorageType)> },
    /// A block that was to be sent is not here, or not finalized (errorReport, INVALID_BLOCK).
    InvalidBlock { message: String },
    /// A storage directory failed (errorReport, DISK_ERROR).
    DiskError { message: String },
    /// Too many have failed to continue (errorReport, FATAL_DISK_ERROR): the NameNode considers this DataNode dead.
    FatalDiskError { message: String },
}

/// Maximum number of waiting notices; the oldest are dropped.
const NOTICES_MAX: usize = 1000;

/// Maximum number of waiting events; further ones are dropped, and a full report replaces them.
const EVENTS_MAX: usize = 1 << 20;

/// Events that one NameNode has not received yet; at most one for each block, the newest. A replica that has moved to
/// another storage of this DataNode is one event: NameNodes see that the storage differs, and apply a deletion to this
/// DataNode, whatever storage it names. Source: hdfs `BlockManager.processIncrementalBlockReport`,
/// `BlockInfo.addStorage`.
#[derive(Default)]
pub struct PendingReports {
    events: Mutex<Events>,
    notices: Mutex<VecDeque<Notice>>,
    wake: Notify,
    /// Events or commands were dropped: only a full report can restore the NameNode's view.
    overflowed: AtomicBool,
}

#[derive(Default)]
struct Events {
    by_block: HashMap<BlockId, (u64, StorageId, PendingEvent)>,
    /// Sequence number, so that events are sent in order.
    sequence: u64,
}

impl Events {
    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

impl PendingReports {
    /// Adds an event; replaces an older one of the same block.
    pub fn add(&self, storage: &StorageId, block: Block, event: ReplicaEvent) {
        let urgent = matches!(event, ReplicaEvent::Received { .. });
        {
            let mut events = self.events.lock();
            if events.by_block.len() >= EVENTS_MAX {
                events.by_block.clear();
                self.overflowed.store(true, Ordering::Relaxed);
            }
            let sequence = events.next();
            events.by_block.insert(block.id, (sequence, storage.clone(), PendingEvent { block, event }));
        }
        if urgent {
            self.wake.notify_one();
        }
    }

    /// Takes all waiting events, per storage and in their order.
    pub fn take(&self) -> Vec<(StorageId, Vec<PendingEvent>)> {
        let by_block = std::mem::take(&mut self.events.lock().by_block);
        let mut events: Vec<_> = by_block.into_values().collect();
        events.sort_unstable_by_key(|(sequence, ..)| *sequence);
        let mut by_storage: HashMap<StorageId, Vec<PendingEvent>> = HashMap::new();
        for (_, storage, replica) in events {
            by_storage.entry(storage).or_default().push(replica);
        }
        by_storage.into_iter().collect()
    }

    /// Puts back events that a failed call did not deliver, except where a newer one exists.
    pub fn put_back(&self, taken: Vec<(StorageId, Vec<PendingEvent>)>) {
        let mut events = self.events.lock();
        for (storage, replicas) in taken {
            for replica in replicas {
                let sequence = events.next();
                events.by_block.entry(replica.block.id).or_insert((sequence, storage.clone(), replica));
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

    /// Takes the oldest notice.
    pub fn take_notice(&self) -> Option<Notice> {
        self.notices.lock().pop_front()
    }

    /// Puts back a notice that could not be delivered.
    pub fn put_back_notice(&self, notice: Notice) {
        let mut notices = self.notices.lock();
        if notices.len() < NOTICES_MAX {
            notices.push_front(notice);
        }
    }

    /// Drops all events: a full report will cover them.
    pub fn clear(&self) {
        self.events.lock().by_block.clear();
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.events.lock().by_block.is_empty()
    }

    /// Returns the number of waiting events.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.events.lock().by_block.len()
    }

    /// Requests a full report, because the NameNode's view differs from the replicas here.
    pub fn request_full_report(&self) {
        self.overflowed.store(true, Ordering::Relaxed);
    }

    /// Returns true once after events were dropped, or a full report was requested.
    pub fn take_overflow(&self) -> bool {
        self.overflowed.swap(false, Ordering::Relaxed)
    }

    /// Waits until something urgent has been added since the last call.
    pub async fn wait_urgent(&self) {
        self.wake.notified().await;
    }

    /// Wakes the sender without a new event: at an administrator's request, or after a failed call.
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
    fn newest_event_wins_over_one_put_back() {
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
        assert_eq!(of(1), PendingEvent { block: block(1, 7), event: ReplicaEvent::Received { delete_hint: None } });
        assert_eq!(of(2).event, ReplicaEvent::Receiving);
    }

    #[test]
    fn failed_deletion_does_not_follow_a_newer_replica() {
        let reports = PendingReports::default();
        let storage = StorageId("DS-1".into());
        let received = || ReplicaEvent::Received { delete_hint: None };
        reports.add(&storage, block(1, 7), ReplicaEvent::Deleted);
        reports.add(&storage, block(2, 7), ReplicaEvent::Deleted);
        // The call fails, and one of the blocks has come back in the meantime.
        let failed = reports.take();
        reports.add(&storage, block(1, 7), received());
        reports.put_back(failed);
        let taken = reports.take();
        let [(_, told)] = &taken[..] else { panic!("not one storage") };
        let told: Vec<_> = told.iter().map(|told| (told.block.id.0, told.event.clone())).collect();
        assert_eq!(told, [(1, received()), (2, ReplicaEvent::Deleted)]);
        // One that comes back after that replaces the deletion, too.
        reports.add(&storage, block(3, 7), ReplicaEvent::Deleted);
        let failed = reports.take();
        reports.put_back(failed);
        reports.add(&storage, block(3, 7), received());
        assert_eq!(reports.take()[0].1, [PendingEvent { block: block(3, 7), event: received() }]);
    }

    #[test]
    fn moved_block_is_reported_once() {
        let reports = PendingReports::default();
        let [first, second] = ["DS-1", "DS-2"].map(|id| StorageId(id.into()));
        let received = || ReplicaEvent::Received { delete_hint: None };
        reports.add(&first, block(1, 7), received());
        let taken = reports.take();
        reports.add(&first, block(1, 7), ReplicaEvent::Deleted);
        reports.add(&second, block(1, 7), received());
        reports.put_back(taken);
        assert_eq!(reports.take(), [(second, vec![PendingEvent { block: block(1, 7), event: received() }])]);
    }

    #[tokio::test]
    async fn only_received_wakes_the_sender() {
        let reports = PendingReports::default();
        let storage = StorageId("DS-1".into());
        let short = std::time::Duration::from_millis(20);
        reports.add(&storage, block(1, 0), ReplicaEvent::Receiving);
        assert!(tokio::time::timeout(short, reports.wait_urgent()).await.is_err());
        reports.add(&storage, block(1, 0), ReplicaEvent::Received { delete_hint: None });
        assert!(tokio::time::timeout(short, reports.wait_urgent()).await.is_ok());
    }
}
