//! State, generation stamp and lengths of a replica, as reports, readers and recoveries see them, and the transitions
//! between its states. Source: hdfs `ReplicaState`; the append design, section 2.

use hearth_types::{ChecksumSpec, GenerationStamp, ReplicaState};

use crate::disk::files::DiskCopy;
use crate::disk::layout::ReplicaDir;
use crate::memory::header::Progress;

/// State, stamp and lengths of a replica, and what is known of its bytes.
///
/// `acked` is at most `received`. `partial_crc` belongs to `received`, and both change together.
pub struct Lifecycle {
    /// Never UNDER_RECOVERY: see `recovery`.
    state: ReplicaState,
    stamp: GenerationStamp,
    received: u64,
    acked: u64,
    /// CRC of the last chunk if it is not whole. Unknown (0) for finalized replicas that are only on disk.
    partial_crc: u32,
    /// Unknown before the first use of a replica that was found on disk.
    checksum: Option<ChecksumSpec>,
    /// Id of the block recovery in progress.
    recovery: Option<GenerationStamp>,
    /// All bytes were checked against their CRCs while they were in this process's memory.
    verified: bool,
    /// Reason, once no good copy is left.
    corrupt: Option<Box<str>>,
    /// Removed from the map, or about to be. The block may have moved to another storage; see
    /// `Blockstore::change_replica`.
    gone: bool,
}

/// The part that a copy's header records, as it was at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    state: ReplicaState,
    stamp: GenerationStamp,
    received: u64,
    acked: u64,
    partial_crc: u32,
}

impl Lifecycle {
    /// A new, empty replica.
    pub fn new(state: ReplicaState, stamp: GenerationStamp) -> Self {
        assert!(state != ReplicaState::UnderRecovery, "a recovery is kept beside the state that it began in");
        Self {
            state,
            stamp,
            received: 0,
            acked: 0,
            partial_crc: 0,
            checksum: None,
            recovery: None,
            verified: true,
            corrupt: None,
            gone: false,
        }
    }

    /// A copy of `length` bytes, all of them acknowledged.
    pub fn of_copy(state: ReplicaState, stamp: GenerationStamp, length: u64, partial_crc: u32) -> Self {
        Self { received: length, acked: length, partial_crc, ..Self::new(state, stamp) }
    }

    /// A replica that a start finds in memory. One that was not finalized waits to be recovered. Its bytes are
    /// unverified until the scrubber or a reader checks them.
    pub fn found_in_memory(found: &Progress, checksum: ChecksumSpec) -> Self {
        let Progress { stamp, received, acked, partial_crc, .. } = *found;
        let new = Self::new(found_state(found.state == ReplicaState::Finalized), stamp);
        Self { received, acked, partial_crc, checksum: Some(checksum), verified: false, ..new }
    }

    /// A replica that a start finds only on disk. One that was not finalized waits to be recovered.
    pub fn found_on_disk(found: &DiskCopy) -> Self {
        Self::of_copy(found_state(found.place == ReplicaDir::Finalized), found.stamp, found.length, 0)
    }

    /// State without a recovery that is in progress; block reports list it.
    pub fn state(&self) -> ReplicaState {
        self.state
    }

    /// State as `Blockstore::replica` and recovery responses report it.
    pub fn state_now(&self) -> ReplicaState {
        if self.recovery.is_some() { ReplicaState::UnderRecovery } else { self.state() }
    }

    pub fn is_finalized(&self) -> bool {
        self.state == ReplicaState::Finalized
    }

    pub fn stamp(&self) -> GenerationStamp {
        self.stamp
    }

