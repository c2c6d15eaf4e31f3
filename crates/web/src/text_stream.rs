//! A streaming text response with back-pressure: pieces of text are sent to the client while the page is produced.
//!
//! The queue is short, and the producer waits while it is full. If the client has disconnected, or received nothing for
//! too long, the producer's next write fails. It can then stop at a point of its choice, because it is never cancelled.

use std::io;
use std::time::Duration;

use axum::body::Bytes;
use futures_util::stream::{Stream, unfold};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

/// Bytes per piece. Progress of the client is measured in pieces, so they are small enough that a slow client shows
/// progress.
const PIECE_BYTES: usize = 16 << 10;
/// Maximum number of pieces that wait for the client.
const PIECES_QUEUED_MAX: usize = 4;

/// The client of the page has disconnected, or received nothing for too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the client of the page has disconnected or stopped reading")]
pub struct Disconnected;

enum Piece {
    Text(Bytes),
    /// The page is complete.
    End,
}

/// Sending half: the page writes its text here.
#[derive(Clone)]
pub struct TextSender {
    pieces: Sender<Piece>,
    /// Time after which a client that receives nothing is given up.
    patience: Duration,
}

/// Receiving half: the text for the client.
pub struct TextBody {
    pieces: Receiver<Piece>,
    is_whole: bool,
}

impl TextSender {
    /// Creates both halves.
    pub fn new(patience: Duration) -> (Self, TextBody) {
        let (sender, receiver) = channel(PIECES_QUEUED_MAX);
        (Self { pieces: sender, patience }, TextBody { pieces: receiver, is_whole: false })
    }

    /// Queues text for the client, and waits for room. An empty text only checks that the client is still connected.
    ///
    /// Errors: `Disconnected`.
    pub async fn send(&self, text: String) -> Result<(), Disconnected> {
        if self.pieces.is_closed() {
            return Err(Disconnected);
        }
        let mut text = Bytes::from(text);
        while !text.is_empty() {
            let piece = text.split_to(PIECE_BYTES.min(text.len()));
            self.send_piece(Piece::Text(piece)).await?;
        }
        Ok(())
    }

    /// Marks the page as complete. If a page ends without this, its client sees that it was aborted.
    pub(crate) async fn end(&self) -> Result<(), Disconnected> {
        self.send_piece(Piece::End).await
    }

    async fn send_piece(&self, piece: Piece) -> Result<(), Disconnected> {
        match timeout(self.patience, self.pieces.send(piece)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Disconnected),
        }
    }
}

impl TextBody {
    /// Returns the next piece, or `None` at the end.
    pub async fn next(&mut self) -> Option<Bytes> {
        match self.pieces.recv().await? {
            Piece::Text(text) => Some(text),
            Piece::End => {
                self.is_whole = true;
                None
            }
        }
    }

    /// Returns true if the page has ended and is complete.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }
}

/// Returns the remaining pieces of a page. A page that was aborted ends with an error, which also ends the connection.
pub(crate) fn body_stream(listening: TextBody) -> impl Stream<Item = io::Result<Bytes>> {
    unfold(Some(listening), |listening| async {
        let mut listening = listening?;
        match listening.next().await {
            Some(piece) => Some((Ok(piece), Some(listening))),
            None if listening.is_whole() => None,
            None => Some((Err(io::ErrorKind::UnexpectedEof.into()), None)),
        }
    })
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sender_waits_for_room_and_drops_stalled_clients() {
        let patience = Duration::from_secs(6);
        let (telling, mut listening) = TextSender::new(patience);
        let long = "é".repeat(PIECE_BYTES);
        let told = {
            let (telling, long) = (telling.clone(), long.clone());
            tokio::spawn(async move {
                for _ in 0..5 {
                    telling.send(long.clone()).await?;
                }
                telling.end().await
            })
        };
        let began = Instant::now();
        let mut heard = Vec::new();
        while let Some(piece) = listening.next().await {
            // The whole takes longer than the time-out, but there is progress all the time.
            tokio::time::sleep(patience / 6).await;
            heard.extend_from_slice(&piece);
        }
        assert_eq!(told.await.unwrap(), Ok(()));
        assert_eq!(began.elapsed(), 10 * patience / 6);
        assert!(listening.is_whole() && heard == long.repeat(5).into_bytes());

        assert_eq!(telling.send("x".repeat(PIECES_QUEUED_MAX * PIECE_BYTES)).await, Ok(()));
        let began = Instant::now();
        assert_eq!(telling.send("x".to_owned()).await, Err(Disconnected));
        assert_eq!(began.elapsed(), patience);
        drop(listening);
        assert_eq!(telling.send(String::new()).await, Err(Disconnected));
    }
}
