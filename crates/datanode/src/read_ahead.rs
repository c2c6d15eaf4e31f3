//! Read-ahead of a replica on disk: each piece is read while the one before it is sent.

use std::io;
use std::ops::Deref;

use hearth_blockstore::{CompletedRead, Pieces, ReplicaReader, StoreError};
use tokio::task::JoinHandle;

/// Reads a replica once, from its first byte to its last.
pub struct ReadAhead<R> {
    reader: R,
    pieces: Pieces,
    current: Option<CompletedRead>,
    next: Option<JoinHandle<io::Result<CompletedRead>>>,
}

impl<R: Deref<Target = ReplicaReader>> ReadAhead<R> {
    /// `None`: this replica is sent without read-ahead.
    pub fn start(reader: R, packet_bytes: u64) -> Option<Self> {
        let pieces = reader.pieces(packet_bytes)?;
        let mut ahead = Self { reader, pieces, current: None, next: None };
        ahead.start_read(None);
        Some(ahead)
    }

    fn start_read(&mut self, used: Option<CompletedRead>) {
        self.next = self.pieces.next(used).map(|due| tokio::task::spawn_blocking(move || due.read()));
    }

    /// Returns the next packet's bytes. Must be called for all packets in order.
    pub async fn packet(&mut self, offset: u64, length: u64) -> Result<&[u8], StoreError> {
        let has = |piece: &CompletedRead| piece.bytes(offset, length).is_some();
        if !self.current.as_ref().is_some_and(has) {
            let ended = || io::Error::from(io::ErrorKind::UnexpectedEof);
            let read = match self.next.take() {
                Some(coming) => coming.await.unwrap_or_else(|_| Err(ended())),
                None => Err(ended()),
            };
            let piece = read.map_err(|error| self.reader.disk_error(error))?;
            let used = self.current.replace(piece);
            self.start_read(used);
        }
        let bytes = self.current.as_ref().and_then(|piece| piece.bytes(offset, length));
        bytes.ok_or_else(|| self.reader.disk_error(io::Error::from(io::ErrorKind::UnexpectedEof)))
    }
}
