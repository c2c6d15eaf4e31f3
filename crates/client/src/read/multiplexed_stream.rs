//! A short range of a replica over a connection that many reads share: one request message, one response. A form of the
//! packets path.

use hearth_types::ByteRange;

use super::candidate::Candidate;
use crate::DatanodeError;
use crate::checksummed::FetchedRange;
use crate::multiplexed::WantedRange;
use crate::session::Session;

/// Verified bytes of a replica, all received.
#[derive(Debug)]
pub(super) struct MultiplexedStream {
    fetched: FetchedRange,
    /// Requested bytes not yet shown.
    left: ByteRange,
    /// Bytes verified, shown and not consumed.
    shown: ByteRange,
}

impl MultiplexedStream {
    /// Fetches `range` (not empty) of the replica of `candidate`. Returns `None` if it must be read by READ_BLOCK: the
    /// range is long, or its datanode does not support READ_MANY or has refused.
    pub(super) async fn open(
        session: &Session,
        candidate: &Candidate,
        range: ByteRange,
    ) -> Result<Option<Self>, DatanodeError> {
        if !session.multiplexed.takes(range.length()) {
            return Ok(None);
        }
        let Some(connection_pool) = session.multiplexed.connection_pool(&candidate.datanode().id).await? else {
            return Ok(None);
        };
        let wanted = WantedRange { block: &candidate.block.block, token: &candidate.block.token, range };
        match connection_pool.fetch(wanted).await {
            Ok(fetched) => Ok(Some(Self { fetched, left: range, shown: empty(range.start()) })),
            Err(error) => match error.cause() {
                // The datanode timed out; READ_BLOCK would wait as long again.
                DatanodeError::SharedConnection { source } if source.is_time_out() => Err(error),
                // READ_BLOCK would fail in the same way.
                DatanodeError::AccessToken { .. } | DatanodeError::Transfer(_) => Err(error),
                _ => {
                    let (block, datanode) = (&candidate.block.block, &candidate.datanode().id);
                    tracing::info!(%block, %datanode, %error, "READ_MANY failed, using READ_BLOCK");
                    Ok(None)
                }
            },
        }
    }

    pub(super) fn data(&self) -> &[u8] {
        let start = self.fetched.start;
        &self.fetched.data()[(self.shown.start() - start) as usize..(self.shown.end() - start) as usize]
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        let start = self.shown.start() + bytes as u64;
        self.shown = ByteRange::new(start, self.shown.end()).expect("consumed more bytes than available");
    }

    /// Verifies all bytes. Returns false if they were shown before.
    pub(super) fn advance(&mut self, candidate: &Candidate) -> Result<bool, DatanodeError> {
        self.shown = empty(self.left.start());
        if self.left.is_empty() {
            return Ok(false);
        }
        let start = (self.left.start() - self.fetched.start) as usize;
        let verified = self.fetched.checked().verify(start, start + self.left.length() as usize);
        verified.map_err(|source| self.bad(candidate, source))?;
        self.shown = self.left;
        self.left = empty(self.left.end());
        Ok(true)
    }

    /// Copies bytes into `into` (not empty) and verifies them in the same pass. Returns 0 when all requested bytes have
    /// been taken.
    pub(super) fn read(&mut self, candidate: &Candidate, into: &mut [u8]) -> Result<usize, DatanodeError> {
        if !self.shown.is_empty() {
            let data = self.data();
            let count = data.len().min(into.len());
            into[..count].copy_from_slice(&data[..count]);
            self.consume(count);
            return Ok(count);
        }
        let count = (self.left.length() as usize).min(into.len());
        let start = (self.left.start() - self.fetched.start) as usize;
        self.fetched.checked().copy(start, &mut into[..count]).map_err(|source| self.bad(candidate, source))?;
        self.left = ByteRange::new(self.left.start() + count as u64, self.left.end()).expect("a part of it");
        Ok(count)
    }

    fn bad(&self, candidate: &Candidate, source: hearth_types::ChecksumError) -> DatanodeError {
        DatanodeError::Checksum { block: Box::new(candidate.block.block.clone()), offset: self.fetched.start, source }
    }
}

fn empty(at: u64) -> ByteRange {
    ByteRange::new(at, at).expect("it does not end before it starts")
}
