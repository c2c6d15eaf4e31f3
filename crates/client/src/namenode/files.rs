//! Calls that read or change names: status, directories, renames, attributes.

use std::time::SystemTime;

use hearth_types::{Access, ContentSummary, FileStatus, FsPermission, LocatedBlocks, TypeQuota};
use hearth_wire::convert::{ConvertError, type_quotas};
use hearth_wire::proto::hdfs::*;

use super::Namenode;
use crate::arguments::{MkdirsOptions, milliseconds};
use crate::error::Failure;
use crate::file_system::FileSystem;
use crate::{Error, ErrorKind};

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

/// Options for [`FileSystem::rename_to`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RenameOptions {
    /// Replace an existing file or an empty directory.
    pub overwrite: bool,
    /// Check the permissions that deleting requires.
    pub to_trash: bool,
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

impl FileSystem {
    /// Returns the status of a file or directory.
    ///
    /// Errors: kind `NotFound` if the path does not exist.
    pub async fn status(&self, path: &str) -> Result<FileStatus, Error> {
        let path = self.absolute(path)?;
        self.session.namenode.file_info(&path).await?.ok_or(Failure::NotFound { path }.into())
    }

    /// Like `status`, but does not follow a symbolic link at `path`.
    pub async fn link_status(&self, path: &str) -> Result<FileStatus, Error> {
        const METHOD: &str = "getFileLinkInfo";
        let path = self.absolute(path)?;
        let request = GetFileLinkInfoRequestProto { src: path.clone() };
        let answer: GetFileLinkInfoResponseProto = self.session.namenode.call(METHOD, &request).await?;
        let status = answer.fs.ok_or(Failure::NotFound { path })?;
        converted(METHOD, status.try_into())
    }

