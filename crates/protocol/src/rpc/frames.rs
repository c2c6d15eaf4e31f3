//! Input buffer that grows and splits into frames, and output buffer that is written as fast as the socket accepts it.

use std::collections::VecDeque;
use std::io;

use bytes::{Buf, Bytes, BytesMut};
use hearth_wire::rpc::{FRAME_LENGTH_BYTES, FrameTooLong, frame_length};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;

/// Bytes read at a time, and kept allocated between frames. A larger frame grows the buffer only as its bytes arrive.
const READ_BYTES: usize = 16 * 1024;

/// If less room than this is left, a new buffer is allocated.
const READ_BYTES_MIN: usize = 1024;

/// A frame longer than this is received into its own memory.
pub(super) const LONG_FRAME_BYTES: usize = 32 * 1024;

/// Output shorter than this is copied together, so that many small responses leave in one segment.
const COALESCE_BYTES: usize = 8 * 1024;

#[derive(Default)]
pub(super) struct FrameReader {
    buffer: BytesMut,
}

impl FrameReader {
    /// Waits until the socket is readable, then reads. Returns `Ok(0)` at the end of the stream. Cancel safe.
    pub async fn read_from(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        // Many small frames have used up one buffer. The capacity at most doubles: an announced length alone allocates
        // nothing.
        if self.buffer.capacity() - self.buffer.len() < READ_BYTES_MIN {
            self.buffer.reserve(READ_BYTES.max(self.buffer.len().min(1 << 20)));
        }
        stream.read_buf(&mut self.buffer).await
    }

    /// Takes the first `N` bytes once they have arrived.
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.buffer.get(..N)?.try_into().ok()?;
        self.buffer.advance(N);
        Some(bytes)
    }

    /// Takes the next frame (without its length) once it is complete. `limit`: maximum length of an accepted frame in
    /// bytes.
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
            // The remaining bytes share the frame's memory, and would keep it alive for as long as the connection
            // lives.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        Ok(Some(frame))
    }

    /// Length of the incoming frame, including its length prefix; `None` while it is unknown.
    pub fn awaited_bytes(&self) -> Option<usize> {
        let prefix = self.buffer.get(..FRAME_LENGTH_BYTES)?.try_into().ok()?;
        Some(FRAME_LENGTH_BYTES + frame_length(prefix, usize::MAX).ok()?)
    }

    /// Makes room for a frame of `bytes`, and for the read attempt behind it.
    pub fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve(bytes.saturating_sub(self.buffer.len()) + READ_BYTES_MIN);
    }

    /// Returns true if a frame has partly arrived.
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

    /// Number of bytes not yet accepted by the socket.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Writes until the socket is full or nothing is left. Returns the number of bytes written.
    pub fn write_to(&mut self, stream: &TcpStream) -> io::Result<usize> {
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
