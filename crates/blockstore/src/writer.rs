use std::convert::Infallible;

use hearth_types::{ChecksumSpec, ExtendedBlock, StorageId, StorageType};

use crate::{Checksums, Durability, ReplicaSummary, Result};

/// The one writer of a replica. A later operation on the replica may stop it: every call then answers `WriterStopped`.
///
/// Dropped before `finalize`, it leaves a replica being written as it is (a pipeline recovery may come), and removes a
/// TEMPORARY one.
pub struct ReplicaWriter {
    never: Infallible,
}

/// Notes what a whole pipeline has acknowledged; for the task that sends the acks, beside the writer.
#[derive(Clone)]
pub struct Acker {
    never: Infallible,
}

impl Acker {
    /// `length` bytes of the block are with every datanode of the pipeline: call it before the ack goes up. Only rises.
    ///
    /// Errors: `WriterStopped`: the ack must not be sent.
    pub fn set(&self, _length: u64) -> Result<()> {
        match self.never {}
    }
}

impl ReplicaWriter {
    /// The replica with its stamp and the bytes received.
    pub fn block(&self) -> ExtendedBlock {
        match self.never {}
    }

    pub fn storage(&self) -> (StorageId, StorageType) {
        match self.never {}
    }

    /// The replica's own, which for appends may differ from what the client sends.
    pub fn checksum(&self) -> ChecksumSpec {
        match self.never {}
    }

    /// Bytes received.
    pub fn received(&self) -> u64 {
        match self.never {}
    }

    pub fn acked(&self) -> u64 {
        match self.never {}
    }

    pub fn acker(&self) -> Acker {
        match self.never {}
    }

    /// Adds `data`, which begins at `offset` of the block. Returns the bytes received so far.
    ///
    /// Bytes that are there already are skipped, and the CRC of the chunk at the seam is replaced; a packet wholly below
    /// changes nothing. Data that begins within a chunk may not reach beyond it: its CRC covers the new bytes only, and
    /// is combined here with what stands before them, after that was checked.
    ///
    /// Touches memory only, unless the memory tier is full: then the replica goes on in files.
    ///
    /// Errors: `Gap`; `BadWrite` (CRCs of a wrong size, data across a seam); `Corrupt` (the bytes before the seam);
    /// `WriterStopped`; `NoSpace`, `VolumeFailed`, `Io`.
    pub fn write(&mut self, _offset: u64, _data: &[u8], _checksums: Checksums<'_>) -> Result<u64> {
        match self.never {}
    }

    /// hsync: all bytes received, their CRCs and the directory entries are on disk on return. Waits for the disk.
    pub fn sync(&mut self) -> Result<()> {
        match self.never {}
    }

    /// The last packet has come: the replica is immutable from here. All bytes received count as acknowledged.
    ///
    /// Waits for the disk with `Durability::Disk`, or when the replica is written in files.
    pub fn finalize(self, _durability: Durability) -> Result<ReplicaSummary> {
        match self.never {}
    }

    /// TRANSFER_RBW: the TEMPORARY replica becomes one being written, with all received bytes visible and no writer.
    pub fn leave_being_written(self) -> Result<ReplicaSummary> {
        match self.never {}
    }

    /// Called once, from the thread that stops this writer, before that goes on: closes the connection, and for memory
    /// that others write into, withdraws it. Returns whether nothing can write any more; bounded by the callee.
    pub fn on_stop(&mut self, _hook: Box<dyn FnOnce() -> bool + Send>) {
        match self.never {}
    }
}
