//! DESCRIBE (0xA0): the features that this DataNode offers to Hearth's own clients. Allowed on any connection and not
//! secret, because it names no block.

use std::sync::Arc;

use hearth_wire::data_transfer::{DatanodeDescription, Describe, OpCode};

use crate::datanode::Datanode;
use crate::ops::{Continuation, OpError};
use crate::session::Session;

pub async fn serve(datanode: &Arc<Datanode>, session: &Session, request: Describe) -> Result<Continuation, OpError> {
    tracing::debug!(peer = %session.connection.peer(), client = request.client_name, "answering DESCRIBE");
    datanode.replicas.metrics.record_describe();
    let mut operations = vec![OpCode::Describe, OpCode::ReadMany];
    if session.connection.is_unix() {
        operations.push(OpCode::WriteLocal);
    }
    if datanode.streams.is_enabled() {
        operations.extend([OpCode::ReplicaStream, OpCode::SendReplica]);
    }
    let description = DatanodeDescription {
        datanode: datanode.replicas.store.datanode_uuid().clone(),
        offer: datanode.offer(),
        operations,
    };
    session.send(&description.encode()).await?;
    Ok(Continuation::KeepAlive)
}
