//! Reading a file: as a stream from a position, or any range by many tasks at once.
//!
//! [`locate`] knows where the blocks are, [`replica`] chooses a replica of one and a path to it and goes to the next when it
//! fails; [`stream`] reads it over that path: [`local`], [`one_sided`] or [`packets`]. Positioned reads of what is open in [`local`] take the short
//! cut of [`warm`]. Every byte is checked against its checksum before
//! the caller sees it, except by a reader that was opened without checks ([`crate::FileSystem::open_unverified`]).

mod block_stream;
mod candidate;
mod local_stream;
mod locate;
mod many;
mod mapped_cache;
mod multiplexed_stream;
mod one_sided_stream;
mod packet_stream;
mod replicas;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use hearth_types::{ByteRange, LocatedBlocks};

use crate::file_system::Shared;
use crate::{DatanodeError, Error};
use block_stream::BlockStream;
use candidate::Checks;
use locate::Locations;
use replicas::{Failures, Replicas};

pub(crate) use many::{Collected, FileRange, open_many, read_ranges, visit_opened};
pub use view::View;

/// A file open for reading. `read`, `next` and `seek` move a position of its own; `read_at` does not and may be called by
/// many tasks at once.
#[derive(Debug)]
pub struct Reader {
    replicas: Arc<Replicas>,
    position: u64,
    /// The block that is being streamed. Boxed, for it is large: of many files that are opened most are never streamed.
    current: Option<Box<BlockStream>>,
    /// Failures since bytes last came.
    failures: Failures,
}

/// A forward seek up to this far reads and drops the bytes between instead of asking the datanode anew.
const SKIP_BYTES_MAX: u64 = 128 * 1024;

impl Reader {
    pub(crate) async fn open(shared: Arc<Shared>, path: String, located: LocatedBlocks) -> Result<Self, Error> {
        let locations = Locations::open(Arc::clone(&shared), path, located).await?;
        Ok(Self::of(shared, locations))
    }

    /// As `open`; the bytes are not verified.
    pub(crate) async fn open_unverified(
        shared: Arc<Shared>,
        path: String,
        located: LocatedBlocks,
    ) -> Result<Self, Error> {
        let locations = Locations::open(Arc::clone(&shared), path, located).await?;
        Ok(Self::with_checks(shared, locations, Checks::None))
    }

    fn of(shared: Arc<Shared>, locations: Locations) -> Self {
        Self::with_checks(shared, locations, Checks::All)
    }

    fn with_checks(shared: Arc<Shared>, locations: Locations, checks: Checks) -> Self {
        let replicas = Arc::new(Replicas::new(shared, locations, checks));
        Self { replicas, position: 0, current: None, failures: Failures::default() }
    }

    pub fn path(&self) -> &str {
        self.replicas.locations.path()
    }

    /// Bytes of the file when it was opened; of a file being written, what its datanodes showed then.
    pub fn length(&self) -> u64 {
        self.replicas.locations.length()
    }

    /// Where the next `read` starts.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Errors: `SeekBeyondEnd`; the end itself is allowed.
    pub async fn seek(&mut self, position: u64) -> Result<(), Error> {
        let length = self.length();
        if position > length {
            return Err(Error::SeekBeyondEnd { path: self.path().to_owned(), position, length });
        }
        let ahead = position.checked_sub(self.position);
        match (&mut self.current, ahead) {
            (_, Some(0)) => {}
            (Some(current), Some(ahead)) if ahead <= SKIP_BYTES_MAX && position < block_end(current) => {
                let mut left = ahead;
                while left > 0 {
                    let count = (self.next().await?.len() as u64).min(left);
                    if count == 0 {
                        break;
                    }
                    self.consume(count as usize);
                    left -= count;
                }
            }
            _ => {
                self.current = None;
                self.position = position;
            }
        }
        Ok(())
    }

    /// Fills `into` with the file's next bytes, less only at its end. 0 at the end (or when `into` is empty). Broken off, it leaves no
    /// byte out: so many are in `into` as the position has moved.
    pub async fn read(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < into.len() && self.position < self.length() {
            let Some(stream) = &mut self.current else {
                self.open_block().await?;
                continue;
            };
            match stream.read(&self.replicas.shared, &mut into[filled..]).await {
                Ok(0) => self.end_block(),
                Ok(count) => {
                    // Before anything is waited for: the caller may be gone then.
                    self.position += count as u64;
                    filled += count;
                    self.replicas.note_success(&stream.candidate().block, &mut self.failures).await;
                }
                Err(error) => self.block_failed(error).await?,
            }
        }
        Ok(filled)
    }

