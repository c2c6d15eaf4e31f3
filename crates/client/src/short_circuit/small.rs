//! Replicas that are too small to be worth a descriptor, or lie in a slab, whose descriptor is never passed to clients.
//! Their bytes come over the socket, on a connection that carries many reads (READ_MANY). Only Hearth's datanodes
//! support this.

use std::sync::Arc;

use hearth_types::{ByteRange, ExtendedBlock, LocatedBlock, Token};

use super::socket::DomainSocket;
use crate::DatanodeError;
use crate::checksummed::FetchedRange;
use crate::multiplexed::{ConnectionPool, WantedRange};

/// A small replica of a datanode that serves READ_MANY on its socket. Holds nothing open.
#[derive(Clone, Debug)]
pub(crate) struct SmallReplica {
    socket: Arc<DomainSocket>,
    block: ExtendedBlock,
    token: Token,
}

impl SmallReplica {
    pub(super) fn new(socket: Arc<DomainSocket>, located: &LocatedBlock) -> Self {
        Self { socket, block: located.block.clone(), token: located.token.clone() }
    }

    /// Returns the connections to its datanode, for reads of several replicas at once.
    pub(crate) fn connection_pool(&self) -> Arc<ConnectionPool> {
        Arc::clone(self.socket.connection_pool())
    }

    /// Fetches the chunks that `range` (within the block) touches, with their CRCs.
    pub(crate) async fn fetch(&self, range: ByteRange) -> Result<FetchedRange, DatanodeError> {
        let wanted = WantedRange { block: &self.block, token: &self.token, range };
        self.socket.connection_pool().fetch(wanted).await.inspect_err(|error| {
            if matches!(
                error.cause(),
                DatanodeError::Transfer(_) | DatanodeError::SharedConnection { .. } | DatanodeError::Protocol { .. }
            ) {
                self.socket.disable(error);
            }
        })
    }
}
