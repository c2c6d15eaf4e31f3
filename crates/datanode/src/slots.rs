//! Slots: words in memory shared with a client on this machine, one for each replica whose descriptors it holds. In a
//! slot the DataNode signals if the replica may still be read through the descriptors, and the client signals if it
//! reads without checking CRCs.
//!
//! ```text
//! bit 63     VALID: the descriptors are those of the replica. Set by the client before it requests them, cleared here
//!            when the replica changes or is deleted. Ongoing reads continue: the bytes stay unchanged.
//! bit 62     ANCHORABLE: all bytes are in memory and match their CRCs. Set here.
//! bits 0-30  anchors: number of the client's readers that rely on ANCHORABLE. While it is not 0, the replica stays in
//!            memory, for at most `dfs.datanode.cache.revocation.timeout.ms`.
//! ```
//! A segment of slots belongs to a connection and ends with it. Source: `ShortCircuitShm` of Hadoop 3.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hearth_blockstore::{WithdrawHook, WithdrawReason, WithdrawReply};
use hearth_fabric::local::SharedWords;
use hearth_fabric::tcp::PeerAddress;
use hearth_types::{BlockId, BlockPoolId, Clock, ExtendedBlock};
use hearth_wire::data_transfer::{ShmId, ShmSlot};
use parking_lot::Mutex;

const VALID: u64 = 1 << 63;
const ANCHORABLE: u64 = 1 << 62;
const ANCHORS: u64 = (1 << 31) - 1;

/// Number that Java's clients expect: 8192 bytes.
const SLOTS_PER_SEGMENT: usize = 128;

/// Maximum number of segments of one process. Java's client requests another segment when all slots are in use; no
/// client keeps as many as 8192 replicas open.
const SEGMENTS_PER_PROCESS_MAX: usize = 64;

/// Maximum number of segments in total, of 8 KiB and a connection each.
const SEGMENTS_MAX: usize = 2048;

/// Reason why a slot or a segment is not available.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SlotError {
    #[error("no more shared memory segments for this process: it has {SEGMENTS_PER_PROCESS_MAX}")]
    ProcessLimit,
    #[error("no more shared memory segments: {SEGMENTS_MAX} are in use")]
    Limit,
    #[error("cannot create shared memory")]
    Memory,
    #[error("there is no shared memory segment with this id")]
    NoSegment,
    #[error("a segment has no slot {index}")]
    NoSlot { index: i32 },
    #[error("slot {index} is already in use")]
    InUse { index: i32 },
    #[error("slot {index} is not valid: its client has released it")]
    NotValid { index: i32 },
    #[error("slot {index} is not in use")]
    NotInUse { index: i32 },
}

type BlockKey = (BlockPoolId, BlockId);

/// All segments and their slots.
pub struct Slots {
    state: Mutex<SlotsState>,
    /// Maximum time that anchors keep a replica in memory that is to be evicted.
    revocation_timeout: Duration,
    clock: Arc<dyn Clock>,
    passed: AtomicU64,
}

#[derive(Default)]
struct SlotsState {
    segments: HashMap<ShmId, Segment>,
    /// Slots in use, by block.
    by_block: HashMap<BlockKey, Vec<ShmSlot>>,
    /// Number of segments of each process.
    by_process: HashMap<PeerAddress, usize>,
    /// Replicas that are to leave memory and wait for their anchors.
    revoking: HashMap<BlockKey, Revocation>,
}

/// A wait for the anchors of one replica. Times are those of the monotonic clock.
struct Revocation {
    since: Duration,
    /// Last request to evict the replica.
    asked: Duration,
}

struct Segment {
    words: SharedWords,
    process: PeerAddress,
    /// Block of each slot in use.
    used: HashMap<i32, BlockKey>,
}

/// Keeps a segment until it is dropped, when its client is gone.
pub struct SegmentGuard {
    slots: Arc<Slots>,
    pub id: ShmId,
}