    /// The file's next bytes, as many as have come and been verified, where they were received: no copy. Empty at the end
    /// of the file. Say with [`Reader::consume`] how many were used.
    pub async fn next(&mut self) -> Result<&[u8], Error> {
        loop {
            if self.position >= self.length() {
                self.current = None;
                return Ok(&[]);
            }
            let Some(stream) = &mut self.current else {
                self.open_block().await?;
                continue;
            };
            if !stream.data().is_empty() {
                break;
            }
            match stream.advance(&self.replicas.shared).await {
                Ok(true) => self.replicas.note_success(&stream.candidate().block, &mut self.failures).await,
                Ok(false) => self.end_block(),
                Err(error) => self.block_failed(error).await?,
            }
        }
        Ok(self.current.as_ref().map_or(&[], |stream| stream.data()))
    }

    /// Moves the position over `count` bytes that `next` showed.
    pub fn consume(&mut self, count: usize) {
        if let Some(stream) = &mut self.current {
            stream.consume(count);
            self.position += count as u64;
        }
    }

    /// Reads from `offset` on without moving the position, less than `into` only at the end of the file.
    pub async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        self.replicas.read_at(offset, into).await
    }

    /// The file's bytes from `offset` on, `length` of them at most, fewer at the end of a block or of the file. When the replica
    /// is in memory on this machine they are shown where they lie: no copy, and not verified until [`View::verify`] is asked to.
    /// Else they are a verified copy.
    pub async fn view(&self, offset: u64, length: usize) -> Result<View, Error> {
        self.replicas.view(offset, length).await
    }

    /// The bytes of each of `ranges`, in their order: all of them asked for at once. Of what lies beyond the end of the file, nothing.
    pub async fn read_ranges(&self, ranges: &[ByteRange]) -> Vec<Result<Vec<u8>, Error>> {
        self.positioned().read_ranges(ranges).await
    }

    /// A handle for `read_at` that other tasks can own.
    pub fn positioned(&self) -> PositionedReader {
        PositionedReader { replicas: Arc::clone(&self.replicas) }
    }

    async fn open_block(&mut self) -> Result<(), Error> {
        // The block may have grown since, and then the namenode says so.
        let left = self.length() - self.position;
        self.current = Some(Box::new(self.replicas.open(self.position, Some(left), &mut self.failures).await?));
        Ok(())
    }

    fn end_block(&mut self) {
        if let Some(stream) = self.current.take() {
            stream.finish(&self.replicas.shared);
        }
    }

    async fn block_failed(&mut self, error: DatanodeError) -> Result<(), Error> {
        match self.current.take() {
            Some(stream) => self.replicas.handle_stream_failure(&stream, error, &mut self.failures).await,
            None => Ok(()),
        }
    }
}

/// Where in the file the block of `stream` ends.
fn block_end(stream: &BlockStream) -> u64 {
    let block = &stream.candidate().block;
    block.offset + block.block.length()
}

/// Positioned reads of an open file, for any number of tasks.
#[derive(Clone, Debug)]
pub struct PositionedReader {
    replicas: Arc<Replicas>,
}

impl PositionedReader {
    pub fn length(&self) -> u64 {
        self.replicas.locations.length()
    }

    /// As [`Reader::read_at`].
    pub async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        self.replicas.read_at(offset, into).await
    }

    /// As [`Reader::read_ranges`].
    pub async fn read_ranges(&self, ranges: &[ByteRange]) -> Vec<Result<Vec<u8>, Error>> {
        read_ranges(&self.replicas.shared, ranges.iter().map(|range| self.range(*range)).collect()).await
    }

    /// For reads of ranges of several files.
    pub(crate) fn range(&self, range: ByteRange) -> FileRange {
        FileRange { replicas: Arc::clone(&self.replicas), range }
    }

    /// As [`Reader::view`].
    pub async fn view(&self, offset: u64, length: usize) -> Result<View, Error> {
        self.replicas.view(offset, length).await
    }
}
