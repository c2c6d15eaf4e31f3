//! Options of a DataNode, read from its configuration.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::{Engine, MemoryOptions, StoreOptions, VolumeOptions, cgroup_limit};
use hearth_config::{ConfigError, Configuration, HostPort, IneffectiveSetting, Nameservice, Program, keys};
use hearth_fabric::TransportName;
use hearth_fabric::one_sided::Transport;
use hearth_fabric::tcp::SocketOptions;
use hearth_types::{Clock, StorageType};
use hearth_web::webhdfs::Service;
use hearth_wire::announcement;
use hearth_wire::data_transfer::PACKET_BYTES_MAX;
use parking_lot::RwLock;

use crate::error::Error;
use crate::outliers::OutlierOptions;

/// Minimum data bytes of one packet of a read; `io.file.buffer.size` applies if it is larger. Four times what Java's
/// DataNode sends: a quarter of the system calls, and the packet still fits a client's second-level cache for the CRCs.
const READ_PACKET_BYTES_MIN: u64 = 256 << 10;

/// Blocking threads (those that wait for disks) in addition to those of transfers: tokio's default for all.
const OTHER_BLOCKING_THREADS: usize = 512;

/// Short, because the bytes can also take another path.
const MEMORY_CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Incremental reports wait while a full report is listed: this bounds their delay at first when a disk hangs. A list of
/// millions of replicas takes far less.
const REPORT_LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum share of the cores that copies always get.
const COPY_CORES_SHARE_MIN: f64 = 0.05;

/// All options of a DataNode, from its configuration and from the machine.
#[derive(Clone)]
pub struct DatanodeOptions {
    pub nameservices: Vec<Nameservice>,
    /// Address of DataTransferProtocol. Port 0 selects any free port, here and in the two addresses below.
    pub transfer_address: SocketAddr,
    /// Path of the domain socket for clients on this machine; `_PORT` in it stands for the port of `transfer_address`.
    pub domain_socket_path: Option<String>,
    /// Options of one-sided reads and writes, which need no work of this process.
    pub one_sided: OneSidedOptions,
    pub ipc_address: SocketAddr,
    pub http_address: SocketAddr,
    /// Host name registered with the NameNodes.
    pub host_name: String,
    /// Connect to other DataNodes by name instead of address.
    pub use_host_names: bool,
    pub store: StoreOptions,
    pub transfer: TransferOptions,
    pub streams: StreamOptions,
    pub rpc: RpcOptions,
    /// Options that can change while the DataNode runs. Clones of these options share them.
    pub changeable: Arc<RwLock<ChangeableOptions>>,
    /// Maximum time to list the replicas for a full block report, which a disk may delay.
    pub report_list_timeout: Duration,
    /// Bandwidth limit of the balancer's copies, in bytes per second; 0 is no limit.
    pub balance_bytes_per_second: u64,
    /// Maximum number of the balancer's copies that run at once.
    pub balance_moves_max: usize,
    /// Bytes for centralised caching and for replicas on RAM_DISK (`dfs.datanode.max.locked.memory`).
    pub locked_memory: u64,
    /// Maximum time for which a local reader's anchors keep a replica in memory.
    pub revocation_timeout: Duration,
    /// Group whose members may administer this DataNode: `dfs.permissions.superusergroup`.
    pub superuser_group: String,
    /// User that this process runs as.
    pub user: String,
    pub clock: Arc<dyn Clock>,
    /// Configuration that the options were read from; shown on `/conf`.
    pub configuration: Arc<Configuration>,
    /// WebHDFS service. It is a client, which this crate does not depend on. `None`: WebHDFS requests are refused.
    pub webhdfs: Option<Arc<dyn Service>>,
}

/// Options that each use reads again. Others that can change are kept by their owners, and these are only their values
/// at the start: streams, limits of connections, of memory and of bandwidth.
#[derive(Clone, Copy, Debug)]
pub struct ChangeableOptions {
    pub timing: TimingOptions,
    /// Search for slow DataNodes and disks.
    pub outliers: OutlierOptions,
    pub announcements: AnnouncementOptions,
    /// Keep replicas in memory at the end, for the next start. Otherwise those on disk leave memory.
    pub keep_memory: bool,
    /// Trust local writers that run as this process's user not to change finalized replicas.
    pub local_write_trusted: bool,
    /// Forward writes to a DataNode on this machine by writing into its memory.
    pub forward_local: bool,
    /// Maximum memory granted at once to a writer that fills the memory itself.
    pub write_slice_bytes: u64,
}

