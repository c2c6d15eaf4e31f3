//! Candidates for a read: a replica of a block, and a path to that replica.

use std::sync::Arc;

use hearth_types::{ChecksumError, DatanodeInfo, LocatedBlock};

use crate::data_path::DataPaths;
use crate::session::Session;
use crate::{DataPath, DatanodeError};

/// A replica of a block, and the path by which it is read.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub block: Arc<LocatedBlock>,
    /// Index in the block's locations.
    pub replica: usize,
    pub path: DataPath,
}

impl Candidate {
    pub(super) fn datanode(&self) -> &DatanodeInfo {
        &self.block.locations[self.replica]
    }

    /// Builds the error for bytes at `offset` of the block that do not match their checksums.
    pub(super) fn checksum_error(&self, offset: u64, source: ChecksumError) -> DatanodeError {
        DatanodeError::Checksum { block: Box::new(self.block.block.clone()), offset, source }
    }
}

/// Verification of a reader's bytes against their checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Checks {
    All,
    /// Bytes are returned as they are stored. Uses only packets over TCP, regardless of the configured paths.
    None,
}

impl Checks {
    /// Returns the paths of readers with these checks, in the order in which they are tried.
    pub(super) fn paths<'a>(self, configured: &'a DataPaths) -> impl Iterator<Item = DataPath> + use<'a> {
        let only = (self == Self::None).then_some(DataPath::Packets);
        let configured = (self == Self::All).then(|| configured.iter()).into_iter().flatten();
        only.into_iter().chain(configured)
    }
}

/// Health of a path to a replica before it is tried. Determined without waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Health {
    Healthy,
    /// It recently failed, for this reader or another: used only if no better candidate is left.
    Suspect,
    /// It cannot be used, with the reason as text.
    Unusable(&'static str),
}

/// Returns the health of `path` to the replica of `block` on `datanode`. `being_written`: the end of the block has not
/// been reported to the namenode.
pub(super) fn health(
    session: &Session,
    block: &LocatedBlock,
    being_written: bool,
    datanode: &DatanodeInfo,
    path: DataPath,
) -> Health {
    let failed_lately = match path {
        // Packets lead to every datanode. One that another reader could not reach comes last.
        DataPath::Packets if session.datanodes.unreachable.contains(&datanode.id.uuid) => return Health::Suspect,
        DataPath::Packets => return Health::Healthy,
        // The datanode shows only finalized replicas, and the CRCs of others change with every packet.
        _ if being_written => return Health::Unusable("the block is being written"),
        DataPath::Local => session.short_circuit.failed_lately(block, &datanode.id),
        DataPath::OneSided => session.one_sided.failed_lately(block, &datanode.id),
    };
    match failed_lately {
        Ok(false) => Health::Healthy,
        Ok(true) => Health::Suspect,
        Err(why) => Health::Unusable(why),
    }
}
