//! Start of a NameNode: formats the directory if requested, reads the namespace, opens the ports, and starts the
//! monitors of leases and disk.

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hearth_config::{ConfigError, Configuration, HostPort, OptionalKey, Program, Reconfiguration, keys};
use hearth_protocol::rpc::{RetryCache, RetryCacheOptions, RpcServer, RpcServerOptions, ServeError};
use hearth_types::{BlockPoolId, Clock, GenerationStamp, PoolIdentity};
use hearth_web::{Protection, Server, WebServer};
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::audit::{AuditError, AuditLog, AuditSettings};
use crate::block_tokens::{BlockTokens, BlockTokensError};
use crate::blocks::{BlockMap, Now, RestoredBlocks, initial_storages};
use crate::caching::Caching;
use crate::changes::Changes;
use crate::datanode_service::{DatanodeService, DatanodeServiceSettings, Racks, is_of_this_machine, run_block_monitor};
use crate::fsck::{BlockCopier, LostFound};
use crate::groups::Groups;
use crate::image::{self, BackupSettings, Exports, ImageError, ImageSource, Imported};
use crate::leases::Leases;
use crate::metasave::{METASAVE_DIRECTORY, MetasaveFiles};
use crate::metrics::CallMetrics;
use crate::namespace::{Inode, Namespace, RecordState, Slot};
use crate::ops::synchronize_block::synchronize_block;
use crate::proxy_users::Impersonation;
use crate::reconfiguration;
use crate::retries::{RETRIES_MAX, StoredRetries, retry_call};
use crate::service::{NamenodeService, Webhdfs, to_remote};
use crate::settings::{Settings, message_bytes, store_directory};
use crate::slow_nodes::{SlowNodeOptions, SlowNodes};
use crate::state::{Namenode, State};
use crate::store::{Directory, Loaded, RecoveryReport, Store, StoreError, StoreFailed, format, recover};
use crate::top_users::TopUsers;
use crate::trash::{self, TrashSettings};
use crate::{memory, monitors, parallel, web};

/// Handling of the directory's contents at start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FormatPolicy {
    /// The directory must hold a namespace.
    Never,
    /// An empty directory is formatted, if the configuration names it: `hearth up`. The default one may be temporary, so
    /// that a namespace may have been deleted from it.
    IfEmpty,
    /// An existing namespace is removed.
    Always,
}

/// Inputs of a NameNode's start.
#[derive(Clone)]
pub struct NamenodeOptions {
    /// The configuration that all servers get; keys for this NameNode alone are resolved at start.
    pub configuration: Configuration,
    /// The user that the process runs as: owner of the root, and superuser.
    pub user: String,
    /// The name of this machine.
    pub host_name: String,
    pub clock: Arc<dyn Clock>,
    pub format: FormatPolicy,
    /// Overrides `dfs.namenode.name.dir`.
    pub directory: Option<PathBuf>,
    /// `host:port`, overrides `dfs.namenode.rpc-address`; port 0 takes any free one.
    pub rpc_address: Option<String>,
    /// `host:port`, overrides `dfs.namenode.http-address`.
    pub http_address: Option<String>,
    /// Client that copies blocks for `fsck -move`. `None`: `-move` is refused.
    pub copier: Option<Arc<dyn BlockCopier>>,
}

/// Reasons for which a NameNode cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Configuration(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Rpc(#[from] ServeError),
    #[error(transparent)]
    Web(#[from] hearth_web::Error),
    #[error(transparent)]
    Tokens(#[from] BlockTokensError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(
        "{} has no namespace, and none is made in the default directory, because it may be temporary: set dfs.namenode.name.dir",
        path.display()
    )]
    DirectoryNotSet { path: PathBuf },
    #[error("cannot read the datanode hosts files: {0}")]
    Hosts(std::io::Error),
    #[error("cannot read random bytes for ids: {0}")]
    Randomness(getrandom::Error),
    #[error("reading the namespace was interrupted")]
    Interrupted,
}

/// A running NameNode. Dropping it closes its ports and ends its tasks; acknowledged changes are on disk.
pub struct Handle {
    namenode: Arc<Namenode>,
    rpc: RpcServer,
    /// Server for `dfs.namenode.servicerpc-address`, if configured.
    _service_rpc: Option<RpcServer>,
    web: WebServer,
    tasks: Vec<JoinHandle<()>>,
}

