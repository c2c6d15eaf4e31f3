//! Slots: words of memory shared with a datanode, one for each replica that this client has open there. The datanode takes
//! VALID away when the replica is no longer what the client opened; the client counts its views in the same word.
//!
//! A segment of slots comes over a connection of its own, on which nothing more is said: its end says that the other side is
//! gone. Source: `ShortCircuitShm` and `DfsClientShmManager` of Hadoop's client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hearth_fabric::local::SharedWords;
use hearth_fabric::stream::{self, Connection};
use hearth_wire::data_transfer::{ShmId, ShmSlot};
use parking_lot::Mutex;

use super::socket::DomainSocket;

/// As many as there are bits that say which are taken; a datanode's segment has no more.
pub(super) const SLOTS_MAX: usize = 128;

/// The replica is what the client opened.
const VALID: u64 = 1 << 63;
/// The datanode has verified the replica and keeps it in memory while somebody counts himself in.
const ANCHORABLE: u64 = 1 << 62;
/// The lower bits count the client's anchors.
const ANCHORS_MAX: u64 = (1 << 31) - 1;

/// How long the connection is listened to at a time.
const WATCH_INTERVAL: Duration = Duration::from_secs(3600);

/// Slots in memory that a datanode shares with this client.
#[derive(Debug)]
pub(super) struct Segment {
    id: ShmId,
    words: SharedWords,
    connection: Arc<Connection>,
    /// The datanode is gone, or has forgotten the segment: none of its slots is valid.
    ended: AtomicBool,
    /// A bit for each slot that is in use or not yet known to be free at the datanode.
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

    /// None of its slots is valid from now on; the datanode hears it by the connection.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.connection.shutdown();
    }

    /// Takes a free slot and makes it valid, as the datanode wants it before it learns of it. `None`: all are taken.
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

    /// The datanode no longer knows the slot. True when no slot of the segment is taken any more.
    pub(super) fn give_back(&self, index: usize) -> bool {
        let mut taken = self.taken.lock();
        *taken &= !(1 << index);
        *taken == 0
    }

    pub(super) fn is_unused(&self) -> bool {
        *self.taken.lock() == 0
    }
}

/// A segment that ends when nobody watches it any more: its connection has ended, or the runtime that would notice that.
struct SegmentWatch(Arc<Segment>);

impl Drop for SegmentWatch {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Waits until the segment's connection ends, or until something is said on it: that breaks the protocol.
async fn watch(segment_watch: SegmentWatch) {
    let SegmentWatch(segment) = &segment_watch;
    while !segment.has_ended() {
        match segment.connection.readable(WATCH_INTERVAL).await {
            Ok(()) => {}
            Err(stream::Error::ReadTimedOut { .. }) => continue,
            Err(_) => break,
        }
        // Taken, for a byte that is left there makes the connection readable again and again.
        match segment.connection.try_read(&mut [0]) {
            Ok(None) => {}
            Ok(Some(1..)) => {
                let peer = segment.connection.peer();
                tracing::warn!(%peer, "the datanode does not keep to the protocol: its slots are given up");
                break;
            }
            Ok(Some(0)) | Err(_) => break,
        }
    }
}

/// One slot of a segment, for one open replica. Dropped, it is released at the datanode, soon.
#[derive(Debug)]
pub(super) struct Slot {
    segment: Arc<Segment>,
    index: usize,
    socket: Arc<DomainSocket>,
    /// The datanode keeps it until it is told otherwise.
    registered: bool,
}

impl Slot {
    /// What both sides call it.
    pub(super) fn name(&self) -> ShmSlot {
        ShmSlot { segment: self.segment.id, index: self.index as i32 }
    }

    /// The datanode is about to learn that the replica was opened; until then it forgets a slot whose request fails.
    pub(super) fn registered(&mut self) {
        self.registered = true;
    }

    /// Whether the replica is still what it was when it was opened.
    pub(super) fn is_valid(&self) -> bool {
        !self.segment.has_ended() && self.word().load(Ordering::Acquire) & VALID != 0
    }

    /// Counts one more reader who relies on the replica's memory without looking at its CRCs. False when the datanode does not
    /// offer that (any more).
    pub(super) fn anchor(&self) -> bool {
        let offered = |word: u64| word & VALID != 0 && word & ANCHORABLE != 0 && word & ANCHORS_MAX < ANCHORS_MAX;
        !self.segment.has_ended()
            && self
                .word()
                .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| offered(word).then_some(word + 1))
                .is_ok()
    }

    /// Takes back one `anchor` that succeeded.
    pub(super) fn release_anchor(&self) {
        let less = |word: u64| (word & ANCHORS_MAX > 0).then_some(word.wrapping_sub(1));
        // The datanode may have written over the count: it is not ours alone.
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
