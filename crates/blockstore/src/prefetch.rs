//! Fills the page cache for a caller that sends a replica on disk from it and must not wait for the disk: uncached
//! bytes are read by a blocking thread first.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use hearth_types::ByteRange;

use crate::disk::files::DiskFiles;
use crate::reader::ReplicaReader;
use crate::snapshot::Source;
use crate::sys::{self, PAGE};

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 128 << 10;

/// Bytes of a file to be read into the page cache with [`PageCacheFill::fetch`], on a thread that may wait for the
/// disk.
pub struct PageCacheFill {
    files: Arc<DiskFiles>,
    kind: Kind,
    range: ByteRange,
}

#[derive(Clone, Copy)]
enum Kind {
    Data,
    Meta,
}

impl ReplicaReader {
    /// Returns `None` if `range` is in memory or most likely in the page cache. Otherwise returns a task that reads it,
    /// and the bytes after it up to `ahead` bytes in all.
    pub fn data_prefetch(&self, range: ByteRange, ahead: u64) -> Option<PageCacheFill> {
        let end = self.length().min(range.start().saturating_add(ahead)).max(range.end());
        self.prefetch(Kind::Data, range, ByteRange::new(range.start(), end)?)
    }

    /// Like [`Self::data_prefetch`], for the CRCs of the chunks that `range` touches.
    pub fn checksum_prefetch(&self, range: ByteRange) -> Option<PageCacheFill> {
        let Source::Disk(files) = &self.snapshot.source else { return None };
        // The CRC of a last partial chunk is in memory already.
        let chunk = u64::from(self.checksum().bytes_per_chunk);
        let end = range.end().div_ceil(chunk).min(self.length() / chunk);
        let table = files.crcs_range(range.start() / chunk, end)?;
        self.prefetch(Kind::Meta, table, table)
    }

    /// `looked_at`: a part of `range`, whose first and last byte are checked.
    fn prefetch(&self, kind: Kind, looked_at: ByteRange, range: ByteRange) -> Option<PageCacheFill> {
        let Source::Disk(files) = &self.snapshot.source else { return None };
        if files.never_waits() {
            return None;
        }
        let file = kind.file(files);
        let last = looked_at.end().saturating_sub(1);
        let ends = [looked_at.start(), last];
        // Within one page, one check is enough.
        let looks = if looked_at.start() / PAGE == last / PAGE { 1 } else { 2 };
        let cached = looked_at.is_empty() || ends[..looks].iter().all(|at| sys::read_cached(file, *at, &mut [0; 1]));
        (!cached).then(|| PageCacheFill { files: files.clone(), kind, range })
    }
}

impl Kind {
    fn file(self, files: &DiskFiles) -> &std::fs::File {
        match self {
            Self::Data => &files.data,
            Self::Meta => &files.meta,
        }
    }
}

impl PageCacheFill {
    /// Reads the bytes. Waits for the disk. A file that has become shorter is not reported here.
    ///
    /// Errors: the disk's.
    pub fn fetch(self) -> io::Result<()> {
        let file = self.kind.file(&self.files);
        let mut piece = vec![0; self.range.length().min(PIECE_BYTES) as usize];
        let mut at = self.range.start();
        while at < self.range.end() {
            let wanted = (self.range.end() - at).min(piece.len() as u64) as usize;
            match file.read_at(&mut piece[..wanted], at) {
                Ok(0) => break,
                Ok(bytes) => at += bytes as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