impl Handle {
    /// Address to which clients and datanodes connect.
    pub fn rpc_address(&self) -> SocketAddr {
        self.rpc.address()
    }

    pub fn http_address(&self) -> SocketAddr {
        self.web.address()
    }

    pub fn identity(&self) -> &PoolIdentity {
        &self.namenode.identity
    }

    pub fn namenode(&self) -> &Arc<Namenode> {
        &self.namenode
    }

    /// Resolves if the NameNode cannot continue because its store has failed. The process should then exit.
    pub async fn failed(&self) -> StoreFailed {
        self.namenode.store.failed().await
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Namenode {
    /// Starts a NameNode on the current tokio runtime and returns when its ports are open.
    pub async fn start(options: NamenodeOptions) -> Result<Handle, StartError> {
        let own = tokio::task::spawn_blocking(move || own_options(options));
        let options = own.await.map_err(|_| StartError::Interrupted)??;
        let conf = &options.configuration;
        let settings = Settings::read(conf, options.host_name.clone())?;
        let groups = groups(&options)?;
        let rules = options.configuration.clone();
        let impersonation = tokio::task::spawn_blocking(move || Impersonation::read(&rules));
        let impersonation = impersonation.await.map_err(|_| StartError::Interrupted)??;
        let (store, identity, loaded, load_time) = open_store(&options, &settings, &groups).await?;
        let loading = web::Loading { took: load_time, inodes: loaded.namespace.inode_count() };
        let retry_cache = retry_cache(&settings, options.clock.clone());
        let retries = restore_retries(loaded.retries, retry_cache.as_deref());
        let tokens = Arc::new(BlockTokens::from_configuration(conf, options.clock.wall_ms())?);
        let audit = AuditSettings::read(conf)?;
        let log_directory = audit.as_ref().and_then(AuditSettings::directory).map(Path::to_owned);
        let log_directory = match log_directory {
            Some(directory) => directory,
            None => directory_path(&options)?.join(METASAVE_DIRECTORY),
        };
        let audit = audit.map(|audit| AuditLog::start(audit, options.clock.clone())).transpose()?;
        let now = Now::of(&*options.clock);
        let caching = Caching::restore(loaded.caching);
        let mut state = restore(loaded.namespace, caching, &settings, &identity, retries, loaded.storages, now)?;
        let stamps = |lost: RangeInclusive<u64>| GenerationStamp(*lost.start())..=GenerationStamp(*lost.end());
        state.blocks.protect_stamps(loaded.lost_stamps.into_iter().map(stamps).collect());
        memory::release();
        let service_address = conf.get(keys::DFS_NAMENODE_SERVICERPC_ADDRESS)?;
        let rpc_options = rpc_options(conf, if service_address.is_some() { 2 } else { 1 })?;
        let namenode = Arc::new(Namenode {
            state: RwLock::new(state),
            store,
            clock: options.clock.clone(),
            identity,
            settings,
            groups,
            impersonation,
            tokens: tokens.clone(),
            audit,
            reconfiguration: Reconfiguration::new(Program::Namenode, conf.clone(), reconfiguration::KEYS),
            load_time,
            images: Exports::default(),
            backups: watch::Sender::new(BackupSettings::read(conf)?),
            rpc: rpc_options.clone(),
            protection: Protection::read(conf, &options.host_name, Server::Namenode)?,
            metasave: MetasaveFiles::new(log_directory),
            top_users: TopUsers::new(conf.get(keys::DFS_NAMENODE_TOP_ENABLED)?),
            slow_nodes: SlowNodes::new(SlowNodeOptions::read(conf)?),
            lost_found: LostFound::new(options.copier.clone()),
        });
        let datanodes = DatanodeService::new(
            namenode.clone(),
            DatanodeServiceSettings::from_configuration(conf)?,
            Racks::from_configuration(conf)?,
            tokens.clone(),
            Box::new({
                let namenode = namenode.clone();
                move |result| {
                    let namenode = namenode.clone();
                    Box::pin(async move { synchronize_block(&namenode, result).await.map_err(to_remote) })
                }
            }),
        );
        datanodes.refresh_nodes().await.map_err(StartError::Hosts)?;
        let service = Arc::new(NamenodeService::new(namenode.clone(), datanodes, retry_cache));
        let rpc = RpcServer::start(&rpc_address(&options)?, service.clone(), rpc_options.clone()).await?;
        namenode.lost_found.set_address(rpc.address());
        let service_rpc = match service_address {
            Some(address) => {
                let address = bound(conf, address, keys::DFS_NAMENODE_SERVICERPC_BIND_HOST)?;
                Some(RpcServer::start(&address, service.clone(), rpc_options).await?)
            }
            None => None,
        };
        let http_address = match &options.http_address {
            Some(address) => address.clone(),
            None => bound(conf, conf.get(keys::DFS_NAMENODE_HTTP_ADDRESS)?, keys::DFS_NAMENODE_HTTP_BIND_HOST)?,
        };
        let webhdfs = Webhdfs::new(service, named_address(&options, rpc.address())?, conf)?;
        let ports = std::iter::once(&rpc).chain(&service_rpc);
        let ports = ports.map(|rpc| (rpc.address().port(), rpc.metrics().clone())).collect();
        let calls = CallMetrics { ports, webhdfs: webhdfs.metrics().clone() };
        let history = web::sampler::history();
        let webhdfs = Arc::new(webhdfs);
        let site = web::site(namenode.clone(), rpc.address(), calls.clone(), webhdfs, conf, loading, history.clone());
        let web = site.serve(&http_address).await?;
        let mut tasks = vec![
            tokio::spawn(web::sampler::run(namenode.clone(), calls, history)),
            tokio::spawn(run_block_monitor(namenode.clone(), tokens)),
            tokio::spawn(monitors::run_lease_monitor(namenode.clone())),
            tokio::spawn(monitors::run_disk_monitor(namenode.clone())),
            tokio::spawn(image::run_backups(namenode.clone())),
        ];
        if let Some(settings) = TrashSettings::read(conf)? {
            tasks.push(tokio::spawn(trash::run(namenode.clone(), settings)));
        }
        tracing::info!(
            rpc = %rpc.address(),
            cluster = namenode.identity.cluster_id,
            pool = %namenode.identity.pool,
            "NameNode is serving"
        );
        Ok(Handle { namenode, rpc, _service_rpc: service_rpc, web, tasks })
    }
}

/// Formats the directory of a configuration without starting anything: `hearth namenode -format`.
///
/// `force`: remove an existing namespace.
pub fn format_directory(options: &NamenodeOptions, force: bool) -> Result<PoolIdentity, StartError> {
    let options = &own_options(options.clone())?;
    let conf = &options.configuration;
    let settings = Settings::read(conf, options.host_name.clone())?;
    let groups = groups(options)?;
    if !conf.get(keys::DFS_NAMENODE_SUPPORT_ALLOW_FORMAT)? {
        let wanted = "wanted `true`: this file system may not be formatted";
        return Err(conf.value_error(keys::DFS_NAMENODE_SUPPORT_ALLOW_FORMAT.name, "false", wanted).into());
    }
    let directory = Directory::lock(&directory_path(options)?)?;
    if force && directory.is_formatted() && conf.get(keys::DFS_REFORMAT_DISABLED)? {
        let wanted = format!("wanted `false`: {} holds a namespace", directory.path().display());
        return Err(conf.value_error(keys::DFS_REFORMAT_DISABLED.name, "true", wanted).into());
    }
    new_namespace(&directory, options, &settings, &groups, force)
}

/// Checks a directory that does not start and, with `force`, repairs it so that it starts with the remaining data:
/// `hearth namenode -recover`.
pub fn recover_directory(options: &NamenodeOptions, force: bool) -> Result<RecoveryReport, StartError> {
    let options = &own_options(options.clone())?;
    let settings = Settings::read(&options.configuration, options.host_name.clone())?;
    let directory = Directory::lock(&directory_path(options)?)?;
    Ok(recover(&directory, settings.limits, force)?)
}

/// Makes the namespace of an image in the directory of a configuration: `hearth namenode -importCheckpoint`. `from`: the
/// image, or a directory with one.
///
/// Errors: `AlreadyFormatted` if the directory has a namespace.
pub fn import_directory(options: &NamenodeOptions, from: &Path) -> Result<Imported, StartError> {
    let options = &own_options(options.clone())?;
    let settings = Settings::read(&options.configuration, options.host_name.clone())?;
    let source = ImageSource::find(from)?;
    let directory = Directory::lock(&directory_path(options)?)?;
    if !directory.is_formatted() {
        directory.check_empty()?;
    }
    Ok(image::import(&source, &directory, settings.limits)?)
}

/// Applies the configuration keys for this NameNode alone. May resolve names.
fn own_options(mut options: NamenodeOptions) -> Result<NamenodeOptions, ConfigError> {
    let is_here = |address: &HostPort| {
        let found = (address.host.as_str(), address.port).to_socket_addrs();
        found.is_ok_and(|mut all| all.any(|one| is_of_this_machine(one.ip())))
    };
    options.configuration = options.configuration.for_namenode(is_here)?;
    Ok(options)
}

fn groups(options: &NamenodeOptions) -> Result<Groups, ConfigError> {
    let conf = &options.configuration;
    Ok(Groups::new(
        options.user.clone(),
        conf.get(keys::DFS_PERMISSIONS_SUPERUSERGROUP)?,
        conf.get(keys::HADOOP_USER_GROUP_STATIC_MAPPING_OVERRIDES)?.as_deref(),
        conf.get(keys::HADOOP_SECURITY_GROUPS_CACHE_SECS)?,
        options.clock.clone(),
    ))
}

/// Returns the limits of the RPC ports, which share the memory for long requests. `ports`: their number.
fn rpc_options(conf: &Configuration, ports: usize) -> Result<RpcServerOptions, ConfigError> {
    let descriptors = hearth_protocol::rpc::raise_descriptor_limit();
    Ok(RpcServerOptions {
        frame_bytes_max: conf.get(keys::IPC_MAXIMUM_DATA_LENGTH)? as usize,
        connections_max: match conf.get(keys::IPC_SERVER_MAX_CONNECTIONS)? {
            // The rest is for files and web connections.
            0 => descriptors / 4 * 3 / ports,
            most => most as usize,
        },
        ..RpcServerOptions::with_message_bytes(message_bytes(conf)?)
    })
}

fn directory_path(options: &NamenodeOptions) -> Result<PathBuf, ConfigError> {
    match &options.directory {
        Some(directory) => Ok(directory.clone()),
        None => store_directory(&options.configuration),
    }
}

fn rpc_address(options: &NamenodeOptions) -> Result<String, ConfigError> {
    if let Some(address) = &options.rpc_address {
        return Ok(address.clone());
    }
    let conf = &options.configuration;
    bound(conf, conf.single_namenode()?, keys::DFS_NAMENODE_RPC_BIND_HOST)
}

/// Returns the address by which clients find the RPC port: the configured host, wherever the port listens.
fn named_address(options: &NamenodeOptions, rpc: SocketAddr) -> Result<String, ConfigError> {
    let host = match &options.rpc_address {
        Some(address) => HostPort::parse(address, Some(0)).map_or_else(|_| rpc.ip().to_string(), |parsed| parsed.host),
        None => options.configuration.single_namenode()?.host,
    };
    // The wildcard address is not a destination.
    let is_any = host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    let host = if is_any { options.host_name.clone() } else { host };
    Ok(HostPort { host, port: rpc.port() }.to_string())
}

/// Returns the address to listen on: clients may know this machine by a name whose address it does not have.
fn bound(conf: &Configuration, mut address: HostPort, key: OptionalKey<String>) -> Result<String, ConfigError> {
    if let Some(host) = conf.get(key)? {
        address.host = host;
    }
    Ok(address.to_string())
}

async fn open_store(
    options: &NamenodeOptions,
    settings: &Settings,
    groups: &Groups,
) -> Result<(Store, PoolIdentity, Loaded, Duration), StartError> {
    let directory = Directory::lock(&directory_path(options)?)?;
    match options.format {
        FormatPolicy::Always => drop(new_namespace(&directory, options, settings, groups, true)?),
        FormatPolicy::IfEmpty if !directory.is_formatted() => {
            if options.directory.is_none() && !options.configuration.is_set(keys::DFS_NAMENODE_NAME_DIR.name) {
                return Err(StartError::DirectoryNotSet { path: directory.path().to_owned() });
            }
            directory.check_empty()?;
            drop(new_namespace(&directory, options, settings, groups, false)?);
        }
        _ => {}
    }
    let identity = directory.version()?;
    let (limits, journal_bytes) = (settings.limits.clone(), settings.journal_bytes);
    let began = options.clock.monotonic();
    let opening = tokio::task::spawn_blocking(move || {
        let opened = Store::open(directory, limits, journal_bytes);
        // Also releases the memory cached for this thread, which may be idle for long.
        memory::release();
        opened
    });
    let (store, loaded) = opening.await.map_err(|_| StartError::Interrupted)??;
    store.measure(options.clock.clone());
    let load_time = options.clock.monotonic().saturating_sub(began);
    tracing::info!(
        inodes = loaded.namespace.inode_count(),
        blocks = loaded.namespace.block_count(),
        took = ?load_time,
        "namespace loaded"
    );
    Ok((store, identity, loaded, load_time))
}

fn new_namespace(
    directory: &Directory,
    options: &NamenodeOptions,
    settings: &Settings,
    groups: &Groups,
    force: bool,
) -> Result<PoolIdentity, StartError> {
    let now_ms = options.clock.wall_ms();
    let identity = new_identity(options, now_ms)?;
    let mut namespace = Namespace::format(settings.limits.clone(), groups.owner(), groups.supergroup(), now_ms);
    let first = Changes { storages: initial_storages(), ..namespace.take_changes() };
    format(directory, &identity, &first, force)?;
    tracing::info!(directory = %directory.path().display(), cluster = identity.cluster_id, "formatted");
    Ok(identity)
}

fn new_identity(options: &NamenodeOptions, now_ms: u64) -> Result<PoolIdentity, StartError> {
    let mut random = [0u8; 24];
    getrandom::fill(&mut random).map_err(StartError::Randomness)?;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    // Java reads these as signed numbers, so the top bit stays clear.
    let number = |i: usize| u32::from_be_bytes([random[i] & 0x7F, random[i + 1], random[i + 2], random[i + 3]]);
    let cluster = format!(
        "CID-{}-{}-{}-{}-{}",
        hex(&random[0..4]),
        hex(&random[4..6]),
        hex(&random[6..8]),
        hex(&random[8..10]),
        hex(&random[10..16])
    );
    // Only part of the name: no connection uses it.
    let host = rpc_address(options).ok().and_then(|address| {
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host).to_owned();
        host.parse::<std::net::Ipv4Addr>().ok()
    });
    let host = host.filter(|ip| !ip.is_unspecified()).unwrap_or(std::net::Ipv4Addr::LOCALHOST);
    Ok(PoolIdentity {
        pool: BlockPoolId::new(format!("BP-{}-{host}-{now_ms}", number(16))),
        namespace_id: number(20),
        cluster_id: cluster,
        created_ms: now_ms,
    })
}

fn retry_cache(settings: &Settings, clock: Arc<dyn Clock>) -> Option<Arc<RetryCache>> {
    let lifetime = settings.retry_lifetime?;
    Some(RetryCache::new(RetryCacheOptions { lifetime, entries_max: RETRIES_MAX }, clock))
}

/// `stored`: in the order of the calls, which is also the order in which they are removed from disk, even if the clock
/// was set back.
fn restore_retries(
    stored: Vec<(crate::changes::RetryKey, crate::changes::RetryEntry)>,
    cache: Option<&RetryCache>,
) -> StoredRetries {
    let mut retries = StoredRetries::default();
    for (key, entry) in stored {
        retries.push(entry.expires_ms);
        if let Some(cache) = cache {
            let (client, call_id) = retry_call(&key);
            cache.restore(client, call_id, entry.expires_ms, entry.answer.into());
        }
    }
    retries
}

/// Data for the block map and the leases from a part of all inodes.
#[derive(Default)]
struct RestoredPart {
    /// Blocks of closed files.
    blocks: RestoredBlocks,
    /// Files that are open for writing.
    open: Vec<Slot>,
    /// Inodes with possible further blocks in snapshots.
    with_history: Vec<Slot>,
}

fn closed_files<'a>(namespace: &Namespace, inodes: impl Iterator<Item = (Slot, &'a Inode)>) -> RestoredPart {
    let mut part = RestoredPart::default();
    let mut policies = namespace.policies();
    for (slot, inode) in inodes {
        if inode.has_history() {
            part.with_history.push(slot);
        }
        let Some(file) = inode.as_file().filter(|_| !inode.is_gone()) else { continue };
        if file.is_open() {
            part.open.push(slot);
        } else if !file.blocks().is_empty() {
            let (policy, replication) = (policies.of(slot).number, namespace.replication_with_snapshots(slot));
            for block in file.blocks().iter() {
                part.blocks.add(block.block(), inode.id().0, replication, policy);
            }
        }
    }
    part
}

