use bytes::Bytes;
use hearth_types::{DatanodeAdminState, DatanodeId, DatanodeInfo, DatanodeUuid, StorageId, StorageReport, StorageType};

use super::{ConvertError, narrow, not_empty};
use crate::offer::OFFER_BYTES_MAX;
use crate::proto::hdfs::datanode_info_proto::AdminState;
use crate::proto::hdfs::datanode_storage_proto::StorageState;
use crate::proto::hdfs::{DatanodeIdProto, DatanodeInfoProto, DatanodeStorageProto, StorageReportProto};

/// Rack of a DataNode without a location.
const DEFAULT_RACK: &str = "/default-rack";

impl From<&DatanodeId> for DatanodeIdProto {
    fn from(id: &DatanodeId) -> Self {
        Self {
            ip_addr: id.ip.clone(),
            host_name: id.host_name.clone(),
            datanode_uuid: id.uuid.0.as_ref().to_owned(),
            xfer_port: u32::from(id.transfer_port),
            info_port: u32::from(id.info_port),
            ipc_port: u32::from(id.ipc_port),
            info_secure_port: Some(u32::from(id.info_secure_port)),
        }
    }
}

impl TryFrom<DatanodeIdProto> for DatanodeId {
    type Error = ConvertError;

    fn try_from(message: DatanodeIdProto) -> Result<Self, ConvertError> {
        Ok(Self {
            transfer_port: narrow(message.xfer_port, "transfer port")?,
            info_port: narrow(message.info_port, "info port")?,
            ipc_port: narrow(message.ipc_port, "ipc port")?,
            info_secure_port: narrow(message.info_secure_port(), "info secure port")?,
            // An empty UUID crashed Apache's NameNode, and does not identify a DataNode.
            uuid: DatanodeUuid(not_empty(message.datanode_uuid, "datanode uuid")?.into()),
            ip: message.ip_addr,
            host_name: message.host_name,
        })
    }
}

impl From<&DatanodeInfo> for DatanodeInfoProto {
    fn from(info: &DatanodeInfo) -> Self {
        // The same moment as `last_block_report_time`, on the clock of `last_update_monotonic`.
        let since_report_ms = info.last_update_ms.saturating_sub(info.last_block_report_ms);
        let last_block_report_monotonic = match info.last_block_report_ms {
            0 => 0,
            _ => info.last_update_monotonic_ms.saturating_sub(since_report_ms),
        };
        Self {
            id: (&info.id).into(),
            capacity: Some(info.capacity),
            dfs_used: Some(info.dfs_used),
            remaining: Some(info.remaining),
            block_pool_used: Some(info.block_pool_used),
            last_update: Some(info.last_update_ms),
            xceiver_count: Some(info.xceiver_count),
            location: Some(info.location.clone()),
            non_dfs_used: Some(info.non_dfs_used),
            admin_state: Some(info.admin_state as i32),
            cache_capacity: Some(info.cache_capacity),
            cache_used: Some(info.cache_used),
            last_update_monotonic: Some(info.last_update_monotonic_ms),
            upgrade_domain: None,
            last_block_report_time: Some(info.last_block_report_ms),
            last_block_report_monotonic: Some(last_block_report_monotonic),
            num_blocks: Some(info.block_count),
            hearth_offer: info.offer.clone(),
        }
    }
}

impl TryFrom<DatanodeInfoProto> for DatanodeInfo {
    type Error = ConvertError;

    fn try_from(message: DatanodeInfoProto) -> Result<Self, ConvertError> {
        let (capacity, dfs_used, remaining) = (message.capacity(), message.dfs_used(), message.remaining());
        Ok(Self {
            capacity,
            dfs_used,
            remaining,
            block_pool_used: message.block_pool_used(),
            non_dfs_used: message
                .non_dfs_used
                .unwrap_or_else(|| capacity.saturating_sub(dfs_used).saturating_sub(remaining)),
            last_update_ms: message.last_update(),
            last_update_monotonic_ms: message.last_update_monotonic(),
            xceiver_count: message.xceiver_count(),
            admin_state: match message.admin_state() {
                AdminState::Normal => DatanodeAdminState::Normal,
                AdminState::DecommissionInprogress => DatanodeAdminState::DecommissionInProgress,
                AdminState::Decommissioned => DatanodeAdminState::Decommissioned,
                AdminState::EnteringMaintenance => DatanodeAdminState::EnteringMaintenance,
                AdminState::InMaintenance => DatanodeAdminState::InMaintenance,
            },
            cache_capacity: message.cache_capacity(),
            cache_used: message.cache_used(),
            block_count: message.num_blocks(),
            last_block_report_ms: message.last_block_report_time(),
            location: match message.location {
                Some(location) if !location.is_empty() => location,
                _ => DEFAULT_RACK.to_owned(),
            },
            // A copy, because locations are kept for a long time, but the frame that contains them is not.
            offer: message
                .hearth_offer
                .filter(|offer| offer.len() <= OFFER_BYTES_MAX)
                .map(|offer| Bytes::copy_from_slice(&offer)),
            id: message.id.try_into()?,
        })
    }
}

/// Converts a storage type. A number that no Hadoop version uses becomes `Disk`, as in Java's decoder.
pub fn storage_type_from_wire(number: i32) -> StorageType {
    StorageType::from_number(number).unwrap_or_default()
}

pub fn storage_types_from_wire(numbers: &[i32]) -> Vec<StorageType> {
    numbers.iter().map(|number| storage_type_from_wire(*number)).collect()
}

pub fn storage_types_to_wire(types: &[StorageType]) -> Vec<i32> {
    types.iter().map(|storage_type| *storage_type as i32).collect()
}

impl From<&StorageReport> for DatanodeStorageProto {
    fn from(report: &StorageReport) -> Self {
        Self {
            storage_uuid: report.storage.0.as_ref().to_owned(),
            state: Some(StorageState::Normal as i32),
            storage_type: Some(report.storage_type as i32),
        }
    }
}

impl From<&StorageReport> for StorageReportProto {
    fn from(report: &StorageReport) -> Self {
        Self {
            storage_uuid: report.storage.0.as_ref().to_owned(),
            failed: report.failed.then_some(true),
            capacity: Some(report.capacity),
            dfs_used: Some(report.dfs_used),
            remaining: Some(report.remaining),
            block_pool_used: Some(report.block_pool_used),
            storage: Some(report.into()),
            non_dfs_used: Some(report.non_dfs_used),
            // Apache's servers always send it.
            mount: Some(String::new()),
        }
    }
}

impl TryFrom<StorageReportProto> for StorageReport {
    type Error = ConvertError;

    fn try_from(message: StorageReportProto) -> Result<Self, ConvertError> {
        let (capacity, dfs_used, remaining) = (message.capacity(), message.dfs_used(), message.remaining());
        Ok(Self {
            capacity,
            dfs_used,
            remaining,
            failed: message.failed(),
            block_pool_used: message.block_pool_used(),
            non_dfs_used: message
                .non_dfs_used
                .unwrap_or_else(|| capacity.saturating_sub(dfs_used).saturating_sub(remaining)),
            storage_type: message
                .storage
                .as_ref()
                .map_or(StorageType::Disk, |storage| storage_type_from_wire(storage.storage_type() as i32)),
            // The nested message supersedes this field.
            storage: StorageId(
                not_empty(message.storage.map_or(message.storage_uuid, |storage| storage.storage_uuid), "storage id")?
                    .into(),
            ),
        })
    }
}
