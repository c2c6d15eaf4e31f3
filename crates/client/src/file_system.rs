use std::borrow::Cow;
use std::sync::{Arc, Once};
use std::time::{Instant, SystemTime};

use hearth_config::{Configuration, IneffectiveSetting, Program, keys};
use hearth_protocol::rpc::{RpcClient, RpcClientOptions};
use hearth_types::{
    Access, AclChange, AclStatus, ByteRange, ContentSummary, DatanodeInfo, ExtendedBlock, FileKind, FileStatus,
    FsPermission, LocatedBlock, LocatedBlocks, ServerDefaults, Xattr,
};
use parking_lot::Mutex;

use crate::arguments::{MkdirsOptions, milliseconds};
use crate::checksum::FileChecksum;
use crate::datanode::{Offers, PeerCache, Unreachable, WarningLimit};
use crate::error::Failure;
use crate::lease::Leases;
use crate::multiplexed::{MultiplexOptions, Multiplexed};
use crate::namenode::{
    BlockStatistics, CreateRequest, DatanodeReportKind, FsUsage, Listing, Namenode, Observers, QuotaUsage,
    SafeModeAction,
};
use crate::one_sided::OneSided;
use crate::options::ClientOptions;
use crate::read::{Collected, PositionedReader, Reader, open_many, read_ranges, visit_opened};
use crate::short_circuit::{ShortCircuit, ShortCircuitOptions};
use crate::statistics::{Counters, Statistics};
use crate::write::{FailedPaths, WriteStart, Writer, WrittenFile};
use crate::{DataPath, Error, ErrorKind, backoff, path};

/// An HDFS file system: the entry point of this crate. Cheap to clone. Clones share connections, leases, and the
/// knowledge of which datanodes fail.
///
/// Paths are absolute (`/a/b`) or relative to the user's home directory. Names are UTF-8.
#[derive(Clone, Debug)]
pub struct FileSystem {
    shared: Arc<Shared>,
}

/// State that a [`FileSystem`], its clones, and everything that they open share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub options: ClientOptions,
    pub namenode: Namenode,
    pub rpc_options: RpcClientOptions,
    /// Holder of this client's leases. Unique per client.
    pub client_name: String,
    pub user: Arc<str>,
    pub peer_cache: PeerCache,
    pub unreachable: Unreachable,
    pub warning_limit: WarningLimit,
    pub leases: Leases,
    pub failed_write_paths: FailedPaths,
    pub counters: Counters,
    pub offers: Arc<Offers>,
    pub short_circuit: Arc<ShortCircuit>,
    pub one_sided: OneSided,
    pub multiplexed: Multiplexed,
    uri: String,
    home: String,
    server_defaults: Mutex<Option<(ServerDefaults, Instant)>>,
}

impl Shared {
    /// Locates the blocks of a file for a reader. Memory addresses of replicas that arrive with the answer are
    /// stored for one-sided reads.
    pub(crate) async fn locate(&self, path: &str, offset: u64, length: u64) -> Result<LocatedBlocks, Error> {
        // The lease of a memory address counts from before the request.
        let asked = Instant::now();
        let mut located = self.namenode.block_locations(path, offset, length).await?;
        self.take_piggybacked(&mut located, asked);
        Ok(located)
    }

    /// Stores the memory addresses of replicas that arrived with `located`, for use by one-sided reads. `asked`: the
    /// time at which the request was sent, or earlier.
    pub(crate) fn take_piggybacked(&self, located: &mut LocatedBlocks, asked: Instant) {
        let wanted = self.options.read_paths.iter().any(|path| path == DataPath::OneSided);
        for block in located.blocks.iter_mut().filter(|block| !block.advertisements.is_empty()) {
            if wanted {
                self.one_sided.note(block, asked);
            }
            block.advertisements = Vec::new();
        }
    }
}

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

/// Options for [`FileSystem::rename_to`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RenameOptions {
    /// Replace an existing file or an empty directory.
    pub overwrite: bool,
    /// Check the permissions that deleting requires.
    pub to_trash: bool,
}

impl FileSystem {
    /// Connects to the file system at `uri` (`hdfs://host:port`, `hdfs://nameservice`), or at `fs.defaultFS` when
    /// `None`, as `user`.
    /// Nothing is sent yet: an unreachable namenode is detected by the first call. Needs a tokio runtime.
    ///
    /// Errors: kind `InvalidConfiguration`, for example if the client is configured for Kerberos.
    pub fn connect(configuration: &Configuration, uri: Option<&str>, user: &str) -> Result<Self, Error> {
        Self::connect_for(configuration, uri, user, None)
    }

