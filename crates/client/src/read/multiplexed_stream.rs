//! A short range of a replica over a connection that many reads share: one request message, one response. A form of the
//! packets path.

use hearth_types::ByteRange;

use super::candidate::Candidate;
use super::window::VerifiedWindow;
use crate::DatanodeError;
use crate::checksummed::FetchedRange;
use crate::multiplexed::{Multiplexed, WantedRange};

/// Verified bytes of a replica, all received.
#[derive(Debug)]
pub(super) struct MultiplexedStream {
    fetched: FetchedRange,
    pub window: VerifiedWindow,
}

impl MultiplexedStream {
    /// Fetches `range` (not empty) of the replica of `candidate`. Returns `None` if it must be read by READ_BLOCK: the
    /// range is long, or its datanode does not support READ_MANY or has refused.
    pub(super) async fn open(
        multiplexed: &Multiplexed,
        candidate: &Candidate,
        range: ByteRange,
    ) -> Result<Option<Self>, DatanodeError> {
        if !multiplexed.takes(range.length()) {
            return Ok(None);
        }
        let Some(connection_pool) = multiplexed.connection_pool(&candidate.datanode().id).await? else {
            return Ok(None);
        };
        let wanted = WantedRange { block: &candidate.block.block, token: &candidate.block.token, range };
        match connection_pool.fetch(wanted).await {
            Ok(fetched) => Ok(Some(Self { fetched, window: VerifiedWindow::new(range) })),
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
        self.window.of(self.fetched.data(), self.fetched.start)
    }

    /// Verifies all bytes. Returns false if they were shown before.
    pub(super) fn advance(&mut self, candidate: &Candidate) -> Result<bool, DatanodeError> {
        self.window.clear();
        let left = self.window.left();
        if left.is_empty() {
            return Ok(false);
        }
        let start = (left.start() - self.fetched.start) as usize;
        let verified = self.fetched.checked().verify(start, start + left.length() as usize);
        verified.map_err(|source| candidate.checksum_error(self.fetched.start, source))?;
        self.window.show(left.end());
        Ok(true)
    }

    /// Copies bytes into `into` (not empty) and verifies them in the same pass. Nothing may be shown. Returns 0 when all requested bytes have
    /// been taken.
    pub(super) fn read(&mut self, candidate: &Candidate, into: &mut [u8]) -> Result<usize, DatanodeError> {
        let left = self.window.left();
        let count = (left.length() as usize).min(into.len());
        let start = (left.start() - self.fetched.start) as usize;
        let copied = self.fetched.checked().copy(start, &mut into[..count]);
        copied.map_err(|source| candidate.checksum_error(self.fetched.start, source))?;
        self.window.skip(count as u64);
        Ok(count)
    }
}
