//! NamenodeProtocol, as far as balancer and mover use it. All of it is for superusers.

use bytes::Bytes;
use hearth_protocol::rpc::{Call, RemoteError, application_error, no_such_method};
use hearth_types::DatanodeId;
use hearth_wire::convert::storage_type_from_wire;
use hearth_wire::proto::hdfs::{
    BlockWithLocationsProto, BlocksWithLocationsProto, GetBlockKeysResponseProto, GetBlocksRequestProto,
    GetBlocksResponseProto, IsRollingUpgradeResponseProto, IsUpgradeFinalizedResponseProto,
};
use hearth_wire::rpc::exceptions;

use super::{DatanodeService, answer, decode, malformed};
use crate::blocks::Now;

/// Blocks of one answer: bounds the answer and how long the lock is held.
const BLOCKS_MAX: usize = 50_000;

impl DatanodeService {
    pub(super) async fn namenode_protocol(&self, call: &Call) -> Result<Bytes, RemoteError> {
        let user = &call.caller.user;
        if !self.namenode.groups.rights(user).await.superuser {
            let message =
                format!("Access denied for user {user}. Superuser privilege is required for operation {}", call.method);
            return Err(application_error(exceptions::ACCESS_CONTROL, message));
        }
        match call.method.as_str() {
            "versionRequest" => answer(self.version()),
            "getBlocks" => answer(self.get_blocks(decode(call)?)?),
            "getBlockKeys" => {
                let keys = self.exported_keys();
                answer(GetBlockKeysResponseProto { keys: keys.is_block_token_enabled.then_some(keys) })
            }
            "isUpgradeFinalized" => answer(IsUpgradeFinalizedResponseProto { is_upgrade_finalized: true }),
            "isRollingUpgrade" => answer(IsRollingUpgradeResponseProto { is_rolling_upgrade: false }),
            _ => Err(no_such_method(&call.protocol, &call.method)),
        }
    }

    /// Complete blocks of one datanode, about `size` bytes of them, from a random place on.
    fn get_blocks(&self, request: GetBlocksRequestProto) -> Result<GetBlocksResponseProto, RemoteError> {
        let minimum = request.min_block_size();
        let medium = request.storage_type.map(storage_type_from_wire);
        let datanode = DatanodeId::try_from(request.datanode).map_err(malformed)?;
        let state = self.namenode.state.read();
        let now = Now::of(&*self.namenode.clock);
        let Some(node) = state.blocks.find_datanode(&datanode) else {
            return Err(application_error(
                exceptions::HADOOP_ILLEGAL_ARGUMENT,
                format!("Datanode {datanode} not found."),
            ));
        };
        let mut found = Vec::new();
        let mut size = 0u64;
        for block in state.blocks.some_blocks_on(node, medium) {
            let Some(report) = state.blocks.block_report(block, now) else { continue };
            if report.block.length < minimum || !matches!(report.state, crate::blocks::BlockState::Complete) {
                continue;
            }
            let good = || report.replicas.iter().filter(|replica| replica.alive && !replica.corrupt && !replica.excess);
            found.push(BlockWithLocationsProto {
                block: (&report.block).into(),
                datanode_uuids: good().map(|replica| replica.target.datanode.id.uuid.0.to_string()).collect(),
                storage_uuids: good().map(|replica| replica.target.storage_id.0.to_string()).collect(),
                storage_types: good().map(|replica| replica.target.storage_type as i32).collect(),
                indices: None,
                data_block_num: None,
                cell_size: None,
            });
            size = size.saturating_add(report.block.length);
            if size >= request.size || found.len() >= BLOCKS_MAX {
                break;
            }
        }
        Ok(GetBlocksResponseProto { blocks: BlocksWithLocationsProto { blocks: found } })
    }
}
