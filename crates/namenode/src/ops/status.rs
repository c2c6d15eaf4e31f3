//! The status of a file or directory for clients.

use hearth_types::FsPermission;
use hearth_wire::proto::hdfs::HdfsFileStatusProto;
use hearth_wire::proto::hdfs::hdfs_file_status_proto::FileType;

use crate::namespace::{InodeKind, Namespace, Slot};

/// Bits of `flags`. Source: `HdfsFileStatusProto.Flags`.
const HAS_ACL: u32 = 1;
const SNAPSHOT_ENABLED: u32 = 8;

/// Flags of a directory in a snapshot: it cannot have snapshots of its own.
pub fn flags_in_snapshot(flags: Option<u32>) -> Option<u32> {
    flags.map(|flags| flags & !SNAPSHOT_ENABLED)
}

/// Returns the status of an inode. `name`: its name in a listing; empty for the requested path itself.
pub fn file_status(namespace: &Namespace, slot: Slot, name: &[u8]) -> HdfsFileStatusProto {
    let inode = namespace.inode(slot);
    let (file_type, length, replication, block_size, children) = match inode.kind() {
        InodeKind::Directory(children) => (FileType::IsDir, 0, 0, 0, children.len() as i32),
        InodeKind::File(file) => {
            (FileType::IsFile, file.visible_length(), u32::from(inode.replication()), inode.block_size(), 0)
        }
    };
    let has_acl = if inode.acl().is_empty() { 0 } else { HAS_ACL };
    let snapshot_enabled = if namespace.is_snapshottable(slot) { SNAPSHOT_ENABLED } else { 0 };
    HdfsFileStatusProto {
        file_type: file_type as i32,
        path: name.to_vec().into(),
        length,
        permission: inode.permission().into(),
        owner: namespace.names.text(inode.owner()).to_string(),
        group: namespace.names.text(inode.group()).to_string(),
        modification_time: inode.modification_time_ms(),
        access_time: inode.access_time_ms(),
        block_replication: Some(replication),
        blocksize: Some(block_size),
        file_id: Some(inode.id().0),
        children_num: Some(children),
        storage_policy: Some(u32::from(namespace.storage_policy(slot).number)),
        flags: Some(has_acl | snapshot_enabled),
        ..HdfsFileStatusProto::default()
    }
}

/// The status of `/.reserved`, which every user can see and no user owns.
pub fn reserved_status() -> HdfsFileStatusProto {
    HdfsFileStatusProto {
        file_type: FileType::IsDir as i32,
        permission: FsPermission(0o1770).into(),
        block_replication: Some(0),
        blocksize: Some(0),
        file_id: Some(u64::MAX),
        children_num: Some(0),
        storage_policy: Some(0),
        flags: Some(0),
        ..HdfsFileStatusProto::default()
    }
}

/// The entries of `/.reserved`. `group`: of superusers. Source: `FSDirectory.createReservedStatuses`.
pub fn reserved_entries(group: &str, created_ms: u64) -> Vec<HdfsFileStatusProto> {
    let entry = |name: &'static str| HdfsFileStatusProto {
        path: bytes::Bytes::from_static(name.as_bytes()),
        permission: FsPermission(0o770).into(),
        group: group.to_owned(),
        modification_time: created_ms,
        access_time: created_ms,
        ..reserved_status()
    };
    vec![entry(".inodes"), entry("raw")]
}

/// The status of the `.snapshot` of a snapshottable directory.
pub fn snapshot_list_status() -> HdfsFileStatusProto {
    HdfsFileStatusProto { permission: FsPermission(0o777).into(), file_id: Some(0), ..reserved_status() }
}

/// Returns true if `path` is `/.reserved` itself.
pub fn is_reserved_root(path: &str) -> bool {
    path.trim_end_matches('/') == "/.reserved"
}