/// Builds the block map and the leases from the namespace; datanodes will report the locations of replicas.
fn restore(
    namespace: Namespace,
    caching: Caching,
    settings: &Settings,
    identity: &PoolIdentity,
    retries: StoredRetries,
    storages: Option<Vec<String>>,
    now: Now,
) -> Result<State, StartError> {
    let mut seed = [0u8; 8];
    getrandom::fill(&mut seed).map_err(StartError::Randomness)?;
    let mut blocks = BlockMap::new(identity.pool.clone(), settings.blocks.clone(), u64::from_ne_bytes(seed));
    let mut leases = Leases::new(settings.leases);
    let mut closing = std::collections::BTreeSet::new();
    blocks.note_stamp(GenerationStamp(namespace.counters().last_stamp));
    let (mut open, mut with_history) = (Vec::new(), Vec::new());
    for part in parallel::map(namespace.parts(), |inodes| closed_files(&namespace, inodes)) {
        blocks.add_restored(part.blocks);
        open.extend(part.open);
        with_history.extend(part.with_history);
    }
    for slot in open {
        let inode = namespace.inode(slot);
        let (id, file) = (inode.id(), inode.as_file().expect("checked to be a file"));
        let Some(writer) = file.writer() else { continue };
        let policy = namespace.storage_policy(slot).number;
        let replication = namespace.replication_with_snapshots(slot);
        for (i, block) in file.blocks().iter().enumerate() {
            let is_last = i + 1 == file.blocks().len();
            // When another block was added, all earlier blocks had their replicas, except perhaps the last of them.
            let complete = block.state == RecordState::Complete || (!is_last && i + 2 < file.blocks().len());
            blocks.restore(block.block(), id.0, replication, policy, complete);
            if !complete
                && block.state == RecordState::Committed
                && let Err(error) = blocks.commit(block.block(), now)
            {
                tracing::warn!(block = %block.block(), %error, "cannot restore a committed block as committed");
            }
            if let Some(truncation) = writer.truncation.filter(|_| is_last)
                && block.state == RecordState::UnderConstruction
            {
                // The record has the length after the truncation.
                blocks.restore_truncation(block.id, block.length, truncation.copied_from);
            }
        }
        leases.add(&writer.client, id, now.monotonic);
        if writer.truncation.is_some() || writer.client == crate::ops::lease::RECOVERING_HOLDER {
            // An unfinished recovery begins again.
            closing.insert(id);
        }
    }
    let mut unfinished = std::collections::BTreeSet::new();
    for kept in with_history.iter().flat_map(|main| namespace.blocks_of_snapshots(*main)) {
        let is_whole = kept.record.state != RecordState::UnderConstruction;
        blocks.restore(kept.record.block(), kept.file.0, kept.replication, kept.policy, is_whole);
        if !is_whole {
            unfinished.insert(kept.file);
        }
    }
    for (block, copied_from) in with_history.iter().flat_map(|main| namespace.pending_truncations(*main)) {
        // As above: the record has the length after the truncation.
        blocks.restore_truncation(block.id, block.length, copied_from);
    }
    blocks.restore_storages(storages);
    blocks.restored(now);
    Ok(State { namespace, leases, blocks, retries, caching, closing, unfinished })
}

