//! Slots: words of memory shared with a datanode, one for each replica of it that this client has open. The datanode
//! clears VALID when the replica is no longer what the client opened; the client counts its views in the same word.
//!
//! A segment of slots comes over a connection of its own, on which no more messages follow: its end shows that the
//! other side is gone. Source: `ShortCircuitShm` and `DfsClientShmManager` of Hadoop's client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hearth_fabric::local::SharedWords;
use hearth_fabric::stream::{self, Connection};
use hearth_wire::data_transfer::{ShmId, ShmSlot};
use parking_lot::Mutex;

use super::socket::DomainSocket;

/// Maximum number of slots: the bits of `taken`. A datanode's segment has no more.
pub(super) const SLOTS_MAX: usize = 128;

/// Set while the replica is what the client opened.
const VALID: u64 = 1 << 63;
/// Set if the datanode has verified the replica; it then keeps the replica in memory while the anchor count is not
/// zero.
const ANCHORABLE: u64 = 1 << 62;
/// The lower bits count the client's anchors.
const ANCHORS_MAX: u64 = (1 << 31) - 1;

/// Time-out of one wait on the connection.
const WATCH_INTERVAL: Duration = Duration::from_secs(3600);

/// Slots in memory that a datanode shares with this client.
#[derive(Debug)]
pub(super) struct Segment {
    id: ShmId,
    words: SharedWords,
    connection: Arc<Connection>,
    /// The datanode is gone, or has dropped the segment: none of its slots is valid.
    ended: AtomicBool,
    /// One bit for each slot that is in use, or that the datanode may not have released yet.
    taken: Mutex<u128>,
}

impl Segment {
    /// Starts to watch `connection`, over which the segment came. Needs a tokio runtime.
    pub(super) fn new(id: ShmId, words: SharedWords, connection: Arc<Connection>) -> Arc<Self> {
        let segment = Arc::new(Self { id, words, connection, ended: AtomicBool::new(false), taken: Mutex::new(0) });
        tokio::spawn(watch(SegmentWatch(Arc::clone(&segment))));
        segment
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Invalidates all slots. The datanode notices the end of the connection.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.connection.shutdown();
    }

    /// Takes a free slot and makes it valid, which the datanode requires before the slot is named in a request. Returns
    /// `None` if all are taken.
    pub(super) fn take(self: &Arc<Self>, socket: &Arc<DomainSocket>) -> Option<Slot> {
        if self.has_ended() {
            return None;
        }
        let mut taken = self.taken.lock();
        let index = (!*taken).trailing_zeros() as usize;
        if index >= self.words.slots() {
            return None;
        }
        *taken |= 1 << index;
        drop(taken);
        self.words.word(index).store(0, Ordering::Relaxed);
        self.words.word(index).store(VALID, Ordering::Release);
        Some(Slot { segment: Arc::clone(self), index, socket: Arc::clone(socket), registered: false })
    }

    /// Frees a slot that the datanode no longer knows. Returns true when no slot of the segment is taken.
    pub(super) fn give_back(&self, index: usize) -> bool {
        let mut taken = self.taken.lock();
        *taken &= !(1 << index);
        *taken == 0
    }

    pub(super) fn is_unused(&self) -> bool {
        *self.taken.lock() == 0
    }
}

/// Ends the segment on drop, when the watch ends: its connection has ended, or the runtime that would notice that.
struct SegmentWatch(Arc<Segment>);

impl Drop for SegmentWatch {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Waits until the segment's connection ends, or until a byte arrives on it, which violates the protocol.
async fn watch(segment_watch: SegmentWatch) {
    let SegmentWatch(segment) = &segment_watch;
    while !segment.has_ended() {
        match segment.connection.readable(WATCH_INTERVAL).await {
            Ok(()) => {}
            Err(stream::Error::ReadTimedOut { .. }) => continue,
            Err(_) => break,
        }
        // Read the byte: an unread byte would make the connection readable again and again.
        match segment.connection.try_read(&mut [0]) {
            Ok(None) => {}
            Ok(Some(1..)) => {
                let peer = segment.connection.peer();
                tracing::warn!(%peer, "unexpected byte on the connection of a slot segment, closing the segment");
                break;
            }
            Ok(Some(0)) | Err(_) => break,
        }
    }
}

/// One slot of a segment, for one open replica. On drop, it is released at the datanode soon.
#[derive(Debug)]
pub(super) struct Slot {
    segment: Arc<Segment>,
    index: usize,
    socket: Arc<DomainSocket>,
    /// The datanode keeps the slot until it is released.
    registered: bool,
}

impl Slot {
    /// Returns the name of the slot in the protocol.
    pub(super) fn name(&self) -> ShmSlot {
        ShmSlot { segment: self.segment.id, index: self.index as i32 }
    }

    /// Marks the slot as registered at the datanode. Until then, the datanode drops a slot whose request fails.
    pub(super) fn registered(&mut self) {
        self.registered = true;
    }

    /// Returns true if the replica is still what it was when it was opened.
    pub(super) fn is_valid(&self) -> bool {
        !self.segment.has_ended() && self.word().load(Ordering::Acquire) & VALID != 0
    }

    /// Counts one more reader that relies on the replica's memory without verifying its CRCs. Returns false if the
    /// datanode does not offer that, or no longer.
    pub(super) fn anchor(&self) -> bool {
        let offered = |word: u64| word & VALID != 0 && word & ANCHORABLE != 0 && word & ANCHORS_MAX < ANCHORS_MAX;
        !self.segment.has_ended()
            && self
                .word()
                .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| offered(word).then_some(word + 1))
                .is_ok()
    }

    /// Reverts one successful `anchor`.
    pub(super) fn release_anchor(&self) {
        let less = |word: u64| (word & ANCHORS_MAX > 0).then_some(word.wrapping_sub(1));
        // The word is shared, so the datanode may have overwritten the count.
        let _ = self.word().fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
    }

    fn word(&self) -> &AtomicU64 {
        self.segment.words.word(self.index)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let segment = Arc::clone(&self.segment);
        if self.registered && !segment.has_ended() {
            self.socket.release(segment, self.index, self.name());
        } else if segment.give_back(self.index) {
            self.socket.close_unused_segments();
        }
    }
}
