use std::sync::Arc;

use hearth_protocol::rpc::{RpcClient, RpcClientOptions, Target};
use hearth_types::{DatanodeInfo, ExtendedBlock};
use hearth_wire::proto::hdfs::{GetReplicaVisibleLengthRequestProto, GetReplicaVisibleLengthResponseProto};
use hearth_wire::rpc::protocols;

use super::Datanodes;
use crate::DatanodeError;
use crate::namenode::Exception;

/// Answer of a datanode about a replica that is being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VisibleLength {
    /// Number of acknowledged bytes, which readers may see.
    Bytes(u64),
    /// The replica awaits recovery.
    NotReadable,
    NoReplica,
}

impl Datanodes {
    /// Asks `datanode` how many bytes of `block` readers may see.
    ///
    /// Source: ClientDatanodeProtocol.proto. As in Apache's client, the call's user is the name of the block, and each call
    /// has a connection of its own.
    pub(crate) async fn visible_length(
        &self,
        datanode: &DatanodeInfo,
        block: &ExtendedBlock,
    ) -> Result<VisibleLength, DatanodeError> {
        let address = self.address(&datanode.id, datanode.id.ipc_port).await?;
        let user: Arc<str> = block.block.to_string().into();
        let target = Target { address, protocol: protocols::CLIENT_DATANODE, user };
        // This call is never made on behalf of another user.
        let rpc = RpcClient::new(RpcClientOptions { real_user: None, ..self.rpc_options.clone() });
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
}