/// Options of announcing replicas' memory to Hearth's NameNodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnnouncementOptions {
    /// Time for which memory stays after it was announced. Zero: nothing is announced.
    pub lease: Duration,
    /// Maximum bytes of replicas whose memory is announced; 0: a quarter of the limit for registrations.
    pub bytes_max: u64,
}

/// Options for serving one-sided readers and writers.
#[derive(Clone, Debug)]
pub struct OneSidedOptions {
    /// `None`: one-sided access is disabled.
    pub transport: Option<Arc<dyn Transport>>,
    /// Port 0 selects any free port; clients request the number.
    pub address: SocketAddr,
    /// Time for which a reader may rely on an advertisement.
    pub lease: Duration,
    /// Maximum bytes of replicas that are registered.
    pub registered_bytes_max: u64,
    /// Connections served at once.
    pub connections_max: usize,
}

/// Options of DataTransferProtocol's sockets and packets.
#[derive(Clone, Debug)]
pub struct TransferOptions {
    pub socket: SocketOptions,
    /// Maximum number of connections. At the limit an idle connection is dropped; if none is idle, the newest is
    /// closed.
    pub connections_max: usize,
    /// Bytes of long packets and requests that have not arrived completely, over all connections.
    pub message_bytes_max: u64,
    /// Maximum silence of a peer within an operation.
    pub read_timeout: Duration,
    /// Maximum time for which a peer may accept no byte.
    pub write_timeout: Duration,
    /// Maximum silence between two operations on one connection; zero closes the connection after each operation.
    pub keepalive: Duration,
    /// Send files with sendfile; otherwise through memory of this process.
    pub transfer_to: bool,
    /// Data bytes of one packet of a read.
    pub read_packet_bytes: usize,
    /// Maximum time for which an operation waits for its block pool to be registered.
    pub pool_ready_timeout: Duration,
    /// Announce in acknowledgements that congestion is reported (`dfs.pipeline.ecn`).
    pub pipeline_ecn: bool,
    /// Announce in acknowledgements that slow nodes are reported (`dfs.pipeline.slownode`).
    pub pipeline_slow: bool,
    /// Bandwidth limit of the copies that a NameNode requests, in bytes per second; 0 is no limit.
    pub transfer_bytes_per_second: u64,
    /// Timeout for the next DataNode to report the address of its memory, and for connecting to that address.
    pub memory_connect_timeout: Duration,
    /// Also put LAZY_PERSIST blocks of clients on other machines on RAM_DISK.
    pub non_local_lazy_persist: bool,
}

/// Options of replica streams from and to other Hearth DataNodes.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// Connections to one DataNode; 0 disables streams in both directions.
    pub connections: u32,
    /// Replicas in flight at once on one connection.
    pub replicas: u32,
    /// Bytes in flight on one connection.
    pub window_bytes: u64,
    /// Bytes in flight on all incoming connections.
    pub memory_bytes: u64,
    /// Niceness of the stream threads, relative to the process's own.
    pub nice: i32,
    /// Maximum share of the cores that stream threads take while clients are served; no limit from 1 on.
    pub cores_share: f64,
    /// Time for which a replica that a broken connection left incomplete is kept for resumption.
    pub resume_timeout: Duration,
}

/// Intervals of the reports to the NameNodes.
#[derive(Clone, Copy, Debug)]
pub struct TimingOptions {
    pub heartbeat: Duration,
    pub block_report: Duration,
    /// Upper bound of the random delay before the first full report.
    pub block_report_initial_delay: Duration,
    /// Number of replicas from which each storage is reported in a call of its own.
    pub block_report_split: u64,
    /// Minimum time between two incremental reports; zero sends at once.
    pub incremental_report: Duration,
    pub cache_report: Duration,
    /// Time between two rounds that move replicas from RAM_DISK to DISK.
    pub lazy_writer: Duration,
    /// Time without an answered heartbeat after which a lifeline is sent.
    pub lifeline: Duration,
}

