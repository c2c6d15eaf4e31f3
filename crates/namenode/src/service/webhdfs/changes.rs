//! Dispatch of the operations of PUT, POST and DELETE; and the operations on names, owners, modes, times and quotas.

use hearth_types::StorageType;
use hearth_web::webhdfs::{Exception, needed, refused};
use hearth_wire::proto::hdfs::{
    ConcatRequestProto, ConcatResponseProto, CreateSymlinkRequestProto, CreateSymlinkResponseProto, DeleteRequestProto,
    DeleteResponseProto, FsPermissionProto, MkdirsRequestProto, MkdirsResponseProto, Rename2RequestProto,
    Rename2ResponseProto, RenameRequestProto, RenameResponseProto, SatisfyStoragePolicyRequestProto,
    SatisfyStoragePolicyResponseProto, SetOwnerRequestProto, SetOwnerResponseProto, SetPermissionRequestProto,
    SetPermissionResponseProto, SetQuotaRequestProto, SetQuotaResponseProto, SetReplicationRequestProto,
    SetReplicationResponseProto, SetStoragePolicyRequestProto, SetStoragePolicyResponseProto, SetTimesRequestProto,
    SetTimesResponseProto, TruncateRequestProto, TruncateResponseProto, UnsetStoragePolicyRequestProto,
    UnsetStoragePolicyResponseProto,
};

use super::{Answer, Operation, done_with_charset, yes_or_no};

/// Mode of a directory if none is given. Source: `PermissionParam`.
const DIRECTORY_MODE: u32 = 0o755;
/// Mode of a symbolic link.
const SYMLINK_MODE: u32 = 0o777;
/// Name of the parameter with the destination path.
const DESTINATION: &str = "destination";
/// Java's values of a quota for "leave it unchanged" and "remove it".
const KEEP: i64 = i64::MAX;
pub(super) const CLEAR: i64 = -1;

impl Operation {
    /// Executes an operation of PUT. `None`: it does not exist.
    pub(super) async fn put(&self, operation: &str) -> Option<Answer> {
        Some(match operation {
            "CREATE" => self.create().await,
            "MKDIRS" => self.mkdirs().await,
            "CREATESYMLINK" => self.create_symlink().await,
            "RENAME" => self.rename().await,
            "SETREPLICATION" => self.set_replication().await,
            "SETOWNER" => self.set_owner().await,
            "SETPERMISSION" => self.set_permission().await,
            "SETTIMES" => self.set_times().await,
            "RENEWDELEGATIONTOKEN" => self.renew_delegation_token().await,
            "CANCELDELEGATIONTOKEN" => self.cancel_delegation_token().await,
            "MODIFYACLENTRIES" => self.modify_acl_entries().await,
            "REMOVEACLENTRIES" => self.remove_acl_entries().await,
            "REMOVEDEFAULTACL" => self.remove_default_acl().await,
            "REMOVEACL" => self.remove_acl().await,
            "SETACL" => self.set_acl().await,
            "SETXATTR" => self.set_xattr().await,
            "REMOVEXATTR" => self.remove_xattr().await,
            "ALLOWSNAPSHOT" => self.allow_snapshot().await,
            "DISALLOWSNAPSHOT" => self.disallow_snapshot().await,
            "CREATESNAPSHOT" => self.create_snapshot().await,
            "RENAMESNAPSHOT" => self.rename_snapshot().await,
            "SETSTORAGEPOLICY" => self.set_storage_policy().await,
            "SATISFYSTORAGEPOLICY" => self.satisfy_storage_policy().await,
            "ENABLEECPOLICY" => self.enable_erasure_coding_policy().await,
            "DISABLEECPOLICY" => self.disable_erasure_coding_policy().await,
            "SETECPOLICY" => self.set_erasure_coding_policy().await,
            "SETQUOTA" => self.set_quota().await,
            "SETQUOTABYSTORAGETYPE" => self.set_type_quota().await,
            _ => return None,
        })
    }

    /// Executes an operation of POST, like [`Operation::put`].
    pub(super) async fn post(&self, operation: &str) -> Option<Answer> {
        Some(match operation {
            "APPEND" => self.append().await,
            "CONCAT" => self.concat().await,
            "TRUNCATE" => self.truncate().await,
            "UNSETSTORAGEPOLICY" => self.unset_storage_policy().await,
            "UNSETECPOLICY" => self.unset_erasure_coding_policy().await,
            _ => return None,
        })
    }

