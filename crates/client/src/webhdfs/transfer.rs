//! Reading and writing of file contents over HTTP.

use bytes::{Bytes, BytesMut};
use http_body_util::channel::Sender;
use hyper::Method;
use tokio::task::JoinHandle;

use super::WebFileSystem;
use super::http::{Connector, HttpResponse, RequestBody};
use crate::Error;
use crate::error::Failure;

/// Bytes sent at once.
const PIECE_BYTES: usize = 256 << 10;

/// Reader of a file. The length is that at the time of opening.
pub struct WebReader {
    fs: WebFileSystem,
    path: String,
    position: u64,
    length: u64,
    /// Response that supplies the bytes from `position` on.
    answer: Option<HttpResponse>,
    /// Bytes already received and not yet consumed.
    piece: Bytes,
}

impl WebReader {
    pub(super) fn new(fs: WebFileSystem, path: String, length: u64) -> Self {
        Self { fs, path, position: 0, length, answer: None, piece: Bytes::new() }
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Moves the position of the next read.
    ///
    /// Errors: kind `BeyondEnd` for a position beyond the end.
    pub fn seek(&mut self, position: u64) -> Result<(), Error> {
        if position > self.length {
            return Err(Failure::SeekBeyondEnd { path: self.path.clone(), position, length: self.length }.into());
        }
        if position != self.position {
            (self.answer, self.piece, self.position) = (None, Bytes::new(), position);
        }
        Ok(())
    }

    /// Returns the next bytes, or an empty slice at the end. Report the number of bytes used with `consume`.
    pub async fn next(&mut self) -> Result<&[u8], Error> {
        while self.piece.is_empty() && self.position < self.length {
            let answer = match &mut self.answer {
                Some(answer) => answer,
                none => none.insert(open(&self.fs, &self.path, self.position).await?),
            };
            let Some(piece) = answer.bytes("OPEN").await? else {
                let why = format!("the data ended at {} of {} bytes", self.position, self.length);
                return Err(Failure::FileChanged { path: self.path.clone(), why }.into());
            };
            self.piece = piece;
        }
        let left = usize::try_from(self.length - self.position).unwrap_or(usize::MAX);
        Ok(&self.piece[..self.piece.len().min(left)])
    }

    /// Advances the position by `count` of the bytes that `next` returned.
    pub fn consume(&mut self, count: usize) {
        let _ = self.piece.split_to(count);
        self.position += count as u64;
    }
}

async fn open(fs: &WebFileSystem, path: &str, offset: u64) -> Result<HttpResponse, Error> {
    let mut answer = fs.ask_namenode(Method::GET, path, "OPEN", &[("offset", &offset.to_string())]).await?;
    if let Some(to) = answer.redirect.take() {
        answer = fs.shared.connector.send_within("OPEN", Method::GET, &to, RequestBody::empty()).await?;
    }
    Ok(answer)
}

/// Writer of a file. The file is complete once `close` has returned.
pub struct WebWriter {
    path: String,
    pieces: Option<Sender<Bytes, std::io::Error>>,
    buffer: BytesMut,
    answer: JoinHandle<Result<HttpResponse, Error>>,
    operation: &'static str,
}

impl WebWriter {
    pub(super) async fn start(
        connector: &Connector,
        method: Method,
        operation: &'static str,
        path: String,
        to: &str,
    ) -> Result<Self, Error> {
        let (pieces, body) = RequestBody::pieces();
        let (connector, to) = (connector.clone(), to.to_owned());
        // The response arrives after the last piece was sent.
        let answer = tokio::spawn(async move { connector.send(operation, method, &to, body).await });
        Ok(Self { path, pieces: Some(pieces), buffer: BytesMut::with_capacity(PIECE_BYTES), answer, operation })
    }

    /// Writes bytes. They are buffered and sent in pieces.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let count = bytes.len().min(PIECE_BYTES - self.buffer.len());
            self.buffer.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            if self.buffer.len() == PIECE_BYTES {
                self.send().await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self) -> Result<(), Error> {
        let piece = self.buffer.split().freeze();
        let Some(pieces) = &mut self.pieces else {
            return Err(Failure::WriterClosed { path: self.path.clone() }.into());
        };
        if pieces.send_data(piece).await.is_ok() {
            return Ok(());
        }
        // The server has already answered with an error, or is gone.
        self.pieces = None;
        let outcome = (&mut self.answer).await;
        Err(match outcome {
            Ok(Err(error)) => error,
            _ => Failure::Answer { method: self.operation, why: "answered before the file was sent".to_owned() }.into(),
        })
    }

    /// Sends the remaining bytes and waits until the file is complete.
    pub async fn close(mut self) -> Result<(), Error> {
        if !self.buffer.is_empty() {
            self.send().await?;
        }
        let Some(pieces) = self.pieces.take() else {
            return Err(Failure::WriterClosed { path: self.path.clone() }.into());
        };
        drop(pieces);
        match (&mut self.answer).await {
            Ok(outcome) => outcome.map(drop),
            Err(_) => Err(Failure::WriterClosed { path: self.path.clone() }.into()),
        }
    }
}

impl Drop for WebWriter {
    /// Aborts the connection unless the writer was closed, so that the server does not take a partial file for a
    /// complete one.
    fn drop(&mut self) {
        if let Some(pieces) = self.pieces.take() {
            pieces.abort(std::io::ErrorKind::ConnectionAborted.into());
        }
    }
}
