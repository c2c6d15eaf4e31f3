//! Downloads: the bytes of a file are sent to a client. They are read piece by piece, whenever the connection has room
//! for more. After an error, the connection ends before the announced length, so that a short body never looks
//! complete.

use std::future::ready;
use std::io;
use std::mem;
use std::sync::Arc;

use futures_util::stream::{Stream, StreamExt, once, unfold};
use hearth_client::{Error, ErrorKind, FileSystem, PositionedReader, Reader};
use hearth_web::InFlight;
use hearth_web::axum::body::{Body, Bytes};
use hearth_web::axum::http::{HeaderValue, header};
use hearth_web::axum::response::Response;
use hearth_web::webhdfs::Exception;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::exceptions::exception_for;
use crate::parameters::OpenRange;

/// Bytes read at a time. A piece stays in a processor's second-level cache between the verified copy and the send. The
/// connection takes up to two pieces before it sends.
const PIECE_BYTES: usize = 256 << 10;

/// Largest range that is read with positioned reads, which request exactly the range. For a larger range the blocks are
/// streamed, and bytes that a DataNode sends beyond the range are dropped.
const POSITIONED_BYTES_MAX: u64 = 1 << 20;

/// Buffers of pieces that were sent, for reuse.
type Buffers = Arc<Mutex<Vec<Vec<u8>>>>;

enum Source {
    Stream(Reader),
    Positioned { reader: PositionedReader, position: u64 },
}

struct Download {
    path: String,
    source: Source,
    /// Announced bytes that are not read yet.
    left: u64,
    buffers: Buffers,
    work: InFlight,
    _permit: OwnedSemaphorePermit,
}

/// Opens a file and returns the response with its bytes. Source: `WebHdfsHandler.onOpen`.
pub(crate) async fn open(
    file_system: &FileSystem,
    path: String,
    part: OpenRange,
    work: InFlight,
    permit: OwnedSemaphorePermit,
) -> Result<Response, Exception> {
    let refused = |error: Error| exception_for(&error);
    let mut reader = work.track(file_system.open(&path)).await.map_err(refused)?;
    reader.seek(part.offset).await.map_err(refused)?;
    let length = (reader.length() - part.offset).min(part.length.unwrap_or(u64::MAX));
    let source = if length > POSITIONED_BYTES_MAX {
        Source::Stream(reader)
    } else {
        Source::Positioned { reader: reader.positioned(), position: part.offset }
    };
    let mut download = Download { path, source, left: length, buffers: Buffers::default(), work, _permit: permit };
    // Read the first piece before answering: an unreadable file then gets an error instead of a broken connection.
    let first = if length > 0 { download.next().await.map_err(refused)? } else { Bytes::new() };
    let body = match download.left {
        0 => Body::from(first),
        _ => Body::from_stream(once(ready(Ok(first))).chain(body_stream(download))),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    // Allow the NameNode's pages to show files.
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    Ok(response)
}

fn body_stream(download: Download) -> impl Stream<Item = io::Result<Bytes>> + Send {
    unfold(Some(download), |download| async {
        let mut download = download.filter(|download| download.left > 0)?;
        match download.next().await {
            Ok(piece) => Some((Ok(piece), Some(download))),
            Err(error) => {
                tracing::info!(path = %download.path, left = download.left, %error, "download aborted");
                Some((Err(io::Error::other(error)), None))
            }
        }
    })
}

impl Download {
    /// Returns the next bytes. Some must be left.
    async fn next(&mut self) -> Result<Bytes, Error> {
        let Self { path, source, left, buffers, work, .. } = self;
        let used = buffers.lock().pop();
        let mut bytes = used.unwrap_or_else(|| vec![0; PIECE_BYTES.min(usize::try_from(*left).unwrap_or(PIECE_BYTES))]);
        let wanted = bytes.len().min(usize::try_from(*left).unwrap_or(PIECE_BYTES));
        let into = &mut bytes[..wanted];
        let count = match source {
            Source::Stream(reader) => work.track(reader.read(into)).await?,
            Source::Positioned { reader, position } => {
                let count = work.track(reader.read_at(*position, into)).await?;
                *position += count as u64;
                count
            }
        };
        if count < wanted {
            return Err(Error::new(
                ErrorKind::FileChanged,
                format!("{path} changed while it was being read: it became shorter"),
            ));
        }
        *left -= count as u64;
        Ok(Bytes::from_owner(PooledBuffer { bytes, length: count, buffers: Arc::clone(buffers) }))
    }
}

/// A piece of data. Its buffer returns to the pool when the last reference to the piece is dropped.
struct PooledBuffer {
    bytes: Vec<u8>,
    length: usize,
    buffers: Buffers,
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        self.buffers.lock().push(mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_buffers_are_reused() {
        let buffers = Buffers::default();
        let piece = Bytes::from_owner(PooledBuffer { bytes: vec![7; 10], length: 4, buffers: Arc::clone(&buffers) });
        let part = piece.slice(1..3);
        drop(piece);
        assert!(buffers.lock().is_empty() && part[..] == [7, 7]);
        drop(part);
        assert_eq!(buffers.lock().pop().map(|bytes| bytes.len()), Some(10));
    }
}
