//! Reading a file: as a stream from a position, or any ranges by many tasks at once.
//!
//! [`open`] has the methods of [`crate::FileSystem`]. [`locate`] caches the locations of the blocks. [`replicas`]
//! chooses a replica of a block and a path to it ([`candidate`]), and goes to the next when it fails. [`block_stream`]
//! reads it over that path: [`local_stream`], [`one_sided_stream`], [`multiplexed_stream`] or [`packet_stream`].
//! Positioned reads of replicas that [`local_stream`] has open use the shortcut of [`mapped_cache`]; [`many`] reads
//! many ranges together. Every byte is verified against its checksum before the caller sees it, except by a reader that
//! was opened without checks ([`crate::FileSystem::open_unverified`]).

mod block_stream;
mod candidate;
mod local_stream;
mod locate;
mod many;
mod mapped_cache;
mod multiplexed_stream;
mod one_sided_stream;
mod open;
mod packet_stream;
mod replicas;
#[cfg(test)]
mod tests;
mod view;
mod window;

use std::sync::Arc;

use hearth_protocol::trace::{self, Span};
use hearth_types::{ByteRange, LocatedBlocks};

use crate::error::Failure;
use crate::session::Session;
use crate::statistics::ReadStatistics;
use crate::{DatanodeError, Error};
use block_stream::BlockStream;
use candidate::Checks;
use locate::Locations;
use many::{FileRange, read_ranges};
use replicas::{Failures, Replicas};

pub use view::{View, ViewChecks};

/// A file open for reading. `read`, `next` and `seek` move the reader's position; `read_at` does not, and many tasks
/// may call it at once.
///
/// ```no_run
/// # async fn example(fs: hearth_client::FileSystem) -> Result<(), hearth_client::Error> {
/// let mut reader = fs.open("/data/large").await?;
///
/// // In order, without a copy: the bytes stay where they were received.
/// loop {
///     let bytes = reader.next().await?;
///     if bytes.is_empty() {
///         break;
///     }
///     let count = bytes.len();
///     reader.consume(count);
/// }
///
/// // At any position, by any number of tasks.
/// let mut header = [0; 64];
/// let count = reader.read_at(0, &mut header).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Reader {
    replicas: Arc<Replicas>,
    position: u64,
    /// The block that is being streamed. Boxed because it is large, and most files in a batch of open files are never
    /// streamed.
    current: Option<Box<BlockStream>>,
    /// Failures since bytes last arrived.
    failures: Failures,
}

/// Longest forward seek that reads and drops the bytes between instead of sending a new request to the datanode.
const SKIP_BYTES_MAX: u64 = 128 * 1024;

impl Reader {
    async fn open(session: Arc<Session>, path: String, located: LocatedBlocks) -> Result<Self, Error> {
        let locations = Locations::open(Arc::clone(&session), path, located).await?;
        Ok(Self::of(session, locations))
    }

    /// Opens the file at `path`, which is absolute. A trace of the file lasts from here until it is closed.
    async fn open_traced(session: &Arc<Session>, path: String, checks: Checks) -> Result<Self, Error> {
        let mut span = Span::root("read");
        span.set("hdfs.file", path.as_str());
        let opening = async {
            let located = session.locate(&path, 0, session.options.read.prefetch_bytes).await?;
            Locations::open(Arc::clone(session), path, located).await
        };
        match trace::within(span.context(), opening).await {
            Ok(locations) => Ok(Self::with_checks(Arc::clone(session), locations, checks, span)),
            Err(error) => {
                span.fail(&error);
                Err(error)
            }
        }
    }

    fn of(session: Arc<Session>, locations: Locations) -> Self {
        Self::with_checks(session, locations, Checks::All, Span::none())
    }

    fn with_checks(session: Arc<Session>, locations: Locations, checks: Checks, span: Span) -> Self {
        let replicas = Arc::new(Replicas::new(session, locations, checks, span));
        Self { replicas, position: 0, current: None, failures: Failures::default() }
    }

    /// Returns the absolute path that was opened.
    pub fn path(&self) -> &str {
        self.replicas.locations.path()
    }

    /// Returns the length of the file in bytes when it was opened. For a file being written, this includes the bytes that its
    /// datanodes showed then.
    pub fn length(&self) -> u64 {
        self.replicas.locations.length()
    }

    /// Returns the offset at which the next `read` starts.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Moves the position. The end of the file is allowed.
    ///
    /// Errors: kind `BeyondEnd` for a position beyond the end.
    ///
    /// Cancel safety: if dropped, the position is between the old and the new one.
    pub async fn seek(&mut self, position: u64) -> Result<(), Error> {
        let length = self.length();
        if position > length {
            return Err(Failure::SeekBeyondEnd { path: self.path().to_owned(), position, length }.into());
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
            _ => self.set_position(position)?,
        }
        Ok(())
    }