    /// Executes an operation of DELETE, like [`Operation::put`].
    pub(super) async fn delete(&self, operation: &str) -> Option<Answer> {
        Some(match operation {
            "DELETE" => self.remove().await,
            "DELETESNAPSHOT" => self.delete_snapshot().await,
            _ => return None,
        })
    }

    async fn mkdirs(&self) -> Answer {
        let mode = |perm: u32| FsPermissionProto { perm };
        let request = MkdirsRequestProto {
            src: self.path.clone(),
            masked: mode(self.parameters.mode("permission")?.unwrap_or(DIRECTORY_MODE)),
            create_parent: true,
            unmasked: self.parameters.mode("unmaskedpermission")?.map(mode),
        };
        let made: MkdirsResponseProto = self.call("mkdirs", &request).await?;
        Ok(yes_or_no(made.result))
    }

    async fn create_symlink(&self) -> Answer {
        let request = CreateSymlinkRequestProto {
            target: self.destination("CREATESYMLINK")?,
            link: self.path.clone(),
            dir_perm: FsPermissionProto { perm: SYMLINK_MODE },
            create_parent: self.parameters.flag("createparent", true)?,
        };
        self.change::<CreateSymlinkResponseProto>("createSymlink", &request).await
    }

    /// Renames as FileContext does if options are given, with an empty answer; else as FileSystem does.
    async fn rename(&self) -> Answer {
        let (src, dst) = (self.path.clone(), self.destination("RENAME")?);
        let options = self.rename_options()?;
        if options.is_empty() {
            let renamed: RenameResponseProto = self.call("rename", &RenameRequestProto { src, dst }).await?;
            return Ok(yes_or_no(renamed.result));
        }
        let request = Rename2RequestProto {
            src,
            dst,
            overwrite_dest: options.contains(&"OVERWRITE"),
            move_to_trash: Some(options.contains(&"TO_TRASH")),
        };
        self.change::<Rename2ResponseProto>("rename2", &request).await
    }

