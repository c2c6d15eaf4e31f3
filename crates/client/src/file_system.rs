use std::borrow::Cow;
use std::sync::{Arc, Once};
use std::time::Instant;

use hearth_config::{Configuration, IneffectiveSetting, Program, keys};
use hearth_protocol::rpc::{RpcClient, RpcClientOptions};
use hearth_types::{
    AclChange, AclStatus, ByteRange, ContentSummary, DatanodeInfo, ExtendedBlock, FileKind, FileStatus, FsPermission,
    LocatedBlock, LocatedBlocks, ServerDefaults, Xattr,
};
use parking_lot::Mutex;

use crate::checksum::FileChecksum;
use crate::datanode::{Offers, PeerCache, Unreachable, WarningLimit};
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

/// An HDFS file system: the way in. Cheap to clone; clones share connections, leases and what was learnt of datanodes.
///
/// Paths are absolute (`/a/b`) or relative to the user's home directory. Names are UTF-8.
#[derive(Clone, Debug)]
pub struct FileSystem {
    shared: Arc<Shared>,
}

/// What everything that a [`FileSystem`] opens has in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub options: ClientOptions,
    pub namenode: Namenode,
    pub rpc_options: RpcClientOptions,
    /// Holder of this client's leases; unique.
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
    /// The blocks of a file for readers of it. What comes with them of replicas' memory is put where one-sided reads find it.
    pub(crate) async fn locate(&self, path: &str, offset: u64, length: u64) -> Result<LocatedBlocks, Error> {
        // Its lease counts from before the question.
        let asked = Instant::now();
        let mut located = self.namenode.block_locations(path, offset, length).await?;
        self.take_piggybacked(&mut located, asked);
        Ok(located)
    }

    /// Puts what came with `located` of replicas' memory where one-sided reads find it. `asked`: when the question was sent, or before.
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

/// How a file is created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateOptions {
    /// Replace a file that is there.
    pub overwrite: bool,
    /// Make missing directories above it.
    pub parents: bool,
    /// `None`: `dfs.replication`.
    pub replication: Option<u16>,
    /// Bytes; `None`: `dfs.blocksize`.
    pub block_size: Option<u64>,
    /// Before the umask; `None`: 0666.
    pub permission: Option<FsPermission>,
    /// When given, `permission` is what somebody else's umask has left of this, and this client's does not count. A directory's default ACL
    /// takes its place.
    pub unmasked: Option<FsPermission>,
    /// The file gets the storage policy LAZY_PERSIST, unless `storage_policy` names another.
    pub lazy_persist: bool,
    /// Of the file itself, by name; `None`: that of its directory counts.
    pub storage_policy: Option<String>,
}

impl Default for CreateOptions {
    /// A new file with its directories, everything else as configured.
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

/// What the stricter rename does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RenameOptions {
    /// Replace a file or an empty directory.
    pub overwrite: bool,
    /// Ask for the permissions that deleting wants.
    pub to_trash: bool,
}

impl FileSystem {
    /// The file system at `uri` (`hdfs://host:port`, `hdfs://nameservice`), or at `fs.defaultFS` when `None`, as `user`.
    /// Nothing is sent yet: a namenode that does not answer is found by the first call. Needs a tokio runtime.
    ///
    /// Errors: `Error::Configuration`, among others where the client is configured for Kerberos.
    pub fn connect(configuration: &Configuration, uri: Option<&str>, user: &str) -> Result<Self, Error> {
        Self::connect_for(configuration, uri, user, None)
    }

    /// As `connect`; with a `real_user`, that user makes the calls in the name of `user`, which the namenode must allow it
    /// (`hadoop.proxyuser.*`).
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

    /// `hdfs://` and the authority that it was connected with.
    pub fn uri(&self) -> &str {
        &self.shared.uri
    }

