//! Downloads: an answer that is a file, with its length.

use std::fs::File;
use std::future::Future;
use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, unfold};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::query::{Query, parse_query};
use crate::bounded::Deadline;

/// Maximum number of files that are produced or sent at a time. Further requests are refused with 503.
pub(super) const FILES_MAX: usize = 2;

/// Bytes per piece. The idle time-out of a connection counts from piece to piece.
const PIECE_BYTES: usize = 256 << 10;

/// Minimum rate of a client: this many bytes, or the rest of the file, within [`RATE_TIME`]. Slower clients are
/// disconnected, so they cannot hold the permits.
const RATE_BYTES: u64 = 1 << 20;
const RATE_TIME: Duration = Duration::from_secs(60);

/// A file to send, from its current position on.
pub struct FileAnswer {
    pub file: File,
    /// Bytes to send. If the file has fewer, the client sees an aborted answer.
    pub length: u64,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
}

/// Reason why no file is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    pub text: String,
}

type FileMaking = Pin<Box<dyn Future<Output = Result<FileAnswer, Refusal>> + Send>>;
pub(super) type FilePage = Arc<dyn Fn(Query) -> FileMaking + Send + Sync>;

pub(super) async fn file_page(page: FilePage, permits: Arc<Semaphore>, due: Deadline, raw: Option<String>) -> Response {
    let query = match parse_query(raw.as_deref().unwrap_or("")) {
        Ok(query) => query,
        Err(status) => return status.into_response(),
    };
    let Ok(permit) = permits.try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "busy: try again\n").into_response();
    };
    match page(query).await {
        Ok(answer) => send(answer, permit, due),
        Err(Refusal { status, text }) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, format!("{text}\n")).into_response()
        }
    }
}

fn send(answer: FileAnswer, permit: OwnedSemaphorePermit, due: Deadline) -> Response {
    let FileAnswer { file, length, headers } = answer;
    let mut response = Response::new(Body::from_stream(pieces(file, length, permit, due)));
    let all = response.headers_mut();
    all.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    all.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    for (name, value) in headers {
        // A value with control characters is left out: it cannot be sent.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            all.insert(name, value);
        }
    }
    response
}

/// Returns the file's bytes. They are read on threads that may block. Sets `due`, the deadline of the connection's
/// writes, at the start and after each [`RATE_BYTES`].
fn pieces(
    file: File,
    length: u64,
    permit: OwnedSemaphorePermit,
    due: Deadline,
) -> impl Stream<Item = io::Result<Bytes>> {
    unfold(Some((file, length, permit, due)), move |state| async move {
        let (file, left, permit, due) = state?;
        if left == 0 {
            return None;
        }
        if (length - left).is_multiple_of(RATE_BYTES) {
            due.set(Some(Instant::now() + RATE_TIME));
        }
        let reading = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(left).unwrap_or(PIECE_BYTES))];
            let read = (&file).read_exact(&mut piece);
            (file, read.map(|()| Bytes::from(piece)))
        });
        match reading.await {
            Ok((file, Ok(piece))) => {
                let left = left - piece.len() as u64;
                Some((Ok(piece), Some((file, left, permit, due))))
            }
            Ok((_, Err(error))) => Some((Err(error), None)),
            Err(_) => Some((Err(io::ErrorKind::Interrupted.into()), None)),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom, Write};

    use futures_util::StreamExt;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("hearth-file-page-{}-{}", std::process::id(), bytes.len()));
        let mut file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(bytes).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file
    }

    async fn sent(bytes: &[u8], length: u64) -> Vec<io::Result<Bytes>> {
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        pieces(file(bytes), length, permit, Deadline::default()).collect().await
    }

    #[tokio::test(start_paused = true)]
    async fn deadline_moves_with_a_minimum_rate() {
        let bytes = vec![0; RATE_BYTES as usize + 1];
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let (due, start) = (Deadline::default(), Instant::now());
        let mut pieces = Box::pin(pieces(file(&bytes), bytes.len() as u64, permit, due.clone()));
        for _ in 0..RATE_BYTES / PIECE_BYTES as u64 {
            assert!(pieces.next().await.unwrap().is_ok());
            assert_eq!(due.get(), Some(start + RATE_TIME));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let now = Instant::now();
        assert_eq!(pieces.next().await.unwrap().unwrap().len(), 1);
        assert_eq!(due.get(), Some(now + RATE_TIME));
    }

    #[tokio::test]
    async fn file_is_sent_in_pieces() {
        let bytes: Vec<u8> = (0..2 * PIECE_BYTES + 3).map(|i| i as u8).collect();
        let pieces = sent(&bytes, bytes.len() as u64).await;
        assert_eq!(pieces.len(), 3);
        let whole: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.unwrap().to_vec()).collect();
        assert!(whole == bytes);
        assert!(sent(&[], 0).await.is_empty());
    }

    #[tokio::test]
    async fn short_file_aborts_the_answer() {
        let pieces = sent(b"four", 5).await;
        assert!(matches!(&pieces[..], [Err(error)] if error.kind() == io::ErrorKind::UnexpectedEof));
    }

    #[tokio::test]
    async fn answers_have_length_and_headers() {
        let page: FilePage = Arc::new(|query: Query| -> FileMaking {
            Box::pin(async move {
                match query.get("which").map(String::as_str) {
                    Some("good") => {
                        Ok(FileAnswer { file: file(b"good"), length: 4, headers: vec![("X-Name", "n".to_owned())] })
                    }
                    _ => Err(Refusal { status: 410, text: "gone".to_owned() }),
                }
            })
        });
        let permits = Arc::new(Semaphore::new(1));
        let ask = |raw: &str| file_page(page.clone(), permits.clone(), Deadline::default(), Some(raw.to_owned()));
        let good = ask("which=good").await;
        assert_eq!(good.status(), StatusCode::OK);
        assert_eq!(good.headers()["content-length"], "4");
        assert_eq!(good.headers()["x-name"], "n");
        // The answer that is still being sent holds the only permit.
        assert_eq!(ask("which=good").await.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(good);
        assert_eq!(ask("which=bad").await.status(), StatusCode::GONE);
    }
}
