//! Calls about the whole cluster.

use hearth_types::DatanodeInfo;
use hearth_wire::proto::hdfs::*;

use super::Namenode;
use super::files::converted;
use crate::Error;

/// Sizes in bytes over all live datanodes, and counts of blocks that need attention.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FsUsage {
    /// Capacity of all storages, in bytes.
    pub capacity: u64,
    /// Bytes that replicas use.
    pub used: u64,
    /// Bytes that replicas can still use.
    pub remaining: u64,
    /// Blocks with fewer replicas than wanted.
    pub low_redundancy_blocks: u64,
    /// Blocks of which all replicas are corrupt.
    pub corrupt_blocks: u64,
    /// Blocks without a usable replica.
    pub missing_blocks: u64,
    /// Missing blocks of files with one replica.
    pub missing_blocks_of_replication_one: u64,
    /// Bytes in blocks that are newer than the namenode's own state, for example after a rollback.
    pub bytes_in_future_blocks: u64,
    /// Replicas that are to be deleted and still exist.
    pub pending_deletion_blocks: u64,
}

/// Counts of blocks that need attention, either of replicated files or of erasure-coded ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockStatistics {
    /// Blocks with fewer replicas than wanted.
    pub low_redundancy: u64,
    /// Blocks of which all replicas are corrupt.
    pub corrupt: u64,
    /// Blocks without a usable replica.
    pub missing: u64,
    /// Missing blocks of files with one replica. Counted for replicated files only.
    pub missing_of_replication_one: u64,
    /// Blocks that wait for the most urgent copies.
    pub highest_priority_low_redundancy: u64,
    /// Replicas that are to be deleted and still exist.
    pub pending_deletion: u64,
}

/// Selection of datanodes for a report. Numbers as in `DatanodeReportTypeProto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DatanodeReportKind {
    /// All known datanodes.
    All = 1,
    /// Datanodes that send heartbeats.
    Live = 2,
    /// Datanodes whose heartbeats have stopped.
    Dead = 3,
    /// Datanodes whose replicas are being copied elsewhere before they leave.
    Decommissioning = 4,
    /// Datanodes that are about to enter maintenance.
    EnteringMaintenance = 5,
    /// Datanodes in maintenance.
    InMaintenance = 6,
}

/// Safe mode actions. Numbers as in `SafeModeActionProto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SafeModeAction {
    /// Leave safe mode.
    Leave = 1,
    /// Enter safe mode.
    Enter = 2,
    /// Only return whether safe mode is on.
    Get = 3,
    /// Leave safe mode, even if blocks from the future are lost by that.
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