    /// Whether the other is a clone of this one.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub fn user(&self) -> &str {
        &self.shared.user
    }

    /// `host:port` of the namenode that answers now.
    pub fn namenode_address(&self) -> String {
        self.shared.namenode.address().to_string()
    }

    /// What this file system and its clones have moved so far.
    pub fn statistics(&self) -> Statistics {
        self.shared.counters.statistics().with(self.shared.one_sided.counts())
    }

    /// Where relative paths start.
    pub fn home(&self) -> &str {
        &self.shared.home
    }

    /// `path` as the namenode is asked for it.
    pub fn absolute(&self, path: &str) -> Result<String, Error> {
        path::absolute(path, &self.shared.home)
    }

    /// Errors: kind `NotFound`.
    pub async fn status(&self, path: &str) -> Result<FileStatus, Error> {
        let path = self.absolute(path)?;
        self.shared.namenode.file_info(&path).await?.ok_or(Error::NotFound { path })
    }

    /// As `status`, of a symbolic link itself.
    pub async fn link_status(&self, path: &str) -> Result<FileStatus, Error> {
        let path = self.absolute(path)?;
        self.shared.namenode.file_link_info(&path).await?.ok_or(Error::NotFound { path })
    }

    pub async fn exists(&self, path: &str) -> Result<bool, Error> {
        match self.status(path).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The entries of a directory (or a file's own status), page by page.
    pub async fn list(&self, path: &str) -> Result<Listing, Error> {
        Listing::start(Arc::clone(&self.shared), self.absolute(path)?).await
    }

    /// All entries at once.
    pub async fn list_all(&self, path: &str) -> Result<Vec<FileStatus>, Error> {
        let mut listing = self.list(path).await?;
        let mut entries = Vec::new();
        while let Some(entry) = listing.next().await? {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Makes a directory; it is no error if it is there. `permission`: before the umask, 0777 when `None`.
    /// `parents`: make missing directories above it.
    pub async fn mkdirs(&self, path: &str, permission: Option<FsPermission>, parents: bool) -> Result<(), Error> {
        let permission = self.shared.options.directory_permission(permission);
        self.make_directory(path, permission, parents).await
    }

    /// As `mkdirs`, with exactly this permission whatever the umask.
    pub async fn mkdirs_exact(&self, path: &str, permission: FsPermission, parents: bool) -> Result<(), Error> {
        self.make_directory(path, (permission, permission), parents).await
    }

    async fn make_directory(
        &self,
        path: &str,
        permission: (FsPermission, FsPermission),
        parents: bool,
    ) -> Result<(), Error> {
        self.shared.namenode.mkdirs(&self.absolute(path)?, permission, parents).await.map(|_| ())
    }

    /// Renames, or moves into `to` when that is a directory. False when it could not be done (source missing,
    /// destination a file, ...): the namenode does not say why. Prefer [`FileSystem::rename_to`].
    pub async fn rename(&self, from: &str, to: &str) -> Result<bool, Error> {
        self.shared.namenode.rename(&self.absolute(from)?, &self.absolute(to)?).await
    }

    /// Renames `from` to exactly `to`, or says why not.
    pub async fn rename_to(&self, from: &str, to: &str, options: RenameOptions) -> Result<(), Error> {
        let RenameOptions { overwrite, to_trash } = options;
        self.shared.namenode.rename2(&self.absolute(from)?, &self.absolute(to)?, overwrite, to_trash).await
    }

    /// False when nothing was there. A directory that is not empty wants `recursive`. Never goes through the trash.
    pub async fn delete(&self, path: &str, recursive: bool) -> Result<bool, Error> {
        self.shared.namenode.delete(&self.absolute(path)?, recursive).await
    }

    /// False when `path` is not a file. Copies are made or removed in the background.
    pub async fn set_replication(&self, path: &str, replication: u16) -> Result<bool, Error> {
        self.shared.namenode.set_replication(&self.absolute(path)?, replication).await
    }

    pub async fn set_permission(&self, path: &str, permission: FsPermission) -> Result<(), Error> {
        self.shared.namenode.set_permission(&self.absolute(path)?, permission).await
    }

    /// `None` leaves owner or group as it is.
    pub async fn set_owner(&self, path: &str, user: Option<&str>, group: Option<&str>) -> Result<(), Error> {
        self.shared.namenode.set_owner(&self.absolute(path)?, user, group).await
    }

    pub async fn acl(&self, path: &str) -> Result<AclStatus, Error> {
        self.shared.namenode.acl(&self.absolute(path)?).await
    }

    /// Errors: kind `Unsupported` where the namenode has ACLs turned off.
    pub async fn change_acl(&self, path: &str, change: &AclChange) -> Result<(), Error> {
        self.shared.namenode.change_acl(&self.absolute(path)?, change).await
    }

    /// Makes an attribute, or gives it another value.
    pub async fn set_xattr(&self, path: &str, xattr: Xattr) -> Result<(), Error> {
        self.shared.namenode.set_xattr(&self.absolute(path)?, xattr).await
    }

    /// The attributes of these names, all that the user may see when there is none. A name that is not there is an error.
    pub async fn xattrs(&self, path: &str, wanted: Vec<Xattr>) -> Result<Vec<Xattr>, Error> {
        self.shared.namenode.xattrs(&self.absolute(path)?, wanted).await
    }

    pub async fn remove_xattr(&self, path: &str, xattr: Xattr) -> Result<(), Error> {
        self.shared.namenode.remove_xattr(&self.absolute(path)?, xattr).await
    }

    /// Makes a snapshot of a directory that may have some, and returns its path. `name`: empty for one of the namenode's choice.
    pub async fn create_snapshot(&self, path: &str, name: &str) -> Result<String, Error> {
        self.shared.namenode.create_snapshot(&self.absolute(path)?, name).await
    }

    pub async fn rename_snapshot(&self, path: &str, old: &str, new: &str) -> Result<(), Error> {
        self.shared.namenode.rename_snapshot(&self.absolute(path)?, old, new).await
    }

    /// Removes a snapshot with all that only it has.
    pub async fn delete_snapshot(&self, path: &str, name: &str) -> Result<(), Error> {
        self.shared.namenode.delete_snapshot(&self.absolute(path)?, name).await
    }

    /// Milliseconds since the epoch; `None` leaves a time as it is.
    pub async fn set_times(&self, path: &str, modified: Option<u64>, read: Option<u64>) -> Result<(), Error> {
        self.shared.namenode.set_times(&self.absolute(path)?, modified, read).await
    }

    /// Asks whether the user may do what the bits of `action` say (read 4, write 2, execute 1).
    ///
    /// Errors: kind `PermissionDenied` when not.
    pub async fn check_access(&self, path: &str, action: u8) -> Result<(), Error> {
        self.shared.namenode.check_access(&self.absolute(path)?, action).await
    }

    pub async fn content_summary(&self, path: &str) -> Result<ContentSummary, Error> {
        self.shared.namenode.content_summary(&self.absolute(path)?).await
    }

    pub async fn quota_usage(&self, path: &str) -> Result<QuotaUsage, Error> {
        self.shared.namenode.quota_usage(&self.absolute(path)?).await
    }

    /// Appends the blocks of `sources` to `target`; the sources vanish.
    pub async fn concat(&self, target: &str, sources: &[&str]) -> Result<(), Error> {
        let sources: Vec<_> = sources.iter().map(|source| self.absolute(source)).collect::<Result<_, _>>()?;
        self.shared.namenode.concat(&self.absolute(target)?, &sources).await
    }

    /// Shortens a file. False: a block is being cut in the background and the file stays open until it is.
    pub async fn truncate(&self, path: &str, length: u64) -> Result<bool, Error> {
        self.shared.namenode.truncate(&self.absolute(path)?, length, &self.shared.client_name).await
    }

    /// The checksum of the file's first `length` bytes, or of all, as Hadoop's clients combine it from its blocks.
    pub async fn checksum(&self, path: &str, length: Option<u64>) -> Result<FileChecksum, Error> {
        crate::checksum::file_checksum(&self.shared, &self.absolute(path)?, length).await
    }

    /// The blocks that hold `length` bytes from `offset` on, and their datanodes.
    pub async fn locations(&self, path: &str, offset: u64, length: u64) -> Result<LocatedBlocks, Error> {
        self.shared.namenode.block_locations(&self.absolute(path)?, offset, length).await
    }

    /// Ends another writer's lease. True when the file is closed now; else ask `is_file_closed` until it is.
    pub async fn recover_lease(&self, path: &str) -> Result<bool, Error> {
        self.shared.namenode.recover_lease(&self.absolute(path)?, &self.shared.client_name).await
    }

    pub async fn is_file_closed(&self, path: &str) -> Result<bool, Error> {
        self.shared.namenode.is_file_closed(&self.absolute(path)?).await
    }

    /// Sizes of the whole file system.
    pub async fn usage(&self) -> Result<FsUsage, Error> {
        self.shared.namenode.usage().await
    }

    pub async fn block_statistics(&self) -> Result<BlockStatistics, Error> {
        self.shared.namenode.replicated_block_statistics().await
    }

    pub async fn erasure_coded_block_statistics(&self) -> Result<BlockStatistics, Error> {
        self.shared.namenode.erasure_coded_block_statistics().await
    }

    /// Superusers only.
    pub async fn datanodes(&self, kind: DatanodeReportKind) -> Result<Vec<DatanodeInfo>, Error> {
        self.shared.namenode.datanode_report(kind).await
    }

    /// Whether safe mode is on after the action.
    pub async fn safe_mode(&self, action: SafeModeAction) -> Result<bool, Error> {
        self.shared.namenode.safe_mode(action).await
    }

    /// What the namenode proposes to clients; remembered for `dfs.client.server-defaults.validity.period.ms`.
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

    /// Age at which trash is emptied: the namenode's, or the client's own when the namenode has none. Zero: no trash.
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

    /// Opens a file for reading without verification: its bytes are those that the DataNodes have stored, even where they do not fit
    /// their checksums. Read over TCP only.
    pub async fn open_unverified(&self, path: &str) -> Result<Reader, Error> {
        let path = self.absolute(path)?;
        let located = self.shared.locate(&path, 0, self.shared.options.prefetch_bytes).await?;
        Reader::open_unverified(Arc::clone(&self.shared), path, located).await
    }

    /// Opens each of `paths` for reading, in their order: by one call where the namenode is Hearth's, else by many at once.
    pub async fn open_many(&self, paths: &[&str]) -> Vec<Result<Reader, Error>> {
        let mut absolute = Vec::with_capacity(paths.len());
        let places: Vec<_> = paths.iter().map(|path| self.absolute(path).map(|path| absolute.push(path))).collect();
        let mut opened = open_many(&self.shared, absolute).await.into_iter();
        places.into_iter().map(|place| place.and_then(|()| opened.next().expect("an outcome for each path"))).collect()
    }

    /// All bytes of each of `paths`, in their order. For many small files: they are opened together, and those that a datanode has
    /// come together.
    pub async fn read_files(&self, paths: &[&str]) -> Vec<Result<Vec<u8>, Error>> {
        let whole = ByteRange::new(0, u64::MAX).expect("a range");
        let wanted: Vec<_> = paths.iter().map(|path| (*path, whole)).collect();
        self.read_many(&wanted).await
    }

    /// As [`FileSystem::read_files`], a range of each file; of what lies beyond its end, nothing.
    pub async fn read_many(&self, wanted: &[(&str, ByteRange)]) -> Vec<Result<Vec<u8>, Error>> {
        let mut collected = Collected::new(wanted.len());
        self.visit_many(wanted, |index, bytes| collected.put(index, bytes)).await;
        collected.all()
    }

    /// As [`FileSystem::read_many`], without a copy: `visit` is shown the verified bytes of each by its index in `wanted`, each once, in the
    /// order in which they come. Others wait while it looks.
    pub async fn visit_many(
        &self,
        wanted: &[(&str, ByteRange)],
        visit: impl FnMut(usize, Result<Cow<'_, [u8]>, Error>) + Send,
    ) {
        let (paths, ranges): (Vec<_>, Vec<_>) = wanted.iter().copied().unzip();
        visit_opened(&self.shared, self.open_many(&paths).await, ranges, visit).await;
    }

    /// The bytes of each of `wanted`, in their order: ranges of files that are open, all asked for at once. Of what lies beyond the
    /// end of its file, nothing.
    pub async fn read_ranges(&self, wanted: &[(&PositionedReader, ByteRange)]) -> Vec<Result<Vec<u8>, Error>> {
        let wanted = wanted.iter().map(|(reader, range)| reader.range(*range)).collect();
        read_ranges(&self.shared, wanted).await
    }

    /// Creates a file and opens it for writing. It is visible at once, with length 0.
    pub async fn create(&self, path: &str, options: CreateOptions) -> Result<Writer, Error> {
        let path = self.absolute(path)?;
        let replication = options.replication.unwrap_or(self.shared.options.replication);
        let block_size = options.block_size.unwrap_or(self.shared.options.block_size);
        if block_size == 0 {
            return Err(Error::InvalidPath { path, why: "a block size of 0" });
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
            // Only servers of old say nothing; 0 means "by path" to them.
            None => 0,
        };
        let file = WrittenFile::new(path, inode, replication, block_size);
        Ok(Writer::start(Arc::clone(&self.shared), file, WriteStart::default(), open))
    }

    /// Opens a closed file for writing behind its end. Dropped half way, as by a time-out around it, it closes the file again.
    pub async fn append(&self, path: &str) -> Result<Writer, Error> {
        self.append_as(path, false).await
    }

    /// As `append`, with the new bytes in a block of their own however short the last one is.
    pub async fn append_new_block(&self, path: &str) -> Result<Writer, Error> {
        self.append_as(path, true).await
    }

    /// In a task of its own: whoever waits for it may go, and nobody could write the file as long as this client writes others.
    async fn append_as(&self, path: &str, new_block: bool) -> Result<Writer, Error> {
        let (fs, path) = (self.clone(), self.absolute(path)?);
        let opening = {
            let path = path.clone();
            tokio::spawn(async move { fs.reopen(path, new_block).await })
        };
        let opened = opening.await.map_err(|_| Error::WriterClosed { path })??;
        Ok(opened.take())
    }

    async fn reopen(&self, path: String, new_block: bool) -> Result<AppendGuard, Error> {
        let open = Leases::open(&self.shared);
        let (namenode, client) = (&self.shared.namenode, &self.shared.client_name);
        let (block, status) = namenode.append(&path, client, new_block).await?;
        let inode = status.as_ref().map_or(0, |status| status.inode);
        // For a new block the last one was not opened again.
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

    /// Where writing a file starts that the namenode has opened for append. `block` and `status`: its answer.
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
                found.ok_or_else(|| Error::NotFound { path: path.to_owned() })?
            }
        };
        if status.kind != FileKind::File {
            return Err(Error::IsDirectory { path: path.to_owned() });
        }
        let file = WrittenFile::new(path.to_owned(), status.inode, status.replication, status.block_size);
        if new_block {
            // The answer is the block to be committed before the new one.
            let begin = WriteStart { append: None, previous: block.map(|block| block.block), length: status.length };
            return Ok((file, begin));
        }
        if let Some(block) = &block
            && block.block.length() >= status.block_size
        {
            let why = format!("block {} is full and cannot be continued", block.block);
            return Err(Error::Answer { method: "append", why });
        }
        let length = match &block {
            Some(block) => block.offset + block.block.length(),
            None => status.length,
        };
        Ok((file, WriteStart { append: block, previous: None, length }))
    }
}

/// A file that is open, until somebody takes it. Who would have may have gone: then it is closed, as it was.
struct AppendGuard {
    writer: Option<Writer>,
    /// The block that was opened again.
    last: Option<ExtendedBlock>,
    shared: Arc<Shared>,
    /// Whoever has gone may have been outside.
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
            // Nothing was written: its datanodes, which may have gone as well, are not asked.
            let (path, inode) = (writer.path().to_owned(), writer.inode());
            shared.namenode.close_unchanged(&path, inode, &shared.client_name, last.as_ref()).await;
            drop(writer);
        });
    }
}

/// Logs, once a process, each value of Hadoop's keys that this client does not carry out.
///
/// Errors: a value without which a user would rely on what is not there.
fn warn_of_values_without_effect(configuration: &Configuration) -> Result<(), Error> {
    static WARNED: Once = Once::new();
    let found = configuration.ineffective_settings(Program::Client)?;
    WARNED.call_once(|| found.iter().for_each(IneffectiveSetting::warn));
    Ok(())
}

/// `host:port` or nameservice of an `hdfs://` URI, whatever path follows.
fn authority(uri: &str) -> Result<&str, Error> {
    let wrong = |why: &str| Error::InvalidUri { uri: uri.to_owned(), why: why.to_owned() };
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
