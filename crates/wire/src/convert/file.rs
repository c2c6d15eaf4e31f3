use hearth_types::{
    ChecksumSpec, ContentSummary, FileFlags, FileKind, FileStatus, FsPermission, LocatedBlocks, ServerDefaults,
    SnapshotShare, StorageType, TypeQuota,
};

use super::block::checksum_kind;
use super::{ConvertError, narrow};
use crate::proto::hdfs::hdfs_file_status_proto::FileType;
use crate::proto::hdfs::{
    ContentSummaryProto, ErasureCodingPolicyProto, FsPermissionProto, FsServerDefaultsProto, HdfsFileStatusProto,
    StorageTypeQuotaInfoProto, StorageTypeQuotaInfosProto,
};

impl From<FsPermission> for FsPermissionProto {
    fn from(permission: FsPermission) -> Self {
        Self { perm: u32::from(permission.0) }
    }
}

impl From<FsPermissionProto> for FsPermission {
    /// Bits beyond `rwxrwxrwt` (set-user-id and old servers' flags) are dropped, as namenodes do.
    fn from(message: FsPermissionProto) -> Self {
        Self((message.perm & u32::from(Self::MASK)) as u16)
    }
}

impl From<&FileStatus> for HdfsFileStatusProto {
    fn from(status: &FileStatus) -> Self {
        Self {
            file_type: status.kind as i32,
            path: status.local_name.clone().into(),
            length: status.length,
            permission: status.permission.into(),
            owner: status.owner.clone(),
            group: status.group.clone(),
            modification_time: status.modification_time_ms,
            access_time: status.access_time_ms,
            symlink: status.symlink.clone().map(Into::into),
            block_replication: Some(u32::from(status.replication)),
            blocksize: Some(status.block_size),
            locations: None,
            file_id: Some(status.inode),
            children_num: Some(status.children),
            file_encryption_info: None,
            storage_policy: Some(u32::from(status.storage_policy)),
            // Clients know the built-in policies by id.
            ec_policy: status
                .erasure_coding_policy
                .map(|id| ErasureCodingPolicyProto { id: u32::from(id), ..Default::default() }),
            flags: Some(status.flags.0),
            namespace: None,
        }
    }
}

impl TryFrom<HdfsFileStatusProto> for FileStatus {
    type Error = ConvertError;

    fn try_from(message: HdfsFileStatusProto) -> Result<Self, ConvertError> {
        file_status_with_locations(message).map(|(status, _)| status)
    }
}

/// Returns the status, and the block locations if they were requested. Data that outlives the frame is copied.
pub fn file_status_with_locations(
    message: HdfsFileStatusProto,
) -> Result<(FileStatus, Option<LocatedBlocks>), ConvertError> {
    let kind = match FileType::try_from(message.file_type) {
        Ok(FileType::IsDir) => FileKind::Directory,
        Ok(FileType::IsFile) => FileKind::File,
        Ok(FileType::IsSymlink) => FileKind::Symlink,
        Err(_) => return Err(ConvertError::UnknownNumber { field: "file type", number: message.file_type }),
    };
    let status = FileStatus {
        kind,
        length: message.length,
        permission: message.permission.into(),
        modification_time_ms: message.modification_time,
        access_time_ms: message.access_time,
        replication: narrow(message.block_replication(), "replication")?,
        block_size: message.blocksize(),
        inode: message.file_id(),
        children: message.children_num(),
        storage_policy: narrow(message.storage_policy(), "storage policy")?,
        flags: FileFlags(message.flags()),
        erasure_coding_policy: match &message.ec_policy {
            None => None,
            Some(policy) => Some(narrow(policy.id, "erasure-coding policy")?),
        },
        local_name: message.path.to_vec(),
        symlink: message.symlink.map(|target| target.to_vec()),
        owner: message.owner,
        group: message.group,
    };
    Ok((status, message.locations.map(LocatedBlocks::try_from).transpose()?))
}

/// Encodes a status with the block locations of a file. Java's client requires them if it has requested them.
pub fn file_status_with_locations_to_wire(
    status: &FileStatus,
    locations: Option<&LocatedBlocks>,
) -> HdfsFileStatusProto {
    HdfsFileStatusProto { locations: locations.map(Into::into), ..status.into() }
}

