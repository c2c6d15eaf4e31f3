use std::sync::Arc;

use hearth_protocol::rpc::{RpcClient, RpcClientOptions, Target};
use hearth_types::{DatanodeInfo, ExtendedBlock};
use hearth_wire::proto::hdfs::{GetReplicaVisibleLengthRequestProto, GetReplicaVisibleLengthResponseProto};
use hearth_wire::rpc::protocols;

use super::address_of;
use crate::DatanodeError;
use crate::file_system::Shared;
use crate::namenode::Exception;

/// What a datanode says of a replica that is being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VisibleLength {
    /// Acknowledged bytes: readers may have them.
    Bytes(u64),
    /// The replica awaits recovery.
    NotReadable,
    NoReplica,
}

/// Asks `datanode` how much of `block` readers may see.
///
/// Source: ClientDatanodeProtocol.proto. The user of the call is the block's name, and each call has a connection of its
/// own, as in Apache's client.
pub(crate) async fn visible_length(
    shared: &Shared,
    datanode: &DatanodeInfo,
    block: &ExtendedBlock,
) -> Result<VisibleLength, DatanodeError> {
    let address = address_of(&shared.options, &datanode.id, datanode.id.ipc_port).await?;
    let user: Arc<str> = block.block.to_string().into();
    let target = Target { address, protocol: protocols::CLIENT_DATANODE, user };
    // Nobody makes this call in the name of another.
    let rpc = RpcClient::new(RpcClientOptions { real_user: None, ..shared.rpc_options.clone() });
    let request = GetReplicaVisibleLengthRequestProto { block: block.into() };
    let answer: Result<GetReplicaVisibleLengthResponseProto, _> =
        rpc.call(&target, "getReplicaVisibleLength", &request).await;
    match answer {
        Ok(answer) if (answer.length as i64) < 0 => Ok(VisibleLength::NotReadable),
        Ok(answer) => Ok(VisibleLength::Bytes(answer.length)),
        Err(error) => match error.remote_class().map(Exception::from_class) {
            Some(Exception::ReplicaNotFound) => Ok(VisibleLength::NoReplica),
            _ => Err(DatanodeError::Rpc(Arc::new(error))),
        },
    }
}
