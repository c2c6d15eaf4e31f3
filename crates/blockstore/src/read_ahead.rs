//! Reads of whole replicas on disk, to send them to another node. They bypass the page cache, where they would evict
//! pages that are read repeatedly, and use large pieces, each read by a blocking thread.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use hearth_types::ByteRange;

use crate::mmap::aligned_buffer::AlignedBuffer;
use crate::reader::ReplicaReader;
use crate::snapshot::Source;
use crate::sys::{self, PAGE};

/// Bytes of a piece. A sender has two: one is sent while the other is read.
const PIECE_BYTES: u64 = 512 << 10;

/// Iterator over the pieces of a replica, from its first byte to its last.
pub struct Pieces {
    data: Arc<File>,
    length: u64,
    step: u64,
    at: u64,
}

/// A piece to be read with [`PendingRead::read`], on a thread that may wait for the disk.
pub struct PendingRead {
    data: Arc<File>,
    range: ByteRange,
    buffer: Option<AlignedBuffer>,
}

/// A piece in memory.
pub struct CompletedRead {
    range: ByteRange,
    buffer: AlignedBuffer,
}

impl ReplicaReader {
    /// Splits the replica into pieces of whole packets of `packet` bytes. `None`: it is in memory, it is shorter than a
    /// piece, or its disk does not support such reads.
    pub fn pieces(&self, packet: u64) -> Option<Pieces> {
        let Source::Disk(files) = &self.snapshot.source else { return None };
        if packet == 0 || packet > PIECE_BYTES || !packet.is_multiple_of(PAGE) || self.length() < PIECE_BYTES {
            return None;
        }
        let data = sys::reopen_direct(&files.data).ok()?;
        Some(Pieces { data: Arc::new(data), length: self.length(), step: PIECE_BYTES / packet * packet, at: 0 })
    }
}

impl Pieces {
    /// Returns the next piece, to be read into the buffer of a piece that is no longer needed. `None`: there are no
    /// more pieces.
    pub fn next(&mut self, used: Option<CompletedRead>) -> Option<PendingRead> {
        let range = ByteRange::new(self.at, self.length.min(self.at + self.step)).filter(|range| !range.is_empty())?;
        self.at = range.end();
        Some(PendingRead { data: self.data.clone(), range, buffer: used.map(|piece| piece.buffer) })
    }
}

impl PendingRead {
    /// Reads the piece. Waits for the disk.
    ///
    /// Errors: `UnexpectedEof` when the file has become shorter.
    pub fn read(self) -> io::Result<CompletedRead> {
        let Self { data, range, buffer } = self;
        let wanted = sys::pages(range.length()) as usize;
        let mut buffer = match buffer {
            Some(buffer) if buffer.len() >= wanted => buffer,
            _ => AlignedBuffer::new(PIECE_BYTES.max(range.length()) as usize)?,
        };
        let mut read = 0;
        while (read as u64) < range.length() {
            // Direct I/O begins and ends on pages; only the file's end lies within one.
            match data.read_at(&mut buffer[read..wanted], range.start() + read as u64) {
                Ok(bytes) if (read + bytes) as u64 >= range.length() => break,
                Ok(bytes) if bytes as u64 >= PAGE => read += bytes / PAGE as usize * PAGE as usize,
                Ok(_) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(CompletedRead { range, buffer })
    }
}

impl CompletedRead {
    /// Returns the `length` bytes from `offset` of the replica, if they are in this piece.
    pub fn bytes(&self, offset: u64, length: u64) -> Option<&[u8]> {
        let from = offset.checked_sub(self.range.start())?;
        (from + length <= self.range.length()).then(|| &self.buffer[from as usize..(from + length) as usize])
    }
}