/// Options of RPC calls to NameNodes and other DataNodes, and of the IPC server.
#[derive(Clone, Debug)]
pub struct RpcOptions {
    pub connect_timeout: Duration,
    pub call_timeout: Duration,
    pub frame_bytes_max: usize,
    /// Bytes of long requests, over all callers of the IPC port.
    pub message_bytes_max: u64,
    /// Calls that this DataNode serves at once.
    pub handlers: usize,
}

impl DatanodeOptions {
    /// Number of blocking threads (tokio's `max_blocking_threads`) for the runtime of this DataNode; they are started
    /// on demand. There is one for each possible transfer, as in Apache's DataNode. With fewer, a hanging disk could
    /// block all of them.
    pub fn blocking_threads_max(&self) -> usize {
        self.transfer.connections_max + OTHER_BLOCKING_THREADS
    }

    /// Returns the current values of the options that can change.
    pub fn current(&self) -> ChangeableOptions {
        *self.changeable.read()
    }

    /// Reads the options from `configuration`. `user`: the user that runs this process. `machine_host_name`: host name
    /// to register unless `dfs.datanode.hostname` is set.
    ///
    /// Errors: the first key whose value cannot be used.
    pub fn from_configuration(
        configuration: Arc<Configuration>,
        user: &str,
        machine_host_name: &str,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let conf = &*configuration;
        conf.refuse_protection()?;
        conf.ineffective_settings(Program::Datanode)?.iter().for_each(IneffectiveSetting::warn);
        let buffer_size = |bytes: u64| (bytes > 0).then_some(u32::try_from(bytes).unwrap_or(u32::MAX));
        // Leaves room in the packet for its CRCs and header.
        let read_packet_bytes =
            conf.get(keys::IO_FILE_BUFFER_SIZE)?.max(READ_PACKET_BYTES_MIN).min(PACKET_BYTES_MAX as u64 / 2) as usize;
        let transfer_address = resolve(keys::DFS_DATANODE_ADDRESS.name, &conf.get(keys::DFS_DATANODE_ADDRESS)?)?;
        Ok(Self {
            nameservices: conf.datanode_nameservices()?,
            transfer_address,
            domain_socket_path: conf.get(keys::DFS_DOMAIN_SOCKET_PATH)?.filter(|path| !path.is_empty()),
            one_sided: one_sided_options(conf, transfer_address.ip())?,
            ipc_address: resolve(keys::DFS_DATANODE_IPC_ADDRESS.name, &conf.get(keys::DFS_DATANODE_IPC_ADDRESS)?)?,
            http_address: resolve(keys::DFS_DATANODE_HTTP_ADDRESS.name, &conf.get(keys::DFS_DATANODE_HTTP_ADDRESS)?)?,
            host_name: conf.get(keys::DFS_DATANODE_HOSTNAME)?.unwrap_or_else(|| machine_host_name.to_owned()),
            use_host_names: conf.get(keys::DFS_DATANODE_USE_DATANODE_HOSTNAME)?,
            store: store_options(conf, clock.clone())?,
            transfer: TransferOptions {
                socket: SocketOptions {
                    nodelay: conf.get(keys::DFS_DATA_TRANSFER_SERVER_TCPNODELAY)?,
                    send_buffer_bytes: buffer_size(conf.get(keys::DFS_DATANODE_TRANSFER_SOCKET_SEND_BUFFER_SIZE)?),
                    receive_buffer_bytes: buffer_size(conf.get(keys::DFS_DATANODE_TRANSFER_SOCKET_RECV_BUFFER_SIZE)?),
                },
                connections_max: conf.get(keys::DFS_DATANODE_MAX_TRANSFER_THREADS)?.max(1) as usize,
                message_bytes_max: packet_bytes(conf)?,
                read_timeout: conf.timeout(keys::DFS_CLIENT_SOCKET_TIMEOUT)?,
                write_timeout: conf.timeout(keys::DFS_DATANODE_SOCKET_WRITE_TIMEOUT)?,
                keepalive: conf.get(keys::DFS_DATANODE_SOCKET_REUSE_KEEPALIVE)?,
                transfer_to: conf.get(keys::DFS_DATANODE_TRANSFER_TO_ALLOWED)?,
                read_packet_bytes,
                pool_ready_timeout: conf.get(keys::DFS_DATANODE_BP_READY_TIMEOUT)?,
                pipeline_ecn: conf.get(keys::DFS_PIPELINE_ECN)?,
                pipeline_slow: conf.get(keys::DFS_PIPELINE_SLOWNODE)?,
                transfer_bytes_per_second: conf.get(keys::DFS_DATANODE_DATA_TRANSFER_BANDWIDTH_PER_SEC)?,
                memory_connect_timeout: MEMORY_CONNECT_TIMEOUT,
                non_local_lazy_persist: conf.get(keys::DFS_DATANODE_NON_LOCAL_LAZY_PERSIST)?,
            },
            streams: StreamOptions::read(conf)?,
            changeable: Arc::new(RwLock::new(ChangeableOptions::read(conf)?)),
            rpc: RpcOptions {
                connect_timeout: conf.timeout(keys::IPC_CLIENT_CONNECT_TIMEOUT)?,
                call_timeout: conf.timeout(keys::IPC_CLIENT_RPC_TIMEOUT)?,
                frame_bytes_max: conf.get(keys::IPC_MAXIMUM_DATA_LENGTH)?.clamp(1 << 20, 1 << 30) as usize,
                message_bytes_max: rpc_message_bytes(conf)?,
                handlers: conf.get(keys::DFS_DATANODE_HANDLER_COUNT)?.max(1) as usize,
            },
            report_list_timeout: REPORT_LIST_TIMEOUT,
            balance_bytes_per_second: conf.get(keys::DFS_DATANODE_BALANCE_BANDWIDTH_PER_SEC)?,
            balance_moves_max: conf.get(keys::DFS_DATANODE_BALANCE_MAX_CONCURRENT_MOVES)?.max(1) as usize,
            revocation_timeout: conf.get(keys::DFS_DATANODE_CACHE_REVOCATION_TIMEOUT)?,
            locked_memory: conf.get(keys::DFS_DATANODE_MAX_LOCKED_MEMORY)?,
            superuser_group: conf.get(keys::DFS_PERMISSIONS_SUPERUSERGROUP)?,
            user: user.to_owned(),
            clock,
            configuration,
            webhdfs: None,
        })
    }
}

