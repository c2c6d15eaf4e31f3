//! Calls about the whole cluster.

use std::time::{Duration, Instant};

use hearth_types::{DatanodeInfo, ServerDefaults};
use hearth_wire::proto::hdfs::*;

use super::files::converted;
use crate::Error;
use crate::file_system::FileSystem;

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

impl FileSystem {
    /// Returns the capacity and usage of the whole file system.
    pub async fn usage(&self) -> Result<FsUsage, Error> {
        let answer: GetFsStatsResponseProto =
            self.session.namenode.call("getFsStats", &GetFsStatusRequestProto {}).await?;
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

    /// Returns the numbers of blocks of replicated files that need attention.
    pub async fn block_statistics(&self) -> Result<BlockStatistics, Error> {
        let answer: GetFsReplicatedBlockStatsResponseProto =
            self.session.namenode.call("getFsReplicatedBlockStats", &GetFsReplicatedBlockStatsRequestProto {}).await?;
        Ok(BlockStatistics {
            low_redundancy: answer.low_redundancy,
            corrupt: answer.corrupt_blocks,
            missing: answer.missing_blocks,
            missing_of_replication_one: answer.missing_repl_one_blocks,
            highest_priority_low_redundancy: answer.highest_prio_low_redundancy_blocks(),
            pending_deletion: answer.pending_deletion_blocks,
        })
    }

    /// Returns the numbers of block groups of erasure-coded files that need attention.
    pub async fn erasure_coded_block_statistics(&self) -> Result<BlockStatistics, Error> {
        let answer: GetFsEcBlockGroupStatsResponseProto =
            self.session.namenode.call("getFsECBlockGroupStats", &GetFsEcBlockGroupStatsRequestProto {}).await?;
        Ok(BlockStatistics {
            low_redundancy: answer.low_redundancy,
            corrupt: answer.corrupt_blocks,
            missing: answer.missing_blocks,
            missing_of_replication_one: 0,
            highest_priority_low_redundancy: answer.highest_prio_low_redundancy_blocks(),
            pending_deletion: answer.pending_deletion_blocks,
        })
    }

    /// Returns a report of the cluster's datanodes. Requires superuser rights.
    pub async fn datanodes(&self, kind: DatanodeReportKind) -> Result<Vec<DatanodeInfo>, Error> {
        const METHOD: &str = "getDatanodeReport";
        let request = GetDatanodeReportRequestProto { r#type: kind as i32 };
        let answer: GetDatanodeReportResponseProto = self.session.namenode.call(METHOD, &request).await?;
        converted(METHOD, answer.di.into_iter().map(DatanodeInfo::try_from).collect())
    }

    /// Performs a safe mode action. Returns true if safe mode is on afterwards.
    pub async fn safe_mode(&self, action: SafeModeAction) -> Result<bool, Error> {
        let request = SetSafeModeRequestProto { action: action as i32, checked: Some(false) };
        let answer: SetSafeModeResponseProto = self.session.namenode.call("setSafeMode", &request).await?;
        Ok(answer.result)
    }

    /// Returns the defaults that the namenode proposes to clients. They are cached for
    /// `dfs.client.server-defaults.validity.period.ms`.
    pub async fn server_defaults(&self) -> Result<ServerDefaults, Error> {
        const METHOD: &str = "getServerDefaults";
        let validity = self.session.options.server_defaults_validity;
        if let Some((defaults, since)) = &*self.session.server_defaults.lock()
            && since.elapsed() < validity
        {
            return Ok(defaults.clone());
        }
        let answer: GetServerDefaultsResponseProto =
            self.session.namenode.call(METHOD, &GetServerDefaultsRequestProto {}).await?;
        let defaults: ServerDefaults = converted(METHOD, answer.server_defaults.try_into())?;
        *self.session.server_defaults.lock() = Some((defaults.clone(), Instant::now()));
        Ok(defaults)
    }

    /// Returns the age at which trash is deleted: the namenode's setting, or the client's own if the namenode has none.
    /// Zero means that trash is disabled.
    pub async fn trash_interval(&self) -> Result<Duration, Error> {
        let minutes = self.server_defaults().await?.trash_interval_minutes;
        let own = self.session.options.trash_interval;
        Ok(if minutes > 0 { Duration::from_secs(minutes.saturating_mul(60)) } else { own })
    }
}
