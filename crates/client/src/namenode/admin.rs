//! Calls about the whole cluster.

use hearth_types::DatanodeInfo;
use hearth_wire::proto::hdfs::*;

use super::Namenode;
use super::files::converted;
use crate::Error;

/// Sizes in bytes over all live datanodes, and counts of blocks that need attention.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FsUsage {
    pub capacity: u64,
    pub used: u64,
    pub remaining: u64,
    pub low_redundancy_blocks: u64,
    pub corrupt_blocks: u64,
    pub missing_blocks: u64,
    pub missing_blocks_of_replication_one: u64,
    pub bytes_in_future_blocks: u64,
    pub pending_deletion_blocks: u64,
}

/// Counts of blocks that need attention, either of replicated files or of erasure-coded ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockStatistics {
    pub low_redundancy: u64,
    pub corrupt: u64,
    pub missing: u64,
    /// Replicated files only.
    pub missing_of_replication_one: u64,
    /// Blocks that wait for the most urgent copies.
    pub highest_priority_low_redundancy: u64,
    pub pending_deletion: u64,
}

/// Selection of datanodes for a report. Numbers as in `DatanodeReportTypeProto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DatanodeReportKind {
    All = 1,
    Live = 2,
    Dead = 3,
    Decommissioning = 4,
    EnteringMaintenance = 5,
    InMaintenance = 6,
}

/// Safe mode actions. Numbers as in `SafeModeActionProto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SafeModeAction {
    Leave = 1,
    Enter = 2,
    Get = 3,
    ForceExit = 4,
}

impl Namenode {
    pub(crate) async fn usage(&self) -> Result<FsUsage, Error> {
        let answer: GetFsStatsResponseProto = self.call("getFsStats", &GetFsStatusRequestProto {}).await?;
        Ok(FsUsage {
            capacity: answer.capacity,
            used: answer.used,
            remaining: answer.remaining,
            low_redundancy_blocks: answer.under_replicated,
            corrupt_blocks: answer.corrupt_blocks,
            missing_blocks: answer.missing_blocks,
            missing_blocks_of_replication_one: answer.missing_repl_one_blocks(),
            bytes_in_future_blocks: answer.blocks_in_future(),
            pending_deletion_blocks: answer.pending_deletion_blocks(),
        })
    }

    pub(crate) async fn replicated_block_statistics(&self) -> Result<BlockStatistics, Error> {
        let answer: GetFsReplicatedBlockStatsResponseProto =
            self.call("getFsReplicatedBlockStats", &GetFsReplicatedBlockStatsRequestProto {}).await?;
        Ok(BlockStatistics {
            low_redundancy: answer.low_redundancy,
            corrupt: answer.corrupt_blocks,
            missing: answer.missing_blocks,
            missing_of_replication_one: answer.missing_repl_one_blocks,
            highest_priority_low_redundancy: answer.highest_prio_low_redundancy_blocks(),
            pending_deletion: answer.pending_deletion_blocks,
        })
    }

    pub(crate) async fn erasure_coded_block_statistics(&self) -> Result<BlockStatistics, Error> {
        let answer: GetFsEcBlockGroupStatsResponseProto =
            self.call("getFsECBlockGroupStats", &GetFsEcBlockGroupStatsRequestProto {}).await?;
        Ok(BlockStatistics {
            low_redundancy: answer.low_redundancy,
            corrupt: answer.corrupt_blocks,
            missing: answer.missing_blocks,
            missing_of_replication_one: 0,
            highest_priority_low_redundancy: answer.highest_prio_low_redundancy_blocks(),
            pending_deletion: answer.pending_deletion_blocks,
        })
    }

    pub(crate) async fn datanode_report(&self, kind: DatanodeReportKind) -> Result<Vec<DatanodeInfo>, Error> {
        const METHOD: &str = "getDatanodeReport";
        let request = GetDatanodeReportRequestProto { r#type: kind as i32 };
        let answer: GetDatanodeReportResponseProto = self.call(METHOD, &request).await?;
        converted(METHOD, answer.di.into_iter().map(DatanodeInfo::try_from).collect())
    }

    /// Performs a safe mode action. Returns true if safe mode is on afterwards.
    pub(crate) async fn safe_mode(&self, action: SafeModeAction) -> Result<bool, Error> {
        let request = SetSafeModeRequestProto { action: action as i32, checked: Some(false) };
        let answer: SetSafeModeResponseProto = self.call("setSafeMode", &request).await?;
        Ok(answer.result)
    }
}
