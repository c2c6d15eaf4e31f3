//! Calls that read or change names: status, listings, directories, renames, attributes.

use std::collections::VecDeque;

use hearth_types::{Access, ContentSummary, FileStatus, FsPermission, LocatedBlocks, ServerDefaults, TypeQuota};
use hearth_wire::convert::{ConvertError, type_quotas};
use hearth_wire::proto::hdfs::*;

use super::Namenode;
use crate::Error;
use crate::error::Failure;

/// Usage of a directory as counted for quotas. Source: ClientNamenodeProtocol.proto, `QuotaUsageProto`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaUsage {
    /// Number of files and directories, including the directory itself.
    pub names: u64,
    /// Quota of files and directories.
    pub name_quota: Option<u64>,
    /// Bytes of all replicas.
    pub space_consumed: u64,
    /// Quota in bytes.
    pub space_quota: Option<u64>,
    /// Quota and usage per storage type that supports quotas. Empty if there are no such quotas.
    pub type_quotas: Vec<TypeQuota>,
}

pub(super) fn converted<T>(method: &'static str, result: Result<T, ConvertError>) -> Result<T, Error> {
    result.map_err(|error| match error {
        ConvertError::Striped { block } => Failure::Unsupported { path: block }.into(),
        error => Failure::Answer { method, why: error.to_string() }.into(),
    })
}

fn quota(value: u64) -> Option<u64> {
    (value as i64 >= 0).then_some(value)
}

impl Namenode {
    /// Returns the status of a path, or `None` if it does not exist.
    pub(crate) async fn file_info(&self, path: &str) -> Result<Option<FileStatus>, Error> {
        let request = GetFileInfoRequestProto { src: path.to_owned() };
        let answer: GetFileInfoResponseProto = self.call("getFileInfo", &request).await?;
        answer.fs.map(|status| converted("getFileInfo", status.try_into())).transpose()
    }

    /// Like `file_info`, but does not follow a symbolic link.
    pub(crate) async fn file_link_info(&self, path: &str) -> Result<Option<FileStatus>, Error> {
        let request = GetFileLinkInfoRequestProto { src: path.to_owned() };
        let answer: GetFileLinkInfoResponseProto = self.call("getFileLinkInfo", &request).await?;
        answer.fs.map(|status| converted("getFileLinkInfo", status.try_into())).transpose()
    }

    pub(crate) async fn block_locations(&self, path: &str, offset: u64, length: u64) -> Result<LocatedBlocks, Error> {
        const METHOD: &str = "getBlockLocations";
        let request = GetBlockLocationsRequestProto { src: path.to_owned(), offset, length };
        let answer: GetBlockLocationsResponseProto = self.call(METHOD, &request).await?;
        let Some(located) = answer.locations else { return Err(Failure::NotFound { path: path.to_owned() }.into()) };
        if located.ec_policy.is_some() || located.file_encryption_info.is_some() {
            return Err(Failure::Unsupported { path: path.to_owned() }.into());
        }
        converted(METHOD, located.try_into())
    }

    pub(crate) async fn server_defaults(&self) -> Result<ServerDefaults, Error> {
        const METHOD: &str = "getServerDefaults";
        let answer: GetServerDefaultsResponseProto = self.call(METHOD, &GetServerDefaultsRequestProto {}).await?;
        converted(METHOD, answer.server_defaults.try_into())
    }

    pub(crate) async fn mkdirs(
        &self,
        path: &str,
        (masked, unmasked): (FsPermission, FsPermission),
        parents: bool,
    ) -> Result<bool, Error> {
        let request = MkdirsRequestProto {
            src: path.to_owned(),
            masked: masked.into(),
            create_parent: parents,
            unmasked: Some(unmasked.into()),
        };
        let answer: MkdirsResponseProto = self.call("mkdirs", &request).await?;
        Ok(answer.result)
    }

    pub(crate) async fn rename(&self, from: &str, to: &str) -> Result<bool, Error> {
        let request = RenameRequestProto { src: from.to_owned(), dst: to.to_owned() };
        let answer: RenameResponseProto = self.call("rename", &request).await?;
        Ok(answer.result)
    }

    pub(crate) async fn rename2(&self, from: &str, to: &str, overwrite: bool, to_trash: bool) -> Result<(), Error> {
        let request = Rename2RequestProto {
            src: from.to_owned(),
            dst: to.to_owned(),
            overwrite_dest: overwrite,
            move_to_trash: to_trash.then_some(true),
        };
        let _: Rename2ResponseProto = self.call("rename2", &request).await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, path: &str, recursive: bool) -> Result<bool, Error> {
        let request = DeleteRequestProto { src: path.to_owned(), recursive };
        let answer: DeleteResponseProto = self.call("delete", &request).await?;
        Ok(answer.result)
    }

    pub(crate) async fn set_replication(&self, path: &str, replication: u16) -> Result<bool, Error> {
        let request = SetReplicationRequestProto { src: path.to_owned(), replication: u32::from(replication) };
        let answer: SetReplicationResponseProto = self.call("setReplication", &request).await?;
        Ok(answer.result)
    }

    pub(crate) async fn set_permission(&self, path: &str, permission: FsPermission) -> Result<(), Error> {
        let request = SetPermissionRequestProto { src: path.to_owned(), permission: permission.into() };
        let _: SetPermissionResponseProto = self.call("setPermission", &request).await?;
        Ok(())
    }

    pub(crate) async fn set_owner(&self, path: &str, user: Option<&str>, group: Option<&str>) -> Result<(), Error> {
        let request = SetOwnerRequestProto {
            src: path.to_owned(),
            username: user.map(str::to_owned),
            groupname: group.map(str::to_owned),
        };
        let _: SetOwnerResponseProto = self.call("setOwner", &request).await?;
        Ok(())
    }

