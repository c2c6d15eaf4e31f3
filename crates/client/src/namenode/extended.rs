//! Calls for access control lists, extended attributes and snapshots.

use hearth_types::{AclChange, AclEntry, AclStatus, Xattr};
use hearth_wire::proto::hdfs::*;

use super::Namenode;
use super::files::converted;
use crate::Error;

/// Flags to create a missing attribute and replace an existing one. Source: `XAttrSetFlagProto`.
const CREATE_OR_REPLACE: u32 = 3;

fn to_wire(entries: &[AclEntry]) -> Vec<AclEntryProto> {
    entries.iter().map(Into::into).collect()
}

impl Namenode {
    pub(crate) async fn acl(&self, path: &str) -> Result<AclStatus, Error> {
        const METHOD: &str = "getAclStatus";
        let request = GetAclStatusRequestProto { src: path.to_owned() };
        let answer: GetAclStatusResponseProto = self.call(METHOD, &request).await?;
        converted(METHOD, answer.result.try_into())
    }

    pub(crate) async fn change_acl(&self, path: &str, change: &AclChange) -> Result<(), Error> {
        let src = path.to_owned();
        match change {
            AclChange::Modify(entries) => {
                let request = ModifyAclEntriesRequestProto { src, acl_spec: to_wire(entries) };
                let ModifyAclEntriesResponseProto {} = self.call("modifyAclEntries", &request).await?;
            }
            AclChange::Remove(entries) => {
                let request = RemoveAclEntriesRequestProto { src, acl_spec: to_wire(entries) };
                let RemoveAclEntriesResponseProto {} = self.call("removeAclEntries", &request).await?;
            }
            AclChange::RemoveDefault => {
                let RemoveDefaultAclResponseProto {} =
                    self.call("removeDefaultAcl", &RemoveDefaultAclRequestProto { src }).await?;
            }
            AclChange::RemoveAll => {
                let RemoveAclResponseProto {} = self.call("removeAcl", &RemoveAclRequestProto { src }).await?;
            }
            AclChange::Set(entries) => {
                let request = SetAclRequestProto { src, acl_spec: to_wire(entries) };
                let SetAclResponseProto {} = self.call("setAcl", &request).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn set_xattr(&self, path: &str, xattr: Xattr) -> Result<(), Error> {
        let request =
            SetXAttrRequestProto { src: path.to_owned(), xattr: Some(xattr.into()), flag: Some(CREATE_OR_REPLACE) };
        let SetXAttrResponseProto {} = self.call("setXAttr", &request).await?;
        Ok(())
    }

    pub(crate) async fn xattrs(&self, path: &str, wanted: Vec<Xattr>) -> Result<Vec<Xattr>, Error> {
        const METHOD: &str = "getXAttrs";
        let xattrs = wanted.into_iter().map(Into::into).collect();
        let answer: GetXAttrsResponseProto =
            self.call(METHOD, &GetXAttrsRequestProto { src: path.to_owned(), xattrs }).await?;
        converted(METHOD, answer.xattrs.into_iter().map(TryInto::try_into).collect())
    }

    pub(crate) async fn remove_xattr(&self, path: &str, xattr: Xattr) -> Result<(), Error> {
        let request = RemoveXAttrRequestProto { src: path.to_owned(), xattr: Some(xattr.into()) };
        let RemoveXAttrResponseProto {} = self.call("removeXAttr", &request).await?;
        Ok(())
    }

    /// Creates a snapshot and returns its path. With an empty `name`, the namenode chooses the name.
    pub(crate) async fn create_snapshot(&self, path: &str, name: &str) -> Result<String, Error> {
        let snapshot_name = (!name.is_empty()).then(|| name.to_owned());
        let request = CreateSnapshotRequestProto { snapshot_root: path.to_owned(), snapshot_name };
        let answer: CreateSnapshotResponseProto = self.call("createSnapshot", &request).await?;
        Ok(answer.snapshot_path)
    }

    pub(crate) async fn rename_snapshot(&self, path: &str, old: &str, new: &str) -> Result<(), Error> {
        let request = RenameSnapshotRequestProto {
            snapshot_root: path.to_owned(),
            snapshot_old_name: old.to_owned(),
            snapshot_new_name: new.to_owned(),
        };
        let RenameSnapshotResponseProto {} = self.call("renameSnapshot", &request).await?;
        Ok(())
    }

    pub(crate) async fn delete_snapshot(&self, path: &str, name: &str) -> Result<(), Error> {
        let request = DeleteSnapshotRequestProto { snapshot_root: path.to_owned(), snapshot_name: name.to_owned() };
        let DeleteSnapshotResponseProto {} = self.call("deleteSnapshot", &request).await?;
        Ok(())
    }
}
