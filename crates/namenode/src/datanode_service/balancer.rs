//! `getBlocks`: the blocks from which balancer and mover choose.

use hearth_protocol::rpc::{RemoteError, application_error};
use hearth_types::{BlockId, DatanodeId};
use hearth_wire::convert::storage_type_from_wire;
use hearth_wire::proto::hdfs::{
    BlockWithLocationsProto, BlocksWithLocationsProto, GetBlocksRequestProto, GetBlocksResponseProto,
};
use hearth_wire::rpc::exceptions;

use super::{DatanodeService, malformed};
use crate::blocks::{BlockReport, BlockState, Now};
use crate::namespace::InodeId;
use crate::service::to_remote;
use crate::state::State;

/// Limit of blocks per answer: bounds the answer and how long the lock is held.
const BLOCKS_MAX: usize = 50_000;

impl DatanodeService {
    /// Returns complete blocks of one datanode, about `size` bytes of them, from a random start on. Blocks of files
    /// that were read within `time_interval` come last.
    pub(super) fn get_blocks(&self, request: GetBlocksRequestProto) -> Result<GetBlocksResponseProto, RemoteError> {
        let minimum = request.min_block_size();
        let size_wanted = request.size as i64;
        if size_wanted <= 0 || (minimum as i64) < 0 {
            let message = format!("Unexpected not positive size: {size_wanted}");
            return Err(application_error(exceptions::ILLEGAL_ARGUMENT, message));
        }
        let medium = request.storage_type.map(storage_type_from_wire);
        let interval = request.time_interval();
        let datanode = DatanodeId::try_from(request.datanode).map_err(malformed)?;
        let state = self.namenode.state.read();
        let now = Now::of(&*self.namenode.clock);
        self.namenode.check_safe_mode(&state, now, || "execute getBlocks".into()).map_err(to_remote)?;
        let Some(node) = state.blocks.find_datanode(&datanode) else {
            let message = format!("Datanode {datanode} not found.");
            return Err(application_error(exceptions::HADOOP_ILLEGAL_ARGUMENT, message));
        };
        let mut chosen = Chosen { blocks: Vec::new(), bytes: 0, wanted: request.size };
        let mut read_lately = Vec::new();
        for block in state.blocks.some_blocks_on(node, medium) {
            let Some(report) = state.blocks.block_report(block, now) else { continue };
            if report.block.length < minimum || !matches!(report.state, BlockState::Complete) {
                continue;
            }
            if interval > 0 && last_read_ms(&state, block) >= now.wall_ms.saturating_sub(interval) {
                if read_lately.len() < BLOCKS_MAX {
                    read_lately.push(report);
                }
            } else {
                chosen.add(&report);
            }
            if chosen.is_enough() {
                break;
            }
        }
        for report in &read_lately {
            if chosen.is_enough() {
                break;
            }
            chosen.add(report);
        }
        Ok(GetBlocksResponseProto { blocks: BlocksWithLocationsProto { blocks: chosen.blocks } })
    }
}

/// Time of the last read of the block's file; 0 if access times are off or the file is gone.
fn last_read_ms(state: &State, block: BlockId) -> u64 {
    let slot = state.blocks.inode_of(block).and_then(|id| state.namespace.slot(InodeId(id)));
    slot.map_or(0, |slot| state.namespace.inode(slot).access_time_ms())
}

/// Blocks of an answer, up to the requested number of bytes.
struct Chosen {
    blocks: Vec<BlockWithLocationsProto>,
    bytes: u64,
    wanted: u64,
}

impl Chosen {
    fn is_enough(&self) -> bool {
        self.bytes >= self.wanted || self.blocks.len() >= BLOCKS_MAX
    }

    fn add(&mut self, report: &BlockReport) {
        let good = || report.replicas.iter().filter(|replica| replica.alive && !replica.corrupt && !replica.excess);
        if good().next().is_none() {
            return;
        }
        self.bytes = self.bytes.saturating_add(report.block.length);
        self.blocks.push(BlockWithLocationsProto {
            block: (&report.block).into(),
            datanode_uuids: good().map(|replica| replica.target.datanode.id.uuid.0.to_string()).collect(),
            storage_uuids: good().map(|replica| replica.target.storage_id.0.to_string()).collect(),
            storage_types: good().map(|replica| replica.target.storage_type as i32).collect(),
            indices: None,
            data_block_num: None,
            cell_size: None,
        });
    }
}
