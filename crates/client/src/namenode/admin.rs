//! Calls about the whole cluster.

use std::time::Duration;

use hearth_types::{DatanodeInfo, ServerDefaults};
use hearth_wire::proto::common::HaServiceStateProto;
use hearth_wire::proto::hdfs::*;
use tokio::time::Instant;

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

/// Rolling upgrade actions. Numbers as in `RollingUpgradeActionProto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RollingUpgradeAction {
    /// Only return the state.
    Query = 1,
    /// Write an image that a rollback can return to.
    Prepare = 2,
    /// Give up the possibility of a rollback.
    Finalize = 3,
}

/// State of a rolling upgrade.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RollingUpgrade {
    /// Id of the block pool.
    pub block_pool: String,
    /// Start in milliseconds since the epoch; 0 if it has not started.
    pub start_ms: u64,
    /// End in milliseconds since the epoch; 0 if it is not finalized.
    pub finalize_ms: u64,
    /// The image for a rollback exists.
    pub has_rollback_image: bool,
}

/// Selection of open files. Numbers as in `OpenFilesTypeProto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum OpenFilesKind {
    /// All open files.
    All = 1,
    /// Open files that a decommission waits for.
    BlockingDecommission = 2,
}

/// A file that a client writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenFile {
    /// Number of the inode.
    pub inode: i64,
    /// Absolute path.
    pub path: String,
    /// Name of the client that has the lease.
    pub client_name: String,
    /// Machine of that client.
    pub client_machine: String,
}

/// Part of a list that the namenode sends in several parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<T> {
    /// Entries in the namenode's order.
    pub entries: Vec<T>,
    /// More entries follow the last one.
    pub has_more: bool,
}

/// State of a namenode with respect to high availability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HaState {
    /// The namenode starts.
    Initializing,
    /// The namenode serves clients.
    Active,
    /// The namenode follows the active one.
    Standby,
    /// The namenode follows the active one and serves reads.
    Observer,
}

impl std::fmt::Display for HaState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Initializing => "initializing",
            Self::Active => "active",
            Self::Standby => "standby",
            Self::Observer => "observer",
        })
    }
}

impl From<HaServiceStateProto> for HaState {
    fn from(state: HaServiceStateProto) -> Self {
        match state {
            HaServiceStateProto::Initializing => Self::Initializing,
            HaServiceStateProto::Active => Self::Active,
            HaServiceStateProto::Standby => Self::Standby,
            HaServiceStateProto::Observer => Self::Observer,
        }
    }
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

    /// Returns the datanodes that other datanodes report as slow. Requires superuser rights.
    pub async fn slow_datanodes(&self) -> Result<Vec<DatanodeInfo>, Error> {
        const METHOD: &str = "getSlowDatanodeReport";
        let answer: GetSlowDatanodeReportResponseProto =
            self.session.namenode.call(METHOD, &GetSlowDatanodeReportRequestProto {}).await?;
        converted(METHOD, answer.datanode_info_proto.into_iter().map(DatanodeInfo::try_from).collect())
    }

    /// Performs a safe mode action. Returns true if safe mode is on afterwards.
    pub async fn safe_mode(&self, action: SafeModeAction) -> Result<bool, Error> {
        let request = SetSafeModeRequestProto { action: action as i32, checked: Some(false) };
        let answer: SetSafeModeResponseProto = self.session.namenode.call("setSafeMode", &request).await?;
        Ok(answer.result)
    }

    /// Writes an image of the namespace. Requires safe mode. Returns false if the namenode found none necessary, because
    /// the last one is not older than `window_seconds` and misses at most `transactions` changes. 0 disables a limit.
    pub async fn save_namespace(&self, window_seconds: u64, transactions: u64) -> Result<bool, Error> {
        let request = SaveNamespaceRequestProto { time_window: Some(window_seconds), tx_gap: Some(transactions) };
        let answer: SaveNamespaceResponseProto = self.session.namenode.call("saveNamespace", &request).await?;
        Ok(answer.saved())
    }