/// Keeps a slot until it is dropped, or permanently after `keep`.
pub struct SlotGuard {
    slots: Arc<Slots>,
    slot: Option<ShmSlot>,
}

/// Current figures of the slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotMetrics {
    pub segments: u64,
    pub slots: u64,
    /// Slots whose client reads without checking CRCs.
    pub anchored: u64,
    /// Descriptors passed to clients since the start, without those of segments.
    pub descriptors_passed: u64,
}

impl Slots {
    pub fn new(revocation_timeout: Duration, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), revocation_timeout, clock, passed: AtomicU64::new(0) })
    }

    /// Creates shared memory for the process at the other end of a connection. Returns it with the descriptor to pass
    /// on.
    ///
    /// Errors: `ProcessLimit`, `Limit`, `Memory`.
    pub fn create_segment(self: &Arc<Self>, process: PeerAddress) -> Result<(SegmentGuard, OwnedFd), SlotError> {
        let (words, descriptor) = SharedWords::create(SLOTS_PER_SEGMENT).map_err(|error| {
            tracing::warn!(%error, "cannot create shared memory for a local client");
            SlotError::Memory
        })?;
        let mut state = self.state.lock();
        if state.segments.len() >= SEGMENTS_MAX {
            return Err(SlotError::Limit);
        }
        // Processes of other namespaces cannot be distinguished.
        let is_known = !matches!(process, PeerAddress::Process { pid: 0, .. });
        let of_process = state.by_process.entry(process).or_default();
        if is_known && *of_process >= SEGMENTS_PER_PROCESS_MAX {
            return Err(SlotError::ProcessLimit);
        }
        *of_process += 1;
        let id = loop {
            // Must not be guessable: any process that names it may use its slots.
            let mut bytes = [[0; 8]; 2];
            if getrandom::fill(bytes.as_flattened_mut()).is_err() {
                state.forget_of_process(process);
                return Err(SlotError::Memory);
            }
            let id = ShmId { high: i64::from_ne_bytes(bytes[0]), low: i64::from_ne_bytes(bytes[1]) };
            if !state.segments.contains_key(&id) {
                break id;
            }
        };
        state.segments.insert(id, Segment { words, process, used: HashMap::new() });
        Ok((SegmentGuard { slots: self.clone(), id }, descriptor))
    }

    /// Registers the client's slot for its replica of `block`. Called before the replica is shown, so that no
    /// withdrawal is missed.
    ///
    /// Errors: `NoSegment`, `NoSlot`, `InUse`, `NotValid`.
    pub fn register(self: &Arc<Self>, slot: ShmSlot, block: &ExtendedBlock) -> Result<SlotGuard, SlotError> {
        let mut state = self.state.lock();
        let segment = state.segments.get_mut(&slot.segment).ok_or(SlotError::NoSegment)?;
        let index = slot.index;
        let place = usize::try_from(index).ok().filter(|place| *place < segment.words.slots());
        let place = place.ok_or(SlotError::NoSlot { index })?;
        if segment.used.contains_key(&index) {
            return Err(SlotError::InUse { index });
        }
        let word = segment.words.word(place);
        if word.fetch_and(!ANCHORABLE, Ordering::AcqRel) & VALID == 0 {
            return Err(SlotError::NotValid { index });
        }
        let key = (block.pool.clone(), block.id());
        segment.used.insert(index, key.clone());
        state.by_block.entry(key).or_default().push(slot);
        Ok(SlotGuard { slots: self.clone(), slot: Some(slot) })
    }

    /// Releases a slot.
    ///
    /// Errors: `NoSegment`, `NotInUse`.
    pub fn release(&self, slot: ShmSlot) -> Result<(), SlotError> {
        let mut state = self.state.lock();
        let segment = state.segments.get_mut(&slot.segment).ok_or(SlotError::NoSegment)?;
        let key = segment.used.remove(&slot.index).ok_or(SlotError::NotInUse { index: slot.index })?;
        segment.clear(slot.index, VALID | ANCHORABLE);
        state.forget_slot(&key, slot);
        Ok(())
    }

    /// Allows the client to read without checking CRCs.
    pub fn set_anchorable(&self, slot: ShmSlot) {
        let state = self.state.lock();
        let Some(segment) = state.segments.get(&slot.segment) else { return };
        if !segment.used.contains_key(&slot.index) {
            return;
        }
        let word = segment.words.word(slot.index as usize);
        // Not if the replica was withdrawn in the meantime.
        let _ = word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| (word & VALID != 0).then_some(word | ANCHORABLE));
    }

    pub fn count_passed(&self, descriptors: u64) {
        self.passed.fetch_add(descriptors, Ordering::Relaxed);
    }

    /// Counts over all slots, for a metrics page.
    pub fn metrics(&self) -> SlotMetrics {
        let state = self.state.lock();
        let mut figures = SlotMetrics {
            segments: state.segments.len() as u64,
            descriptors_passed: self.passed.load(Ordering::Relaxed),
            ..SlotMetrics::default()
        };
        for segment in state.segments.values() {
            figures.slots += segment.used.len() as u64;
            figures.anchored += segment.used.keys().filter(|index| segment.is_anchored(**index)).count() as u64;
        }
        figures
    }

    fn forget_segment(&self, id: ShmId) {
        let mut state = self.state.lock();
        let Some(segment) = state.segments.remove(&id) else { return };
        for (index, key) in &segment.used {
            segment.clear(*index, VALID | ANCHORABLE);
            state.forget_slot(key, ShmSlot { segment: id, index: *index });
        }
        state.forget_of_process(segment.process);
    }
}