    /// Returns true if a file or directory exists at `path`.
    pub async fn exists(&self, path: &str) -> Result<bool, Error> {
        match self.status(path).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates a directory and its missing parents. Succeeds if it already exists.
    pub async fn mkdirs(&self, path: &str) -> Result<(), Error> {
        self.mkdirs_with(path, MkdirsOptions::default()).await
    }

    /// Creates a directory with these options. Succeeds if it already exists.
    pub async fn mkdirs_with(&self, path: &str, options: MkdirsOptions) -> Result<(), Error> {
        let (masked, unmasked) = options.masked_and_unmasked(&self.session.options);
        let request = MkdirsRequestProto {
            src: self.absolute(path)?,
            masked: masked.into(),
            create_parent: options.parents,
            unmasked: Some(unmasked.into()),
        };
        let _: MkdirsResponseProto = self.session.namenode.call("mkdirs", &request).await?;
        Ok(())
    }

    /// Renames `from` to `to`, or moves it into `to` when that is a directory. Returns false on failure (source
    /// missing, destination a file, ...): the namenode does not give the reason. Prefer [`FileSystem::rename_to`].
    pub async fn rename(&self, from: &str, to: &str) -> Result<bool, Error> {
        let request = RenameRequestProto { src: self.absolute(from)?, dst: self.absolute(to)? };
        let answer: RenameResponseProto = self.session.namenode.call("rename", &request).await?;
        Ok(answer.result)
    }

    /// Renames `from` to exactly `to`. On failure the error gives the reason.
    pub async fn rename_to(&self, from: &str, to: &str, options: RenameOptions) -> Result<(), Error> {
        let RenameOptions { overwrite, to_trash } = options;
        let request = Rename2RequestProto {
            src: self.absolute(from)?,
            dst: self.absolute(to)?,
            overwrite_dest: overwrite,
            move_to_trash: to_trash.then_some(true),
        };
        let _: Rename2ResponseProto = self.session.namenode.call("rename2", &request).await?;
        Ok(())
    }

    /// Deletes a file or directory. Returns false if nothing existed at `path`. A non-empty directory needs
    /// `recursive`. Never moves anything to the trash.
    pub async fn delete(&self, path: &str, recursive: bool) -> Result<bool, Error> {
        self.session.namenode.delete(&self.absolute(path)?, recursive).await
    }

    /// Sets the number of replicas of a file. Returns false if `path` is not a file. Replicas are added or removed in
    /// the background.
    pub async fn set_replication(&self, path: &str, replication: u16) -> Result<bool, Error> {
        let request = SetReplicationRequestProto { src: self.absolute(path)?, replication: u32::from(replication) };
        let answer: SetReplicationResponseProto = self.session.namenode.call("setReplication", &request).await?;
        Ok(answer.result)
    }

    /// Sets the permission of a file or directory. The umask is not applied.
    pub async fn set_permission(&self, path: &str, permission: FsPermission) -> Result<(), Error> {
        let request = SetPermissionRequestProto { src: self.absolute(path)?, permission: permission.into() };
        let _: SetPermissionResponseProto = self.session.namenode.call("setPermission", &request).await?;
        Ok(())
    }

    /// Sets the owner and group. `None` leaves the owner or the group unchanged.
    pub async fn set_owner(&self, path: &str, user: Option<&str>, group: Option<&str>) -> Result<(), Error> {
        let request = SetOwnerRequestProto {
            src: self.absolute(path)?,
            username: user.map(str::to_owned),
            groupname: group.map(str::to_owned),
        };
        let _: SetOwnerResponseProto = self.session.namenode.call("setOwner", &request).await?;
        Ok(())
    }

    /// Sets the times of last modification and last access. `None` leaves a time unchanged. HDFS stores milliseconds.
    ///
    /// Errors: kind `InvalidInput` for a time before 1970.
    pub async fn set_times(
        &self,
        path: &str,
        modified: Option<SystemTime>,
        accessed: Option<SystemTime>,
    ) -> Result<(), Error> {
        let request = SetTimesRequestProto {
            src: self.absolute(path)?,
            mtime: milliseconds(modified)?.unwrap_or(u64::MAX),
            atime: milliseconds(accessed)?.unwrap_or(u64::MAX),
        };
        let _: SetTimesResponseProto = self.session.namenode.call("setTimes", &request).await?;
        Ok(())
    }

    /// Checks that the user has all of the rights in `access`.
    ///
    /// Errors: kind `PermissionDenied` if the user lacks one of them.
    pub async fn check_access(&self, path: &str, access: Access) -> Result<(), Error> {
        let request = CheckAccessRequestProto { path: self.absolute(path)?, mode: i32::from(access.bits()) };
        let _: CheckAccessResponseProto = self.session.namenode.call("checkAccess", &request).await?;
        Ok(())
    }

    /// Returns the number of files and directories below `path`, their total length, and the quotas of `path`.
    pub async fn content_summary(&self, path: &str) -> Result<ContentSummary, Error> {
        let request = GetContentSummaryRequestProto { path: self.absolute(path)? };
        let answer: GetContentSummaryResponseProto = self.session.namenode.call("getContentSummary", &request).await?;
        Ok(answer.summary.into())
    }

    /// Returns the quotas of `path` and their usage.
    pub async fn quota_usage(&self, path: &str) -> Result<QuotaUsage, Error> {
        let request = GetQuotaUsageRequestProto { path: self.absolute(path)? };
        let answer: GetQuotaUsageResponseProto = self.session.namenode.call("getQuotaUsage", &request).await?;
        let usage = answer.usage;
        Ok(QuotaUsage {
            names: usage.file_and_directory_count,
            name_quota: quota(usage.quota),
            space_consumed: usage.space_consumed,
            space_quota: quota(usage.space_quota),
            type_quotas: type_quotas(usage.type_quota_infos),
        })
    }

    /// Appends the blocks of `sources` to `target` and removes the sources.
    pub async fn concat(&self, target: &str, sources: &[&str]) -> Result<(), Error> {
        let srcs = sources.iter().map(|source| self.absolute(source)).collect::<Result<_, _>>()?;
        let request = ConcatRequestProto { trg: self.absolute(target)?, srcs };
        let _: ConcatResponseProto = self.session.namenode.call("concat", &request).await?;
        Ok(())
    }

    /// Shortens a file. Returns false if the last block is still being cut in the background; the file stays open until
    /// that is done.
    pub async fn truncate(&self, path: &str, length: u64) -> Result<bool, Error> {
        let request = TruncateRequestProto {
            src: self.absolute(path)?,
            new_length: length,
            client_name: self.session.client_name().to_owned(),
        };
        let answer: TruncateResponseProto = self.session.namenode.call("truncate", &request).await?;
        Ok(answer.result)
    }

    /// Returns the blocks that contain the `length` bytes from `offset` on, and their datanodes.
    pub async fn locations(&self, path: &str, offset: u64, length: u64) -> Result<LocatedBlocks, Error> {
        self.session.namenode.block_locations(&self.absolute(path)?, offset, length).await
    }

    /// Starts lease recovery on a file that another client writes. Returns true if the file is closed now; otherwise
    /// poll `is_file_closed`.
    pub async fn recover_lease(&self, path: &str) -> Result<bool, Error> {
        let request =
            RecoverLeaseRequestProto { src: self.absolute(path)?, client_name: self.session.client_name().to_owned() };
        let answer: RecoverLeaseResponseProto = self.session.namenode.call("recoverLease", &request).await?;
        Ok(answer.result)
    }

    /// Returns true if the file is not open for writing.
    pub async fn is_file_closed(&self, path: &str) -> Result<bool, Error> {
        let request = IsFileClosedRequestProto { src: self.absolute(path)? };
        let answer: IsFileClosedResponseProto = self.session.namenode.call("isFileClosed", &request).await?;
        Ok(answer.result)
    }
}

/// The calls that other parts of the client make too.
impl Namenode {
    /// Returns the status of a path, or `None` if it does not exist.
    pub(crate) async fn file_info(&self, path: &str) -> Result<Option<FileStatus>, Error> {
        let request = GetFileInfoRequestProto { src: path.to_owned() };
        let answer: GetFileInfoResponseProto = self.call("getFileInfo", &request).await?;
        answer.fs.map(|status| converted("getFileInfo", status.try_into())).transpose()
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

    pub(crate) async fn delete(&self, path: &str, recursive: bool) -> Result<bool, Error> {
        let request = DeleteRequestProto { src: path.to_owned(), recursive };
        let answer: DeleteResponseProto = self.call("delete", &request).await?;
        Ok(answer.result)
    }
}
