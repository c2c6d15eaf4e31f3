//! Tokio's I/O traits and a stream of bytes over [`Reader`] and [`Writer`].
//!
//! Bytes that have arrived, or for which there is room, are copied at once. To wait, the reader or writer moves into a
//! boxed future and comes back with its result: one allocation for each window of received bytes or each packet. The
//! future stays here when a caller drops its own future, so nothing is lost.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

use crate::error::Failure;
use crate::{Error, ErrorKind, Reader, Writer};

/// Longest piece of a [`ByteStream`]. Larger ones save no calls that matter and hold more memory.
const PIECE_BYTES_MAX: usize = 1 << 20;

type Waiting<T> = Pin<Box<dyn Future<Output = (T, Result<(), Error>)> + Send>>;

/// A [`Reader`] with tokio's traits: [`AsyncRead`], [`AsyncBufRead`] and [`AsyncSeek`]. Made by
/// [`Reader::into_async_read`].
///
/// [`AsyncBufRead`] returns the received bytes in place, so [`tokio::io::copy_buf`] copies them only once.
///
/// Cancel safety: a dropped read skips no bytes. A dropped seek is completed by the next call.
///
/// Errors are [`std::io::Error`]s that contain an [`Error`]. Seeking beyond the end of the file is an error of kind
/// `InvalidInput`.
#[must_use]
pub struct AsyncReader {
    /// `None` while `waiting` has it.
    reader: Option<Reader>,
    waiting: Option<Waiting<Reader>>,
    /// True if `waiting` is a seek.
    seeking: bool,
    /// Target of a seek that was requested and not started.
    target: Option<u64>,
    position: u64,
    length: u64,
    path: String,
}

impl Reader {
    /// Converts this reader to one with tokio's traits. It continues at the position of this reader.
    ///
    /// ```no_run
    /// # async fn example(fs: hearth_client::FileSystem) -> std::io::Result<()> {
    /// use tokio::io::AsyncBufReadExt;
    ///
    /// let mut lines = fs.open("/logs/today.txt").await?.into_async_read().lines();
    /// while let Some(line) = lines.next_line().await? {
    ///     println!("{line}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn into_async_read(self) -> AsyncReader {
        AsyncReader {
            position: self.position(),
            length: self.length(),
            path: self.path().to_owned(),
            reader: Some(self),
            waiting: None,
            seeking: false,
            target: None,
        }
    }

    /// Converts this reader to a stream of the bytes from its position to the end of the file.
    pub fn into_stream(self) -> ByteStream {
        let left = self.length() - self.position();
        self.into_stream_of(left)
    }

    /// Like `into_stream`, but ends after `bytes`.
    pub(crate) fn into_stream_of(self, bytes: u64) -> ByteStream {
        ByteStream { reader: self.into_async_read(), left: bytes }
    }
}

impl AsyncReader {
    /// Returns the length of the file in bytes when it was opened.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the offset of the next byte.
    pub fn position(&self) -> u64 {
        self.target.unwrap_or(self.position)
    }

    /// Returns the reader. A read or seek that was dropped before it was complete is completed first.
    ///
    /// Errors: that of a dropped seek.
    pub async fn into_inner(mut self) -> Result<Reader, Error> {
        poll_fn(|context| self.poll_seek(context)).await?;
        self.reader.take().ok_or_else(|| gone(&self.path))
    }

    fn poll_waiting(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(waiting) = &mut self.waiting else { return Poll::Ready(Ok(())) };
        let (reader, outcome) = ready!(waiting.as_mut().poll(context));
        self.waiting = None;
        self.position = reader.position();
        self.reader = Some(reader);
        Poll::Ready(outcome)
    }

    /// Completes what was begun, including a requested seek.
    fn poll_seek(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            let outcome = ready!(self.poll_waiting(context));
            let sought = std::mem::take(&mut self.seeking);
            if let Some(target) = self.target.take() {
                let mut reader = self.reader.take().ok_or_else(|| gone(&self.path))?;
                self.seeking = true;
                self.waiting = Some(Box::pin(async move {
                    let outcome = reader.seek(target).await;
                    (reader, outcome)
                }));
                continue;
            }
            // The error of a dropped read is not one of a seek. The next read meets it again if it lasts.
            return Poll::Ready(if sought { outcome } else { Ok(()) });
        }
    }

    /// Waits until bytes are shown or the end of the file is reached.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<&[u8], Error>> {
        if self.target.is_some() || self.seeking {
            ready!(self.poll_seek(context))?;
        }
        loop {
            ready!(self.poll_waiting(context))?;
            let mut reader = self.reader.take().ok_or_else(|| gone(&self.path))?;
            if self.position >= self.length || !reader.shown().is_empty() {
                return Poll::Ready(Ok(self.reader.insert(reader).shown()));
            }
            self.waiting = Some(Box::pin(async move {
                let outcome = reader.next().await.map(|_| ());
                (reader, outcome)
            }));
        }
    }

    fn advance(&mut self, count: usize) {
        if let Some(reader) = &mut self.reader {
            reader.consume(count);
            self.position = reader.position();
        }
    }
}