impl From<&ServerDefaults> for FsServerDefaultsProto {
    fn from(defaults: &ServerDefaults) -> Self {
        Self {
            block_size: defaults.block_size,
            bytes_per_checksum: defaults.checksum.bytes_per_chunk,
            write_packet_size: defaults.write_packet_bytes,
            replication: u32::from(defaults.replication),
            file_buffer_size: defaults.file_buffer_bytes,
            encrypt_data_transfer: Some(defaults.encrypt_data_transfer),
            trash_interval: Some(defaults.trash_interval_minutes),
            checksum_type: Some(defaults.checksum.kind as i32),
            key_provider_uri: defaults.key_provider_uri.clone(),
            policy_id: Some(u32::from(defaults.storage_policy)),
            snapshot_trash_root_enabled: Some(defaults.snapshot_trash_root),
        }
    }
}

impl TryFrom<FsServerDefaultsProto> for ServerDefaults {
    type Error = ConvertError;

    fn try_from(message: FsServerDefaultsProto) -> Result<Self, ConvertError> {
        if message.bytes_per_checksum == 0 {
            return Err(ConvertError::OutOfRange { field: "bytes per checksum", value: 0 });
        }
        Ok(Self {
            block_size: message.block_size,
            checksum: ChecksumSpec {
                kind: checksum_kind(message.checksum_type() as i32)?,
                bytes_per_chunk: message.bytes_per_checksum,
            },
            write_packet_bytes: message.write_packet_size,
            replication: narrow(message.replication, "replication")?,
            file_buffer_bytes: message.file_buffer_size,
            encrypt_data_transfer: message.encrypt_data_transfer(),
            trash_interval_minutes: message.trash_interval(),
            storage_policy: narrow(message.policy_id(), "storage policy")?,
            snapshot_trash_root: message.snapshot_trash_root_enabled(),
            key_provider_uri: message.key_provider_uri,
        })
    }
}

/// Decodes a quota. "No quota" is sent as -1, that is 2^64 - 1.
fn quota(value: u64) -> Option<u64> {
    (value as i64 >= 0).then_some(value)
}

impl From<&TypeQuota> for StorageTypeQuotaInfoProto {
    fn from(of: &TypeQuota) -> Self {
        Self { r#type: Some(of.storage_type as i32), quota: of.quota.unwrap_or(u64::MAX), consumed: of.consumed }
    }
}

/// Returns the quotas of known storage types.
pub fn type_quotas(message: Option<StorageTypeQuotaInfosProto>) -> Vec<TypeQuota> {
    let of = |info: StorageTypeQuotaInfoProto| {
        let storage_type = StorageType::from_number(info.r#type() as i32)?;
        Some(TypeQuota { storage_type, quota: quota(info.quota), consumed: info.consumed })
    };
    message.map(|infos| infos.type_quota_info.into_iter().filter_map(of).collect()).unwrap_or_default()
}

impl From<&ContentSummary> for ContentSummaryProto {
    fn from(summary: &ContentSummary) -> Self {
        Self {
            length: summary.length,
            file_count: summary.files,
            directory_count: summary.directories,
            quota: summary.name_quota.unwrap_or(u64::MAX),
            space_consumed: summary.space_consumed,
            space_quota: summary.space_quota.unwrap_or(u64::MAX),
            type_quota_infos: (!summary.type_quotas.is_empty()).then(|| StorageTypeQuotaInfosProto {
                type_quota_info: summary.type_quotas.iter().map(Into::into).collect(),
            }),
            snapshot_length: Some(summary.in_snapshots.length),
            snapshot_file_count: Some(summary.in_snapshots.files),
            snapshot_directory_count: Some(summary.in_snapshots.directories),
            snapshot_space_consumed: Some(summary.in_snapshots.space_consumed),
            erasure_coding_policy: Some(summary.erasure_coding_policy.clone()),
        }
    }
}

impl From<ContentSummaryProto> for ContentSummary {
    fn from(message: ContentSummaryProto) -> Self {
        Self {
            length: message.length,
            files: message.file_count,
            directories: message.directory_count,
            name_quota: quota(message.quota),
            space_consumed: message.space_consumed,
            space_quota: quota(message.space_quota),
            in_snapshots: SnapshotShare {
                length: message.snapshot_length(),
                files: message.snapshot_file_count(),
                directories: message.snapshot_directory_count(),
                space_consumed: message.snapshot_space_consumed(),
            },
            type_quotas: type_quotas(message.type_quota_infos),
            erasure_coding_policy: message.erasure_coding_policy.unwrap_or_default(),
        }
    }
}
