//! A reused buffer between a socket and a parser: one recv brings many small messages, or much of a large one.

use std::sync::Arc;
use std::time::Duration;

use super::{Connection, Error, Party};
use crate::message_memory::{Claim, MessageMemory};

/// Up to so many bytes the buffer grows at once; from there on it doubles, and only when it is full: what a peer only announces
/// takes no memory.
const GROWN_AT_ONCE: usize = 1 << 20;

/// The same of a buffer that has claimed nothing, and of the peer of which little may be known.
const GROWN_AT_ONCE_UNCLAIMED: usize = 64 << 10;

/// Longest buffer without a claim on [`MessageMemory`]. A packet of Hearth's own writer fits: 256 KiB of data with CRCs. A datanode holds a
/// packet while the next datanode waits for memory, so packets of the usual size must not need a claim.
pub const UNCLAIMED_BYTES: usize = 288 << 10;

/// Bytes received and not yet consumed, in one piece of memory.
///
/// Grows to the largest message that was asked for, as that comes, and never beyond `limit`. With [`ReceiveBuffer::sharing`], what it has
/// beyond [`UNCLAIMED_BYTES`] is claimed from memory that all connections of a server share.
#[derive(Debug)]
pub struct ReceiveBuffer {
    memory: Vec<u8>,
    start: usize,
    end: usize,
    limit: usize,
    shared: Option<(Arc<MessageMemory>, Party)>,
    claim: Option<Claim>,
}

impl ReceiveBuffer {
    /// `bytes`: size at first, and so what one system call fetches at most. `limit`: bytes that a single message may
    /// make it grow to.
    pub fn new(bytes: usize, limit: usize) -> Self {
        assert!(bytes > 0 && bytes <= limit, "a receive buffer of {bytes} bytes with limit {limit}");
        Self { memory: vec![0; bytes], start: 0, end: 0, limit, shared: None, claim: None }
    }

    /// Claims memory for long messages of `party` from `memory`.
    #[must_use]
    pub fn sharing(mut self, memory: Arc<MessageMemory>, party: Party) -> Self {
        self.shared = Some((memory, party));
        self
    }

    /// All that is in it, and its memory, for somebody else to read; it comes back by being put in the place of this one, which holds
    /// nothing until then.
    pub fn take(&mut self) -> Self {
        let (limit, shared) = (self.limit, self.shared.clone());
        std::mem::replace(self, Self { memory: Vec::new(), start: 0, end: 0, limit, shared, claim: None })
    }