impl ChangeableOptions {
    fn read(conf: &Configuration) -> Result<Self, ConfigError> {
        Ok(Self {
            timing: TimingOptions::read(conf)?,
            outliers: OutlierOptions::read(conf)?,
            announcements: AnnouncementOptions::read(conf)?,
            keep_memory: conf.get(keys::HEARTH_MEMORY_KEEP)?,
            local_write_trusted: conf.get(keys::HEARTH_LOCAL_WRITE_TRUSTED)?,
            forward_local: conf.get(keys::HEARTH_DATANODE_FORWARD_LOCAL)?,
            write_slice_bytes: conf.get(keys::HEARTH_WRITE_SLICE_BYTES)?,
        })
    }
}

impl AnnouncementOptions {
    pub fn read(conf: &Configuration) -> Result<Self, ConfigError> {
        let lease = conf.get(keys::HEARTH_ANNOUNCE_LEASE)?.min(announcement::LEASE_MAX);
        Ok(Self { lease, bytes_max: conf.get(keys::HEARTH_ANNOUNCE_MAX)? })
    }
}

impl StreamOptions {
    pub fn read(conf: &Configuration) -> Result<Self, ConfigError> {
        Ok(Self {
            connections: conf.get(keys::HEARTH_DATANODE_STREAM_CONNECTIONS)?,
            replicas: conf.get(keys::HEARTH_DATANODE_STREAM_REPLICAS)?.clamp(1, 1024),
            window_bytes: conf.get(keys::HEARTH_DATANODE_STREAM_WINDOW_BYTES)?,
            memory_bytes: conf.get(keys::HEARTH_DATANODE_STREAM_MEMORY_BYTES)?,
            nice: conf.get(keys::HEARTH_DATANODE_STREAM_NICE)?.min(19) as i32,
            cores_share: conf.get(keys::HEARTH_DATANODE_STREAM_CORES_SHARE)?.max(COPY_CORES_SHARE_MIN),
            resume_timeout: conf.get(keys::HEARTH_DATANODE_STREAM_RESUME_TIMEOUT)?,
        })
    }
}