impl AsyncBufRead for AsyncReader {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.get_mut().poll_fill(context).map_err(io::Error::from)
    }

    fn consume(self: Pin<&mut Self>, count: usize) {
        self.get_mut().advance(count);
    }
}

impl AsyncRead for AsyncReader {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let this = self.get_mut();
        let shown = ready!(this.poll_fill(context))?;
        let count = shown.len().min(into.remaining());
        into.put_slice(&shown[..count]);
        this.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for AsyncReader {
    fn start_seek(self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        let this = self.get_mut();
        let target = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(distance) => this.length.checked_add_signed(distance),
            SeekFrom::Current(distance) => this.position().checked_add_signed(distance),
        };
        let Some(position) = target else {
            let why = format!("cannot seek to a position before the start of {}", this.path);
            return Err(Error::new(ErrorKind::InvalidInput, why).into());
        };
        if position > this.length {
            let failure = Failure::SeekBeyondEnd { path: this.path.clone(), position, length: this.length };
            return Err(Error::from(failure).into());
        }
        this.target = Some(position);
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let this = self.get_mut();
        ready!(this.poll_seek(context))?;
        Poll::Ready(Ok(this.position))
    }
}

impl fmt::Debug for AsyncReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, position, length, .. } = self;
        f.debug_struct("AsyncReader")
            .field("path", path)
            .field("position", position)
            .field("length", length)
            .finish_non_exhaustive()
    }
}

/// Stream of the verified bytes of a file, in pieces of at most 1 MiB. Made by [`Reader::into_stream`].
///
/// Each piece is a copy, so it does not hold the memory of the connection or the DataNode. The stream ends after an
/// error.
///
/// ```no_run
/// # async fn example(fs: hearth_client::FileSystem) -> Result<(), hearth_client::Error> {
/// use futures_util::TryStreamExt;
///
/// let mut pieces = fs.open("/data/large").await?.into_stream();
/// while let Some(piece) = pieces.try_next().await? {
///     println!("{} bytes", piece.len());
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a stream does nothing until it is polled"]
pub struct ByteStream {
    reader: AsyncReader,
    /// Number of bytes still to be returned.
    left: u64,
}

impl Stream for ByteStream {
    type Item = Result<Bytes, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.left == 0 {
            return Poll::Ready(None);
        }
        let left = usize::try_from(this.left).unwrap_or(usize::MAX);
        let piece = match ready!(this.reader.poll_fill(context)) {
            Ok(shown) => Bytes::copy_from_slice(&shown[..shown.len().min(left).min(PIECE_BYTES_MAX)]),
            Err(error) => {
                this.left = 0;
                return Poll::Ready(Some(Err(error)));
            }
        };
        if piece.is_empty() {
            this.left = 0;
            return Poll::Ready(None);
        }
        this.reader.advance(piece.len());
        this.left -= piece.len() as u64;
        Poll::Ready(Some(Ok(piece)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left > 0), usize::try_from(self.left).ok())
    }
}

/// A [`Writer`] with tokio's trait [`AsyncWrite`]. Made by [`Writer::into_async_write`].
///
/// - `write` copies bytes into a packet and waits only when the window of packets is full.
/// - `flush` hands all full packets to the connection. The bytes of the last packet, which is not full, may stay in this
///   process. This is the meaning of `flush` in Hadoop's output streams, and it keeps [`tokio::io::copy`] fast, which
///   flushes whenever its source pauses. Use [`AsyncWriter::hflush`] to make bytes visible to readers, and
///   [`AsyncWriter::hsync`] to store them on disks.
/// - `shutdown` closes the file: the remaining bytes are with the DataNodes, and the file is complete.
///
/// If it is dropped without `shutdown`, the file stays open until its lease expires, as with [`Writer`].
///
/// Cancel safety: a dropped `write` has taken no bytes. A dropped `flush` or `shutdown` is continued by the next call. A
/// `shutdown` whose writer is dropped as well is completed in the background once there was room for the last packets.
#[must_use]
pub struct AsyncWriter {
    /// `None` while `waiting` has it, and after `shutdown`.
    writer: Option<Writer>,
    waiting: Option<Waiting<Option<Writer>>>,
    /// True from the start of `shutdown` on, unless it failed.
    closing: bool,
    path: String,
}

