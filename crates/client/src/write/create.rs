//! Creation of files.

use std::sync::Arc;

use hearth_protocol::trace::{self, Span};
use hearth_types::FsPermission;

use super::{WriteStart, Writer, WrittenFile};
use crate::Error;
use crate::error::Failure;
use crate::file_system::FileSystem;
use crate::namenode::CreateRequest;

/// Options for creating a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateOptions {
    /// Replace an existing file.
    pub overwrite: bool,
    /// Create missing parent directories.
    pub parents: bool,
    /// Number of replicas. `None` uses `dfs.replication`.
    pub replication: Option<u16>,
    /// Block size in bytes. `None` uses `dfs.blocksize`.
    pub block_size: Option<u64>,
    /// Permission before the umask is applied. `None` uses 0666.
    pub permission: Option<FsPermission>,
    /// Permission before the umask of another client. When it is set, `permission` is the result after that umask, and
    /// this client's umask is not applied. A default ACL of the directory applies to this value instead.
    pub unmasked: Option<FsPermission>,
    /// Give the file the storage policy LAZY_PERSIST, unless `storage_policy` names another.
    pub lazy_persist: bool,
    /// Storage policy of the file, by name. `None` inherits the directory's.
    pub storage_policy: Option<String>,
}

impl Default for CreateOptions {
    /// Options for a new file: missing parent directories are created, an existing file is not replaced, and everything
    /// else is as configured.
    fn default() -> Self {
        Self {
            overwrite: false,
            parents: true,
            replication: None,
            block_size: None,
            permission: None,
            unmasked: None,
            lazy_persist: false,
            storage_policy: None,
        }
    }
}

impl FileSystem {
    /// Creates a file and opens it for writing. The file is visible at once, with length 0.
    pub async fn create(&self, path: &str, options: CreateOptions) -> Result<Writer, Error> {
        let path = self.absolute(path)?;
        let replication = options.replication.unwrap_or(self.session.options.replication);
        let block_size = options.block_size.unwrap_or(self.session.options.block_size);
        if block_size == 0 {
            return Err(Failure::InvalidPath { path, why: "a block size of 0" }.into());
        }
        let create_request = CreateRequest {
            path: &path,
            permission: match (options.permission, options.unmasked) {
                (Some(masked), Some(unmasked)) => (masked, unmasked),
                (permission, _) => self.session.options.file_permission(permission),
            },
            client: self.session.client_name(),
            overwrite: options.overwrite,
            parents: options.parents,
            replication,
            block_size,
            lazy_persist: options.lazy_persist,
            storage_policy: options.storage_policy.as_deref(),
        };
        let mut span = Span::root("write");
        span.set("hdfs.file", path.as_str());
        let open = self.session.leases.open();
        let created = trace::within(span.context(), self.session.namenode.create(&create_request)).await;
        let inode = match created.inspect_err(|error| span.fail(error))? {
            Some(status) => status.inode,
            // Only old servers omit the status. They take 0 to mean "by path".
            None => 0,
        };
        let file = WrittenFile::new(path, inode, self.session.client_name().to_owned(), replication, block_size);
        Ok(Writer::start(Arc::clone(&self.session), file, WriteStart::default(), Some(open), span))
    }
}
