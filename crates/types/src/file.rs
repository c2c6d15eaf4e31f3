use crate::{ChecksumSpec, StorageType};

/// Permission bits of a file or directory: the low 10 bits, `0o1777`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FsPermission(pub u16);

impl FsPermission {
    pub const MASK: u16 = 0o1777;

    /// Clears the bits in `umask` (`fs.permissions.umask-mode`).
    pub fn without(self, umask: u16) -> Self {
        Self(self.0 & !umask & Self::MASK)
    }
}

impl std::fmt::Display for FsPermission {
    /// Formats `rwxr-xr-t`, without the leading kind letter.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for shift in [6u16, 3, 0] {
            let bits = self.0 >> shift;
            let sticky = shift == 0 && self.0 & 0o1000 != 0;
            let execute = match (bits & 1 != 0, sticky) {
                (true, false) => 'x',
                (false, false) => '-',
                (true, true) => 't',
                (false, true) => 'T',
            };
            let read = if bits & 4 != 0 { 'r' } else { '-' };
            let write = if bits & 2 != 0 { 'w' } else { '-' };
            write!(f, "{read}{write}{execute}")?;
        }
        Ok(())
    }
}

/// Kind of a file system entry. Numbers as in `HdfsFileStatusProto.FileType`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FileKind {
    Directory = 1,
    File = 2,
    Symlink = 3,
}

/// Listing entry of one file or directory. Source: hdfs.proto, `HdfsFileStatusProto`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileStatus {
    pub kind: FileKind,
    /// Name within its directory; empty if the entry is the requested path itself.
    pub local_name: Vec<u8>,
    /// Bytes; 0 for directories.
    pub length: u64,
    pub permission: FsPermission,
    pub owner: String,
    pub group: String,
    /// Milliseconds since the epoch.
    pub modification_time_ms: u64,
    /// Milliseconds since the epoch; 0 for directories.
    pub access_time_ms: u64,
    /// Replication factor; 0 for directories.
    pub replication: u16,
    /// Bytes; 0 for directories.
    pub block_size: u64,
    pub inode: u64,
    /// Number of entries of a directory; -1 when not counted.
    pub children: i32,
    /// Id of the effective storage policy; 0 when none is set.
    pub storage_policy: u8,
    pub flags: FileFlags,
    /// Target of a symlink.
    pub symlink: Option<Vec<u8>>,
    /// Id of the erasure-coding policy; `None` for replicated files.
    pub erasure_coding_policy: Option<u8>,
}

/// Further attributes of a file or directory. Bits as in `HdfsFileStatusProto.flags`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FileFlags(pub u32);

impl FileFlags {
    pub const HAS_ACL: Self = Self(1);
    pub const ENCRYPTED: Self = Self(2);
    pub const ERASURE_CODED: Self = Self(4);
    pub const SNAPSHOTTABLE: Self = Self(8);

    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Defaults that a namenode suggests to clients with no setting of their own. Source: hdfs.proto,
/// `FsServerDefaultsProto`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerDefaults {
    /// Bytes.
    pub block_size: u64,
    pub checksum: ChecksumSpec,
    /// Bytes of a data packet with its checksums.
    pub write_packet_bytes: u32,
    pub replication: u16,
    /// Bytes.
    pub file_buffer_bytes: u32,
    pub encrypt_data_transfer: bool,
    /// Minutes; 0 when the namenode keeps no trash.
    pub trash_interval_minutes: u64,
    /// `Some("")` if there is no key provider; `None` from servers that do not report one.
    pub key_provider_uri: Option<String>,
    /// Id of the storage policy of files without one.
    pub storage_policy: u8,
    pub snapshot_trash_root: bool,
}

/// A quota for replicas on one type of storage. Source: hdfs.proto, `StorageTypeQuotaInfoProto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TypeQuota {
    pub storage_type: StorageType,
    /// Bytes allowed; `None` without a quota.
    pub quota: Option<u64>,
    /// Bytes.
    pub consumed: u64,
}

/// The part of a content summary that exists only in snapshots. Source: hdfs.proto, `ContentSummaryProto`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SnapshotShare {
    /// Bytes of files, each counted once.
    pub length: u64,
    pub files: u64,
    pub directories: u64,
    /// Bytes of all replicas.
    pub space_consumed: u64,
}

/// Totals of everything below a path. Source: hdfs.proto, `ContentSummaryProto`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContentSummary {
    /// Bytes of all files, each counted once.
    pub length: u64,
    /// Files and symlinks.
    pub files: u64,
    /// Directories, the path itself included.
    pub directories: u64,
    /// Names allowed; `None` without a quota.
    pub name_quota: Option<u64>,
    /// Bytes of all replicas.
    pub space_consumed: u64,
    /// Bytes of all replicas allowed; `None` without a quota.
    pub space_quota: Option<u64>,
    /// One entry per storage type that can have a quota; empty if no such quota is set.
    pub type_quotas: Vec<TypeQuota>,
    /// The part of these totals that exists only in snapshots.
    pub in_snapshots: SnapshotShare,
    /// Name of the erasure-coding policy, `Replicated` for a replicated file, empty for a directory without one.
    pub erasure_coding_policy: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_print_like_ls() {
        assert_eq!(FsPermission(0o755).to_string(), "rwxr-xr-x");
        assert_eq!(FsPermission(0o1777).to_string(), "rwxrwxrwt");
        assert_eq!(FsPermission(0o1640).to_string(), "rw-r----T");
        assert_eq!(FsPermission(0o777).without(0o022), FsPermission(0o755));
    }
}