impl TimingOptions {
    pub fn read(conf: &Configuration) -> Result<Self, ConfigError> {
        Ok(Self {
            heartbeat: conf.timeout(keys::DFS_HEARTBEAT_INTERVAL)?,
            block_report: conf.timeout(keys::DFS_BLOCKREPORT_INTERVAL)?,
            block_report_initial_delay: conf.get(keys::DFS_BLOCKREPORT_INITIAL_DELAY)?,
            block_report_split: conf.get(keys::DFS_BLOCKREPORT_SPLIT_THRESHOLD)?,
            incremental_report: conf.get(keys::DFS_BLOCKREPORT_INCREMENTAL_INTERVAL)?,
            cache_report: conf.timeout(keys::DFS_CACHEREPORT_INTERVAL)?,
            lazy_writer: conf.timeout(keys::DFS_DATANODE_LAZYWRITER_INTERVAL)?,
            lifeline: match conf.get(keys::DFS_DATANODE_LIFELINE_INTERVAL)? {
                Some(Duration::ZERO) => Configuration::TIMEOUT_MAX,
                Some(interval) => interval,
                None => conf.timeout(keys::DFS_HEARTBEAT_INTERVAL)? * 3,
            },
        })
    }
}

/// Returns the memory for long packets and requests in bytes.
pub fn packet_bytes(conf: &Configuration) -> Result<u64, ConfigError> {
    Ok(conf.get(keys::HEARTH_DATANODE_PACKET_MEMORY)?.max(PACKET_BYTES_MAX as u64 * 2))
}

/// Returns the memory for long RPC requests in bytes: at least one longest request fits.
pub fn rpc_message_bytes(conf: &Configuration) -> Result<u64, ConfigError> {
    Ok(conf.get(keys::HEARTH_RPC_MESSAGE_MEMORY)?.max(conf.get(keys::IPC_MAXIMUM_DATA_LENGTH)?))
}

/// Returns the maximum bytes of replicas that are registered for one-sided readers.
pub fn registered_bytes_max(conf: &Configuration) -> Result<u64, ConfigError> {
    Ok(match conf.get(keys::HEARTH_RDMA_REGISTERED_MAX)? {
        0 => u64::MAX,
        bytes => bytes,
    })
}

/// Returns the maximum number of one-sided connections.
pub fn one_sided_connections_max(conf: &Configuration) -> Result<usize, ConfigError> {
    Ok(conf.get(keys::HEARTH_ONE_SIDED_CONNECTIONS_MAX)?.clamp(1, 1 << 16) as usize)
}

/// Returns the bytes of memory for replicas in `dir`.
pub fn memory_limit(conf: &Configuration, dir: &Path) -> Result<u64, ConfigError> {
    Ok(match conf.get(keys::HEARTH_MEMORY_LIMIT)? {
        // A tenth is left to the rest of the machine.
        0 => available_memory(dir) / 10 * 9,
        bytes => bytes,
    })
}

/// Reads the one-sided options. `own`: address where packets are served. The network card of that address is used
/// unless the configuration names another one.
fn one_sided_options(conf: &Configuration, own: IpAddr) -> Result<OneSidedOptions, Error> {
    let key = keys::HEARTH_ONE_SIDED_TRANSPORT;
    let name = conf.get(key)?;
    let Some(transport) = TransportName::parse(&name) else {
        return Err(conf.value_error(key.name, &name, TransportName::ALL).into());
    };
    let address = resolve(keys::HEARTH_ONE_SIDED_ADDRESS.name, &conf.get(keys::HEARTH_ONE_SIDED_ADDRESS)?)?;
    let busy_poll = Duration::from_micros(conf.get(keys::HEARTH_RDMA_BUSY_POLL)?.into());
    let open = |ip| transport.open(ip, busy_poll);
    let specified = |ip: IpAddr| (!ip.is_unspecified()).then_some(ip);
    let opened = match (specified(address.ip()), specified(own)) {
        (Some(ip), _) => open(Some(ip)),
        // Packets may use a different card from the one that supports RDMA verbs.
        (None, Some(own)) => open(Some(own)).or_else(|_| open(None)),
        (None, None) => open(None),
    };
    let transport = opened.unwrap_or_else(|error| {
        tracing::info!(%error, "one-sided reads and writes are disabled");
        None
    });
    Ok(OneSidedOptions {
        transport,
        address,
        lease: conf.get(keys::HEARTH_ADVERTISE_LEASE)?,
        registered_bytes_max: registered_bytes_max(conf)?,
        connections_max: one_sided_connections_max(conf)?,
    })
}

