//! Order to send a replica to another DataNode.

use std::sync::Arc;

use hearth_types::{DatanodeId, ExtendedBlock};
use hearth_wire::data_transfer::PipelineTarget;

use crate::pool::Pool;

/// Origin of the request to send a replica; each has its own bandwidth.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RequestedBy {
    Namenode,
    Balancer,
}

/// A finalized replica, and the DataNode that is to have a copy.
#[derive(Clone)]
pub struct CopyOrder {
    pub pool: Arc<Pool>,
    pub block: ExtendedBlock,
    pub target: PipelineTarget,
    pub requested_by: RequestedBy,
}

impl CopyOrder {
    pub fn target_id(&self) -> &DatanodeId {
        &self.target.datanode.id
    }
}