    /// Moves the position like [`Reader::seek`], but never waits: the stream and the bytes that it has received are given
    /// up, unless the position stays where it is.
    ///
    /// Errors: kind `BeyondEnd` for a position beyond the end. The position has then not moved.
    pub fn set_position(&mut self, position: u64) -> Result<(), Error> {
        let length = self.length();
        if position > length {
            return Err(Failure::SeekBeyondEnd { path: self.path().to_owned(), position, length }.into());
        }
        if position != self.position {
            self.current = None;
            self.position = position;
        }
        Ok(())
    }

    /// Fills `into` with the file's next bytes, fewer only at its end. Returns 0 at the end, or if `into` is empty.
    ///
    /// Cancel safety: if dropped, no byte is skipped. `into` then holds as many bytes as the position has moved.
    pub async fn read(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < into.len() && self.position < self.length() {
            let Some(stream) = &mut self.current else {
                self.open_block().await?;
                continue;
            };
            match stream.read(&self.replicas.session, &mut into[filled..]).await {
                Ok(0) => self.end_block(),
                Ok(count) => {
                    // Before any await: the call may be dropped there.
                    self.position += count as u64;
                    filled += count;
                    self.replicas.counters.count_read(stream.candidate().path, count);
                    self.replicas.note_success(&stream.candidate().block, &mut self.failures).await;
                }
                Err(error) => self.block_failed(error).await?,
            }
        }
        Ok(filled)
    }

    /// Returns the file's next verified bytes, as many as have arrived, in the memory where they were received, without
    /// a copy. Empty at the end of the file. Call [`Reader::consume`] with the number of bytes used.
    ///
    /// Cancel safety: if dropped, no byte is skipped.
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
            match stream.advance(&self.replicas.session).await {
                Ok(true) => self.replicas.note_success(&stream.candidate().block, &mut self.failures).await,
                Ok(false) => self.end_block(),
                Err(error) => self.block_failed(error).await?,
            }
        }
        Ok(self.shown())
    }

    /// Returns the bytes that the last `next` returned and that were not consumed.
    pub(crate) fn shown(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |stream| stream.data())
    }

    /// Moves the position over `count` bytes that `next` returned.
    pub fn consume(&mut self, count: usize) {
        if let Some(stream) = &mut self.current {
            stream.consume(count);
            self.replicas.counters.count_read(stream.candidate().path, count);
            self.position += count as u64;
        }
    }

    /// Reads from `offset` on without moving the position. Fills less than `into` only at the end of the file.
    pub async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        self.replicas.read_at(offset, into).await
    }

    /// Returns the file's bytes from `offset` on: at most `length`, fewer at the end of a block or of the file. If the
    /// replica is in memory on this machine, they are shown there without a copy. Otherwise they are a copy.
    ///
    /// Either way they are verified ([`ViewChecks::Verified`]). If a replica's bytes do not match their checksums, it is
    /// reported to the namenode, and another replica is used.
    ///
    /// ```no_run
    /// # async fn example(fs: hearth_client::FileSystem) -> Result<(), hearth_client::Error> {
    /// let reader = fs.open("/data/index").await?;
    /// let view = reader.view(4096, 1 << 20).await?;
    /// let sum: u64 = view.iter().map(|byte| u64::from(*byte)).sum();
    /// # Ok(()) }
    /// ```
    pub async fn view(&self, offset: u64, length: usize) -> Result<View, Error> {
        self.view_with(offset, length, ViewChecks::default()).await
    }

    /// Like [`Reader::view`], but the caller says how bytes that are shown in place are verified.
    pub async fn view_with(&self, offset: u64, length: usize, checks: ViewChecks) -> Result<View, Error> {
        self.replicas.view(offset, length, checks).await
    }

    /// Like [`Reader::view`], but returns `None` instead of a copy if the bytes cannot be shown in place, or those in
    /// memory on this machine do not match their checksums.
    pub async fn view_in_place(&self, offset: u64, length: usize) -> Result<Option<View>, Error> {
        self.view_in_place_with(offset, length, ViewChecks::default()).await
    }

    /// Like [`Reader::view_in_place`], but the caller says how the bytes are verified.
    pub async fn view_in_place_with(
        &self,
        offset: u64,
        length: usize,
        checks: ViewChecks,
    ) -> Result<Option<View>, Error> {
        self.replicas.view_in_place(offset, length, checks).await
    }

    /// Returns the bytes of each of `ranges`, in order. All are requested at once. A range beyond the end of the file
    /// is cut off there.
    pub async fn read_ranges(&self, ranges: &[ByteRange]) -> Vec<Result<Vec<u8>, Error>> {
        self.positioned().read_ranges(ranges).await
    }

    /// Returns a handle for `read_at` that other tasks can own.
    pub fn positioned(&self) -> PositionedReader {
        PositionedReader { replicas: Arc::clone(&self.replicas) }
    }

    /// Gives up the connection and the buffers of the stream, which the next `read` opens again. For files that stay
    /// open for a long time without being read.
    pub fn unbuffer(&mut self) {
        self.current = None;
    }

    /// Returns the number of bytes that this reader and its positioned handles have returned.
    pub fn statistics(&self) -> ReadStatistics {
        self.replicas.counters.statistics()
    }

    /// Sets the counts of [`Reader::statistics`] to 0.
    pub fn clear_statistics(&self) {
        self.replicas.counters.clear();
    }

    async fn open_block(&mut self) -> Result<(), Error> {
        // The block may have grown since the file was opened, and the namenode then reports its new length.
        let left = self.length() - self.position;
        self.current = Some(Box::new(self.replicas.open(self.position, Some(left), &mut self.failures).await?));
        Ok(())
    }

    fn end_block(&mut self) {
        if let Some(stream) = self.current.take() {
            stream.finish(&self.replicas.session);
        }
    }

    async fn block_failed(&mut self, error: DatanodeError) -> Result<(), Error> {
        match self.current.take() {
            Some(stream) => self.replicas.handle_stream_failure(&stream, error, &mut self.failures).await,
            None => Ok(()),
        }
    }
}

