//! A copy that is written to disk from its first byte to its last and not read before its end. It is written around the
//! page cache, in large pieces. A caller that must not wait can pass full pieces to other threads to write.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use hearth_types::{BlockId, ChecksumSpec, GenerationStamp};

use super::copy::DiskWriter;
use super::layout::{PoolDirs, ReplicaDir};
use crate::mmap::aligned_buffer::AlignedBuffer;
use crate::sys;

/// Bytes of a piece. A copy has at most two: one fills while the other is written.
const PIECE_BYTES: usize = 512 << 10;
/// Maximum room for CRCs that is allocated in advance.
const CRCS_AT_ONCE_MAX: usize = 1 << 20;

/// A copy on disk that is being filled from front to back.
pub struct DiskStream {
    /// A piece could not be written.
    has_hole: bool,
    writer: DiskWriter,
    /// The data file, opened again for direct I/O if possible.
    data: Arc<File>,
    direct: bool,
    filling: Piece,
    /// Full, and not yet taken by a thread that writes it.
    full: Option<Piece>,
    /// Buffer that is free again.
    spare: Option<AlignedBuffer>,
    /// CRCs of all whole chunks; `partial` is that of the last chunk if it is not whole.
    crcs: Vec<u8>,
    partial: Vec<u8>,
}

struct Piece {
    buffer: AlignedBuffer,
    /// Offset of the piece in the file.
    at: u64,
    filled: usize,
}

/// A piece to be written with [`PendingWrite::write`], on a thread that may wait for the disk.
pub struct PendingWrite {
    data: Arc<File>,
    piece: Piece,
}

/// A piece after an attempt to write it; to be returned to its writer.
pub struct CompletedWrite {
    pub(crate) outcome: io::Result<()>,
    buffer: AlignedBuffer,
}

impl PendingWrite {
    /// Writes the piece. Waits for the disk.
    pub fn write(self) -> CompletedWrite {
        let Self { data, piece } = self;
        let outcome = data.write_all_at(&piece.buffer[..piece.filled], piece.at);
        CompletedWrite { outcome, buffer: piece.buffer }
    }
}

