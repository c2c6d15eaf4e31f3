//! A growing input buffer that is cut into frames, and an output buffer that is written as the socket takes it.

use std::collections::VecDeque;
use std::io;

use bytes::{Buf, Bytes, BytesMut};
use hearth_wire::rpc::{FRAME_LENGTH_BYTES, FrameTooLong, frame_length};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::tcp::WriteHalf;

/// Read at a time, and kept between frames. A larger frame grows the buffer only as its bytes arrive.
const READ_BYTES: usize = 16 * 1024;

/// With less room than this a new buffer is taken.
const READ_BYTES_MIN: usize = 1024;

/// A longer frame is received into memory of its own.
pub(super) const LONG_FRAME_BYTES: usize = 32 * 1024;

/// Output below this is copied together so that many small answers leave in one segment.
const COALESCE_BYTES: usize = 8 * 1024;

#[derive(Default)]
pub(super) struct FrameReader {
    buffer: BytesMut,
}

impl FrameReader {
    /// Waits until the socket has something and reads that. `Ok(0)` at the end of the stream. May be dropped and called again.
    pub async fn read_from(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        // The room of one buffer is used up by many small frames. No more than doubles: an announced length alone
        // allocates nothing.
        if self.buffer.capacity() - self.buffer.len() < READ_BYTES_MIN {
            self.buffer.reserve(READ_BYTES.max(self.buffer.len().min(1 << 20)));
        }
        stream.read_buf(&mut self.buffer).await
    }

    /// Cuts the first `N` bytes off, once they are there.
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.buffer.get(..N)?.try_into().ok()?;
        self.buffer.advance(N);
        Some(bytes)
    }

    /// Cuts the next frame off (without its length), once it is whole. `limit`: bytes of the longest frame accepted.
    pub fn next_frame(&mut self, limit: usize) -> Result<Option<Bytes>, FrameTooLong> {
        let Some(prefix) = self.buffer.get(..FRAME_LENGTH_BYTES) else { return Ok(None) };
        let prefix: [u8; FRAME_LENGTH_BYTES] = prefix.try_into().expect("the slice has this length");
        let length = frame_length(prefix, limit)?;
        if self.buffer.len() < FRAME_LENGTH_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(FRAME_LENGTH_BYTES);
        let frame = self.buffer.split_to(length).freeze();
        if length > LONG_FRAME_BYTES {
            // What follows shares the frame's memory, and would keep it for as long as the connection lives.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        Ok(Some(frame))
    }

    /// Bytes of the frame that has begun to come, with its length; `None` while that is not known.
    pub fn awaited_bytes(&self) -> Option<usize> {
        let prefix = self.buffer.get(..FRAME_LENGTH_BYTES)?.try_into().ok()?;
        Some(FRAME_LENGTH_BYTES + frame_length(prefix, usize::MAX).ok()?)
    }

    /// Makes room for a frame of `bytes`, and for the attempt to read behind it.
    pub fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve(bytes.saturating_sub(self.buffer.len()) + READ_BYTES_MIN);
    }

    /// Whether a part of something has arrived and its rest is awaited.
    pub fn is_mid_frame(&self) -> bool {
        !self.buffer.is_empty()
    }
}

#[derive(Default)]
pub(super) struct FrameWriter {
    queue: VecDeque<Bytes>,
    small: BytesMut,
    bytes: usize,
}

impl FrameWriter {
    pub fn push(&mut self, frame: Bytes) {
        self.bytes += frame.len();
        if frame.len() < COALESCE_BYTES && self.small.len() < COALESCE_BYTES {
            self.small.extend_from_slice(&frame);
        } else {
            self.close_small();
            self.queue.push_back(frame);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes not yet taken by the socket.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Writes until the socket is full or nothing is left. Returns the bytes written.
    pub fn write_to(&mut self, stream: &WriteHalf<'_>) -> io::Result<usize> {
        self.close_small();
        let mut written = 0;
        while let Some(front) = self.queue.front_mut() {
            match stream.try_write(front) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    front.advance(count);
                    self.bytes -= count;
                    written += count;
                    if front.is_empty() {
                        self.queue.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    fn close_small(&mut self) {
        if !self.small.is_empty() {
            self.queue.push_back(self.small.split().freeze());
        }
    }
}
