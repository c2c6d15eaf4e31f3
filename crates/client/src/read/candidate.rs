//! What stands between a block and its bytes: a replica of it, and a path to that replica.

use std::sync::Arc;

use hearth_types::{DatanodeInfo, LocatedBlock};

use super::packet_stream;
use crate::DataPath;
use crate::data_path::DataPaths;
use crate::file_system::Shared;

/// A replica of a block, and the path by which it is read.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub block: Arc<LocatedBlock>,
    /// Which of the block's locations.
    pub replica: usize,
    pub path: DataPath,
}

impl Candidate {
    pub(super) fn datanode(&self) -> &DatanodeInfo {
        &self.block.locations[self.replica]
    }
}

/// Whether a reader's bytes are verified against their checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Checks {
    All,
    /// The bytes are handed out as they are stored. Only packets over TCP are read so, whatever paths are configured.
    None,
}

impl Checks {
    /// The paths of readers with these checks, in the order in which they are tried.
    pub(super) fn paths<'a>(self, configured: &'a DataPaths) -> impl Iterator<Item = DataPath> + use<'a> {
        let only = (self == Self::None).then_some(DataPath::Packets);
        let configured = (self == Self::All).then(|| configured.iter()).into_iter().flatten();
        only.into_iter().chain(configured)
    }
}

/// What can be said of a path to a replica before it is tried. No path waits for anything to say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Health {
    Healthy,
    /// It failed lately, for this reader or another: only when nothing better is left.
    Suspect,
    /// It cannot lead there; why, for people.
    Unusable(&'static str),
}

/// The prospect of `path` to the replica of `block` on `datanode`. `being_written`: the namenode has not heard of the block's end.
pub(super) fn health(
    shared: &Shared,
    block: &LocatedBlock,
    being_written: bool,
    datanode: &DatanodeInfo,
    path: DataPath,
) -> Health {
    let failed_lately = match path {
        DataPath::Packets => return packet_stream::health(shared, datanode),
        // Its datanode shows only finalized replicas, and its CRCs change with every packet.
        _ if being_written => return Health::Unusable("the block is being written"),
        DataPath::Local => shared.short_circuit.failed_lately(block, &datanode.id),
        DataPath::OneSided => shared.one_sided.failed_lately(&shared.offers, block, &datanode.id),
    };
    match failed_lately {
        Ok(false) => Health::Healthy,
        Ok(true) => Health::Suspect,
        Err(why) => Health::Unusable(why),
    }
}