/// Returns the offset in the file at which the block of `stream` ends.
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
    /// Returns the length of the file in bytes when it was opened.
    pub fn length(&self) -> u64 {
        self.replicas.locations.length()
    }

    /// Reads from `offset` on: see [`Reader::read_at`].
    pub async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        self.replicas.read_at(offset, into).await
    }

    /// Fills `into` from `offset` on, as far as replicas reach that are mapped already, and returns the number of bytes.
    /// The bytes are verified. Never waits, and needs no runtime. Returns 0 if `into` is longer than 1 MiB.
    ///
    /// Call [`PositionedReader::map_at`] for a replica that is not mapped, and [`PositionedReader::read_at`] for the
    /// rest.
    pub fn try_read_at(&self, offset: u64, into: &mut [u8]) -> usize {
        let available = self.length().saturating_sub(offset);
        let wanted = into.len().min(usize::try_from(available).unwrap_or(usize::MAX));
        self.replicas.read_mapped(offset, &mut into[..wanted])
    }

    /// Maps the replica with the byte at `offset` if it is in the memory of a datanode on this machine, for
    /// [`PositionedReader::try_read_at`] and [`PositionedReader::view_in_place`]. Returns false if it cannot be mapped.
    pub async fn map_at(&self, offset: u64) -> Result<bool, Error> {
        self.replicas.map_at(offset).await
    }

    /// Returns the bytes of each of `ranges`: see [`Reader::read_ranges`].
    pub async fn read_ranges(&self, ranges: &[ByteRange]) -> Vec<Result<Vec<u8>, Error>> {
        read_ranges(&self.replicas.session, ranges.iter().map(|range| self.range(*range)).collect()).await
    }

    /// Returns a range of this file, for reads of ranges of several files.
    fn range(&self, range: ByteRange) -> FileRange {
        FileRange { replicas: Arc::clone(&self.replicas), range }
    }

    /// Returns a view of the file's bytes: see [`Reader::view`].
    pub async fn view(&self, offset: u64, length: usize) -> Result<View, Error> {
        self.view_with(offset, length, ViewChecks::default()).await
    }

    /// Returns a view of the file's bytes: see [`Reader::view_with`].
    pub async fn view_with(&self, offset: u64, length: usize, checks: ViewChecks) -> Result<View, Error> {
        self.replicas.view(offset, length, checks).await
    }

    /// Returns a view of the file's bytes if they can be shown in place: see [`Reader::view_in_place`].
    pub async fn view_in_place(&self, offset: u64, length: usize) -> Result<Option<View>, Error> {
        self.view_in_place_with(offset, length, ViewChecks::default()).await
    }

    /// Returns a view of the file's bytes if they can be shown in place: see [`Reader::view_in_place_with`].
    pub async fn view_in_place_with(
        &self,
        offset: u64,
        length: usize,
        checks: ViewChecks,
    ) -> Result<Option<View>, Error> {
        self.replicas.view_in_place(offset, length, checks).await
    }

    /// Returns at most `length` bytes from `offset` on in memory of their own, fewer only at the end of the file.
    pub(crate) async fn read_vec(&self, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
        self.replicas.read_vec(offset, length).await
    }

    /// Returns the number of bytes that the file's reader and positioned handles have returned.
    pub fn statistics(&self) -> ReadStatistics {
        self.replicas.counters.statistics()
    }

    /// Sets the counts of [`PositionedReader::statistics`] to 0.
    pub fn clear_statistics(&self) {
        self.replicas.counters.clear();
    }
}
