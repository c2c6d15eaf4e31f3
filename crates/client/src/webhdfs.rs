//! HDFS over HTTP: the client half of WebHDFS. It works with Hearth's servers and with Apache's.
//!
//! The NameNode answers in JSON, or redirects to a DataNode for the bytes of files. Each request uses a connection of
//! its own. For programs that must use HTTP; [`crate::FileSystem`] is much faster. Source: WebHdfsFileSystem.java.

mod http;
mod json;
mod transfer;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hearth_config::{Configuration, HostPort, keys};
use hearth_types::{Access, AclChange, AclEntry, AclStatus, ContentSummary, FileStatus, FsPermission, Xattr};
use hyper::Method;
use serde_json::Value;

use crate::arguments::{MkdirsOptions, milliseconds};
use crate::error::Failure;
use crate::options::ClientOptions;
use crate::{CreateOptions, Error, FileChecksum, FsUsage, QuotaUsage, RenameOptions, path};
use http::{Connector, HttpResponse, RequestBody};
pub use transfer::{WebReader, WebWriter};

/// An HDFS file system over HTTP. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WebFileSystem {
    shared: Arc<WebSession>,
}

#[derive(Debug)]
struct WebSession {
    uri: String,
    home: String,
    user: String,
    real_user: Option<String>,
    /// Addresses of the NameNodes. The one that answered last is tried first.
    namenodes: Vec<HostPort>,
    current: std::sync::atomic::AtomicUsize,
    connector: Connector,
    options: ClientOptions,
}

/// Query parameters of an operation.
type Parameters<'a> = &'a [(&'a str, &'a str)];