    /// What has been received and not consumed.
    pub fn available(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// The same, for a caller that corrects bytes in place.
    pub fn available_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.end]
    }

    /// Bytes of memory.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Whether the last call filled it to its end: there may be more to fetch than it holds.
    pub fn is_full(&self) -> bool {
        self.end == self.memory.len()
    }

    /// Lets one call fetch more: up to `bytes`, never beyond the limit, and not while memory for long messages is short. Does not shrink.
    pub fn grow_to(&mut self, bytes: usize) {
        let bytes = bytes.min(self.limit);
        if bytes > self.memory.len() && self.may_have(bytes) {
            self.memory.resize(bytes, 0);
        }
    }

    /// Forgets the first `bytes`.
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start, "consuming more than was received");
        self.start += bytes;
        if self.start == self.end {
            // Start over at the front: the memory that is warm in the cache.
            self.start = 0;
            self.end = 0;
        }
    }

    /// Receives until at least `bytes` are available. Each wait is bounded by `timeout`.
    ///
    /// Errors: `Closed` when the peer ends before that, `TooLong` when `bytes` is beyond the limit.
    pub async fn fill_to(&mut self, connection: &Connection, bytes: usize, timeout: Duration) -> Result<(), Error> {
        self.fill(connection, bytes, None, timeout).await
    }

    /// Receives until at least `bytes` are available, and no further than `most`, if that is given.
    async fn fill(
        &mut self,
        connection: &Connection,
        bytes: usize,
        most: Option<usize>,
        timeout: Duration,
    ) -> Result<(), Error> {
        if self.end - self.start >= bytes {
            return Ok(());
        }
        self.claim(connection, bytes, timeout).await?;
        while self.end - self.start < bytes {
            self.make_room(connection, most.unwrap_or(bytes))?;
            let end = most.map_or(self.memory.len(), |most| self.memory.len().min(self.start + most).max(self.end));
            let into = &mut self.memory[self.end..end];
            let received = match &mut self.claim {
                None => connection.read(into, timeout).await?,
                Some(claim) => tokio::select! {
                    biased;
                    received = connection.read(into, timeout) => {
                        let received = received?;
                        claim.received(received);
                        received
                    }
                    () = claim.revoked() => {
                        self.give_up_claim(connection, bytes)?;
                        continue;
                    }
                },
            };
            match received {
                0 => return Err(Error::Closed { peer: connection.peer() }),
                received => self.end += received,
            }
        }
        if let Some(claim) = &self.claim {
            claim.whole();
        }
        Ok(())
    }

    /// Claims memory for `bytes` in all, if they are many, and waits for it.
    ///
    /// Errors: `TooLong` when `bytes` is beyond the limit, `NoMemory` when none is granted within `timeout`.
    async fn claim(&mut self, connection: &Connection, bytes: usize, timeout: Duration) -> Result<(), Error> {
        let Some((memory, party)) = &self.shared else { return Ok(()) };
        if bytes > self.limit {
            return Err(Error::TooLong { peer: connection.peer(), wanted: bytes, limit: self.limit });
        }
        if bytes <= self.claimed() {
            if bytes <= UNCLAIMED_BYTES && memory.is_short() {
                // Between two long messages: others need the memory.
                self.release();
            } else if let Some(claim) = &self.claim {
                claim.again();
            }
            return Ok(());
        }
        let mut claim = memory.claim(*party, bytes.next_multiple_of(UNCLAIMED_BYTES));
        // One message at a time: what the last one had may be what this one waits for.
        self.release();
        if tokio::time::timeout(timeout, claim.granted()).await.is_err() {
            return Err(Error::NoMemory { peer: connection.peer(), wanted: bytes });
        }
        claim.received(self.end - self.start);
        self.claim = Some(claim);
        Ok(())
    }

    /// Gives back memory that is claimed, as far as nothing is in it: no long message is expected here next.
    pub fn release(&mut self) {
        if self.claim.take().is_none() {
            return;
        }
        let kept = self.available().len();
        let mut memory = vec![0; kept.max(UNCLAIMED_BYTES)];
        memory[..kept].copy_from_slice(self.available());
        (self.memory, self.start, self.end) = (memory, 0, kept);
    }

    /// The claim was revoked. Without a part of a message in it the buffer goes on without.
    fn give_up_claim(&mut self, connection: &Connection, wanted: usize) -> Result<(), Error> {
        if wanted > UNCLAIMED_BYTES || self.end - self.start > UNCLAIMED_BYTES {
            return Err(Error::NoMemory { peer: connection.peer(), wanted });
        }
        self.release();
        Ok(())
    }

    /// Bytes that the buffer may have.
    fn claimed(&self) -> usize {
        self.claim.as_ref().map_or(0, Claim::bytes).max(UNCLAIMED_BYTES)
    }

    /// Whether the buffer may grow to `bytes` without waiting for memory.
    fn may_have(&mut self, bytes: usize) -> bool {
        let Some((memory, party)) = &self.shared else { return true };
        if bytes <= self.claimed() {
            return true;
        }
        match memory.try_claim(*party, bytes.next_multiple_of(UNCLAIMED_BYTES)) {
            Some(claim) => {
                // Until something is waited for.
                claim.whole();
                self.claim = Some(claim);
                true
            }
            None => false,
        }
    }

    /// The same without taking a byte beyond them, which costs a call for each piece: for messages behind which descriptors
    /// come, that are lost when their byte is received here.
    pub async fn fill_no_further(
        &mut self,
        connection: &Connection,
        bytes: usize,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.fill_within(connection, bytes, bytes, timeout).await
    }

    /// Receives until at least `bytes` are available, and no more than `most`: behind those comes what is to be received elsewhere.
    ///
    /// Errors: as those of [`Self::fill_to`].
    pub async fn fill_within(
        &mut self,
        connection: &Connection,
        bytes: usize,
        most: usize,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.fill(connection, bytes, Some(most), timeout).await
    }

    /// Receives once: true when bytes came, false when the peer closed.
    pub async fn fill_some(&mut self, connection: &Connection, timeout: Duration) -> Result<bool, Error> {
        let wanted = self.end - self.start + 1;
        self.make_room(connection, wanted)?;
        let received = connection.read(&mut self.memory[self.end..], timeout).await?;
        self.end += received;
        Ok(received > 0)
    }

    /// Takes what is there without waiting, with room for `bytes` in all, as far as it grows at once. `None` when nothing is there,
    /// `Some(0)` when the peer closed.
    ///
    /// Errors: `TooLong` when `bytes` is beyond the limit.
    pub fn try_fill(&mut self, connection: &Connection, bytes: usize) -> Result<Option<usize>, Error> {
        self.make_room(connection, bytes.max(self.end - self.start + 1))?;
        let received = connection.try_read(&mut self.memory[self.end..])?;
        self.end += received.unwrap_or(0);
        Ok(received)
    }

    /// Memory for what comes next, up to `bytes` in all as far as it grows at once: for a caller that receives more than this with one call,
    /// and says then with [`Self::received`] how many bytes came here.
    ///
    /// Errors: `TooLong` when `bytes` is beyond the limit.
    pub fn spare(&mut self, connection: &Connection, bytes: usize) -> Result<&mut [u8], Error> {
        self.make_room(connection, bytes)?;
        let end = self.memory.len().min(self.start + bytes).max(self.end);
        Ok(&mut self.memory[self.end..end])
    }

    /// So many bytes have come into the memory that [`Self::spare`] gave.
    pub fn received(&mut self, bytes: usize) {
        assert!(bytes <= self.memory.len() - self.end, "more received than there was memory for");
        self.end += bytes;
    }

    /// So many bytes have come into the memory that [`Self::spare`] gave, and take the place of the last `gone` that were there.
    pub fn received_for(&mut self, gone: usize, bytes: usize) {
        assert!(gone <= self.end - self.start, "more is gone than was received");
        let came = self.end..self.end + bytes;
        self.end -= gone;
        self.memory.copy_within(came, self.end);
        self.end += bytes;
    }

    /// Puts `bytes`, which were received elsewhere, behind what is there.
    ///
    /// Errors: `TooLong` when that is beyond the limit.
    pub fn push(&mut self, connection: &Connection, bytes: &[u8]) -> Result<(), Error> {
        let all = self.end - self.start + bytes.len();
        self.make_room(connection, all)?;
        // They have come: it may grow by as much.
        self.grow_to(self.end + bytes.len());
        self.memory[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
        Ok(())
    }

    /// Room for `bytes` in all, as far as it grows at once, and for one more byte at least while there are fewer.
    fn make_room(&mut self, connection: &Connection, bytes: usize) -> Result<(), Error> {
        if bytes > self.limit {
            return Err(Error::TooLong { peer: connection.peer(), wanted: bytes, limit: self.limit });
        }
        if self.start + bytes > self.memory.len() {
            if self.start > 0 {
                self.memory.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            let most = if self.is_full() { 2 * self.memory.len() } else { self.memory.len() };
            let is_unclaimed = self.shared.is_some() && self.claim.is_none();
            let at_once = if is_unclaimed { GROWN_AT_ONCE_UNCLAIMED } else { GROWN_AT_ONCE };
            let mut size = bytes.min(most.max(at_once));
            if size > self.memory.len() && !self.may_have(size) {
                size = size.min(self.claimed());
                if size.max(self.memory.len()) <= self.end {
                    return Err(Error::NoMemory { peer: connection.peer(), wanted: bytes });
                }
            }
            if size > self.memory.len() {
                self.memory.resize(size, 0);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message_memory::SlowPeerLimits;
    use crate::tcp::{Listener, SocketOptions, connect};

    const WAIT: Duration = Duration::from_secs(60);

    async fn pair() -> (Connection, Connection) {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default(), 16).unwrap();
        let (client, server) =
            tokio::join!(connect(listener.address(), None, SocketOptions::default(), WAIT), listener.accept());
        (client.unwrap(), server.unwrap())
    }

    #[tokio::test]
    async fn messages_cross_the_buffers_end_and_too_long_ones_are_refused() {
        let (client, server) = pair().await;
        let data: Vec<u8> = (0..100_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
        let send = async { client.write_all(&data, WAIT).await.unwrap() };
        let receive = async {
            let mut buffer = ReceiveBuffer::new(1000, 5000);
            let mut at = 0;
            for length in [1usize, 999, 1000, 1001, 37, 4999, 5000].iter().cycle().take(40) {
                let length = (*length).min(data.len() - at);
                buffer.fill_to(&server, length, WAIT).await.unwrap();
                assert!(buffer.available()[..length] == data[at..at + length]);
                buffer.consume(length);
                at += length;
            }
            let error = buffer.fill_to(&server, 5001, WAIT).await.unwrap_err();
            assert!(matches!(error, Error::TooLong { wanted: 5001, limit: 5000, .. }), "{error}");
        };
        tokio::join!(send, receive);
    }

    fn shared(limit: u64) -> Arc<MessageMemory> {
        MessageMemory::new(limit, SlowPeerLimits { idle_max: Duration::from_millis(200), ..SlowPeerLimits::default() })
    }

    fn sharing(memory: &Arc<MessageMemory>, connection: &Connection) -> ReceiveBuffer {
        ReceiveBuffer::new(1000, 16 << 20).sharing(memory.clone(), connection.peer().party())
    }

    #[tokio::test]
    async fn long_messages_of_all_connections_share_memory() {
        const LONG: usize = 3 << 20;
        let memory = shared(LONG as u64);
        let (stalling, to_stall) = pair().await;
        let (honest, to_serve) = pair().await;
        let (mut first, mut second) = (sharing(&memory, &to_stall), sharing(&memory, &to_serve));
        stalling.write_all(&[1; 2000], WAIT).await.unwrap();
        first.fill_to(&to_stall, 2000, WAIT).await.unwrap();
        let brief = Duration::from_millis(50);
        first.fill_to(&to_stall, UNCLAIMED_BYTES, brief).await.unwrap_err();
        assert!(first.capacity() <= GROWN_AT_ONCE_UNCLAIMED, "{}", first.capacity());
        assert_eq!(memory.claimed(), 0, "short messages need no claim");
        stalling.write_all(&[1; 500_000], WAIT).await.unwrap();
        let hostile = async {
            let error = first.fill_to(&to_stall, LONG, WAIT).await.unwrap_err();
            assert!(matches!(error, Error::NoMemory { .. }), "{error}");
            drop(first);
        };
        let serve = async {
            until(|| memory.claimed() > 0).await;
            second.fill_to(&to_serve, LONG, WAIT).await.unwrap();
            assert!(second.available() == [2; LONG]);
        };
        let send = async { honest.write_all(&[2; LONG], WAIT).await.unwrap() };
        tokio::join!(hostile, serve, send);
        assert_eq!(memory.claimed(), LONG as u64);
        // The next message is short, and another connection waits.
        second.consume(LONG);
        let other = memory.claim(Party::User(1), LONG);
        assert!(!other.is_granted());
        honest.write_all(&[3; 1000], WAIT).await.unwrap();
        second.fill_to(&to_serve, 1000, WAIT).await.unwrap();
        assert!(other.is_granted() && second.capacity() == UNCLAIMED_BYTES && second.available() == [3; 1000]);
        assert!(second.try_fill(&to_serve, 400_000).unwrap().is_none());
        assert_eq!(second.capacity(), UNCLAIMED_BYTES, "what cannot wait takes no memory while it is short");
    }

    #[tokio::test]
    async fn connections_between_two_long_messages_give_memory_back_and_go_on() {
        const LONG: usize = 3 << 20;
        let memory = shared(LONG as u64);
        let (client, server) = pair().await;
        let mut buffer = sharing(&memory, &server);
        let receive = buffer.fill_to(&server, LONG, WAIT);
        let (sent, received) = tokio::join!(client.write_all(&[1; LONG], WAIT), receive);
        sent.unwrap();
        received.unwrap();
        buffer.consume(LONG);
        let next = async {
            // Waits for the next message when another connection needs memory.
            buffer.fill_to(&server, 1, WAIT).await.unwrap();
            assert_eq!((buffer.available(), buffer.capacity()), (&[7][..], UNCLAIMED_BYTES));
        };
        let other = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let mut claim = memory.claim(Party::User(1), LONG);
            assert!(!claim.is_granted());
            tokio::time::timeout(WAIT, claim.granted()).await.expect("memory comes back");
            client.write_all(&[7], WAIT).await.unwrap();
        };
        tokio::join!(next, other);
    }

    async fn until(mut is_so: impl FnMut() -> bool) {
        let waiting = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(WAIT, waiting).await.expect("it is so in time");
    }

    #[tokio::test]
    async fn what_is_only_announced_takes_no_memory() {
        let (client, server) = pair().await;
        let data: Vec<u8> = (0..5_000_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
        let brief = Duration::from_millis(100);
        for no_further in [false, true] {
            let mut buffer = ReceiveBuffer::new(1000, 1 << 30);
            client.write_all(&data[..3000], WAIT).await.unwrap();
            server.readable(WAIT).await.unwrap();
            let error = if no_further {
                buffer.fill_no_further(&server, 1 << 30, brief).await.unwrap_err()
            } else {
                buffer.fill_to(&server, 1 << 30, brief).await.unwrap_err()
            };
            assert!(matches!(error, Error::ReadTimedOut { .. }), "{error}");
            assert!(buffer.capacity() <= GROWN_AT_ONCE, "{}", buffer.capacity());
            assert!(buffer.available() == &data[..3000]);

            // What does come has room, from the middle of the buffer on, too.
            buffer.consume(1000);
            let (sent, wanted) = tokio::join!(client.write_all(&data[3000..], WAIT), async {
                if no_further {
                    buffer.fill_no_further(&server, data.len() - 1000, WAIT).await
                } else {
                    buffer.fill_to(&server, data.len() - 1000, WAIT).await
                }
            });
            sent.unwrap();
            wanted.unwrap();
            assert!(buffer.available() == &data[1000..]);
            assert!(buffer.capacity() < 2 * data.len(), "{}", buffer.capacity());
        }
    }
}
