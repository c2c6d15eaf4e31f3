//! A reused buffer between a socket and a parser: one recv brings many small messages, or much of a large one.

use std::time::Duration;

use super::{Connection, Error};

/// Up to so many bytes the buffer grows at once; from there on it doubles, and only when it is full: what a peer only announces
/// takes no memory.
const GROWN_AT_ONCE: usize = 1 << 20;

/// Bytes received and not yet consumed, in one piece of memory.
///
/// Grows to the largest message that was asked for, as that comes, and never beyond `limit`.
#[derive(Debug)]
pub struct ReceiveBuffer {
    memory: Vec<u8>,
    start: usize,
    end: usize,
    limit: usize,
}

impl ReceiveBuffer {
    /// `bytes`: size at first, and so what one system call fetches at most. `limit`: bytes that a single message may
    /// make it grow to.
    pub fn new(bytes: usize, limit: usize) -> Self {
        assert!(bytes > 0 && bytes <= limit, "a receive buffer of {bytes} bytes with limit {limit}");
        Self { memory: vec![0; bytes], start: 0, end: 0, limit }
    }

    /// All that is in it, and its memory, for somebody else to read; it comes back by being put in the place of this one, which holds
    /// nothing until then.
    pub fn take(&mut self) -> Self {
        let limit = self.limit;
        std::mem::replace(self, Self { memory: Vec::new(), start: 0, end: 0, limit })
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

    /// Lets one call fetch more: up to `bytes`, never beyond the limit. Does not shrink.
    pub fn grow_to(&mut self, bytes: usize) {
        let bytes = bytes.min(self.limit);
        if bytes > self.memory.len() {
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
        while self.end - self.start < bytes {
            self.make_room(connection, bytes)?;
            match connection.read(&mut self.memory[self.end..], timeout).await? {
                0 => return Err(Error::Closed { peer: connection.peer() }),
                received => self.end += received,
            }
        }
        Ok(())
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
        while self.end - self.start < bytes {
            match connection.read(self.spare(connection, most)?, timeout).await? {
                0 => return Err(Error::Closed { peer: connection.peer() }),
                received => self.received(received),
            }
        }
        Ok(())
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
            let size = bytes.min(most.max(GROWN_AT_ONCE));
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