impl WebFileSystem {
    /// Connects to the file system of the NameNode whose web server listens on `authority` (`host:port`), or of the
    /// nameservice of that name. As in [`crate::FileSystem::connect_for`], `real_user` makes the requests on behalf of
    /// `user`.
    pub fn connect(
        configuration: &Configuration,
        authority: &str,
        user: &str,
        real_user: Option<&str>,
    ) -> Result<Self, Error> {
        configuration.refuse_client_authentication()?;
        let options = ClientOptions::read(configuration)?;
        let shared = WebSession {
            uri: format!("webhdfs://{authority}"),
            home: format!("{}/{user}", options.home_prefix.trim_end_matches('/')),
            user: user.to_owned(),
            real_user: real_user.map(str::to_owned),
            namenodes: namenodes(configuration, authority)?,
            current: Default::default(),
            connector: Connector { connect: options.datanode.socket_timeout, wait: options.datanode.socket_timeout },
            options,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns `webhdfs://` and the authority given to `connect`.
    pub fn uri(&self) -> &str {
        &self.shared.uri
    }

    /// Returns the user on whose behalf requests are made.
    pub fn user(&self) -> &str {
        &self.shared.user
    }

    /// Returns the directory that relative paths start at.
    pub fn home(&self) -> &str {
        &self.shared.home
    }

    fn absolute(&self, path: &str) -> Result<String, Error> {
        path::absolute(path, &self.shared.home)
    }

    /// Returns the status of a file or directory.
    ///
    /// Errors: kind `NotFound` if the path does not exist.
    pub async fn status(&self, path: &str) -> Result<FileStatus, Error> {
        let answer = self.ask(Method::GET, path, "GETFILESTATUS", &[]).await?;
        json::status(&answer["FileStatus"]).ok_or_else(|| wrong("GETFILESTATUS", "no status"))
    }

    /// Returns all entries of a directory at once.
    pub async fn list_all(&self, path: &str) -> Result<Vec<FileStatus>, Error> {
        let mut entries: Vec<FileStatus> = Vec::new();
        loop {
            let after = entries.last().map(|last| String::from_utf8_lossy(&last.local_name).into_owned());
            let parameters: Vec<_> = after.iter().map(|name| ("startAfter", name.as_str())).collect();
            let answer = self.ask(Method::GET, path, "LISTSTATUS_BATCH", &parameters).await?;
            let list = &answer["DirectoryListing"];
            let page = list["partialListing"]["FileStatuses"]["FileStatus"].as_array();
            let page = page.ok_or_else(|| wrong("LISTSTATUS_BATCH", "no statuses"))?;
            for entry in page {
                entries.push(json::status(entry).ok_or_else(|| wrong("LISTSTATUS_BATCH", "no status"))?);
            }
            // Stop at a page without entries: it would be requested forever.
            if list["remainingEntries"].as_u64().unwrap_or(0) == 0 || page.is_empty() {
                return Ok(entries);
            }
        }
    }

    /// Like [`crate::FileSystem::content_summary`].
    pub async fn content_summary(&self, path: &str) -> Result<ContentSummary, Error> {
        let answer = self.ask(Method::GET, path, "GETCONTENTSUMMARY", &[]).await?;
        Ok(json::content_summary(&answer["ContentSummary"]))
    }

    /// Like [`crate::FileSystem::quota_usage`].
    pub async fn quota_usage(&self, path: &str) -> Result<QuotaUsage, Error> {
        let answer = self.ask(Method::GET, path, "GETQUOTAUSAGE", &[]).await?;
        Ok(json::quota_usage(&answer["QuotaUsage"]))
    }

    /// Returns the capacity, used bytes and remaining bytes of the file system.
    pub async fn usage(&self) -> Result<FsUsage, Error> {
        let answer = self.ask(Method::GET, "/", "GETSTATUS", &[]).await?;
        let of = |name: &str| answer["FsStatus"][name].as_u64().unwrap_or(0);
        Ok(FsUsage { capacity: of("capacity"), used: of("used"), remaining: of("remaining"), ..FsUsage::default() })
    }

    /// Returns the NameNode's trash interval, or the configured one if the NameNode has none.
    pub async fn trash_interval(&self) -> Result<Duration, Error> {
        let answer = self.ask(Method::GET, "/", "GETSERVERDEFAULTS", &[]).await?;
        let minutes = answer["FsServerDefaults"]["trashInterval"].as_u64().unwrap_or(0);
        let own = self.shared.options.trash_interval;
        Ok(if minutes > 0 { Duration::from_secs(minutes.saturating_mul(60)) } else { own })
    }

    /// Returns the checksum of a whole file.
    pub async fn checksum(&self, path: &str) -> Result<FileChecksum, Error> {
        let answer = self.ask(Method::GET, path, "GETFILECHECKSUM", &[]).await?;
        json::checksum(&answer["FileChecksum"]).ok_or_else(|| wrong("GETFILECHECKSUM", "no checksum of a known kind"))
    }

    /// Returns the access control list of a file or directory.
    pub async fn acl(&self, path: &str) -> Result<AclStatus, Error> {
        let answer = self.ask(Method::GET, path, "GETACLSTATUS", &[]).await?;
        json::acl(&answer["AclStatus"]).ok_or_else(|| wrong("GETACLSTATUS", "no ACL"))
    }

    /// Changes the access control list.
    pub async fn change_acl(&self, path: &str, change: &AclChange) -> Result<(), Error> {
        let (operation, entries) = match change {
            AclChange::Modify(entries) => ("MODIFYACLENTRIES", Some((entries, true))),
            AclChange::Remove(entries) => ("REMOVEACLENTRIES", Some((entries, false))),
            AclChange::Set(entries) => ("SETACL", Some((entries, true))),
            AclChange::RemoveDefault => ("REMOVEDEFAULTACL", None),
            AclChange::RemoveAll => ("REMOVEACL", None),
        };
        let spec = entries.map(|(entries, with_rights)| {
            let text = |entry: &AclEntry| {
                let text = entry.to_string();
                // Entries to remove are named without their permissions.
                if with_rights {
                    text
                } else {
                    text.rsplit_once(':').map_or(text.clone(), |(entry, _)| entry.to_owned())
                }
            };
            entries.iter().map(text).collect::<Vec<_>>().join(",")
        });
        let parameters: Vec<_> = spec.iter().map(|spec| ("aclspec", spec.as_str())).collect();
        self.ask(Method::PUT, path, operation, &parameters).await.map(drop)
    }

    /// Returns extended attributes. `wanted`: names of attributes; all when empty.
    pub async fn xattrs(&self, path: &str, wanted: Vec<Xattr>) -> Result<Vec<Xattr>, Error> {
        let names: Vec<String> = wanted.iter().map(Xattr::full_name).collect();
        let mut parameters = vec![("encoding", "hex")];
        parameters.extend(names.iter().map(|name| ("xattr.name", name.as_str())));
        let answer = self.ask(Method::GET, path, "GETXATTRS", &parameters).await?;
        json::xattrs(&answer["XAttrs"]).ok_or_else(|| wrong("GETXATTRS", "unreadable attributes"))
    }

    /// Creates an extended attribute or replaces its value.
    pub async fn set_xattr(&self, path: &str, xattr: Xattr) -> Result<(), Error> {
        let name = xattr.full_name();
        let value = xattr.value.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"));
        let there = !self.xattrs(path, Vec::new()).await?.iter().all(|known| !known.is(&xattr));
        let flag = if there { "REPLACE" } else { "CREATE" };
        let parameters = [("xattr.name", name.as_str()), ("xattr.value", &value), ("encoding", "hex"), ("flag", flag)];
        self.ask(Method::PUT, path, "SETXATTR", &parameters).await.map(drop)
    }

    /// Removes an extended attribute.
    pub async fn remove_xattr(&self, path: &str, xattr: Xattr) -> Result<(), Error> {
        self.ask(Method::PUT, path, "REMOVEXATTR", &[("xattr.name", &xattr.full_name())]).await.map(drop)
    }

    /// Like [`crate::FileSystem::check_access`].
    pub async fn check_access(&self, path: &str, access: Access) -> Result<(), Error> {
        self.ask(Method::GET, path, "CHECKACCESS", &[("fsaction", access.letters())]).await.map(drop)
    }

    /// Like [`crate::FileSystem::mkdirs`].
    pub async fn mkdirs(&self, path: &str) -> Result<(), Error> {
        self.mkdirs_with(path, MkdirsOptions::default()).await
    }

    /// Like [`crate::FileSystem::mkdirs_with`], but missing parents are always created: WebHDFS has no other way.
    pub async fn mkdirs_with(&self, path: &str, options: MkdirsOptions) -> Result<(), Error> {
        let (permission, _) = options.masked_and_unmasked(&self.shared.options);
        let mode = format!("{:o}", permission.0);
        let parameters = [("permission", mode.as_str()), ("unmaskedpermission", &mode)];
        self.ask(Method::PUT, path, "MKDIRS", &parameters).await.map(drop)
    }

    /// Like [`crate::FileSystem::rename`].
    pub async fn rename(&self, from: &str, to: &str) -> Result<bool, Error> {
        self.flag(Method::PUT, from, "RENAME", &[("destination", &self.absolute(to)?)]).await
    }

    /// Like [`crate::FileSystem::rename_to`].
    pub async fn rename_to(&self, from: &str, to: &str, options: RenameOptions) -> Result<(), Error> {
        let mut flags = vec![if options.overwrite { "OVERWRITE" } else { "NONE" }];
        if options.to_trash {
            flags.push("TO_TRASH");
        }
        let parameters = [("destination", self.absolute(to)?), ("renameoptions", flags.join(","))];
        let parameters = parameters.each_ref().map(|(name, value)| (*name, value.as_str()));
        self.ask(Method::PUT, from, "RENAME", &parameters).await.map(drop)
    }

    /// Like [`crate::FileSystem::delete`].
    pub async fn delete(&self, path: &str, recursive: bool) -> Result<bool, Error> {
        self.flag(Method::DELETE, path, "DELETE", &[("recursive", if recursive { "true" } else { "false" })]).await
    }

    /// Like [`crate::FileSystem::set_replication`].
    pub async fn set_replication(&self, path: &str, replication: u16) -> Result<bool, Error> {
        self.flag(Method::PUT, path, "SETREPLICATION", &[("replication", &replication.to_string())]).await
    }

    /// Sets the permission of a file or directory. The umask is not applied.
    pub async fn set_permission(&self, path: &str, permission: FsPermission) -> Result<(), Error> {
        self.ask(Method::PUT, path, "SETPERMISSION", &[("permission", &format!("{:o}", permission.0))]).await.map(drop)
    }

    /// Sets the owner and group. `None` leaves the owner or the group unchanged.
    pub async fn set_owner(&self, path: &str, user: Option<&str>, group: Option<&str>) -> Result<(), Error> {
        let named = [("owner", user), ("group", group)];
        let parameters: Vec<_> = named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        self.ask(Method::PUT, path, "SETOWNER", &parameters).await.map(drop)
    }

    /// Like [`crate::FileSystem::set_times`].
    pub async fn set_times(
        &self,
        path: &str,
        modified: Option<SystemTime>,
        accessed: Option<SystemTime>,
    ) -> Result<(), Error> {
        let text = |ms: Option<u64>| ms.map_or_else(|| "-1".to_owned(), |ms| ms.to_string());
        let (modified, accessed) = (text(milliseconds(modified)?), text(milliseconds(accessed)?));
        let parameters = [("modificationtime", modified), ("accesstime", accessed)];
        let parameters = parameters.each_ref().map(|(name, value)| (*name, value.as_str()));
        self.ask(Method::PUT, path, "SETTIMES", &parameters).await.map(drop)
    }

    /// Shortens a file. Returns true when that is done, false if the last block is still being cut in the background.
    pub async fn truncate(&self, path: &str, length: u64) -> Result<bool, Error> {
        self.flag(Method::POST, path, "TRUNCATE", &[("newlength", &length.to_string())]).await
    }

    /// Appends the blocks of `sources` to `target` and removes the sources.
    pub async fn concat(&self, target: &str, sources: &[&str]) -> Result<(), Error> {
        let sources = sources.iter().map(|source| self.absolute(source)).collect::<Result<Vec<_>, _>>()?.join(",");
        self.ask(Method::POST, target, "CONCAT", &[("sources", &sources)]).await.map(drop)
    }

    /// Creates a snapshot and returns its path. With an empty `name`, the NameNode chooses a name from the current
    /// time.
    pub async fn create_snapshot(&self, path: &str, name: &str) -> Result<String, Error> {
        let parameters = [("snapshotname", name)];
        let parameters = if name.is_empty() { &[][..] } else { &parameters };
        let answer = self.ask(Method::PUT, path, "CREATESNAPSHOT", parameters).await?;
        answer["Path"].as_str().map(str::to_owned).ok_or_else(|| wrong("CREATESNAPSHOT", "no path"))
    }

    /// Deletes a snapshot and everything that exists only in it.
    pub async fn delete_snapshot(&self, path: &str, name: &str) -> Result<(), Error> {
        self.ask(Method::DELETE, path, "DELETESNAPSHOT", &[("snapshotname", name)]).await.map(drop)
    }

    /// Renames the snapshot `old` of a directory to `new`.
    pub async fn rename_snapshot(&self, path: &str, old: &str, new: &str) -> Result<(), Error> {
        let parameters = [("oldsnapshotname", old), ("snapshotname", new)];
        self.ask(Method::PUT, path, "RENAMESNAPSHOT", &parameters).await.map(drop)
    }

    /// Opens a file for reading.
    pub async fn open(&self, path: &str) -> Result<WebReader, Error> {
        let path = self.absolute(path)?;
        let status = self.status(&path).await?;
        if status.kind == hearth_types::FileKind::Directory {
            return Err(Failure::IsDirectory { path }.into());
        }
        Ok(WebReader::new(self.clone(), path, status.length))
    }

    /// Creates or replaces a file.
    pub async fn create(&self, path: &str, options: CreateOptions) -> Result<WebWriter, Error> {
        let own = &self.shared.options;
        let (masked, unmasked) = own.file_permission(options.permission);
        let mut parameters = vec![
            ("overwrite", options.overwrite.to_string()),
            ("permission", format!("{:o}", masked.0)),
            ("unmaskedpermission", format!("{:o}", options.unmasked.unwrap_or(unmasked).0)),
            ("replication", options.replication.unwrap_or(own.replication).to_string()),
            ("blocksize", options.block_size.unwrap_or(own.block_size).to_string()),
            ("createparent", options.parents.to_string()),
        ];
        if options.lazy_persist {
            parameters.push(("createflag", "CREATE,OVERWRITE,LAZY_PERSIST".to_owned()));
        }
        let parameters: Vec<_> = parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.upload(Method::PUT, path, "CREATE", &parameters).await
    }

    /// Opens a closed file for writing at its end.
    pub async fn append(&self, path: &str) -> Result<WebWriter, Error> {
        self.upload(Method::POST, path, "APPEND", &[]).await
    }

    async fn upload(
        &self,
        method: Method,
        path: &str,
        operation: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<WebWriter, Error> {
        let path = self.absolute(path)?;
        let answer = self.ask_namenode(method.clone(), &path, operation, parameters).await?;
        let Some(to) = answer.redirect else { return Err(wrong(operation, "no DataNode to write to")) };
        WebWriter::start(&self.shared.connector, method, operation, path, &to).await
    }

    async fn flag(
        &self,
        method: Method,
        path: &str,
        operation: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<bool, Error> {
        let answer = self.ask(method, path, operation, parameters).await?;
        answer["boolean"].as_bool().ok_or_else(|| wrong(operation, "neither true nor false"))
    }

    /// Sends a request to the NameNode, and to the DataNode if the NameNode redirects.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        operation: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Value, Error> {
        let path = self.absolute(path)?;
        let mut answer = self.ask_namenode(method.clone(), &path, operation, parameters).await?;
        if let Some(to) = answer.redirect.take() {
            answer = self.shared.connector.send(operation, method, &to, RequestBody::empty()).await?;
        }
        answer.json(operation).await
    }

    /// Returns the answer of the active NameNode.
    async fn ask_namenode(
        &self,
        method: Method,
        path: &str,
        operation: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<HttpResponse, Error> {
        use std::sync::atomic::Ordering;
        let (user, doas) = match &self.shared.real_user {
            Some(real) => (real, Some(&self.shared.user)),
            None => (&self.shared.user, None),
        };
        let mut query = vec![("op", operation), ("user.name", user.as_str())];
        query.extend(doas.map(|doas| ("doas", doas.as_str())));
        query.extend(parameters);
        let count = self.shared.namenodes.len();
        let mut tried = 0;
        loop {
            let at = self.shared.current.load(Ordering::Relaxed) % count;
            let url = http::url(&self.shared.namenodes[at], path, &query);
            let outcome = self.shared.connector.send(operation, method.clone(), &url, RequestBody::empty()).await;
            tried += 1;
            match outcome {
                Err(error) if tried < count && error.is_of_another_namenode() => {
                    self.shared.current.store(at + 1, Ordering::Relaxed);
                }
                outcome => return outcome,
            }
        }
    }
}

impl Error {
    /// Returns true if another NameNode of the nameservice may answer instead.
    fn is_of_another_namenode(&self) -> bool {
        match self.failure() {
            Failure::Refused { class, .. } => class.ends_with(".StandbyException"),
            Failure::Web { sent, .. } => !sent,
            _ => false,
        }
    }
}

fn wrong(operation: &'static str, why: &str) -> Error {
    Failure::Answer { method: operation, why: why.to_owned() }.into()
}

/// Returns the web addresses of the NameNodes that `authority` names.
fn namenodes(configuration: &Configuration, authority: &str) -> Result<Vec<HostPort>, Error> {
    let invalid = |why: String| Failure::InvalidUri { uri: format!("webhdfs://{authority}"), why }.into();
    let port = keys::DFS_NAMENODE_HTTP_ADDRESS.default.rsplit(':').next().and_then(|port| port.parse().ok());
    let one = |text: &str| HostPort::parse(text, port).map_err(invalid);
    let text = |key: String| configuration.get_as(&key, hearth_config::parse::text);
    let Some(ids) = text(format!("dfs.ha.namenodes.{authority}"))? else { return Ok(vec![one(authority)?]) };
    let mut all = Vec::new();
    for id in ids.split(',').map(str::trim).filter(|id| !id.is_empty()) {
        let key = format!("{}.{authority}.{id}", keys::DFS_NAMENODE_HTTP_ADDRESS.name);
        let address = text(key.clone())?.ok_or_else(|| invalid(format!("{key} is not set")))?;
        all.push(one(&address)?);
    }
    if all.is_empty() { Err(invalid(format!("dfs.ha.namenodes.{authority} names no NameNodes"))) } else { Ok(all) }
}
