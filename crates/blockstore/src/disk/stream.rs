//! A copy on its way to disk that comes in from its first byte to its last and that nobody reads before: written around the
//! page cache, in large pieces, which a caller that must not wait has others write meanwhile.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use hearth_types::{BlockId, ChecksumSpec, GenerationStamp};

use super::copy::DiskWriter;
use super::layout::{Place, PoolDirs};
use crate::sys::{self, AlignedBuffer};

/// Bytes of a piece. There are two of a copy at most: one fills while the other is written.
const PIECE_BYTES: usize = 512 << 10;

/// A copy on disk that is being filled from front to back.
pub struct DiskStream {
    writer: DiskWriter,
    /// The data file, opened once more for direct I/O where that can be.
    data: Arc<File>,
    direct: bool,
    filling: Piece,
    /// Full, and not yet taken by anybody who writes it.
    full: Option<Piece>,
    /// Its buffer is free again.
    spare: Option<AlignedBuffer>,
    /// Of all whole chunks, and of the last one when it is not whole.
    crcs: Vec<u8>,
    partial: Vec<u8>,
}

struct Piece {
    buffer: AlignedBuffer,
    /// Where it begins in the file.
    at: u64,
    filled: usize,
}

/// A piece that is to be written: by [`DuePiece::write`], on a thread that may wait for the disk.
pub struct DuePiece {
    data: Arc<File>,
    piece: Piece,
}

/// A piece that has been written, or not; goes back to its writer.
pub struct WrittenPiece {
    pub(crate) outcome: io::Result<()>,
    buffer: AlignedBuffer,
}

impl DuePiece {
    /// Waits for the disk.
    pub fn write(self) -> WrittenPiece {
        let Self { data, piece } = self;
        let outcome = data.write_all_at(&piece.buffer[..piece.filled], piece.at);
        WrittenPiece { outcome, buffer: piece.buffer }
    }
}

impl DiskStream {
    /// An empty copy in `place`, with disk space for `expected` bytes.
    pub fn create(
        dirs: &PoolDirs,
        place: Place,
        id: BlockId,
        stamp: GenerationStamp,
        checksum: ChecksumSpec,
        expected: u64,
    ) -> io::Result<Self> {
        let writer = DiskWriter::create(dirs, place, id, stamp, checksum)?;
        let path = dirs.data(place, id);
        // One extent, and no surprise in the middle: a full disk says so now.
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
            writer,
            data: Arc::new(data),
            direct: is_direct,
            filling,
            full: None,
            spare: None,
            crcs: Vec::with_capacity(checksum.checksum_bytes(expected) as usize),
            partial: Vec::new(),
        })
    }

    /// Adds data that joins what is there, with the CRCs of the chunks that are whole with it and of the one that is not.
    ///
    /// Waits for the disk when the piece before the one that fills now has been taken by nobody.
    pub fn write(&mut self, offset: u64, data: &[u8], whole: &[u8], partial: &[u8]) -> io::Result<()> {
        assert_eq!(offset, self.filling.at + self.filling.filled as u64, "a stream has no gaps");
        assert!(self.partial.is_empty(), "whoever goes on within a chunk ends the stream first");
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
                self.turn()?;
            }
        }
        Ok(())
    }

    /// The piece that fills is full.
    fn turn(&mut self) -> io::Result<()> {
        self.write_full()?;
        let buffer = self.spare.take().map_or_else(|| AlignedBuffer::new(PIECE_BYTES), Ok)?;
        let next = Piece { buffer, at: self.filling.at + PIECE_BYTES as u64, filled: 0 };
        self.full = Some(std::mem::replace(&mut self.filling, next));
        Ok(())
    }

    /// Writes the full piece itself, if it was not taken.
    fn write_full(&mut self) -> io::Result<()> {
        let Some(piece) = self.full.take() else { return Ok(()) };
        let written = DuePiece { data: self.data.clone(), piece }.write();
        self.take_back(written)
    }

    /// The full piece, for somebody else to write.
    pub fn take_due(&mut self) -> Option<DuePiece> {
        self.full.take().map(|piece| DuePiece { data: self.data.clone(), piece })
    }

    /// Whether `bytes` more make the piece full that is filling.
    pub fn fills_with(&self, bytes: usize) -> bool {
        self.filling.filled + bytes >= PIECE_BYTES
    }

    /// What was taken with `take_due` has been written.
    pub fn take_back(&mut self, written: WrittenPiece) -> io::Result<()> {
        self.spare.get_or_insert(written.buffer);
        written.outcome
    }

    /// Writes what is left. Every piece that was taken has come back. Waits for the disk.
    pub fn end(mut self) -> io::Result<DiskWriter> {
        self.write_full()?;
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