impl DiskStream {
    /// Creates an empty copy in `place`, with disk space for `expected` bytes.
    pub fn create(
        dirs: &PoolDirs,
        place: ReplicaDir,
        id: BlockId,
        stamp: GenerationStamp,
        checksum: ChecksumSpec,
        expected: u64,
    ) -> io::Result<Self> {
        let writer = DiskWriter::create(dirs, place, id, stamp, checksum)?;
        let path = dirs.data(place, id);
        // Allocated as one extent; a full disk is reported now, not halfway.
        match sys::allocate(&writer.files.data, 0, expected) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            Err(error) => {
                let _ = std::fs::remove_file(path);
                let _ = std::fs::remove_file(dirs.meta(place, id, stamp));
                return Err(error);
            }
            Ok(()) => {}
        }
        let direct = sys::open_direct(&path)?;
        let is_direct = direct.is_some();
        let data = direct.map_or_else(|| writer.files.data.try_clone(), Ok)?;
        let filling = Piece { buffer: AlignedBuffer::new(PIECE_BYTES)?, at: 0, filled: 0 };
        Ok(Self {
            has_hole: false,
            writer,
            data: Arc::new(data),
            direct: is_direct,
            filling,
            full: None,
            spare: None,
            // `expected` comes from a peer, so it is not trusted as a capacity.
            crcs: Vec::with_capacity((checksum.checksum_bytes(expected) as usize).min(CRCS_AT_ONCE_MAX)),
            partial: Vec::new(),
        })
    }

    /// Appends data that joins the existing bytes, with the CRCs of the chunks that are now whole and of the partial
    /// one.
    ///
    /// Waits for the disk if the piece before the filling one was not taken.
    pub fn write(&mut self, offset: u64, data: &[u8], whole: &[u8], partial: &[u8]) -> io::Result<()> {
        self.check_holes()?;
        assert_eq!(offset, self.filling.at + self.filling.filled as u64, "a stream has no gaps");
        assert!(self.partial.is_empty(), "a stream must be ended before a partial chunk is continued");
        self.crcs.extend_from_slice(whole);
        self.partial.extend_from_slice(partial);
        let mut rest = data;
        while !rest.is_empty() {
            let filling = &mut self.filling;
            let take = rest.len().min(PIECE_BYTES - filling.filled);
            filling.buffer[filling.filled..filling.filled + take].copy_from_slice(&rest[..take]);
            filling.filled += take;
            rest = &rest[take..];
            if filling.filled == PIECE_BYTES {
                self.rotate()?;
            }
        }
        Ok(())
    }

    /// Fails if bytes that count as received are not on disk. They cannot be sent again: nothing can be added, and the
    /// copy cannot be ended.
    fn check_holes(&self) -> io::Result<()> {
        if self.has_hole {
            Err(io::Error::other("an earlier piece of the replica could not be written"))
        } else {
            Ok(())
        }
    }

    /// Starts a new piece, since the filling one is full.
    fn rotate(&mut self) -> io::Result<()> {
        self.write_full()?;
        let fresh = || AlignedBuffer::new(PIECE_BYTES).inspect_err(|_| self.has_hole = true);
        let buffer = self.spare.take().map_or_else(fresh, Ok)?;
        let next = Piece { buffer, at: self.filling.at + PIECE_BYTES as u64, filled: 0 };
        self.full = Some(std::mem::replace(&mut self.filling, next));
        Ok(())
    }

    /// Writes the full piece, if it was not taken.
    fn write_full(&mut self) -> io::Result<()> {
        let Some(piece) = self.full.take() else { return Ok(()) };
        let written = PendingWrite { data: self.data.clone(), piece }.write();
        self.take_back(written)
    }

    /// Takes the full piece, to be written by the caller.
    pub fn take_due(&mut self) -> Option<PendingWrite> {
        self.full.take().map(|piece| PendingWrite { data: self.data.clone(), piece })
    }

    /// Returns whether `bytes` more fill the current piece.
    pub fn fills_with(&self, bytes: usize) -> bool {
        self.filling.filled + bytes >= PIECE_BYTES
    }

    /// Takes back a piece that was taken with `take_due` and written.
    pub fn take_back(&mut self, written: CompletedWrite) -> io::Result<()> {
        self.spare.get_or_insert(written.buffer);
        self.has_hole |= written.outcome.is_err();
        written.outcome
    }

    /// Writes the remaining bytes. Every piece that was taken has come back. Waits for the disk.
    pub fn end(mut self) -> io::Result<DiskWriter> {
        self.write_full()?;
        self.check_holes()?;
        let length = self.filling.at + self.filling.filled as u64;
        if self.filling.filled > 0 {
            let filled = self.filling.filled;
            let bytes = if self.direct { sys::pages(filled as u64) as usize } else { filled };
            self.filling.buffer[filled..bytes].fill(0);
            self.data.write_all_at(&self.filling.buffer[..bytes], self.filling.at)?;
        }
        self.writer.files.data.set_len(length)?;
        self.crcs.extend_from_slice(&self.partial);
        self.writer.write_crcs(0, &self.crcs)?;
        Ok(self.writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_piece_fails_the_whole_stream() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = PoolDirs::new(dir.path(), "BP-1");
        std::fs::create_dir_all(dirs.data(ReplicaDir::Temporary, BlockId(1)).parent().unwrap()).unwrap();
        let begin = || {
            let (id, stamp) = (BlockId(1), GenerationStamp(1));
            let mut stream =
                DiskStream::create(&dirs, ReplicaDir::Temporary, id, stamp, ChecksumSpec::DEFAULT, 0).unwrap();
            stream.write(0, &[7; PIECE_BYTES], &[0; PIECE_BYTES / 128], &[]).unwrap();
            let written = stream.take_due().unwrap().write();
            (stream, written)
        };
        let add = |stream: &mut DiskStream| stream.write(PIECE_BYTES as u64, &[7; 512], &[0; 4], &[]);
        let (mut stream, written) = begin();
        stream.take_back(written).unwrap();
        add(&mut stream).unwrap();
        assert!(stream.end().is_ok());

        let (mut stream, mut written) = begin();
        written.outcome = Err(io::Error::from_raw_os_error(libc::ENOSPC));
        assert!(stream.take_back(written).is_err());
        // Later pieces do not make up for the failed one.
        assert!(add(&mut stream).is_err());
        assert!(stream.end().is_err());
    }
}