/// Returns the first address that a configured `host:port` resolves to.
fn resolve(key: &str, address: &HostPort) -> Result<SocketAddr, Error> {
    if address.host == "0.0.0.0" {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port));
    }
    let unresolved = |source| Error::Address { key: key.to_owned(), address: address.to_string(), source };
    (address.host.as_str(), address.port)
        .to_socket_addrs()
        .map_err(unresolved)?
        .next()
        .ok_or_else(|| unresolved(std::io::Error::other("the name has no address")))
}

fn store_options(conf: &Configuration, clock: Arc<dyn Clock>) -> Result<StoreOptions, Error> {
    let default_engine = conf.get(keys::HEARTH_STORAGE_ENGINE)?;
    let mut volumes = Vec::new();
    for directory in conf.get(keys::DFS_DATANODE_DATA_DIR)? {
        let reserved = crate::reserved_space::reserved_space(conf, &directory)?;
        let engine = match directory.engine.unwrap_or(if directory.storage_type == StorageType::RamDisk {
            // The storage directory is already in memory.
            hearth_config::Engine::File
        } else {
            default_engine
        }) {
            hearth_config::Engine::Memory => Engine::Memory,
            hearth_config::Engine::File => Engine::File,
            hearth_config::Engine::Mmap => Engine::Mmap,
        };
        volumes.push(VolumeOptions { dir: directory.path, storage_type: directory.storage_type, engine, reserved });
    }
    let memory_dir = match conf.get(keys::HEARTH_MEMORY_DIR)? {
        Some(dir) => PathBuf::from(dir),
        None => default_memory_dir(&volumes),
    };
    let limit = memory_limit(conf, &memory_dir)?;
    let mut store = StoreOptions::new(volumes, MemoryOptions::new(memory_dir, limit));
    // -1 tolerates the failure of all volumes but one.
    let tolerated = conf.get(keys::DFS_DATANODE_FAILED_VOLUMES_TOLERATED)?;
    store.failed_volumes_tolerated = usize::try_from(tolerated).unwrap_or(usize::MAX);
    store.open_file_cache.replicas_max = conf.get(keys::HEARTH_STORAGE_OPEN_MAX)? as usize;
    store.open_file_cache.mapped_bytes_max = conf.get(keys::HEARTH_STORAGE_MAPPED_MAX)?;
    store.flush_delay = conf.get(keys::HEARTH_MEMORY_FLUSH_DELAY)?;
    store.sync_on_finalize = conf.get(keys::DFS_DATANODE_SYNCONCLOSE)?;
    store.default_block_bytes = conf.get(keys::DFS_BLOCKSIZE)?;
    store.writer_stop_timeout = conf.get(keys::DFS_DATANODE_XCEIVER_STOP_TIMEOUT)?;
    // One scan checks all volumes.
    let of_each = conf.get(keys::DFS_BLOCK_SCANNER_VOLUME_BYTES_PER_SECOND)?;
    store.scrub_bytes_per_second = match conf.get(keys::DFS_DATANODE_SCAN_PERIOD_HOURS)? {
        ..0 => 0,
        _ => of_each.saturating_mul(store.volumes.len() as u64),
    };
    store.clock = clock;
    Ok(store)
}

/// Returns this DataNode's own directory under /dev/shm, named after its first storage directory. The same DataNode
/// therefore finds it again after a restart, and two DataNodes on one machine never share it.
fn default_memory_dir(volumes: &[VolumeOptions]) -> PathBuf {
    let first = volumes.first().map(|volume| volume.dir.as_os_str().as_encoded_bytes()).unwrap_or_default();
    PathBuf::from(format!("/dev/shm/hearth-{:08x}", hearth_types::crc32c(first)))
}

