use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::BlockPoolId;

/// Stable UUID (as text) of one datanode process's storage; never empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DatanodeUuid(pub Arc<str>);

impl fmt::Display for DatanodeUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Id of one storage (volume) of a datanode, `DS-<uuid>`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StorageId(pub Arc<str>);

impl fmt::Display for StorageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Type of a storage. Numbers as in `StorageTypeProto`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum StorageType {
    #[default]
    Disk = 1,
    Ssd = 2,
    Archive = 3,
    RamDisk = 4,
    Provided = 5,
    Nvdimm = 6,
}

impl StorageType {
    /// Returns `None` for a number that no Hadoop version uses.
    pub fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            1 => Self::Disk,
            2 => Self::Ssd,
            3 => Self::Archive,
            4 => Self::RamDisk,
            5 => Self::Provided,
            6 => Self::Nvdimm,
            _ => return None,
        })
    }

    /// Storage types that can have a quota, in the order of Hadoop's tools.
    pub const WITH_QUOTA: [Self; 5] = [Self::Ssd, Self::Disk, Self::Archive, Self::Provided, Self::Nvdimm];

    /// Finds a storage type by name, ignoring case.
    pub fn named(name: &str) -> Option<Self> {
        (1..=6).filter_map(Self::from_number).find(|storage_type| storage_type.name().eq_ignore_ascii_case(name))
    }

    /// Name as used in the configuration (`[SSD]/data`) and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "DISK",
            Self::Ssd => "SSD",
            Self::Archive => "ARCHIVE",
            Self::RamDisk => "RAM_DISK",
            Self::Provided => "PROVIDED",
            Self::Nvdimm => "NVDIMM",
        }
    }
}

/// Identity and ports of a datanode. Source: hdfs.proto, `DatanodeIDProto`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DatanodeId {
    /// IP address (as text) that the namenode saw.
    pub ip: String,
    pub host_name: String,
    pub uuid: DatanodeUuid,
    /// Port of DataTransferProtocol.
    pub transfer_port: u16,
    /// Port of HTTP.
    pub info_port: u16,
    /// Port of Hadoop RPC.
    pub ipc_port: u16,
    /// Port of HTTPS; 0 if not served.
    pub info_secure_port: u16,
}

impl DatanodeId {
    /// Returns `ip:port` of DataTransferProtocol, which is how Hadoop's logs name a datanode.
    pub fn transfer_address(&self) -> String {
        format!("{}:{}", self.ip, self.transfer_port)
    }
}

impl fmt::Display for DatanodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.ip, self.transfer_port)
    }
}

/// Administrative state. Numbers as in `DatanodeInfoProto.AdminState`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum DatanodeAdminState {
    #[default]
    Normal = 0,
    DecommissionInProgress = 1,
    Decommissioned = 2,
    EnteringMaintenance = 3,
    InMaintenance = 4,
}

impl fmt::Display for DatanodeAdminState {
    /// Formats the state as reports and web pages show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "In Service",
            Self::DecommissionInProgress => "Decommission In Progress",
            Self::Decommissioned => "Decommissioned",
            Self::EnteringMaintenance => "Entering Maintenance",
            Self::InMaintenance => "In Maintenance",
        })
    }
}

/// A datanode with its load as known to the namenode. Source: hdfs.proto, `DatanodeInfoProto`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatanodeInfo {
    pub id: DatanodeId,
    /// Bytes.
    pub capacity: u64,
    /// Bytes.
    pub dfs_used: u64,
    /// Bytes.
    pub remaining: u64,
    /// Bytes.
    pub block_pool_used: u64,
    /// Bytes.
    pub non_dfs_used: u64,
    /// Milliseconds since the epoch.
    pub last_update_ms: u64,
    /// Milliseconds of the namenode's monotonic clock.
    pub last_update_monotonic_ms: u64,
    /// Connections currently served.
    pub xceiver_count: u32,
    /// Rack; `/default-rack` if none is configured.
    pub location: String,
    pub admin_state: DatanodeAdminState,
    /// Bytes.
    pub cache_capacity: u64,
    /// Bytes.
    pub cache_used: u64,
    pub block_count: u32,
    /// Milliseconds since the epoch of the last full block report; 0 before the first.
    pub last_block_report_ms: u64,
    /// Hint about what a Hearth datanode offers to Hearth's clients. The namenode forwards it without interpreting it.
    pub offer: Option<Bytes>,
}

impl DatanodeInfo {
    /// Creates the entry of a datanode in service from its identity alone.
    pub fn of(id: DatanodeId) -> Self {
        Self {
            id,
            capacity: 0,
            dfs_used: 0,
            remaining: 0,
            block_pool_used: 0,
            non_dfs_used: 0,
            last_update_ms: 0,
            last_update_monotonic_ms: 0,
            xceiver_count: 0,
            location: "/default-rack".to_owned(),
            admin_state: DatanodeAdminState::Normal,
            cache_capacity: 0,
            cache_used: 0,
            block_count: 0,
            last_block_report_ms: 0,
            offer: None,
        }
    }
}

/// Usage of one storage, as heartbeats carry it. All sizes in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageReport {
    pub storage: StorageId,
    pub storage_type: StorageType,
    pub failed: bool,
    pub capacity: u64,
    pub dfs_used: u64,
    pub remaining: u64,
    pub block_pool_used: u64,
    pub non_dfs_used: u64,
}

/// Identity of a namespace. Stored in `VERSION` files and compared at every start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolIdentity {
    pub pool: BlockPoolId,
    pub namespace_id: u32,
    pub cluster_id: String,
    /// Format time, milliseconds since the epoch.
    pub created_ms: u64,
}