    /// Bytes received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes that the whole pipeline has acknowledged.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    pub fn partial_crc(&self) -> u32 {
        self.partial_crc
    }

    pub fn checksum(&self) -> Option<ChecksumSpec> {
        self.checksum
    }

    pub fn recovery(&self) -> Option<GenerationStamp> {
        self.recovery
    }

    pub fn corrupt(&self) -> Option<&str> {
        self.corrupt.as_deref()
    }

    pub fn is_corrupt(&self) -> bool {
        self.corrupt.is_some()
    }

    /// Returns whether all bytes were checked against their CRCs while they were in this process's memory.
    pub fn is_verified(&self) -> bool {
        self.verified
    }

    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Number of bytes that readers may rely on. `None`: not readable.
    pub fn visible_length(&self) -> Option<u64> {
        match self.state {
            ReplicaState::Finalized => Some(self.received),
            ReplicaState::BeingWritten => Some(self.acked),
            ReplicaState::WaitingToBeRecovered | ReplicaState::Temporary | ReplicaState::UnderRecovery => None,
        }
    }

    /// Returns the record of the marks for a copy's header.
    pub fn progress(&self, sequence: u64) -> Progress {
        let Self { state, stamp, received, acked, partial_crc, .. } = *self;
        Progress { sequence, stamp, received, acked, partial_crc, state }
    }

    /// Returns what [`Self::restore`] needs after a failed operation.
    pub fn marks(&self) -> Marks {
        let Self { state, stamp, received, acked, partial_crc, .. } = *self;
        Marks { state, stamp, received, acked, partial_crc }
    }

    /// Restores the marks from before an operation that has failed.
    pub fn restore(&mut self, before: Marks) {
        let Marks { state, stamp, received, acked, partial_crc } = before;
        (self.state, self.stamp) = (state, stamp);
        (self.received, self.acked, self.partial_crc) = (received, acked, partial_crc);
    }

    /// Sets the checksum that the replica's meta file states.
    pub fn set_checksum(&mut self, checksum: ChecksumSpec) {
        self.checksum = Some(checksum);
    }

    /// Sets the CRC of the last chunk, which was read from the copy on disk.
    pub fn set_partial_crc(&mut self, partial_crc: u32) {
        self.partial_crc = partial_crc;
    }

    /// The writer has received bytes up to `end`. `partial_crc`: CRC of the last chunk, or 0 if it is whole.
    pub fn receive(&mut self, end: u64, partial_crc: u32) {
        debug_assert!(end >= self.received, "received bytes are only truncated by a recovery");
        (self.received, self.partial_crc) = (end, partial_crc);
    }

    /// The whole pipeline has acknowledged `length` bytes. The value only rises, and not beyond the bytes received.
    /// Returns whether it rose.
    pub fn acknowledge(&mut self, length: u64) -> bool {
        let length = length.min(self.received);
        let rises = length > self.acked;
        if rises {
            self.acked = length;
        }
        rises
    }

    /// The last packet has come: all received bytes count as acknowledged.
    pub fn finalize(&mut self) {
        self.acked = self.received;
        self.state = ReplicaState::Finalized;
    }

    /// PIPELINE_SETUP_APPEND: the finalized replica becomes one being written, under `stamp`.
    pub fn append(&mut self, stamp: GenerationStamp) {
        self.stamp = stamp;
        self.begin_writing();
    }

    /// The replica becomes one being written, with all received bytes acknowledged: an append, or a TEMPORARY replica
    /// that was transferred (TRANSFER_RBW).
    pub fn begin_writing(&mut self) {
        self.state = ReplicaState::BeingWritten;
        self.acked = self.received;
    }

    /// The writer of a replica that a start found is back: it is being written again.
    pub fn resume(&mut self) {
        debug_assert_eq!(self.state, ReplicaState::WaitingToBeRecovered);
        self.state = ReplicaState::BeingWritten;
    }

    /// Gives the replica a new stamp.
    pub fn set_stamp(&mut self, stamp: GenerationStamp) {
        self.stamp = stamp;
    }

    /// Truncates the replica. `partial_crc`: CRC of the last chunk then.
    pub fn truncate(&mut self, length: u64, partial_crc: u32) {
        debug_assert!(length <= self.received, "a replica is truncated to fewer bytes");
        self.received = length;
        self.acked = self.acked.min(length);
        self.partial_crc = partial_crc;
    }

    /// Truncates the replica during a recovery. It counts as being written until the recovery finalizes it.
    pub fn truncate_in_recovery(&mut self, length: u64, partial_crc: u32) {
        self.truncate(length, partial_crc);
        self.state = ReplicaState::BeingWritten;
    }

    /// First step of a block recovery. `Err` returns the id of another one that is in progress and is not older.
    pub fn initiate_recovery(&mut self, id: GenerationStamp) -> Result<(), GenerationStamp> {
        match self.recovery.filter(|running| *running >= id) {
            Some(running) => Err(running),
            None => {
                self.recovery = Some(id);
                Ok(())
            }
        }
    }

    /// Ends a recovery, if one is in progress; the replica is in `state` again.
    pub fn end_recovery(&mut self) {
        self.recovery = None;
    }

    /// Second step of a block recovery, on disk: the replica is finalized under `stamp` with `length` bytes.
    pub fn recover(&mut self, stamp: GenerationStamp, length: u64, partial_crc: u32) {
        (self.state, self.stamp) = (ReplicaState::Finalized, stamp);
        (self.received, self.acked, self.partial_crc) = (length, length, partial_crc);
    }

    /// All bytes were checked.
    pub fn mark_verified(&mut self) {
        self.verified = true;
    }

    /// The bytes in memory may be wrong: a check failed, or bytes came whose CRCs nothing has checked.
    pub fn mark_unverified(&mut self) {
        self.verified = false;
    }

    /// No good copy is left. Returns whether that is new.
    pub fn mark_corrupt(&mut self, reason: &str) -> bool {
        let is_new = self.corrupt.is_none();
        if is_new {
            self.corrupt = Some(reason.into());
        }
        is_new
    }

    /// The replica leaves the map.
    pub fn remove(&mut self) {
        self.gone = true;
    }
}