impl Writer {
    /// Converts this writer to one with tokio's trait.
    ///
    /// ```no_run
    /// # async fn example(fs: hearth_client::FileSystem) -> std::io::Result<()> {
    /// use hearth_client::CreateOptions;
    /// use tokio::io::AsyncWriteExt;
    ///
    /// let mut source = tokio::fs::File::open("large.bin").await?;
    /// let mut target = fs.create("/data/large.bin", CreateOptions::default()).await?.into_async_write();
    /// tokio::io::copy(&mut source, &mut target).await?;
    /// target.shutdown().await?;
    /// # Ok(()) }
    /// ```
    pub fn into_async_write(self) -> AsyncWriter {
        AsyncWriter { path: self.path().to_owned(), writer: Some(self), waiting: None, closing: false }
    }
}

impl AsyncWriter {
    /// Makes all bytes written so far visible to readers: see [`Writer::hflush`].
    pub async fn hflush(&mut self) -> Result<(), Error> {
        self.ready().await?.hflush().await
    }

    /// Stores all bytes written so far on the disks of the DataNodes: see [`Writer::hsync`].
    pub async fn hsync(&mut self) -> Result<(), Error> {
        self.ready().await?.hsync().await
    }

    /// Returns the writer. A call that was dropped before it was complete is completed first.
    ///
    /// Errors: that of the dropped call; kind `Other` if the file is closed.
    pub async fn into_inner(mut self) -> Result<Writer, Error> {
        self.ready().await?;
        self.writer.take().ok_or_else(|| gone(&self.path))
    }

    async fn ready(&mut self) -> Result<&mut Writer, Error> {
        poll_fn(|context| self.poll_waiting(context)).await?;
        self.writer.as_mut().ok_or_else(|| gone(&self.path))
    }

    fn poll_waiting(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(waiting) = &mut self.waiting else { return Poll::Ready(Ok(())) };
        let (writer, outcome) = ready!(waiting.as_mut().poll(context));
        self.waiting = None;
        self.writer = writer;
        self.closing &= outcome.is_ok();
        Poll::Ready(outcome)
    }

    fn poll_take(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        loop {
            ready!(self.poll_waiting(context))?;
            let mut writer = self.writer.take().ok_or_else(|| gone(&self.path))?;
            let taken = writer.try_write(bytes);
            if bytes.is_empty() || !matches!(taken, Ok(0)) {
                self.writer = Some(writer);
                return Poll::Ready(taken);
            }
            self.waiting = Some(Box::pin(async move {
                let outcome = writer.begin_packet().await;
                (Some(writer), outcome)
            }));
        }
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            ready!(self.poll_waiting(context))?;
            let Some(mut writer) = self.writer.take() else {
                return Poll::Ready(if self.closing { Ok(()) } else { Err(gone(&self.path)) });
            };
            let sent = writer.try_send_outgoing();
            if !matches!(sent, Ok(false)) {
                self.writer = Some(writer);
                return Poll::Ready(sent.map(|_| ()));
            }
            self.waiting = Some(Box::pin(async move {
                let outcome = writer.send_outgoing().await;
                (Some(writer), outcome)
            }));
        }
    }

    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            ready!(self.poll_waiting(context))?;
            match self.writer.take() {
                Some(writer) => {
                    self.closing = true;
                    self.waiting = Some(Box::pin(async move { (None, writer.close().await) }));
                }
                None => return Poll::Ready(if self.closing { Ok(()) } else { Err(gone(&self.path)) }),
            }
        }
    }
}

impl AsyncWrite for AsyncWriter {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_take(context, bytes).map_err(io::Error::from)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send(context).map_err(io::Error::from)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_close(context).map_err(io::Error::from)
    }
}

impl fmt::Debug for AsyncWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncWriter").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Error of a call after the reader or writer is gone: it was closed, or a call panicked.
fn gone(path: &str) -> Error {
    Failure::WriterClosed { path: path.to_owned() }.into()
}