    pub(super) fn rename_options(&self) -> Result<Vec<&'static str>, Exception> {
        let class = "org.apache.hadoop.fs.Options.Rename";
        self.parameters.set("renameoptions", class, &["NONE", "OVERWRITE", "TO_TRASH"])
    }

    fn destination(&self, operation: &str) -> Result<String, Exception> {
        self.given_destination()?.ok_or_else(|| needed(DESTINATION, operation))
    }

    /// Returns the path in the parameter, as Java's `Path` writes it.
    pub(super) fn given_destination(&self) -> Result<Option<String>, Exception> {
        match self.parameters.text(DESTINATION) {
            Some(given) if !given.starts_with('/') => {
                let why = format!("Invalid parameter value: {DESTINATION} = \"{given}\" is not an absolute path.");
                Err(refused(DESTINATION, &why))
            }
            given => Ok(given.map(normal)),
        }
    }

    async fn set_replication(&self) -> Answer {
        let given = self.parameters.short("replication", 1)?;
        let replication = u32::from(given.unwrap_or(self.namenode().settings.defaults.replication));
        let request = SetReplicationRequestProto { src: self.path.clone(), replication };
        let changed: SetReplicationResponseProto = self.call("setReplication", &request).await?;
        Ok(yes_or_no(changed.result))
    }

    async fn set_owner(&self) -> Answer {
        let name = |parameter: &str| self.parameters.text(parameter).map(str::to_owned);
        let (username, groupname) = (name("owner"), name("group"));
        if username.is_none() && groupname.is_none() {
            return Err(Exception::illegal_argument("Both owner and group are empty."));
        }
        let request = SetOwnerRequestProto { src: self.path.clone(), username, groupname };
        self.change::<SetOwnerResponseProto>("setOwner", &request).await
    }

    async fn set_permission(&self) -> Answer {
        let perm = self.parameters.mode("permission")?.unwrap_or(DIRECTORY_MODE);
        let request = SetPermissionRequestProto { src: self.path.clone(), permission: FsPermissionProto { perm } };
        self.change::<SetPermissionResponseProto>("setPermission", &request).await
    }

    /// -1 leaves a time unchanged.
    async fn set_times(&self) -> Answer {
        let mtime = self.parameters.long("modificationtime", -1)?.unwrap_or(-1) as u64;
        let atime = self.parameters.long("accesstime", -1)?.unwrap_or(-1) as u64;
        let request = SetTimesRequestProto { src: self.path.clone(), mtime, atime };
        self.change::<SetTimesResponseProto>("setTimes", &request).await
    }

    async fn set_storage_policy(&self) -> Answer {
        let given = self.parameters.text("storagepolicy");
        let policy_name = given.ok_or_else(|| Exception::illegal_argument("Storage policy name is empty."))?.to_owned();
        let request = SetStoragePolicyRequestProto { src: self.path.clone(), policy_name };
        self.change::<SetStoragePolicyResponseProto>("setStoragePolicy", &request).await
    }

    async fn unset_storage_policy(&self) -> Answer {
        let request = UnsetStoragePolicyRequestProto { src: self.path.clone() };
        self.call::<UnsetStoragePolicyResponseProto>("unsetStoragePolicy", &request).await?;
        Ok(done_with_charset())
    }

    async fn satisfy_storage_policy(&self) -> Answer {
        let request = SatisfyStoragePolicyRequestProto { src: self.path.clone() };
        self.change::<SatisfyStoragePolicyResponseProto>("satisfyStoragePolicy", &request).await
    }

    /// A quota that is not given is left unchanged.
    fn quota(&self, name: &str, operation: &str) -> Result<i64, Exception> {
        match self.parameters.given(name) {
            None => Ok(KEEP),
            Some(_) => self.parameters.long(name, CLEAR)?.ok_or_else(|| needed(name, operation)),
        }
    }

    async fn set_quota(&self) -> Answer {
        let operation = "SETQUOTA";
        let request = SetQuotaRequestProto {
            path: self.path.clone(),
            namespace_quota: self.quota("namespacequota", operation)? as u64,
            storagespace_quota: self.quota("storagespacequota", operation)? as u64,
            storage_type: None,
        };
        self.change::<SetQuotaResponseProto>("setQuota", &request).await
    }

    async fn set_type_quota(&self) -> Answer {
        let operation = "SETQUOTABYSTORAGETYPE";
        let storagespace_quota = self.quota("storagespacequota", operation)? as u64;
        let given = self.parameters.needed("storagetype", operation)?;
        let medium = StorageType::named(given).ok_or_else(|| {
            let class = "org.apache.hadoop.fs.StorageType";
            Exception::illegal_argument(format!("No enum constant {class}.{}", given.to_uppercase()))
        })?;
        let request = SetQuotaRequestProto {
            path: self.path.clone(),
            namespace_quota: KEEP as u64,
            storagespace_quota,
            storage_type: Some(medium as i32),
        };
        self.change::<SetQuotaResponseProto>("setQuota", &request).await
    }

    async fn concat(&self) -> Answer {
        let sources = self.parameters.needed("sources", "CONCAT")?;
        // Empty parts at the end do not count.
        let srcs = sources.trim_end_matches(',').split(',').map(str::to_owned).collect();
        let request = ConcatRequestProto { trg: self.path.clone(), srcs };
        self.call::<ConcatResponseProto>("concat", &request).await?;
        Ok(done_with_charset())
    }

    /// Truncates in the name of a client of its own.
    async fn truncate(&self) -> Answer {
        let name = "newlength";
        let length = self.parameters.long(name, 0)?.ok_or_else(|| needed(name, "TRUNCATE"))?;
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| Exception::io(error.to_string()))?;
        let request = TruncateRequestProto {
            src: self.path.clone(),
            new_length: length as u64,
            client_name: format!("DFSClient_{}", i64::from_ne_bytes(random)),
        };
        let truncated: TruncateResponseProto = self.call("truncate", &request).await?;
        Ok(yes_or_no(truncated.result))
    }

    async fn remove(&self) -> Answer {
        let recursive = self.parameters.flag("recursive", false)?;
        let request = DeleteRequestProto { src: self.path.clone(), recursive };
        let removed: DeleteResponseProto = self.call("delete", &request).await?;
        Ok(yes_or_no(removed.result))
    }
}

/// Removes empty names, `.`, and names followed by `..`. Source: `Path`, `URI.normalize`.
fn normal(path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
        let takes_back = name == ".." && names.last().is_some_and(|last| *last != "..");
        if takes_back {
            names.pop();
        } else {
            names.push(name);
        }
    }
    format!("/{}", names.join("/"))
}

#[cfg(test)]
mod tests {
    use super::normal;

    #[test]
    fn paths_are_as_java_writes_them() {
        for (given, written) in
            [("/", "/"), ("//a//b/", "/a/b"), ("/a/./b/../c", "/a/c"), ("/..", "/.."), ("/../../a", "/../../a")]
        {
            assert_eq!(normal(given), written);
        }
    }
}