    /// Starts a new segment of the edit log. Returns the id of its first transaction.
    pub async fn roll_edits(&self) -> Result<u64, Error> {
        let answer: RollEditsResponseProto = self.session.namenode.call("rollEdits", &RollEditsRequestProto {}).await?;
        Ok(answer.new_segment_tx_id)
    }

    /// Sets whether the namenode takes failed storage directories into use again (`true`, `false`), or only returns the
    /// setting (`check`).
    pub async fn restore_failed_storage(&self, argument: &str) -> Result<bool, Error> {
        let request = RestoreFailedStorageRequestProto { arg: argument.to_owned() };
        let answer: RestoreFailedStorageResponseProto =
            self.session.namenode.call("restoreFailedStorage", &request).await?;
        Ok(answer.result)
    }

    /// Makes the namenode read its files of included and excluded datanodes again.
    pub async fn refresh_nodes(&self) -> Result<(), Error> {
        let RefreshNodesResponseProto {} =
            self.session.namenode.call("refreshNodes", &RefreshNodesRequestProto {}).await?;
        Ok(())
    }

    /// Gives up the possibility to roll an upgrade back.
    pub async fn finalize_upgrade(&self) -> Result<(), Error> {
        let FinalizeUpgradeResponseProto {} =
            self.session.namenode.call("finalizeUpgrade", &FinalizeUpgradeRequestProto {}).await?;
        Ok(())
    }

    /// Returns true if no upgrade waits to be finalized.
    pub async fn is_upgrade_finalized(&self) -> Result<bool, Error> {
        let answer: UpgradeStatusResponseProto =
            self.session.namenode.call("upgradeStatus", &UpgradeStatusRequestProto {}).await?;
        Ok(answer.upgrade_finalized)
    }

    /// Performs a rolling upgrade action. Returns the state afterwards, or `None` if there is no rolling upgrade.
    pub async fn rolling_upgrade(&self, action: RollingUpgradeAction) -> Result<Option<RollingUpgrade>, Error> {
        let request = RollingUpgradeRequestProto { action: action as i32 };
        let answer: RollingUpgradeResponseProto = self.session.namenode.call("rollingUpgrade", &request).await?;
        Ok(answer.rolling_upgrade_info.map(|info| RollingUpgrade {
            block_pool: info.status.block_pool_id,
            start_ms: info.start_time,
            finalize_ms: info.finalize_time,
            has_rollback_image: info.created_rollback_images,
        }))
    }

    /// Writes the namenode's lists of blocks to the file `name` in its log directory.
    pub async fn meta_save(&self, name: &str) -> Result<(), Error> {
        let request = MetaSaveRequestProto { filename: name.to_owned() };
        // The answer has no fields.
        self.session.namenode.call::<()>("metaSave", &request).await
    }

    /// Sets the bandwidth of each datanode for balancing, in bytes per second.
    pub async fn set_balancer_bandwidth(&self, bytes_per_second: i64) -> Result<(), Error> {
        let request = SetBalancerBandwidthRequestProto { bandwidth: bytes_per_second };
        let SetBalancerBandwidthResponseProto {} = self.session.namenode.call("setBalancerBandwidth", &request).await?;
        Ok(())
    }

    /// Returns open files whose path begins with `path`, a part at a time. `after`: inode of the last entry seen, 0 at
    /// first. Requires superuser rights.
    pub async fn open_files(&self, kind: OpenFilesKind, path: &str, after: i64) -> Result<Page<OpenFile>, Error> {
        let request = ListOpenFilesRequestProto { id: after, types: vec![kind as i32], path: Some(path.to_owned()) };
        let answer: ListOpenFilesResponseProto = self.session.namenode.call("listOpenFiles", &request).await?;
        let entries = answer.entries.into_iter().map(|entry| OpenFile {
            inode: entry.id,
            path: entry.path,
            client_name: entry.client_name,
            client_machine: entry.client_machine,
        });
        Ok(Page { entries: entries.collect(), has_more: answer.has_more })
    }

    /// Returns the state of the namenode that calls go to.
    pub async fn ha_state(&self) -> Result<HaState, Error> {
        let answer: HaServiceStateResponseProto =
            self.session.namenode.call("getHAServiceState", &HaServiceStateRequestProto {}).await?;
        Ok(answer.state().into())
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
