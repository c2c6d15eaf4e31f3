//! A short range of a replica over a connection that many reads share: one message to ask, one to answer. A form of the packets path.

use std::sync::Arc;

use hearth_protocol::data_transfer::TransferError;
use hearth_types::{ByteRange, DatanodeId};
use hearth_wire::data_transfer::OpCode;

use super::candidate::Candidate;
use crate::DatanodeError;
use crate::datanode::address_of;
use crate::file_system::Shared;
use crate::multiplexed::{ConnectionPool, WantedRange};
use crate::short_circuit::FetchedRange;

/// Verified bytes of a replica, all of them here.
#[derive(Debug)]
pub(super) struct MultiplexedStream {
    fetched: FetchedRange,
    /// Asked for, and not yet shown.
    left: ByteRange,
    /// Verified, shown and not consumed.
    shown: ByteRange,
}

/// The connections to `datanode` that many reads share; `None` when it has no such, or did not keep to the protocol lately.
///
/// Errors: it cannot be reached, to be asked what it has.
pub(super) async fn connection_pool(
    shared: &Shared,
    datanode: &DatanodeId,
) -> Result<Option<Arc<ConnectionPool>>, DatanodeError> {
    let offer = match shared.offers.get_or_describe(shared, datanode).await {
        Ok(offer) => offer,
        // It would not be reached by READ_BLOCK either, and after as long a wait.
        Err(error @ DatanodeError::Transfer(TransferError::Connection(_))) => return Err(error),
        Err(_) => None,
    };
    if !offer.is_some_and(|offer| offer.serves(OpCode::ReadMany)) {
        return Ok(None);
    }
    let address = address_of(&shared.options, datanode, datanode.transfer_port).await?;
    Ok(shared.multiplexed.to(address))
}

impl MultiplexedStream {
    /// Fetches `range` (not empty) of the replica of `candidate`. `None`: it is to be read by READ_BLOCK, for the range is long, or its datanode
    /// does not serve that, or has refused.
    pub(super) async fn open(
        shared: &Shared,
        candidate: &Candidate,
        range: ByteRange,
    ) -> Result<Option<Self>, DatanodeError> {
        if !shared.multiplexed.takes(range.length()) {
            return Ok(None);
        }
        let Some(connection_pool) = connection_pool(shared, &candidate.datanode().id).await? else { return Ok(None) };
        let wanted = WantedRange { block: &candidate.block.block, token: &candidate.block.token, range };
        match connection_pool.fetch(wanted).await {
            Ok(fetched) => Ok(Some(Self { fetched, left: range, shown: empty(range.start()) })),
            Err(error) => match error.cause() {
                // Who was silent for so long is not waited for as long again.
                DatanodeError::SharedConnection { source } if source.is_time_out() => Err(error),
                // Asking in another form does not help.
                DatanodeError::AccessToken { .. } | DatanodeError::Transfer(_) => Err(error),
                _ => {
                    let (block, datanode) = (&candidate.block.block, &candidate.datanode().id);
                    tracing::info!(%block, %datanode, %error, "READ_BLOCK instead");
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
        self.shown = ByteRange::new(start, self.shown.end()).expect("more consumed than there is");
    }

    /// Verifies all of it. False when it was shown before.
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

    /// Copies into `into` (not empty), verified in the same go. 0 when everything asked for was taken.
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