    /// Like `connect`, but as a proxy user: `real_user` makes the calls on behalf of `user`. The namenode must allow
    /// this (`hadoop.proxyuser.*`).
    pub fn connect_for(
        configuration: &Configuration,
        uri: Option<&str>,
        user: &str,
        real_user: Option<&str>,
    ) -> Result<Self, Error> {
        configuration.refuse_client_authentication()?;
        let uri = match uri {
            Some(uri) => uri.to_owned(),
            None => configuration.get(keys::FS_DEFAULT_FS)?,
        };
        warn_of_values_without_effect(configuration)?;
        let authority = authority(&uri)?;
        let service = configuration.client_nameservice(authority)?;
        let options = ClientOptions::read(configuration)?;
        let observers = match &service.id {
            Some(nameservice) => Observers::read(configuration, nameservice)?,
            None => None,
        };
        let multiplex = MultiplexOptions::read(configuration, options.read_timeouts())?;
        let short_circuit = ShortCircuitOptions::read(configuration, options.read_timeouts(), multiplex.clone())?;
        let rpc_options = RpcClientOptions { real_user: real_user.map(Arc::from), ..rpc_options(configuration)? };
        let user: Arc<str> = user.into();
        let rpc = RpcClient::new(rpc_options.clone());
        let namenode = Namenode::new(rpc, service, observers, Arc::clone(&user), &options);
        let client_name = format!("DFSClient_NONMAPREDUCE_{}_{}", backoff::random_u32() as i32, std::process::id());
        let offers = Arc::<Offers>::default();
        let shared = Shared {
            peer_cache: PeerCache::new(options.connections_kept, options.connection_expiry, options.read_buffer_bytes),
            unreachable: Unreachable::default(),
            warning_limit: WarningLimit::default(),
            failed_write_paths: FailedPaths::default(),
            leases: Leases::new(options.lease_hard_limit),
            counters: Counters::default(),
            short_circuit: Arc::new(ShortCircuit::new(short_circuit, client_name.clone(), Arc::clone(&offers))),
            offers,
            multiplexed: Multiplexed::new(multiplex, client_name.clone()),
            one_sided: OneSided::new(options.one_sided.clone()),
            home: format!("{}/{user}", options.home_prefix.trim_end_matches('/')),
            uri: format!("hdfs://{authority}"),
            server_defaults: Mutex::new(None),
            options,
            namenode,
            rpc_options,
            client_name,
            user,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns `hdfs://` and the authority given to `connect`.
    pub fn uri(&self) -> &str {
        &self.shared.uri
    }

    /// Returns true if `other` is a clone of this file system.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns the user on whose behalf calls are made.
    pub fn user(&self) -> &str {
        &self.shared.user
    }

    /// Returns `host:port` of the namenode that calls currently go to.
    pub fn namenode_address(&self) -> String {
        self.shared.namenode.address().to_string()
    }

    /// Returns the number of bytes that this file system and its clones have moved so far.
    pub fn statistics(&self) -> Statistics {
        self.shared.counters.statistics().with(self.shared.one_sided.counts())
    }

    /// Returns the directory that relative paths start at.
    pub fn home(&self) -> &str {
        &self.shared.home
    }

    /// Returns `path` as it is sent to the namenode: absolute and canonical.
    pub fn absolute(&self, path: &str) -> Result<String, Error> {
        path::absolute(path, &self.shared.home)
    }

    /// Returns the status of a file or directory.
    ///
    /// Errors: kind `NotFound` if the path does not exist.
    pub async fn status(&self, path: &str) -> Result<FileStatus, Error> {
        let path = self.absolute(path)?;
        self.shared.namenode.file_info(&path).await?.ok_or(Failure::NotFound { path }.into())
    }

    /// Like `status`, but does not follow a symbolic link at `path`.
    pub async fn link_status(&self, path: &str) -> Result<FileStatus, Error> {
        let path = self.absolute(path)?;
        self.shared.namenode.file_link_info(&path).await?.ok_or(Failure::NotFound { path }.into())
    }

    /// Returns true if a file or directory exists at `path`.
    pub async fn exists(&self, path: &str) -> Result<bool, Error> {
        match self.status(path).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lists the entries of a directory page by page. For a file, the only entry is its own status.
    pub async fn list(&self, path: &str) -> Result<Listing, Error> {
        Listing::start(Arc::clone(&self.shared), self.absolute(path)?).await
    }

    /// Returns all entries of a directory at once.
    pub async fn list_all(&self, path: &str) -> Result<Vec<FileStatus>, Error> {
        let mut listing = self.list(path).await?;
        let mut entries = Vec::new();
        while let Some(entry) = listing.next().await? {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Creates a directory and its missing parents. Succeeds if it already exists.
    pub async fn mkdirs(&self, path: &str) -> Result<(), Error> {
        self.mkdirs_with(path, MkdirsOptions::default()).await
    }

    /// Creates a directory with these options. Succeeds if it already exists.
    pub async fn mkdirs_with(&self, path: &str, options: MkdirsOptions) -> Result<(), Error> {
        let permission = options.masked_and_unmasked(&self.shared.options);
        self.shared.namenode.mkdirs(&self.absolute(path)?, permission, options.parents).await.map(|_| ())
    }

    /// Renames `from` to `to`, or moves it into `to` when that is a directory. Returns false on failure (source
    /// missing, destination a file, ...): the namenode does not give the reason. Prefer [`FileSystem::rename_to`].
    pub async fn rename(&self, from: &str, to: &str) -> Result<bool, Error> {
        self.shared.namenode.rename(&self.absolute(from)?, &self.absolute(to)?).await
    }

    /// Renames `from` to exactly `to`. On failure the error gives the reason.
    pub async fn rename_to(&self, from: &str, to: &str, options: RenameOptions) -> Result<(), Error> {
        let RenameOptions { overwrite, to_trash } = options;
        self.shared.namenode.rename2(&self.absolute(from)?, &self.absolute(to)?, overwrite, to_trash).await
    }

    /// Deletes a file or directory. Returns false if nothing existed at `path`. A non-empty directory needs
    /// `recursive`. Never moves anything to the trash.
    pub async fn delete(&self, path: &str, recursive: bool) -> Result<bool, Error> {
        self.shared.namenode.delete(&self.absolute(path)?, recursive).await
    }

    /// Sets the number of replicas of a file. Returns false if `path` is not a file. Replicas are added or removed in
    /// the background.
    pub async fn set_replication(&self, path: &str, replication: u16) -> Result<bool, Error> {
        self.shared.namenode.set_replication(&self.absolute(path)?, replication).await
    }

    /// Sets the permission of a file or directory. The umask is not applied.
    pub async fn set_permission(&self, path: &str, permission: FsPermission) -> Result<(), Error> {
        self.shared.namenode.set_permission(&self.absolute(path)?, permission).await
    }

    /// Sets the owner and group. `None` leaves the owner or the group unchanged.
    pub async fn set_owner(&self, path: &str, user: Option<&str>, group: Option<&str>) -> Result<(), Error> {
        self.shared.namenode.set_owner(&self.absolute(path)?, user, group).await
    }

    /// Returns the access control list of a file or directory.
    pub async fn acl(&self, path: &str) -> Result<AclStatus, Error> {
        self.shared.namenode.acl(&self.absolute(path)?).await
    }

    /// Changes the access control list.
    ///
    /// Errors: kind `Unsupported` if ACLs are disabled on the namenode.
    pub async fn change_acl(&self, path: &str, change: &AclChange) -> Result<(), Error> {
        self.shared.namenode.change_acl(&self.absolute(path)?, change).await
    }

    /// Creates an extended attribute or replaces its value.
    pub async fn set_xattr(&self, path: &str, xattr: Xattr) -> Result<(), Error> {
        self.shared.namenode.set_xattr(&self.absolute(path)?, xattr).await
    }

    /// Returns the named extended attributes, or all that the user may see if `wanted` is empty. A missing attribute is
    /// an error.
    pub async fn xattrs(&self, path: &str, wanted: Vec<Xattr>) -> Result<Vec<Xattr>, Error> {
        self.shared.namenode.xattrs(&self.absolute(path)?, wanted).await
    }

    /// Removes an extended attribute.
    pub async fn remove_xattr(&self, path: &str, xattr: Xattr) -> Result<(), Error> {
        self.shared.namenode.remove_xattr(&self.absolute(path)?, xattr).await
    }

    /// Creates a snapshot of a snapshottable directory and returns the snapshot's path. With an empty `name`, the
    /// namenode chooses the name.
    pub async fn create_snapshot(&self, path: &str, name: &str) -> Result<String, Error> {
        self.shared.namenode.create_snapshot(&self.absolute(path)?, name).await
    }

    /// Renames the snapshot `old` of a directory to `new`.
    pub async fn rename_snapshot(&self, path: &str, old: &str, new: &str) -> Result<(), Error> {
        self.shared.namenode.rename_snapshot(&self.absolute(path)?, old, new).await
    }

    /// Deletes a snapshot and everything that exists only in it.
    pub async fn delete_snapshot(&self, path: &str, name: &str) -> Result<(), Error> {
        self.shared.namenode.delete_snapshot(&self.absolute(path)?, name).await
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
        let (modified, accessed) = (milliseconds(modified)?, milliseconds(accessed)?);
        self.shared.namenode.set_times(&self.absolute(path)?, modified, accessed).await
    }

    /// Checks that the user has all of the rights in `access`.
    ///
    /// Errors: kind `PermissionDenied` if the user lacks one of them.
    pub async fn check_access(&self, path: &str, access: Access) -> Result<(), Error> {
        self.shared.namenode.check_access(&self.absolute(path)?, access).await
    }

    /// Returns the number of files and directories below `path`, their total length, and the quotas of `path`.
    pub async fn content_summary(&self, path: &str) -> Result<ContentSummary, Error> {
        self.shared.namenode.content_summary(&self.absolute(path)?).await
    }

    /// Returns the quotas of `path` and their usage.
    pub async fn quota_usage(&self, path: &str) -> Result<QuotaUsage, Error> {
        self.shared.namenode.quota_usage(&self.absolute(path)?).await
    }

    /// Appends the blocks of `sources` to `target` and removes the sources.
    pub async fn concat(&self, target: &str, sources: &[&str]) -> Result<(), Error> {
        let sources: Vec<_> = sources.iter().map(|source| self.absolute(source)).collect::<Result<_, _>>()?;
        self.shared.namenode.concat(&self.absolute(target)?, &sources).await
    }

    /// Shortens a file. Returns false if the last block is still being cut in the background; the file stays open until
    /// that is done.
    pub async fn truncate(&self, path: &str, length: u64) -> Result<bool, Error> {
        self.shared.namenode.truncate(&self.absolute(path)?, length, &self.shared.client_name).await
    }

    /// Returns the checksum of the file's first `length` bytes, or of the whole file if `None`. It is combined from the
    /// checksums of the blocks, as in Hadoop's clients.
    pub async fn checksum(&self, path: &str, length: Option<u64>) -> Result<FileChecksum, Error> {
        crate::checksum::file_checksum(&self.shared, &self.absolute(path)?, length).await
    }

    /// Returns the blocks that contain the `length` bytes from `offset` on, and their datanodes.
    pub async fn locations(&self, path: &str, offset: u64, length: u64) -> Result<LocatedBlocks, Error> {
        self.shared.namenode.block_locations(&self.absolute(path)?, offset, length).await
    }

    /// Starts lease recovery on a file that another client writes. Returns true if the file is closed now; otherwise
    /// poll `is_file_closed`.
    pub async fn recover_lease(&self, path: &str) -> Result<bool, Error> {
        self.shared.namenode.recover_lease(&self.absolute(path)?, &self.shared.client_name).await
    }

    /// Returns true if the file is not open for writing.
    pub async fn is_file_closed(&self, path: &str) -> Result<bool, Error> {
        self.shared.namenode.is_file_closed(&self.absolute(path)?).await
    }

    /// Returns the capacity and usage of the whole file system.
    pub async fn usage(&self) -> Result<FsUsage, Error> {
        self.shared.namenode.usage().await
    }

    /// Returns the numbers of blocks of replicated files that need attention.
    pub async fn block_statistics(&self) -> Result<BlockStatistics, Error> {
        self.shared.namenode.replicated_block_statistics().await
    }

    /// Returns the numbers of block groups of erasure-coded files that need attention.
    pub async fn erasure_coded_block_statistics(&self) -> Result<BlockStatistics, Error> {
        self.shared.namenode.erasure_coded_block_statistics().await
    }

    /// Returns a report of the cluster's datanodes. Requires superuser rights.
    pub async fn datanodes(&self, kind: DatanodeReportKind) -> Result<Vec<DatanodeInfo>, Error> {
        self.shared.namenode.datanode_report(kind).await
    }

    /// Performs a safe mode action. Returns true if safe mode is on afterwards.
    pub async fn safe_mode(&self, action: SafeModeAction) -> Result<bool, Error> {
        self.shared.namenode.safe_mode(action).await
    }

    /// Returns the defaults that the namenode proposes to clients. They are cached for
    /// `dfs.client.server-defaults.validity.period.ms`.
    pub async fn server_defaults(&self) -> Result<ServerDefaults, Error> {
        let validity = self.shared.options.server_defaults_validity;
        if let Some((defaults, since)) = &*self.shared.server_defaults.lock()
            && since.elapsed() < validity
        {
            return Ok(defaults.clone());
        }
        let defaults = self.shared.namenode.server_defaults().await?;
        *self.shared.server_defaults.lock() = Some((defaults.clone(), Instant::now()));
        Ok(defaults)
    }

    /// Returns the age at which trash is deleted: the namenode's setting, or the client's own if the namenode has none.
    /// Zero means that trash is disabled.
    pub async fn trash_interval(&self) -> Result<std::time::Duration, Error> {
        let minutes = self.server_defaults().await?.trash_interval_minutes;
        let own = self.shared.options.trash_interval;
        Ok(if minutes > 0 { std::time::Duration::from_secs(minutes.saturating_mul(60)) } else { own })
    }

    /// Opens a file for reading.
    pub async fn open(&self, path: &str) -> Result<Reader, Error> {
        let path = self.absolute(path)?;
        let prefetch = self.shared.options.prefetch_bytes;
        let located = self.shared.locate(&path, 0, prefetch).await?;
        Reader::open(Arc::clone(&self.shared), path, located).await
    }

    /// Opens a file for reading without verification. Reads return the bytes as the DataNodes stored them, even if they
    /// do not match their checksums. Such reads use TCP only.
    pub async fn open_unverified(&self, path: &str) -> Result<Reader, Error> {
        let path = self.absolute(path)?;
        let located = self.shared.locate(&path, 0, self.shared.options.prefetch_bytes).await?;
        Reader::open_unverified(Arc::clone(&self.shared), path, located).await
    }

    /// Opens each of `paths` for reading and returns the results in the same order. Hearth's namenode needs one call;
    /// others get concurrent calls.
    pub async fn open_many(&self, paths: &[&str]) -> Vec<Result<Reader, Error>> {
        let mut absolute = Vec::with_capacity(paths.len());
        let places: Vec<_> = paths.iter().map(|path| self.absolute(path).map(|path| absolute.push(path))).collect();
        let mut opened = open_many(&self.shared, absolute).await.into_iter();
        places.into_iter().map(|place| place.and_then(|()| opened.next().expect("an outcome for each path"))).collect()
    }

    /// Reads each of `paths` completely and returns the contents in the same order. Meant for many small files: they
    /// are opened together, and those on the same datanode are fetched together.
    pub async fn read_files(&self, paths: &[&str]) -> Vec<Result<Vec<u8>, Error>> {
        let whole = ByteRange::new(0, u64::MAX).expect("a range");
        let wanted: Vec<_> = paths.iter().map(|path| (*path, whole)).collect();
        self.read_many(&wanted).await
    }

    /// Like [`FileSystem::read_files`], but reads a range of each file. A range that extends beyond the end of its file
    /// is cut there.
    pub async fn read_many(&self, wanted: &[(&str, ByteRange)]) -> Vec<Result<Vec<u8>, Error>> {
        let mut collected = Collected::new(wanted.len());
        self.visit_many(wanted, |index, bytes| collected.put(index, bytes)).await;
        collected.all()
    }

    /// Like [`FileSystem::read_many`], but without a copy. `visit` is called once per entry of `wanted`, with its index
    /// and its verified bytes, in the order of arrival. The remaining reads wait while `visit` runs.
    pub async fn visit_many(
        &self,
        wanted: &[(&str, ByteRange)],
        visit: impl FnMut(usize, Result<Cow<'_, [u8]>, Error>) + Send,
    ) {
        let (paths, ranges): (Vec<_>, Vec<_>) = wanted.iter().copied().unzip();
        visit_opened(&self.shared, self.open_many(&paths).await, ranges, visit).await;
    }

    /// Reads ranges of open files, all requested at once, and returns the bytes in the order of `wanted`. A range that
    /// extends beyond the end of its file is cut there.
    pub async fn read_ranges(&self, wanted: &[(&PositionedReader, ByteRange)]) -> Vec<Result<Vec<u8>, Error>> {
        let wanted = wanted.iter().map(|(reader, range)| reader.range(*range)).collect();
        read_ranges(&self.shared, wanted).await
    }

    /// Creates a file and opens it for writing. The file is visible at once, with length 0.
    pub async fn create(&self, path: &str, options: CreateOptions) -> Result<Writer, Error> {
        let path = self.absolute(path)?;
        let replication = options.replication.unwrap_or(self.shared.options.replication);
        let block_size = options.block_size.unwrap_or(self.shared.options.block_size);
        if block_size == 0 {
            return Err(Failure::InvalidPath { path, why: "a block size of 0" }.into());
        }
        let create_request = CreateRequest {
            path: &path,
            permission: match (options.permission, options.unmasked) {
                (Some(masked), Some(unmasked)) => (masked, unmasked),
                (permission, _) => self.shared.options.file_permission(permission),
            },
            client: &self.shared.client_name,
            overwrite: options.overwrite,
            parents: options.parents,
            replication,
            block_size,
            lazy_persist: options.lazy_persist,
            storage_policy: options.storage_policy.as_deref(),
        };
        let open = Leases::open(&self.shared);
        let inode = match self.shared.namenode.create(&create_request).await? {
            Some(status) => status.inode,
            // Only old servers omit the status. They take 0 to mean "by path".
            None => 0,
        };
        let file = WrittenFile::new(path, inode, replication, block_size);
        Ok(Writer::start(Arc::clone(&self.shared), file, WriteStart::default(), open))
    }

    /// Opens a closed file for writing at its end. Cancel safety: if the future is dropped, for example by a time-out,
    /// the file is closed again.
    pub async fn append(&self, path: &str) -> Result<Writer, Error> {
        self.append_as(path, false).await
    }

    /// Like `append`, but the new bytes go to a new block even if the last block has room.
    pub async fn append_new_block(&self, path: &str) -> Result<Writer, Error> {
        self.append_as(path, true).await
    }

    /// Opens the file in a task of its own, because the caller may drop the future. Otherwise the file would stay open,
    /// and no other client could write it while this client renews its lease for other files.
    async fn append_as(&self, path: &str, new_block: bool) -> Result<Writer, Error> {
        let (fs, path) = (self.clone(), self.absolute(path)?);
        let opening = {
            let path = path.clone();
            tokio::spawn(async move { fs.reopen(path, new_block).await })
        };
        let opened = opening.await.map_err(|_| Failure::WriterClosed { path })??;
        Ok(opened.take())
    }

    async fn reopen(&self, path: String, new_block: bool) -> Result<AppendGuard, Error> {
        let open = Leases::open(&self.shared);
        let (namenode, client) = (&self.shared.namenode, &self.shared.client_name);
        let (block, status) = namenode.append(&path, client, new_block).await?;
        let inode = status.as_ref().map_or(0, |status| status.inode);
        // With a new block, the namenode does not reopen the last one.
        let last = block.as_ref().filter(|_| !new_block).map(|block| block.block.clone());
        match self.begin_append(&path, block, status, new_block).await {
            Ok((file, begin)) => {
                let writer = Writer::start(Arc::clone(&self.shared), file, begin, open);
                let (shared, runtime) = (Arc::clone(&self.shared), tokio::runtime::Handle::current());
                Ok(AppendGuard { writer: Some(writer), last, shared, runtime })
            }
            Err(error) => {
                namenode.close_unchanged(&path, inode, client, last.as_ref()).await;
                Err(error)
            }
        }
    }

    /// Returns the position at which to continue a file that the namenode has opened for append. `block` and `status`:
    /// the namenode's answer.
    async fn begin_append(
        &self,
        path: &str,
        block: Option<LocatedBlock>,
        status: Option<FileStatus>,
        new_block: bool,
    ) -> Result<(WrittenFile, WriteStart), Error> {
        let status = match status {
            Some(status) => status,
            None => {
                let found = self.shared.namenode.file_info(path).await?;
                found.ok_or_else(|| Failure::NotFound { path: path.to_owned() })?
            }
        };
        if status.kind != FileKind::File {
            return Err(Failure::IsDirectory { path: path.to_owned() }.into());
        }
        let file = WrittenFile::new(path.to_owned(), status.inode, status.replication, status.block_size);
        if new_block {
            // The answer is the block to commit before the new one is added.
            let begin = WriteStart { append: None, previous: block.map(|block| block.block), length: status.length };
            return Ok((file, begin));
        }
        if let Some(block) = &block
            && block.block.length() >= status.block_size
        {
            let why = format!("block {} is full and cannot be continued", block.block);
            return Err(Failure::Answer { method: "append", why }.into());
        }
        let length = match &block {
            Some(block) => block.offset + block.block.length(),
            None => status.length,
        };
        Ok((file, WriteStart { append: block, previous: None, length }))
    }
}

/// Guard of a file that was opened for append. Unless the caller takes the writer, dropping the guard closes the file
/// unchanged.
struct AppendGuard {
    writer: Option<Writer>,
    /// The last block, if the namenode reopened it.
    last: Option<ExtendedBlock>,
    shared: Arc<Shared>,
    /// Runtime on which to close the file: the guard may be dropped outside any runtime.
    runtime: tokio::runtime::Handle,
}

impl AppendGuard {
    fn take(mut self) -> Writer {
        self.writer.take().expect("it is taken once")
    }
}

impl Drop for AppendGuard {
    fn drop(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        let (shared, last) = (Arc::clone(&self.shared), self.last.take());
        self.runtime.spawn(async move {
            // Nothing was written, so the datanodes need not be contacted. They may be unreachable too.
            let (path, inode) = (writer.path().to_owned(), writer.inode());
            shared.namenode.close_unchanged(&path, inode, &shared.client_name, last.as_ref()).await;
            drop(writer);
        });
    }
}

/// Logs each value of Hadoop's keys that has no effect in this client, once per process.
///
/// Errors: the value of a key that promises a protection this client does not provide.
fn warn_of_values_without_effect(configuration: &Configuration) -> Result<(), Error> {
    static WARNED: Once = Once::new();
    let found = configuration.ineffective_settings(Program::Client)?;
    WARNED.call_once(|| found.iter().for_each(IneffectiveSetting::warn));
    Ok(())
}

/// Returns the `host:port` or nameservice of an `hdfs://` URI. A path that follows is ignored.
fn authority(uri: &str) -> Result<&str, Error> {
    let wrong = |why: &str| Failure::InvalidUri { uri: uri.to_owned(), why: why.to_owned() }.into();
    let (scheme, rest) = uri.split_once("://").ok_or_else(|| wrong("wanted hdfs://host:port"))?;
    if !scheme.eq_ignore_ascii_case("hdfs") {
        return Err(wrong("the scheme is not hdfs"));
    }
    let authority = rest.split_once('/').map_or(rest, |(authority, _)| authority);
    if authority.is_empty() { Err(wrong("it names no host")) } else { Ok(authority) }
}

fn rpc_options(configuration: &Configuration) -> Result<RpcClientOptions, Error> {
    Ok(RpcClientOptions {
        connect_timeout: configuration.timeout(keys::IPC_CLIENT_CONNECT_TIMEOUT)?,
        rpc_timeout: configuration.timeout(keys::IPC_CLIENT_RPC_TIMEOUT)?,
        ping_interval: configuration.get(keys::IPC_PING_INTERVAL)?,
        idle_timeout: configuration.get(keys::IPC_CLIENT_CONNECTION_MAXIDLETIME)?,
        response_bytes_max: configuration.get(keys::IPC_MAXIMUM_RESPONSE_LENGTH)? as usize,
        bind: None,
        real_user: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities() {
        assert_eq!(authority("hdfs://h:1/a/b").unwrap(), "h:1");
        assert_eq!(authority("HDFS://ns").unwrap(), "ns");
        for wrong in ["file:///", "hdfs:///a", "h:1", "s3://b"] {
            assert!(authority(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn relative_paths_start_at_home() {
        let conf = Configuration::empty().with("fs.defaultFS", "hdfs://h:1");
        let fs = FileSystem::connect(&conf, None, "ada").unwrap();
        assert_eq!(fs.absolute("x").unwrap(), "/user/ada/x");
        assert_eq!((fs.uri(), fs.user(), fs.home()), ("hdfs://h:1", "ada", "/user/ada"));
        assert!(FileSystem::connect(&Configuration::empty(), None, "ada").is_err());
    }
}
