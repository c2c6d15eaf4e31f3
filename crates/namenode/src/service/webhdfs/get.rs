//! Dispatch of the operations of GET.

use hearth_types::Access;
use hearth_web::webhdfs::{Exception, needed, not_of};
use hearth_wire::proto::hdfs::{CheckAccessRequestProto, CheckAccessResponseProto};

use super::{Answer, Operation, done_with_charset};

/// Name of the parameter with the access to check.
const ACTION: &str = "fsaction";

impl Operation {
    /// Executes an operation of GET. `None`: it does not exist.
    pub(super) async fn get(&self, operation: &str) -> Option<Answer> {
        Some(match operation {
            "OPEN" => self.open().await,
            "GETFILECHECKSUM" => self.checksum().await,
            "GETFILESTATUS" => self.file_status().await,
            "GETFILELINKSTATUS" => self.file_link_status().await,
            "GETLINKTARGET" => self.link_target().await,
            "LISTSTATUS" => self.list_status().await,
            "LISTSTATUS_BATCH" => self.list_status_batch().await,
            "GETCONTENTSUMMARY" => self.content_summary().await,
            "GETQUOTAUSAGE" => self.quota_usage().await,
            "GETSTATUS" => self.fs_status().await,
            "GETSERVERDEFAULTS" => self.server_defaults().await,
            "GETHOMEDIRECTORY" => Ok(self.home_directory()),
            "GETTRASHROOT" => self.trash_root().await,
            "GETTRASHROOTS" => self.trash_roots().await,
            "GET_BLOCK_LOCATIONS" => self.block_locations().await,
            "GETFILEBLOCKLOCATIONS" => self.file_block_locations().await,
            "GETACLSTATUS" => self.acl_status().await,
            "CHECKACCESS" => self.check_access().await,
            "GETXATTRS" => self.xattrs().await,
            "LISTXATTRS" => self.xattr_names().await,
            "GETALLSTORAGEPOLICY" => self.storage_policies().await,
            "GETSTORAGEPOLICY" => self.storage_policy().await,
            "GETECPOLICY" => self.erasure_coding_policy().await,
            "GETECPOLICIES" => self.erasure_coding_policies().await,
            "GETECCODECS" => self.erasure_coding_codecs().await,
            "GETSNAPSHOTDIFF" => self.snapshot_diff().await,
            "GETSNAPSHOTDIFFLISTING" => self.snapshot_diff_listing().await,
            "GETSNAPSHOTTABLEDIRECTORYLIST" => self.snapshottable_directories().await,
            "GETSNAPSHOTLIST" => self.snapshots().await,
            "GETDELEGATIONTOKEN" => self.delegation_token().await,
            _ => return None,
        })
    }

    /// Returns the access to check.
    pub(super) fn action(&self) -> Result<Option<Access>, Exception> {
        match self.parameters.given(ACTION) {
            None | Some("" | "null") => Ok(None),
            Some(letters) => match Access::from_letters(letters) {
                Some(access) => Ok(Some(access)),
                None => Err(not_of(ACTION, letters, "[r-][w-][x-]")),
            },
        }
    }

    /// Answers without content if the access is permitted; otherwise the request is refused.
    async fn check_access(&self) -> Answer {
        let access = self.action()?.ok_or_else(|| needed(ACTION, "CHECKACCESS"))?;
        let request = CheckAccessRequestProto { path: self.path.clone(), mode: i32::from(access.bits()) };
        self.call::<CheckAccessResponseProto>("checkAccess", &request).await?;
        Ok(done_with_charset())
    }
}