impl SlotsState {
    fn forget_slot(&mut self, key: &BlockKey, slot: ShmSlot) {
        let Some(slots) = self.by_block.get_mut(key) else { return };
        slots.retain(|other| *other != slot);
        if slots.is_empty() {
            self.by_block.remove(key);
            self.revoking.remove(key);
        }
    }

    fn forget_of_process(&mut self, process: PeerAddress) {
        if let Some(count) = self.by_process.get_mut(&process) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_process.remove(&process);
            }
        }
    }
}

impl Segment {
    /// `index`: a slot in use, which must lie in the segment.
    fn clear(&self, index: i32, bits: u64) -> u64 {
        self.words.word(index as usize).fetch_and(!bits, Ordering::AcqRel)
    }

    fn is_anchored(&self, index: i32) -> bool {
        let word = self.words.word(index as usize).load(Ordering::Acquire);
        word & VALID != 0 && word & ANCHORS != 0
    }
}

impl WithdrawHook for Slots {
    fn withdraw(&self, block: &ExtendedBlock, what: WithdrawReason) -> WithdrawReply {
        let key = (block.pool.clone(), block.id());
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(slots) = state.by_block.get(&key) else { return WithdrawReply::Done };
        let segment_of = |slot: &ShmSlot| state.segments.get(&slot.segment);
        if what == WithdrawReason::Eviction {
            // Prevents new anchors; existing ones are waited for.
            let mut anchored = false;
            for slot in slots {
                if let Some(segment) = segment_of(slot) {
                    segment.clear(slot.index, ANCHORABLE);
                    anchored |= segment.is_anchored(slot.index);
                }
            }
            if anchored {
                let now = self.clock.monotonic();
                let fresh = || Revocation { since: now, asked: now };
                let revocation = state.revoking.entry(key.clone()).or_insert_with(fresh);
                // The last eviction found memory elsewhere, and the readers since then get the full timeout as well.
                if now.saturating_sub(revocation.asked) > self.revocation_timeout {
                    *revocation = fresh();
                }
                revocation.asked = now;
                if now.saturating_sub(revocation.since) < self.revocation_timeout {
                    return WithdrawReply::Later;
                }
                tracing::warn!(%block, "evicting a replica although a local reader has anchored it");
            }
        }
        for slot in slots {
            if let Some(segment) = segment_of(slot) {
                segment.clear(slot.index, VALID | ANCHORABLE);
            }
        }
        state.revoking.remove(&key);
        WithdrawReply::Done
    }
}

