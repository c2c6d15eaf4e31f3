//! HDFS over its own protocols or over HTTP, behind one set of calls.

use std::time::{Duration, SystemTime};

use hearth_client::{
    CreateOptions, Error, ErrorKind, FileChecksum, FileSystem, FsUsage, MkdirsOptions, QuotaUsage, RenameOptions,
    Statistics, WebFileSystem,
};
use hearth_types::{Access, AclChange, AclStatus, ContentSummary, FileStatus, FsPermission, LocatedBlocks, Xattr};

use super::store::{Sink, Source};

#[derive(Clone, Debug)]
pub enum Remote {
    Native(FileSystem),
    Web(WebFileSystem),
}

/// Calls that both have with the same arguments.
macro_rules! both {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        $(pub async fn $name(&self, $($argument: $kind),*) -> Result<$answer, Error> {
            match self {
                Self::Native(fs) => fs.$name($($argument),*).await,
                Self::Web(fs) => fs.$name($($argument),*).await,
            }
        })*
    };
}

impl Remote {
    both! {
        status(path: &str) -> FileStatus;
        list_all(path: &str) -> Vec<FileStatus>;
        content_summary(path: &str) -> ContentSummary;
        quota_usage(path: &str) -> QuotaUsage;
        usage() -> FsUsage;
        trash_interval() -> Duration;
        acl(path: &str) -> AclStatus;
        change_acl(path: &str, change: &AclChange) -> ();
        xattrs(path: &str, wanted: Vec<Xattr>) -> Vec<Xattr>;
        set_xattr(path: &str, xattr: Xattr) -> ();
        remove_xattr(path: &str, xattr: Xattr) -> ();
        check_access(path: &str, access: Access) -> ();
        rename(from: &str, to: &str) -> bool;
        rename_to(from: &str, to: &str, options: RenameOptions) -> ();
        delete(path: &str, recursive: bool) -> bool;
        set_replication(path: &str, replication: u16) -> bool;
        set_permission(path: &str, permission: FsPermission) -> ();
        set_owner(path: &str, user: Option<&str>, group: Option<&str>) -> ();
        set_times(path: &str, modified: Option<SystemTime>, accessed: Option<SystemTime>) -> ();
        mkdirs_with(path: &str, options: MkdirsOptions) -> ();
        truncate(path: &str, length: u64) -> bool;
        concat(target: &str, sources: &[&str]) -> ();
        create_snapshot(path: &str, name: &str) -> String;
        delete_snapshot(path: &str, name: &str) -> ();
        rename_snapshot(path: &str, old: &str, new: &str) -> ();
    }

    /// Returns the URI: `hdfs://` or `webhdfs://`, and the authority.
    pub fn uri(&self) -> &str {
        match self {
            Self::Native(fs) => fs.uri(),
            Self::Web(fs) => fs.uri(),
        }
    }

    pub fn home(&self) -> &str {
        match self {
            Self::Native(fs) => fs.home(),
            Self::Web(fs) => fs.home(),
        }
    }

    /// Returns the statistics of the paths to DataNodes. `None` over HTTP, which has no such paths.
    pub fn statistics(&self) -> Option<Statistics> {
        match self {
            Self::Native(fs) => Some(fs.statistics()),
            Self::Web(_) => None,
        }
    }

    pub async fn checksum(&self, path: &str, length: Option<u64>) -> Result<FileChecksum, Error> {
        match self {
            Self::Native(fs) => fs.checksum(path, length).await,
            Self::Web(fs) => fs.checksum(path).await,
        }
    }

    /// Returns the locations of a range. Errors: WebHDFS has no operation for it.
    pub async fn locations(&self, path: &str, offset: u64, length: u64) -> Result<LocatedBlocks, Error> {
        match self {
            Self::Native(fs) => fs.locations(path, offset, length).await,
            Self::Web(_) => Err(not_over_http(path, "the locations of blocks")),
        }
    }

    pub async fn is_file_closed(&self, path: &str) -> Result<bool, Error> {
        match self {
            Self::Native(fs) => fs.is_file_closed(path).await,
            Self::Web(_) => Err(not_over_http(path, "whether a file is closed")),
        }
    }

    /// Opens a file. `verify`: compare the bytes with their checksums. Over HTTP the DataNode does that.
    pub async fn open(&self, path: &str, verify: bool) -> Result<Source, Error> {
        Ok(match self {
            Self::Native(fs) if verify => Source::Hdfs(Box::new(fs.open(path).await?)),
            Self::Native(fs) => Source::Hdfs(Box::new(fs.open_unverified(path).await?)),
            Self::Web(fs) => Source::Web(Box::new(fs.open(path).await?)),
        })
    }

    pub async fn create(&self, path: &str, options: CreateOptions) -> Result<Sink, Error> {
        Ok(match self {
            Self::Native(fs) => Sink::Hdfs(Box::new(fs.create(path, options).await?)),
            Self::Web(fs) => Sink::Web(Box::new(fs.create(path, options).await?)),
        })
    }

    pub async fn append(&self, path: &str) -> Result<Sink, Error> {
        Ok(match self {
            Self::Native(fs) => Sink::Hdfs(Box::new(fs.append(path).await?)),
            Self::Web(fs) => Sink::Web(Box::new(fs.append(path).await?)),
        })
    }

    pub async fn append_new_block(&self, path: &str) -> Result<Sink, Error> {
        match self {
            Self::Native(fs) => Ok(Sink::Hdfs(Box::new(fs.append_new_block(path).await?))),
            Self::Web(_) => Err(not_over_http(path, "a block to begin with an append")),
        }
    }
}

fn not_over_http(path: &str, what: &'static str) -> Error {
    let why = format!("WebHDFS has no operation for {what} ({path}): use an hdfs:// path");
    Error::new(ErrorKind::Unsupported, why)
}
