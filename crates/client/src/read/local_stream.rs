//! Stream of a replica, or a range of it, in the memory of a datanode on this machine.

use std::sync::Arc;

use hearth_types::{ByteRange, ChecksumError};

use super::candidate::Candidate;
use super::window::VerifiedWindow;
use crate::DatanodeError;
use crate::checksummed::{Checksummed, FetchedRange};
use crate::short_circuit::{LocalReplica, OpenLocalReplica, ShortCircuit};

/// Bytes that are verified and shown at a time: few enough to be in the processor's cache when the caller reads them.
const WINDOW_BYTES: u64 = 128 << 10;

/// Bytes that are copied before other tasks get their turn on this thread.
const BYTES_BETWEEN_YIELDS: u64 = 4 << 20;

/// Bytes per read of a replica that is not mapped.
const FETCH_BYTES: u64 = 1 << 20;

/// Verified bytes of a replica, in order, in the datanode's memory.
#[derive(Debug)]
pub(super) struct LocalStream {
    opened: OpenLocalReplica,
    pub window: VerifiedWindow,
    /// Buffer with the shown bytes, if the replica is not mapped.
    fetched: Option<FetchedRange>,
}

impl LocalStream {
    /// Opens the replica of `candidate`, or finds it open, to read `range` of it.
    pub(super) async fn open(
        short_circuit: &Arc<ShortCircuit>,
        candidate: &Candidate,
        range: ByteRange,
    ) -> Result<Self, DatanodeError> {
        let datanode = &candidate.datanode().id;
        short_circuit.learn_socket(datanode).await?;
        let opened = short_circuit.open(&candidate.block, datanode).await?;
        Ok(Self { opened, window: VerifiedWindow::new(range), fetched: None })
    }

    /// Returns the open replica, which other readers of the block can use without waiting.
    pub(super) fn replica(&self) -> Option<&Arc<LocalReplica>> {
        match &self.opened {
            OpenLocalReplica::Replica(replica) => Some(replica),
            OpenLocalReplica::Small(_) => None,
        }
    }

    fn mapped(&self) -> Option<Checksummed<'_>> {
        self.replica()?.mapped()
    }

    pub(super) fn data(&self) -> &[u8] {
        let (bytes, start) = match (&self.fetched, self.mapped()) {
            (Some(fetched), _) => (fetched.data(), fetched.start),
            (None, Some(mapped)) => (mapped.data, 0),
            (None, None) => return &[],
        };
        self.window.of(bytes, start)
    }

    /// Verifies the next bytes; unconsumed bytes are dropped. Returns false when all requested bytes have been shown.
    pub(super) async fn advance(
        &mut self,
        short_circuit: &ShortCircuit,
        candidate: &Candidate,
    ) -> Result<bool, DatanodeError> {
        tokio::task::consume_budget().await;
        self.window.clear();
        let left = self.window.left();
        if left.is_empty() {
            return Ok(false);
        }
        self.check_valid(candidate)?;
        let bytes = if self.mapped().is_some() { WINDOW_BYTES } else { FETCH_BYTES };
        // Windows end on a chunk boundary, regardless of where the range begins.
        let next = self.window.next(bytes - left.start() % bytes);
        self.fetched = match self.mapped() {
            Some(_) => None,
            None => Some(self.fetch(short_circuit, candidate, next).await?),
        };
        let verified = match (&self.fetched, self.mapped()) {
            (Some(fetched), _) => {
                let start = (next.start() - fetched.start) as usize;
                fetched.checked().verify(start, start + next.length() as usize)
            }
            (None, Some(mapped)) => mapped.verify(next.start() as usize, next.end() as usize),
            (None, None) => Ok(()),
        };
        verified.map_err(|error| self.bad(short_circuit, candidate, next.start(), error))?;
        self.window.show(next.end());
        Ok(true)
    }

    /// Returns true if `read` can be used.
    pub(super) fn is_mapped(&self) -> bool {
        self.mapped().is_some()
    }

    /// Copies bytes out of the mapping into `into` (not empty) and verifies them in the same pass, without showing
    /// them. Nothing may be shown. Returns 0 when all requested bytes have been read.
    pub(super) async fn read(
        &mut self,
        short_circuit: &ShortCircuit,
        candidate: &Candidate,
        into: &mut [u8],
    ) -> Result<usize, DatanodeError> {
        let left = self.window.left();
        if left.is_empty() {
            return Ok(0);
        }
        let count = left.length().min(into.len() as u64).min(BYTES_BETWEEN_YIELDS);
        if count == BYTES_BETWEEN_YIELDS {
            // Before anything is taken: the call may be dropped here.
            tokio::task::yield_now().await;
        }
        let Some(mapped) = self.mapped() else { return Ok(0) };
        self.check_valid(candidate)?;
        let start = left.start();
        let copied = mapped.copy(start as usize, &mut into[..count as usize]);
        copied.map_err(|error| self.bad(short_circuit, candidate, start, error))?;
        self.window.skip(count);
        Ok(count as usize)
    }

    async fn fetch(
        &self,
        short_circuit: &ShortCircuit,
        candidate: &Candidate,
        range: ByteRange,
    ) -> Result<FetchedRange, DatanodeError> {
        let replica = match &self.opened {
            OpenLocalReplica::Replica(replica) => replica,
            OpenLocalReplica::Small(small) => return small.fetch(range).await,
        };
        replica.fetch(range).await.map_err(|source| {
            short_circuit.forget(&candidate.block.block, &candidate.datanode().id, replica);
            DatanodeError::Unusable { block: Box::new(candidate.block.block.clone()), source: Arc::new(source) }
        })
    }

    fn check_valid(&self, candidate: &Candidate) -> Result<(), DatanodeError> {
        let Some(replica) = self.replica() else { return Ok(()) };
        replica.touch();
        if replica.is_valid() { Ok(()) } else { Err(withdrawn(candidate)) }
    }

    /// Builds the error for bytes at `offset` of the block that do not match their CRCs, and closes the replica.
    pub(super) fn bad(
        &self,
        short_circuit: &ShortCircuit,
        candidate: &Candidate,
        offset: u64,
        source: ChecksumError,
    ) -> DatanodeError {
        if let Some(replica) = self.replica() {
            short_circuit.forget(&candidate.block.block, &candidate.datanode().id, replica);
            if !replica.is_valid() {
                // The replica changed while it was read, which only a foreign datanode's can. It is not corrupt.
                return withdrawn(candidate);
            }
        }
        candidate.checksum_error(offset, source)
    }
}

fn withdrawn(candidate: &Candidate) -> DatanodeError {
    DatanodeError::Withdrawn { block: Box::new(candidate.block.block.clone()) }
}