/// Returns how many bytes replicas in `dir` can take: the size of its tmpfs, limited by the memory available on the
/// machine and by that of this process's cgroup, such as a container's. Space that files on the tmpfs already use
/// counts as available.
pub fn available_memory(dir: &Path) -> u64 {
    let existing = dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let (size, used) = match rustix::fs::statvfs(existing) {
        Ok(found) => (found.f_blocks * found.f_frsize, (found.f_blocks - found.f_bfree) * found.f_frsize),
        Err(_) => (u64::MAX, 0),
    };
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map_or(u64::MAX, |kib| kib.saturating_mul(1024).saturating_add(used));
    size.min(available).min(cgroup_limit().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use hearth_config::parse::DURATION_MAX;
    use hearth_types::ManualClock;

    use super::*;

    #[test]
    fn unsupported_protection_is_refused() {
        let (key, value) = ("dfs.encrypt.data.transfer", "true");
        let configuration = Configuration::empty().with("fs.defaultFS", "hdfs://127.0.0.1:9000").with(key, value);
        let clock = Arc::new(ManualClock::at(0));
        let refused = DatanodeOptions::from_configuration(Arc::new(configuration), "me", "here", clock);
        let said = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains(key) && said.contains(value), "{said}");
    }

    #[test]
    fn durations_that_are_added_to_a_time_are_bounded() {
        let longest = format!("{}s", u64::MAX);
        let configuration = [
            "hearth.announce.lease",
            "hearth.datanode.stream.resume.timeout",
            "dfs.blockreport.initialDelay",
            "dfs.blockreport.intervalMsec",
        ]
        .into_iter()
        .fold(Configuration::empty(), |configuration, key| configuration.with(key, longest.as_str()));
        let timing = TimingOptions::read(&configuration).unwrap();
        assert_eq!((timing.block_report_initial_delay, timing.block_report), (DURATION_MAX, DURATION_MAX));
        assert_eq!(StreamOptions::read(&configuration).unwrap().resume_timeout, DURATION_MAX);
        assert_eq!(AnnouncementOptions::read(&configuration).unwrap().lease, Duration::from_secs(600));
    }

    #[test]
    fn hadoop_and_hearth_keys_set_options() {
        let configuration = Configuration::empty()
            .with("fs.defaultFS", "hdfs://127.0.0.1:9000")
            .with("dfs.datanode.data.dir", "[SSD]file:///a, /b, mmap:/c, [RAM_DISK]/d, [DISK]fileio:/e")
            .with("hearth.storage.open.max", "100")
            .with("hearth.storage.mapped.max", "1g")
            .with("dfs.datanode.address", "127.0.0.1:0")
            .with("dfs.heartbeat.interval", "1")
            .with("io.file.buffer.size", "524288")
            .with("hearth.memory.limit", "1g")
            .with("hearth.memory.dir", "/dev/shm/x");
        let clock = Arc::new(ManualClock::at(0));
        let options = DatanodeOptions::from_configuration(Arc::new(configuration), "me", "here", clock).unwrap();
        assert_eq!(options.transfer_address, "127.0.0.1:0".parse().unwrap());
        assert_eq!(options.ipc_address, "0.0.0.0:9867".parse().unwrap());
        let engines: Vec<Engine> = options.store.volumes.iter().map(|volume| volume.engine).collect();
        assert_eq!(engines, [Engine::Memory, Engine::Memory, Engine::Mmap, Engine::File, Engine::File]);
        assert_eq!(
            (options.store.open_file_cache.replicas_max, options.store.open_file_cache.mapped_bytes_max),
            (100, 1 << 30)
        );
        assert_eq!(options.store.memory.limit, 1 << 30);
        assert_eq!(options.transfer.read_packet_bytes, 512 << 10);
        assert_eq!(options.current().timing.heartbeat, Duration::from_secs(1));
        assert_eq!(options.nameservices[0].namenodes[0].rpc.port, 9000);
        assert_eq!(options.host_name, "here");
    }
}