impl Drop for SegmentGuard {
    fn drop(&mut self) {
        self.slots.forget_segment(self.id);
    }
}

impl SlotGuard {
    /// Keeps the slot after the client has received the descriptors, until the client releases it or disconnects.
    pub fn keep(mut self) {
        self.slot = None;
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            // It may already be gone with its segment.
            let _ = self.slots.release(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::{Block, GenerationStamp, ManualClock};

    use super::*;

    const HERE: PeerAddress = PeerAddress::Process { pid: 7, uid: 1 };

    fn slots(revocation_timeout: Duration) -> (Arc<Slots>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(0));
        (Slots::new(revocation_timeout, clock.clone()), clock)
    }

    fn block(id: i64) -> ExtendedBlock {
        let block = Block { id: BlockId(id), stamp: GenerationStamp(1), length: 5 };
        ExtendedBlock { pool: BlockPoolId::new("BP-1"), block }
    }

    /// Returns a segment as its client sees it.
    fn segment(slots: &Arc<Slots>) -> (SegmentGuard, SharedWords) {
        let (held, descriptor) = slots.create_segment(HERE).unwrap();
        (held, SharedWords::attach(descriptor, 1000, false).unwrap())
    }

    #[test]
    fn a_slot_is_valid_until_the_replica_changes() {
        let (slots, _) = slots(Duration::from_secs(60));
        let (held, words) = segment(&slots);
        let slot = |index| ShmSlot { segment: held.id, index };
        assert_eq!(words.slots(), 128);
        assert_eq!(slots.register(slot(0), &block(1)).err(), Some(SlotError::NotValid { index: 0 }));
        for index in [0, 1, 2] {
            words.word(index).store(VALID | ANCHORABLE, Ordering::Release);
        }
        slots.register(slot(0), &block(1)).unwrap().keep();
        slots.register(slot(1), &block(1)).unwrap().keep();
        slots.register(slot(2), &block(2)).unwrap().keep();
        // Bits that only the DataNode may set are cleared.
        assert_eq!(words.word(0).load(Ordering::Acquire), VALID);
        assert_eq!(slots.register(slot(0), &block(3)).err(), Some(SlotError::InUse { index: 0 }));
        for index in [-1, 128, i32::MAX] {
            assert_eq!(slots.register(slot(index), &block(1)).err(), Some(SlotError::NoSlot { index }));
        }
        let other = ShmSlot { segment: ShmId { high: 1, low: 2 }, index: 0 };
        assert_eq!(slots.register(other, &block(1)).err(), Some(SlotError::NoSegment));

        slots.set_anchorable(slot(1));
        assert_eq!(slots.withdraw(&block(1), WithdrawReason::Append), WithdrawReply::Done);
        assert_eq!([0, 1, 2].map(|index| words.word(index).load(Ordering::Acquire)), [0, 0, VALID]);
        slots.set_anchorable(slot(1));
        assert_eq!(words.word(1).load(Ordering::Acquire), 0, "a withdrawn slot is not anchorable again");

        slots.release(slot(2)).unwrap();
        assert_eq!(words.word(2).load(Ordering::Acquire), 0);
        assert_eq!(slots.release(slot(2)).err(), Some(SlotError::NotInUse { index: 2 }));
        assert_eq!(slots.release(other).err(), Some(SlotError::NoSegment));
        // Not kept: its client never confirmed that it has the descriptors.
        words.word(5).store(VALID, Ordering::Release);
        drop(slots.register(slot(5), &block(9)).unwrap());
        assert_eq!(words.word(5).load(Ordering::Acquire), 0);
        assert_eq!((slots.metrics().segments, slots.metrics().slots), (1, 2));
        drop(held);
        assert_eq!(slots.metrics(), SlotMetrics::default());
        let state = slots.state.lock();
        assert!(state.by_block.is_empty() && state.by_process.is_empty() && state.revoking.is_empty());
    }

    #[test]
    fn anchors_delay_only_evictions() {
        let (slots, clock) = slots(Duration::from_secs(3600));
        let (held, words) = segment(&slots);
        let slot = ShmSlot { segment: held.id, index: 0 };
        words.word(0).store(VALID, Ordering::Release);
        slots.register(slot, &block(1)).unwrap().keep();
        slots.set_anchorable(slot);
        assert_eq!(words.word(0).fetch_add(1, Ordering::AcqRel), VALID | ANCHORABLE);
        assert_eq!(slots.metrics().anchored, 1);
        assert_eq!(slots.withdraw(&block(1), WithdrawReason::Eviction), WithdrawReply::Later);
        assert_eq!(words.word(0).load(Ordering::Acquire), VALID | 1, "still valid, but not anchorable again");
        clock.advance(Duration::from_secs(3599));
        assert_eq!(slots.withdraw(&block(1), WithdrawReason::Eviction), WithdrawReply::Later);
        words.word(0).fetch_sub(1, Ordering::AcqRel);
        assert_eq!(slots.withdraw(&block(1), WithdrawReason::Eviction), WithdrawReply::Done);
        assert_eq!(words.word(0).load(Ordering::Acquire), 0);

        // An anchor is not waited for forever, and not at all when the replica is deleted.
        let hasty = Slots::new(Duration::ZERO, clock);
        let (held, words) = segment(&hasty);
        for (index, what) in [WithdrawReason::Eviction, WithdrawReason::Deletion].into_iter().enumerate() {
            words.word(index).store(VALID, Ordering::Release);
            hasty.register(ShmSlot { segment: held.id, index: index as i32 }, &block(1)).unwrap().keep();
            words.word(index).store(VALID | ANCHORABLE | 3, Ordering::Release);
            assert_eq!(hasty.withdraw(&block(1), what), WithdrawReply::Done);
            assert_eq!(words.word(index).load(Ordering::Acquire), 3);
        }
    }

    #[test]
    fn abandoned_eviction_does_not_shorten_next_one() {
        let patience = Duration::from_secs(300);
        let (slots, clock) = slots(patience);
        let (held, words) = segment(&slots);
        words.word(0).store(VALID, Ordering::Release);
        slots.register(ShmSlot { segment: held.id, index: 0 }, &block(1)).unwrap().keep();
        words.word(0).store(VALID | ANCHORABLE | 1, Ordering::Release);
        assert_eq!(slots.withdraw(&block(1), WithdrawReason::Eviction), WithdrawReply::Later);
        clock.advance(patience + Duration::from_millis(1));
        // It is evicted when requests were repeated for the whole time.
        for _ in 0..3 {
            assert_eq!(slots.withdraw(&block(1), WithdrawReason::Eviction), WithdrawReply::Later);
            clock.advance(patience / 3);
        }
        assert_eq!(slots.withdraw(&block(1), WithdrawReason::Eviction), WithdrawReply::Done);
    }

    #[test]
    fn segments_are_limited_per_process_and_total() {
        let (slots, _) = slots(Duration::ZERO);
        let mut held: Vec<_> = (0..SEGMENTS_PER_PROCESS_MAX).map(|_| slots.create_segment(HERE).unwrap().0).collect();
        assert_eq!(slots.create_segment(HERE).err(), Some(SlotError::ProcessLimit));
        let another = PeerAddress::Process { pid: 8, uid: 1 };
        held.push(slots.create_segment(another).unwrap().0);
        held.remove(0);
        held.push(slots.create_segment(HERE).unwrap().0);
        for pid in 100.. {
            match slots.create_segment(PeerAddress::Process { pid, uid: 1 }) {
                Ok((segment, _)) => held.push(segment),
                Err(error) => {
                    assert_eq!((error, held.len()), (SlotError::Limit, SEGMENTS_MAX));
                    break;
                }
            }
        }
        drop(held);
        assert!(slots.state.lock().by_process.is_empty());
    }
}
