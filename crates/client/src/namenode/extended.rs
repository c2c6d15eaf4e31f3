//! Calls for access control lists, extended attributes and snapshots.

use hearth_types::{AclChange, AclEntry, AclStatus, Xattr};
use hearth_wire::proto::hdfs::*;

use super::files::converted;
use crate::Error;
use crate::file_system::FileSystem;

/// Flags to create a missing attribute and replace an existing one. Source: `XAttrSetFlagProto`.
const CREATE_OR_REPLACE: u32 = 3;

fn to_wire(entries: &[AclEntry]) -> Vec<AclEntryProto> {
    entries.iter().map(Into::into).collect()
}

impl FileSystem {
    /// Returns the access control list of a file or directory.
    pub async fn acl(&self, path: &str) -> Result<AclStatus, Error> {
        const METHOD: &str = "getAclStatus";
        let request = GetAclStatusRequestProto { src: self.absolute(path)? };
        let answer: GetAclStatusResponseProto = self.session.namenode.call(METHOD, &request).await?;
        converted(METHOD, answer.result.try_into())
    }

    /// Changes the access control list.
    ///
    /// Errors: kind `Unsupported` if ACLs are disabled on the namenode.
    pub async fn change_acl(&self, path: &str, change: &AclChange) -> Result<(), Error> {
        let src = self.absolute(path)?;
        match change {
            AclChange::Modify(entries) => {
                let request = ModifyAclEntriesRequestProto { src, acl_spec: to_wire(entries) };
                let ModifyAclEntriesResponseProto {} = self.session.namenode.call("modifyAclEntries", &request).await?;
            }
            AclChange::Remove(entries) => {
                let request = RemoveAclEntriesRequestProto { src, acl_spec: to_wire(entries) };
                let RemoveAclEntriesResponseProto {} = self.session.namenode.call("removeAclEntries", &request).await?;
            }
            AclChange::RemoveDefault => {
                let RemoveDefaultAclResponseProto {} =
                    self.session.namenode.call("removeDefaultAcl", &RemoveDefaultAclRequestProto { src }).await?;
            }
            AclChange::RemoveAll => {
                let RemoveAclResponseProto {} =
                    self.session.namenode.call("removeAcl", &RemoveAclRequestProto { src }).await?;
            }
            AclChange::Set(entries) => {
                let request = SetAclRequestProto { src, acl_spec: to_wire(entries) };
                let SetAclResponseProto {} = self.session.namenode.call("setAcl", &request).await?;
            }
        }
        Ok(())
    }

    /// Creates an extended attribute or replaces its value.
    pub async fn set_xattr(&self, path: &str, xattr: Xattr) -> Result<(), Error> {
        let request = SetXAttrRequestProto {
            src: self.absolute(path)?,
            xattr: Some(xattr.into()),
            flag: Some(CREATE_OR_REPLACE),
        };
        let SetXAttrResponseProto {} = self.session.namenode.call("setXAttr", &request).await?;
        Ok(())
    }

    /// Returns the named extended attributes, or all that the user may see if `wanted` is empty. A missing attribute is
    /// an error.
    pub async fn xattrs(&self, path: &str, wanted: Vec<Xattr>) -> Result<Vec<Xattr>, Error> {
        const METHOD: &str = "getXAttrs";
        let xattrs = wanted.into_iter().map(Into::into).collect();
        let answer: GetXAttrsResponseProto =
            self.session.namenode.call(METHOD, &GetXAttrsRequestProto { src: self.absolute(path)?, xattrs }).await?;
        converted(METHOD, answer.xattrs.into_iter().map(TryInto::try_into).collect())
    }

    /// Removes an extended attribute.
    pub async fn remove_xattr(&self, path: &str, xattr: Xattr) -> Result<(), Error> {
        let request = RemoveXAttrRequestProto { src: self.absolute(path)?, xattr: Some(xattr.into()) };
        let RemoveXAttrResponseProto {} = self.session.namenode.call("removeXAttr", &request).await?;
        Ok(())
    }

    /// Creates a snapshot of a snapshottable directory and returns the snapshot's path. With an empty `name`, the
    /// namenode chooses the name.
    pub async fn create_snapshot(&self, path: &str, name: &str) -> Result<String, Error> {
        let snapshot_name = (!name.is_empty()).then(|| name.to_owned());
        let request = CreateSnapshotRequestProto { snapshot_root: self.absolute(path)?, snapshot_name };
        let answer: CreateSnapshotResponseProto = self.session.namenode.call("createSnapshot", &request).await?;
        Ok(answer.snapshot_path)
    }

    /// Renames the snapshot `old` of a directory to `new`.
    pub async fn rename_snapshot(&self, path: &str, old: &str, new: &str) -> Result<(), Error> {
        let request = RenameSnapshotRequestProto {
            snapshot_root: self.absolute(path)?,
            snapshot_old_name: old.to_owned(),
            snapshot_new_name: new.to_owned(),
        };
        let RenameSnapshotResponseProto {} = self.session.namenode.call("renameSnapshot", &request).await?;
        Ok(())
    }

    /// Deletes a snapshot and everything that exists only in it.
    pub async fn delete_snapshot(&self, path: &str, name: &str) -> Result<(), Error> {
        let request =
            DeleteSnapshotRequestProto { snapshot_root: self.absolute(path)?, snapshot_name: name.to_owned() };
        let DeleteSnapshotResponseProto {} = self.session.namenode.call("deleteSnapshot", &request).await?;
        Ok(())
    }
}