/// Returns the free bytes of the file system that contains a directory.
pub(crate) fn free_bytes(directory: &Path) -> std::io::Result<u64> {
    let status = rustix::fs::statvfs(directory)?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

/// Interval of the check of the disk.
pub(crate) const DISK_INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use hearth_types::SystemClock;

    use super::*;

    /// Options of one of two nameservices (the other one is on a foreign machine), with a directory and ports
    /// configured for it alone.
    fn options(directory: &Path) -> NamenodeOptions {
        let in_directory = |name: &str| directory.join(name).display().to_string();
        let configuration = Configuration::empty()
            .with("fs.defaultFS", "hdfs://ns2")
            .with("dfs.nameservices", "ns1,ns2")
            // TEST-NET-1, RFC 5737.
            .with("dfs.namenode.rpc-address.ns1", "192.0.2.1:8020")
            .with("dfs.namenode.rpc-address.ns2", "127.0.0.1:0")
            .with("dfs.namenode.http-address.ns2", "127.0.0.1:0")
            .with("dfs.namenode.name.dir", in_directory("all"))
            .with("dfs.namenode.name.dir.ns1", in_directory("ns1"))
            .with("dfs.namenode.name.dir.ns2", in_directory("ns2"));
        NamenodeOptions {
            configuration,
            user: "root".into(),
            host_name: "namenode".into(),
            clock: Arc::new(SystemClock::new()),
            format: FormatPolicy::Never,
            directory: None,
            rpc_address: None,
            http_address: None,
            copier: None,
        }
    }

    #[test]
    fn answers_expire_in_call_order() {
        let entry = |expires_ms| crate::changes::RetryEntry { expires_ms, answer: Vec::new() };
        let mut retries = restore_retries(vec![([1; 20], entry(20)), ([2; 20], entry(10))], None);
        assert_eq!(retries.take_expired(15), 0, "the first answer has not expired");
        assert_eq!(retries.take_expired(20), 2);
    }

    #[tokio::test]
    async fn nameservice_keys_apply_to_the_namenode() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path());
        let identity = format_directory(&options, false).unwrap();
        let made: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|made| made.unwrap().file_name()).collect();
        assert_eq!(made, ["ns2"]);
        let handle = Namenode::start(options).await.unwrap();
        assert_eq!(handle.identity().cluster_id, identity.cluster_id);
        assert!(handle.rpc_address().ip().is_loopback() && handle.http_address().ip().is_loopback());
    }

    #[tokio::test]
    async fn default_directory_is_not_formatted_automatically() {
        let directory = tempfile::tempdir().unwrap();
        let mut unset = NamenodeOptions { format: FormatPolicy::IfEmpty, ..options(directory.path()) };
        unset.configuration.set("hadoop.tmp.dir", directory.path().display().to_string());
        for key in ["dfs.namenode.name.dir", "dfs.namenode.name.dir.ns1", "dfs.namenode.name.dir.ns2"] {
            unset.configuration.unset(key);
        }
        let refused = Namenode::start(unset.clone()).await.err().unwrap().to_string();
        assert!(
            refused.contains("dfs/name has no namespace") && refused.contains("dfs.namenode.name.dir"),
            "{refused}"
        );
        // A namespace that was made by order is served.
        format_directory(&unset, false).unwrap();
        drop(Namenode::start(unset).await.unwrap());
        let set = NamenodeOptions { format: FormatPolicy::IfEmpty, ..options(directory.path()) };
        Namenode::start(set).await.unwrap();
        assert!(directory.path().join("ns2/current/VERSION").exists());
    }

    #[test]
    fn format_is_refused_if_key_forbids_it() {
        let directory = tempfile::tempdir().unwrap();
        let with = |key: &str, value: &str| {
            let mut options = options(directory.path());
            options.configuration.set(key, value);
            options
        };
        let said = |outcome: Result<PoolIdentity, StartError>| outcome.unwrap_err().to_string();
        let never = with("dfs.namenode.support.allow.format", "false");
        assert!(said(format_directory(&never, true)).contains("dfs.namenode.support.allow.format"));
        let once = with("dfs.reformat.disabled", "true");
        let first = format_directory(&once, true).unwrap();
        let refused = said(format_directory(&once, true));
        assert!(refused.contains("dfs.reformat.disabled") && refused.contains("ns2"), "{refused}");
        let second = format_directory(&options(directory.path()), true).unwrap();
        assert_ne!(first.cluster_id, second.cluster_id);
    }
}
