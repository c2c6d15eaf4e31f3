//! File status.

use hearth_web::webhdfs::Exception;
use hearth_wire::proto::hdfs::hdfs_file_status_proto::FileType;
use hearth_wire::proto::hdfs::{
    GetFileInfoRequestProto, GetFileInfoResponseProto, GetFileLinkInfoRequestProto, GetFileLinkInfoResponseProto,
    GetLinkTargetRequestProto, GetLinkTargetResponseProto, HdfsFileStatusProto,
};
use serde_json::{Value, json};

use super::{Answer, Operation, answer, lossy, missing};

/// Bits of `flags` and their names in JSON. Source: `HdfsFileStatusProto.Flags`, `JsonUtil`.
const FLAGS: [(u32, &str); 4] = [(1, "aclBit"), (2, "encBit"), (4, "ecBit"), (8, "snapshotEnabled")];

/// The status of a file or directory. Source: `JsonUtil.toJsonMap(HdfsFileStatus)`.
pub fn status(of: &HdfsFileStatusProto) -> Value {
    let mut shown = json!({
        "pathSuffix": lossy(&of.path),
        "type": kind(of),
        "length": of.length as i64,
        "owner": of.owner,
        "group": of.group,
        "permission": mode(of.permission.perm),
        "accessTime": of.access_time as i64,
        "modificationTime": of.modification_time as i64,
        "blockSize": of.blocksize() as i64,
        "replication": of.block_replication(),
        // -1 as a Java long if there is no inode.
        "fileId": of.file_id() as i64,
        "childrenNum": of.children_num(),
        "storagePolicy": of.storage_policy(),
    });
    if let Some(symlink) = &of.symlink {
        shown["symlink"] = lossy(symlink).into();
    }
    for (bit, name) in FLAGS {
        if of.flags() & bit != 0 {
            shown[name] = true.into();
        }
    }
    shown
}

/// Permissions in octal digits.
pub fn mode(bits: u32) -> String {
    format!("{bits:o}")
}

fn kind(of: &HdfsFileStatusProto) -> &'static str {
    match of.file_type() {
        FileType::IsDir => "DIRECTORY",
        FileType::IsFile => "FILE",
        FileType::IsSymlink => "SYMLINK",
    }
}

impl Operation {
    /// Returns the status of a path; `None` if it does not exist.
    pub(super) async fn status_of(&self, path: &str) -> Result<Option<HdfsFileStatusProto>, Exception> {
        let request = GetFileInfoRequestProto { src: path.to_owned() };
        let found: GetFileInfoResponseProto = self.call("getFileInfo", &request).await?;
        Ok(found.fs)
    }

    pub(super) async fn file_status(&self) -> Answer {
        self.told_status(self.status_of(&self.path).await?)
    }

    pub(super) async fn file_link_status(&self) -> Answer {
        let request = GetFileLinkInfoRequestProto { src: self.path.clone() };
        let found: GetFileLinkInfoResponseProto = self.call("getFileLinkInfo", &request).await?;
        self.told_status(found.fs)
    }

    fn told_status(&self, found: Option<HdfsFileStatusProto>) -> Answer {
        let found = found.ok_or_else(|| missing(format!("File does not exist: {}", self.path)))?;
        Ok(answer(&json!({ "FileStatus": status(&found) })))
    }

    pub(super) async fn link_target(&self) -> Answer {
        let request = GetLinkTargetRequestProto { path: self.path.clone() };
        let found: GetLinkTargetResponseProto = self.call("getLinkTarget", &request).await?;
        Ok(answer(&json!({ "Path": found.target_path })))
    }
}

#[cfg(test)]
mod tests {
    use hearth_wire::proto::hdfs::FsPermissionProto;

    use super::*;

    #[test]
    fn a_status_has_hadoops_names() {
        let file = HdfsFileStatusProto {
            file_type: FileType::IsFile as i32,
            path: "f".into(),
            length: 7,
            permission: FsPermissionProto { perm: 0o1644 },
            owner: "ann".into(),
            group: "staff".into(),
            modification_time: 5,
            access_time: 6,
            block_replication: Some(3),
            blocksize: Some(1 << 20),
            file_id: Some(16_386),
            children_num: Some(0),
            storage_policy: Some(7),
            flags: Some(1),
            ..HdfsFileStatusProto::default()
        };
        let wanted = json!({
            "pathSuffix": "f", "type": "FILE", "length": 7, "owner": "ann", "group": "staff", "permission": "1644",
            "accessTime": 6, "modificationTime": 5, "blockSize": 1 << 20, "replication": 3, "fileId": 16_386,
            "childrenNum": 0, "storagePolicy": 7, "aclBit": true,
        });
        assert_eq!(status(&file), wanted);
        let reserved = HdfsFileStatusProto { file_type: FileType::IsDir as i32, file_id: Some(u64::MAX), ..file };
        assert_eq!((&status(&reserved)["type"], &status(&reserved)["fileId"]), (&json!("DIRECTORY"), &json!(-1)));
    }
}
