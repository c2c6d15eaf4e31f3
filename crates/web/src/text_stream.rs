//! A page that is told while it is being made: pieces of text on their way to its client.
//!
//! Few pieces wait; whoever makes the page waits with them. It hears that the client has gone, or has taken nothing for too long,
//! when it has something to say the next time, and ends then: where it likes, as nothing is broken off under it.

use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

/// Bytes of a piece. What a client has taken is known by the piece: small ones, so that a slow one is seen to take something.
const PIECE_BYTES: usize = 16 << 10;
/// Pieces that wait for the client.
const PIECES_QUEUED_MAX: usize = 4;

/// Nobody hears the page any more: its client has gone, or took nothing for too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("nobody hears the page any more")]
pub struct Disconnected;

enum Piece {
    Text(Bytes),
    /// The page is whole.
    End,
}

/// Where a page leaves its text.
#[derive(Clone)]
pub struct TextSender {
    pieces: Sender<Piece>,
    /// A client that takes nothing for so long is given up.
    patience: Duration,
}

/// The other end: what the client gets.
pub struct TextBody {
    pieces: Receiver<Piece>,
    is_whole: bool,
}

impl TextSender {
    /// Both ends.
    pub fn new(patience: Duration) -> (Self, TextBody) {
        let (sender, receiver) = channel(PIECES_QUEUED_MAX);
        (Self { pieces: sender, patience }, TextBody { pieces: receiver, is_whole: false })
    }

    /// Hands on the next text, and waits for room. An empty one only asks whether anybody still listens.
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

    /// Says that this was all. A page that ends without it has been broken off, which its client sees.
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
    /// The next piece; `None` when there are no more.
    pub async fn next(&mut self) -> Option<Bytes> {
        match self.pieces.recv().await? {
            Piece::Text(text) => Some(text),
            Piece::End => {
                self.is_whole = true;
                None
            }
        }
    }

    /// There are no more pieces, and none is missing.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn what_is_said_waits_for_room_and_a_client_that_takes_nothing_is_given_up() {
        let patience = Duration::from_secs(1);
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
            // The whole takes longer than the patience is, but something is taken again and again.
            tokio::time::sleep(patience / 6).await;
            heard.extend_from_slice(&piece);
        }
        assert_eq!(told.await.unwrap(), Ok(()));
        assert!(began.elapsed() > patience && listening.is_whole() && heard == long.repeat(5).into_bytes());

        assert_eq!(telling.send("x".repeat(PIECES_QUEUED_MAX * PIECE_BYTES)).await, Ok(()));
        let began = Instant::now();
        assert_eq!(telling.send("x".to_owned()).await, Err(Disconnected));
        assert!(began.elapsed() >= patience);
        drop(listening);
        assert_eq!(telling.send(String::new()).await, Err(Disconnected));
    }
}
