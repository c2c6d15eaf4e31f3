//! Reusable buffer between a socket and a parser: one recv returns many small messages, or much of a large one.

use std::sync::Arc;
use std::time::Duration;

use super::{Connection, Error, Party};
use crate::message_memory::{Claim, MessageMemory};

/// The buffer grows in one step up to this size. Beyond it, the buffer doubles, and only when it is full: bytes that a
/// peer only announces take no memory.
const GROWN_AT_ONCE: usize = 1 << 20;

/// The same limit for a buffer without a claim, whose peer may be unknown.
const GROWN_AT_ONCE_UNCLAIMED: usize = 64 << 10;

/// Longest buffer without a claim on [`MessageMemory`]. A packet of Hearth's own writer fits: 256 KiB of data with
/// CRCs. A datanode holds a packet while the next datanode waits for memory, so packets of the usual size must not need
/// a claim.
pub const UNCLAIMED_BYTES: usize = 288 << 10;

/// Bytes received and not yet consumed, in contiguous memory.
///
/// Grows to the largest requested message as its bytes arrive, but never beyond `limit`. With
/// [`ReceiveBuffer::sharing`], the part beyond [`UNCLAIMED_BYTES`] is claimed from memory that all connections of a
/// server share.
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
    /// Creates a buffer. `bytes`: initial size, and so the most that one system call fetches. `limit`: maximum size to
    /// which a single message may grow it.
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

    /// Takes out the content together with its memory, for another owner to read. Until the caller puts it back in
    /// place of this one, this buffer is empty and has no memory.
    pub fn take(&mut self) -> Self {
        let (limit, shared) = (self.limit, self.shared.clone());
        std::mem::replace(self, Self { memory: Vec::new(), start: 0, end: 0, limit, shared, claim: None })
    }

    /// Returns the bytes that were received and not consumed.
    pub fn available(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Like `available`, for a caller that corrects bytes in place.
    pub fn available_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.end]
    }

    /// Size of its memory in bytes.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Returns true if the last call filled it to the end, so that more may be available than it holds.
    pub fn is_full(&self) -> bool {
        self.end == self.memory.len()
    }

    /// Allows one call to fetch more: up to `bytes`, never beyond the limit, and not while memory for long messages is
    /// short. Never shrinks the buffer.
    pub fn grow_to(&mut self, bytes: usize) {
        let bytes = bytes.min(self.limit);
        if bytes > self.memory.len() && self.may_have(bytes) {
            self.memory.resize(bytes, 0);
        }
    }

    /// Discards the first `bytes`.
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start, "consuming more than was received");
        self.start += bytes;
        if self.start == self.end {
            // Restart at the front, whose memory is warm in the cache.
            self.start = 0;
            self.end = 0;
        }
    }

    /// Receives until at least `bytes` are available. `timeout` bounds each wait.
    ///
    /// Errors: `Closed` if the peer closes before that, `TooLong` if `bytes` is beyond the limit.
    pub async fn fill_to(&mut self, connection: &Connection, bytes: usize, timeout: Duration) -> Result<(), Error> {
        self.fill(connection, bytes, None, timeout).await
    }

    /// Receives until at least `bytes` are available, and at most `most`, if given.
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

    /// Claims memory for a total of `bytes`, if a claim is needed, and waits for it.
    ///
    /// Errors: `TooLong` if `bytes` is beyond the limit, `NoMemory` if none is granted within `timeout`.
    async fn claim(&mut self, connection: &Connection, bytes: usize, timeout: Duration) -> Result<(), Error> {
        let Some((memory, party)) = &self.shared else { return Ok(()) };
        if bytes > self.limit {
            return Err(Error::TooLong { peer: connection.peer(), wanted: bytes, limit: self.limit });
        }
        if bytes <= self.claimed() {
            if bytes <= UNCLAIMED_BYTES && memory.is_short() {
                // Between two long messages: other connections need the memory.
                self.release();
            } else if let Some(claim) = &self.claim {
                claim.again();
            }
            return Ok(());
        }
        let mut claim = memory.claim(*party, bytes.next_multiple_of(UNCLAIMED_BYTES));
        // One message at a time: this claim may need the memory of the last message.
        self.release();
        if tokio::time::timeout(timeout, claim.granted()).await.is_err() {
            return Err(Error::NoMemory { peer: connection.peer(), wanted: bytes });
        }
        claim.received(self.end - self.start);
        self.claim = Some(claim);
        Ok(())
    }

    /// Releases claimed memory that holds no data, because no long message is expected next.
    pub fn release(&mut self) {
        if self.claim.take().is_none() {
            return;
        }
        let kept = self.available().len();
        let mut memory = vec![0; kept.max(UNCLAIMED_BYTES)];
        memory[..kept].copy_from_slice(self.available());
        (self.memory, self.start, self.end) = (memory, 0, kept);
    }

    /// Handles a revoked claim. If the buffer holds no part of a message, it continues without the claim.
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

    /// Returns true if the buffer may grow to `bytes` without waiting for memory.
    fn may_have(&mut self, bytes: usize) -> bool {
        let Some((memory, party)) = &self.shared else { return true };
        if bytes <= self.claimed() {
            return true;
        }
        match memory.try_claim(*party, bytes.next_multiple_of(UNCLAIMED_BYTES)) {
            Some(claim) => {
                // Not revocable until a wait begins.
                claim.whole();
                self.claim = Some(claim);
                true
            }
            None => false,
        }
    }

    /// Like `fill_to`, but takes no byte beyond `bytes`, which costs one call for each piece. For messages that are
    /// followed by descriptors, which would be lost if their byte were received here.
    pub async fn fill_no_further(
        &mut self,
        connection: &Connection,
        bytes: usize,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.fill_within(connection, bytes, bytes, timeout).await
    }

    /// Receives until at least `bytes` are available, and at most `most`: the bytes after those are received elsewhere.
    ///
    /// Errors: those of [`Self::fill_to`].
    pub async fn fill_within(
        &mut self,
        connection: &Connection,
        bytes: usize,
        most: usize,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.fill(connection, bytes, Some(most), timeout).await
    }

    /// Receives once. Returns true if bytes arrived, false if the peer closed.
    pub async fn fill_some(&mut self, connection: &Connection, timeout: Duration) -> Result<bool, Error> {
        let wanted = self.end - self.start + 1;
        self.make_room(connection, wanted)?;
        let received = connection.read(&mut self.memory[self.end..], timeout).await?;
        self.end += received;
        Ok(received > 0)
    }

    /// Receives what is available without waiting, with room for a total of `bytes`, as far as the buffer grows in one
    /// step. Returns `None` if nothing is available, `Some(0)` if the peer closed.
    ///
    /// Errors: `TooLong` if `bytes` is beyond the limit.
    pub fn try_fill(&mut self, connection: &Connection, bytes: usize) -> Result<Option<usize>, Error> {
        self.make_room(connection, bytes.max(self.end - self.start + 1))?;
        let received = connection.try_read(&mut self.memory[self.end..])?;
        self.end += received.unwrap_or(0);
        Ok(received)
    }

    /// Returns memory for the next bytes, up to a total of `bytes` as far as the buffer grows in one step. For a caller
    /// that receives into several places with one call, and then calls [`Self::received`] with the number of bytes that
    /// arrived here.
    ///
    /// Errors: `TooLong` if `bytes` is beyond the limit.
    pub fn spare(&mut self, connection: &Connection, bytes: usize) -> Result<&mut [u8], Error> {
        self.make_room(connection, bytes)?;
        let end = self.memory.len().min(self.start + bytes).max(self.end);
        Ok(&mut self.memory[self.end..end])
    }

    /// Records that `bytes` bytes were written to the memory from [`Self::spare`].
    pub fn received(&mut self, bytes: usize) {
        assert!(bytes <= self.memory.len() - self.end, "more bytes received than the buffer has room for");
        self.end += bytes;
    }

    /// Records that `bytes` bytes were written to the memory from [`Self::spare`], and replace the last `gone` bytes
    /// that were available before.
    pub fn received_for(&mut self, gone: usize, bytes: usize) {
        assert!(gone <= self.end - self.start, "more bytes replaced than were available");
        let came = self.end..self.end + bytes;
        self.end -= gone;
        self.memory.copy_within(came, self.end);
        self.end += bytes;
    }

    /// Appends `bytes` that were received elsewhere.
    ///
    /// Errors: `TooLong` if that is beyond the limit.
    pub fn push(&mut self, connection: &Connection, bytes: &[u8]) -> Result<(), Error> {
        let all = self.end - self.start + bytes.len();
        self.make_room(connection, all)?;
        // These bytes have already arrived, so the buffer may grow by their length.
        self.grow_to(self.end + bytes.len());
        self.memory[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
        Ok(())
    }

    /// Makes room for a total of `bytes`, as far as the buffer grows in one step, and for at least one more byte while
    /// there are fewer.
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
    use hearth_testkit::until;

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
    async fn messages_wrap_and_too_long_are_refused() {
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
    async fn long_messages_share_a_memory_limit() {
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
            until("a claim", async || memory.claimed() > 0).await;
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
        assert!(other.is_granted());
        assert_eq!(second.capacity(), UNCLAIMED_BYTES);
        assert!(second.available() == [3; 1000]);
        assert!(second.try_fill(&to_serve, 400_000).unwrap().is_none());
        assert_eq!(second.capacity(), UNCLAIMED_BYTES, "memory is short, so none may be claimed");
    }

    #[tokio::test]
    async fn memory_is_released_between_long_messages() {
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
            // Waits for the next message while another connection needs memory.
            buffer.fill_to(&server, 1, WAIT).await.unwrap();
            assert_eq!((buffer.available(), buffer.capacity()), (&[7][..], UNCLAIMED_BYTES));
        };
        let other = async {
            // Time for the first connection to begin its wait, which nothing shows.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let mut claim = memory.claim(Party::User(1), LONG);
            assert!(!claim.is_granted());
            tokio::time::timeout(WAIT, claim.granted()).await.expect("memory is released");
            client.write_all(&[7], WAIT).await.unwrap();
        };
        tokio::join!(next, other);
    }

    #[tokio::test]
    async fn announced_bytes_take_no_memory() {
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

            // Bytes that do arrive have room, also from the middle of the buffer on.
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