/// State of a replica that a start finds.
fn found_state(finalized: bool) -> ReplicaState {
    if finalized { ReplicaState::Finalized } else { ReplicaState::WaitingToBeRecovered }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: GenerationStamp = GenerationStamp(1);
    const TWO: GenerationStamp = GenerationStamp(2);

    #[test]
    fn acknowledged_length_only_rises_up_to_received() {
        let mut replica = Lifecycle::new(ReplicaState::BeingWritten, ONE);
        replica.receive(100, 7);
        assert!(replica.acknowledge(60) && !replica.acknowledge(50));
        assert_eq!((replica.acked(), replica.visible_length()), (60, Some(60)));
        assert!(replica.acknowledge(500));
        assert_eq!(replica.acked(), 100);
    }

    #[test]
    fn finalized_replica_is_appended_to_with_all_bytes_acknowledged() {
        let mut replica = Lifecycle::new(ReplicaState::BeingWritten, ONE);
        replica.receive(100, 7);
        replica.finalize();
        assert_eq!(
            (replica.state(), replica.acked(), replica.visible_length()),
            (ReplicaState::Finalized, 100, Some(100))
        );
        let before = replica.marks();
        replica.append(TWO);
        assert_eq!((replica.state(), replica.stamp()), (ReplicaState::BeingWritten, TWO));
        assert_eq!((replica.acked(), replica.partial_crc()), (100, 7));
        replica.restore(before);
        assert_eq!((replica.state(), replica.stamp()), (ReplicaState::Finalized, ONE));
    }

    #[test]
    fn truncation_takes_the_acknowledged_length_along() {
        let mut replica = Lifecycle::of_copy(ReplicaState::Finalized, ONE, 100, 7);
        replica.truncate_in_recovery(60, 9);
        assert_eq!((replica.received(), replica.acked(), replica.partial_crc()), (60, 60, 9));
        assert_eq!(replica.state(), ReplicaState::BeingWritten);
        let mut written = Lifecycle::new(ReplicaState::BeingWritten, ONE);
        written.receive(100, 0);
        written.acknowledge(10);
        written.truncate(60, 9);
        assert_eq!((written.received(), written.acked()), (60, 10));
    }

    #[test]
    fn newer_recovery_takes_over() {
        let mut replica = Lifecycle::of_copy(ReplicaState::Finalized, ONE, 100, 0);
        assert_eq!(replica.initiate_recovery(TWO), Ok(()));
        assert_eq!(replica.initiate_recovery(TWO), Err(TWO));
        assert_eq!(replica.initiate_recovery(GenerationStamp(3)), Ok(()));
        assert_eq!((replica.state(), replica.state_now()), (ReplicaState::Finalized, ReplicaState::UnderRecovery));
        replica.end_recovery();
        assert_eq!(replica.state_now(), ReplicaState::Finalized);
        replica.recover(GenerationStamp(3), 50, 4);
        assert_eq!((replica.stamp(), replica.received(), replica.acked()), (GenerationStamp(3), 50, 50));
    }

    #[test]
    fn unfinished_replicas_wait_to_be_recovered_after_a_start() {
        let found = Progress {
            sequence: 4,
            stamp: ONE,
            received: 100,
            acked: 60,
            partial_crc: 7,
            state: ReplicaState::BeingWritten,
        };
        let mut replica = Lifecycle::found_in_memory(&found, ChecksumSpec::DEFAULT);
        assert_eq!((replica.state(), replica.visible_length()), (ReplicaState::WaitingToBeRecovered, None));
        assert_eq!((replica.received(), replica.acked()), (100, 60));
        replica.resume();
        assert_eq!(replica.visible_length(), Some(60));
        let on_disk = DiskCopy { place: ReplicaDir::Finalized, stamp: TWO, length: 9 };
        let replica = Lifecycle::found_on_disk(&on_disk);
        assert_eq!((replica.state(), replica.stamp(), replica.acked()), (ReplicaState::Finalized, TWO, 9));
        assert_eq!(
            replica.progress(5),
            Progress { sequence: 5, stamp: TWO, received: 9, acked: 9, partial_crc: 0, state: ReplicaState::Finalized }
        );
    }

    #[test]
    fn first_reason_of_corruption_stays() {
        let mut replica = Lifecycle::new(ReplicaState::Finalized, ONE);
        assert!(replica.mark_corrupt("first") && !replica.mark_corrupt("second"));
        assert_eq!(replica.corrupt(), Some("first"));
        replica.remove();
        assert!(replica.is_gone());
    }
}
