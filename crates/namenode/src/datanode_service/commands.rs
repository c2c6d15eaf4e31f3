use hearth_types::{BlockId, LocatedBlock};
use hearth_wire::convert::storage_types_to_wire;
use hearth_wire::proto::hdfs::block_command_proto::Action;
use hearth_wire::proto::hdfs::datanode_command_proto::Type;
use hearth_wire::proto::hdfs::{
    BalancerBandwidthCommandProto, BlockCommandProto, BlockIdCommandProto, BlockRecoveryCommandProto,
    DatanodeCommandProto, DatanodeInfosProto, ExportedBlockKeysProto, FinalizeCommandProto, KeyUpdateCommandProto,
    RecoveringBlockProto, RegisterCommandProto, StorageTypesProto, StorageUuidsProto, block_id_command_proto,
};

use super::DatanodeService;
use crate::blocks::{DatanodeCommand, RecoveryTask, Target, TransferTask};

/// Offset of LocatedBlocks in recovery commands, which have no position in a file: Java's -1.
const NO_OFFSET: u64 = u64::MAX;

impl DatanodeService {
    pub(super) fn command_to_wire(&self, command: DatanodeCommand) -> DatanodeCommandProto {
        match command {
            DatanodeCommand::Register => {
                DatanodeCommandProto { register_cmd: Some(RegisterCommandProto {}), ..empty(Type::Register) }
            }
            DatanodeCommand::Transfer(tasks) => {
                DatanodeCommandProto { blk_cmd: Some(self.transfer(&tasks)), ..empty(Type::Block) }
            }
            DatanodeCommand::Invalidate(blocks) => {
                let command = BlockCommandProto {
                    blocks: blocks.iter().map(Into::into).collect(),
                    ..self.block_command(Action::Invalidate)
                };
                DatanodeCommandProto { blk_cmd: Some(command), ..empty(Type::Block) }
            }
            DatanodeCommand::Cache(blocks) => self.block_ids(block_id_command_proto::Action::Cache, &blocks),
            DatanodeCommand::Uncache(blocks) => self.block_ids(block_id_command_proto::Action::Uncache, &blocks),
            DatanodeCommand::Recover(tasks) => {
                let blocks = tasks.into_iter().map(|task| self.recovering_block(task)).collect();
                DatanodeCommandProto {
                    recovery_cmd: Some(BlockRecoveryCommandProto { blocks }),
                    ..empty(Type::BlockRecovery)
                }
            }
            DatanodeCommand::UpdateKeys => DatanodeCommandProto {
                key_update_cmd: Some(KeyUpdateCommandProto { keys: self.exported_keys() }),
                ..empty(Type::KeyUpdate)
            },
            DatanodeCommand::BalancerBandwidth(bandwidth) => DatanodeCommandProto {
                balancer_cmd: Some(BalancerBandwidthCommandProto { bandwidth }),
                ..empty(Type::BalancerBandwidth)
            },
        }
    }

    /// Command to finalize a possible upgrade: the usual answer to a full report.
    pub(super) fn finalize_command(&self) -> DatanodeCommandProto {
        let block_pool_id = self.namenode.identity.pool.as_str().to_owned();
        DatanodeCommandProto { finalize_cmd: Some(FinalizeCommandProto { block_pool_id }), ..empty(Type::Finalize) }
    }

    pub(super) fn register_command() -> DatanodeCommandProto {
        DatanodeCommandProto { register_cmd: Some(RegisterCommandProto {}), ..empty(Type::Register) }
    }

    /// The keys with which datanodes check block tokens.
    pub(super) fn exported_keys(&self) -> ExportedBlockKeysProto {
        (&self.tokens.exported()).into()
    }

    fn block_command(&self, action: Action) -> BlockCommandProto {
        BlockCommandProto {
            action: action as i32,
            block_pool_id: self.namenode.identity.pool.as_str().to_owned(),
            blocks: Vec::new(),
            targets: Vec::new(),
            target_storage_uuids: Vec::new(),
            target_storage_types: Vec::new(),
        }
    }

    fn block_ids(&self, action: block_id_command_proto::Action, blocks: &[BlockId]) -> DatanodeCommandProto {
        let command = BlockIdCommandProto {
            action: action as i32,
            block_pool_id: self.namenode.identity.pool.as_str().to_owned(),
            block_ids: blocks.iter().map(|block| block.0 as u64).collect(),
        };
        DatanodeCommandProto { blk_id_cmd: Some(command), ..empty(Type::BlockId) }
    }

    fn transfer(&self, tasks: &[TransferTask]) -> BlockCommandProto {
        let mut command = self.block_command(Action::Transfer);
        for task in tasks {
            command.blocks.push((&task.block.block).into());
            let datanodes = task.targets.iter().map(|target| (&target.datanode).into()).collect();
            command.targets.push(DatanodeInfosProto { datanodes });
            let storage_uuids = task.targets.iter().map(|target| target.storage_id.0.to_string()).collect();
            command.target_storage_uuids.push(StorageUuidsProto { storage_uuids });
            let media: Vec<_> = task.targets.iter().map(|target| target.storage_type).collect();
            command.target_storage_types.push(StorageTypesProto { storage_types: storage_types_to_wire(&media) });
        }
        command
    }

    fn recovering_block(&self, task: RecoveryTask) -> RecoveringBlockProto {
        RecoveringBlockProto {
            new_gen_stamp: task.recovery_id.0,
            block: (&located(&task)).into(),
            truncate_block: task.truncate.as_ref().map(Into::into),
            ec_policy: None,
            block_indices: None,
        }
    }
}

fn located(task: &RecoveryTask) -> LocatedBlock {
    let each = |of: fn(&Target) -> _| task.locations.iter().map(of).collect();
    LocatedBlock {
        offset: NO_OFFSET,
        locations: each(|target| target.datanode.clone()),
        storage_ids: task.locations.iter().map(|target| target.storage_id.clone()).collect(),
        storage_types: task.locations.iter().map(|target| target.storage_type).collect(),
        ..LocatedBlock::nowhere(task.block.clone())
    }
}

fn empty(cmd_type: Type) -> DatanodeCommandProto {
    DatanodeCommandProto {
        cmd_type: cmd_type as i32,
        balancer_cmd: None,
        blk_cmd: None,
        recovery_cmd: None,
        finalize_cmd: None,
        key_update_cmd: None,
        register_cmd: None,
        blk_id_cmd: None,
        blk_ec_reconstruction_cmd: None,
    }
}