    /// Sets times in milliseconds since the epoch. `None` leaves a time unchanged.
    pub(crate) async fn set_times(&self, path: &str, modified: Option<u64>, read: Option<u64>) -> Result<(), Error> {
        let request = SetTimesRequestProto {
            src: path.to_owned(),
            mtime: modified.unwrap_or(u64::MAX),
            atime: read.unwrap_or(u64::MAX),
        };
        let _: SetTimesResponseProto = self.call("setTimes", &request).await?;
        Ok(())
    }

    pub(crate) async fn check_access(&self, path: &str, access: Access) -> Result<(), Error> {
        let request = CheckAccessRequestProto { path: path.to_owned(), mode: i32::from(access.bits()) };
        let _: CheckAccessResponseProto = self.call("checkAccess", &request).await?;
        Ok(())
    }

    pub(crate) async fn content_summary(&self, path: &str) -> Result<ContentSummary, Error> {
        let request = GetContentSummaryRequestProto { path: path.to_owned() };
        let answer: GetContentSummaryResponseProto = self.call("getContentSummary", &request).await?;
        Ok(answer.summary.into())
    }

    pub(crate) async fn quota_usage(&self, path: &str) -> Result<QuotaUsage, Error> {
        let request = GetQuotaUsageRequestProto { path: path.to_owned() };
        let answer: GetQuotaUsageResponseProto = self.call("getQuotaUsage", &request).await?;
        let usage = answer.usage;
        Ok(QuotaUsage {
            names: usage.file_and_directory_count,
            name_quota: quota(usage.quota),
            space_consumed: usage.space_consumed,
            space_quota: quota(usage.space_quota),
            type_quotas: type_quotas(usage.type_quota_infos),
        })
    }

    pub(crate) async fn concat(&self, target: &str, sources: &[String]) -> Result<(), Error> {
        let request = ConcatRequestProto { trg: target.to_owned(), srcs: sources.to_vec() };
        let _: ConcatResponseProto = self.call("concat", &request).await?;
        Ok(())
    }

    pub(crate) async fn truncate(&self, path: &str, length: u64, client: &str) -> Result<bool, Error> {
        let request = TruncateRequestProto { src: path.to_owned(), new_length: length, client_name: client.to_owned() };
        let answer: TruncateResponseProto = self.call("truncate", &request).await?;
        Ok(answer.result)
    }

    pub(crate) async fn is_file_closed(&self, path: &str) -> Result<bool, Error> {
        let request = IsFileClosedRequestProto { src: path.to_owned() };
        let answer: IsFileClosedResponseProto = self.call("isFileClosed", &request).await?;
        Ok(answer.result)
    }

    pub(crate) async fn recover_lease(&self, path: &str, client: &str) -> Result<bool, Error> {
        let request = RecoverLeaseRequestProto { src: path.to_owned(), client_name: client.to_owned() };
        let answer: RecoverLeaseResponseProto = self.call("recoverLease", &request).await?;
        Ok(answer.result)
    }

    /// Fetches one page of a listing. Returns its entries, and true if more follow. `None` if the directory does not
    /// exist.
    async fn listing_page(&self, path: &str, after: &[u8]) -> Result<Option<(Vec<FileStatus>, bool)>, Error> {
        const METHOD: &str = "getListing";
        let request =
            GetListingRequestProto { src: path.to_owned(), start_after: after.to_vec().into(), need_location: false };
        let answer: GetListingResponseProto = self.call(METHOD, &request).await?;
        let Some(page) = answer.dir_list else { return Ok(None) };
        let entries: Result<Vec<_>, _> = page.partial_listing.into_iter().map(FileStatus::try_from).collect();
        let entries = converted(METHOD, entries)?;
        if entries.is_empty() && page.remaining_entries > 0 {
            return Err(Failure::Answer {
                method: METHOD,
                why: "an empty page although more entries remain".to_owned(),
            }
            .into());
        }
        Ok(Some((entries, page.remaining_entries > 0)))
    }
}

/// Iterator over the entries of a directory. They are fetched page by page, so a large directory is never held in
/// memory completely. Entries created or removed during the listing may or may not be seen.
#[derive(Debug)]
pub struct Listing {
    shared: std::sync::Arc<crate::file_system::Shared>,
    path: String,
    page: VecDeque<FileStatus>,
    /// Name of the last fetched entry.
    after: Vec<u8>,
    more: bool,
}

impl Listing {
    /// Fetches the first page, so that a missing directory is reported here.
    pub(crate) async fn start(shared: std::sync::Arc<crate::file_system::Shared>, path: String) -> Result<Self, Error> {
        let mut listing = Self { shared, path, page: VecDeque::new(), after: Vec::new(), more: true };
        listing.fetch().await?;
        Ok(listing)
    }

    /// Returns the next entry, or `None` at the end. For a file, the only entry is its own status with an empty name.
    pub async fn next(&mut self) -> Result<Option<FileStatus>, Error> {
        while self.page.is_empty() && self.more {
            self.fetch().await?;
        }
        Ok(self.page.pop_front())
    }

    async fn fetch(&mut self) -> Result<(), Error> {
        match self.shared.namenode.listing_page(&self.path, &self.after).await? {
            Some((entries, more)) => {
                if let Some(last) = entries.last() {
                    self.after.clone_from(&last.local_name);
                }
                self.page = entries.into();
                self.more = more;
                Ok(())
            }
            None => Err(Failure::NotFound { path: self.path.clone() }.into()),
        }
    }
}
