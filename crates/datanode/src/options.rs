//! What a datanode is told at its start.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::{Engine, MemoryOptions, StoreOptions, VolumeOptions};
use hearth_config::{Configuration, HostPort, IneffectiveSetting, Nameservice, Program, keys};
use hearth_fabric::TransportName;
use hearth_fabric::tcp::SocketOptions;
use hearth_types::{Clock, StorageType, SystemClock};
use hearth_web::webhdfs::Service;
use hearth_wire::data_transfer::PACKET_BYTES_MAX;

use crate::Error;
use crate::one_sided_server::OneSidedOptions;

/// A packet of a read carries this many bytes at least, and `io.file.buffer.size` when that is more. Four times what
/// Java's DataNode sends: a quarter of the system calls, and a client's second-level cache still holds it for the CRCs.
const READ_PACKET_BYTES_MIN: u64 = 256 << 10;

/// Threads that wait for disks, beside those of transfers: tokio's default for all.
const OTHER_BLOCKING_THREADS: usize = 512;

/// There is another way for the bytes.
const MEMORY_CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Copies always have that much of the cores.
const COPY_CORES_SHARE_MIN: f64 = 0.05;

/// Everything that a datanode takes from its configuration and from the machine.
#[derive(Clone)]
pub struct DatanodeOptions {
    pub nameservices: Vec<Nameservice>,
    /// DataTransferProtocol. Port 0: any free one, here as in the two below.
    pub transfer_address: SocketAddr,
    /// Where clients of this machine connect; `_PORT` in it stands for the port of `transfer_address`.
    pub domain_socket_path: Option<String>,
    /// Reads and writes without this process at work.
    pub one_sided: OneSidedOptions,
    pub ipc_address: SocketAddr,
    pub http_address: SocketAddr,
    /// The name registered with the namenodes.
    pub host_name: String,
    /// Connect to other datanodes by name instead of address.
    pub use_host_names: bool,
    pub store: StoreOptions,
    pub transfer: TransferOptions,
    pub streams: StreamOptions,
    pub timing: TimingOptions,
    pub rpc: RpcOptions,
    /// Bytes a second for the balancer's copies; 0 is no limit.
    pub balance_bytes_per_second: u64,
    /// Copies for the balancer that run at once.
    pub balance_moves_max: usize,
    /// Bytes for centralised caching and for what lies on RAM_DISK (`dfs.datanode.max.locked.memory`).
    pub locked_memory: u64,
    /// A local reader's anchors keep a replica in memory no longer than this.
    pub revocation_timeout: Duration,
    /// Members may administer: `dfs.permissions.superusergroup`.
    pub superuser_group: String,
    /// The user this process runs as.
    pub user: String,
    pub clock: Arc<dyn Clock>,
    /// What the options were read from: shown on `/conf`.
    pub configuration: Arc<Configuration>,
    /// Who answers WebHDFS: a client, which this room knows nothing of. Without one it is refused.
    pub webhdfs: Option<Arc<dyn Service>>,
}

/// Sockets and packets of DataTransferProtocol.
#[derive(Clone, Debug)]
pub struct TransferOptions {
    pub socket: SocketOptions,
    /// Connections at once. At this number one that does nothing gives way; if none does, the newest is closed.
    pub connections_max: usize,
    /// Bytes of long packets and requests that have not arrived whole, of all connections.
    pub message_bytes_max: u64,
    /// Silence of a peer within an operation.
    pub read_timeout: Duration,
    /// A peer that takes no byte.
    pub write_timeout: Duration,
    /// Silence between two operations on one connection; zero closes after each.
    pub keepalive: Duration,
    /// Send files by sendfile; else through memory of this process.
    pub transfer_to: bool,
    /// Data bytes of one packet of a read.
    pub read_packet_bytes: usize,
    /// Operations wait this long for their pool to be registered.
    pub pool_ready_timeout: Duration,
    /// Say in acknowledgements that congestion would be told (`dfs.pipeline.ecn`).
    pub pipeline_ecn: bool,
    /// Say in acknowledgements that slowness would be told (`dfs.pipeline.slownode`).
    pub pipeline_slow: bool,
    /// Bytes a second for copies that a namenode asks for; 0 is no limit.
    pub transfer_bytes_per_second: u64,
    /// A local writer of this process's user is believed not to change what is finalized.
    pub local_write_trusted: bool,
    /// What goes on to a datanode on this machine is put into its memory.
    pub forward_local: bool,
    /// How long the next datanode may take to say where its memory is to be had, and to be connected to for that.
    pub memory_connect_timeout: Duration,
    /// Memory granted at once, at most, to a writer that fills it itself.
    pub write_slice_bytes: u64,
    /// LAZY_PERSIST blocks of clients on other machines are put on RAM_DISK, too.
    pub non_local_lazy_persist: bool,
}

/// Replicas from and to other datanodes of Hearth's.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// To one datanode; 0: no streams, neither out nor in.
    pub connections: u32,
    /// On their way on one connection at once.
    pub replicas: u32,
    /// Bytes on their way on one connection.
    pub window_bytes: u64,
    /// The same of all incoming connections.
    pub memory_bytes: u64,
    /// Niceness of their threads above the process's own.
    pub nice: i32,
    /// Of the cores, what they take at most while clients are served; from 1 on there is no limit.
    pub cores_share: f64,
    /// How long what a broken connection left of a replica is kept.
    pub resume_timeout: Duration,
}

/// When namenodes hear what.
#[derive(Clone, Debug)]
pub struct TimingOptions {
    pub heartbeat: Duration,
    pub block_report: Duration,
    /// The first full report is sent at a random moment within it.
    pub block_report_initial_delay: Duration,
    /// From this many replicas on, each storage is reported by a call of its own.
    pub block_report_split: u64,
    /// Least time between two incremental reports; zero sends at once.
    pub incremental_report: Duration,
    pub cache_report: Duration,
    /// Between two rounds that move replicas from RAM_DISK to DISK.
    pub lazy_writer: Duration,
    /// Without an answered heartbeat for so long, a lifeline is sent.
    pub lifeline: Duration,
}

/// Towards namenodes and other datanodes.
#[derive(Clone, Debug)]
pub struct RpcOptions {
    pub connect_timeout: Duration,
    pub call_timeout: Duration,
    pub frame_bytes_max: usize,
    /// Bytes of long requests of all callers of the IPC port.
    pub message_bytes_max: u64,
    /// Calls served at once by this datanode.
    pub handlers: usize,
}

impl DatanodeOptions {
    /// Threads for what waits (tokio's `max_blocking_threads`) that the runtime of this datanode should have, started as they are needed: one
    /// for each transfer that may be under way, as in Apache's. Were there fewer, a disk that hangs could take all of them.
    pub fn blocking_threads_max(&self) -> usize {
        self.transfer.connections_max + OTHER_BLOCKING_THREADS
    }

    /// `user`: who runs this process. `machine_host_name`: registered unless `dfs.datanode.hostname` says otherwise.
    ///
    /// Errors: the first key whose value cannot be used.
    pub fn from_configuration(
        configuration: Arc<Configuration>,
        user: &str,
        machine_host_name: &str,
    ) -> Result<Self, Error> {
        let conf = &*configuration;
        conf.refuse_protection()?;
        conf.ineffective_settings(Program::Datanode)?.iter().for_each(IneffectiveSetting::warn);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let buffer_size = |bytes: u64| (bytes > 0).then_some(u32::try_from(bytes).unwrap_or(u32::MAX));
        // A packet's CRCs and header must fit in besides.
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
                message_bytes_max: conf.get(keys::HEARTH_DATANODE_PACKET_MEMORY)?.max(PACKET_BYTES_MAX as u64 * 2),
                read_timeout: conf.timeout(keys::DFS_CLIENT_SOCKET_TIMEOUT)?,
                write_timeout: conf.timeout(keys::DFS_DATANODE_SOCKET_WRITE_TIMEOUT)?,
                keepalive: conf.get(keys::DFS_DATANODE_SOCKET_REUSE_KEEPALIVE)?,
                transfer_to: conf.get(keys::DFS_DATANODE_TRANSFER_TO_ALLOWED)?,
                read_packet_bytes,
                pool_ready_timeout: conf.get(keys::DFS_DATANODE_BP_READY_TIMEOUT)?,
                pipeline_ecn: conf.get(keys::DFS_PIPELINE_ECN)?,
                pipeline_slow: conf.get(keys::DFS_PIPELINE_SLOWNODE)?,
                transfer_bytes_per_second: conf.get(keys::DFS_DATANODE_DATA_TRANSFER_BANDWIDTH_PER_SEC)?,
                local_write_trusted: conf.get(keys::HEARTH_LOCAL_WRITE_TRUSTED)?,
                forward_local: conf.get(keys::HEARTH_DATANODE_FORWARD_LOCAL)?,
                memory_connect_timeout: MEMORY_CONNECT_TIMEOUT,
                write_slice_bytes: conf.get(keys::HEARTH_WRITE_SLICE_BYTES)?,
                non_local_lazy_persist: conf.get(keys::DFS_DATANODE_NON_LOCAL_LAZY_PERSIST)?,
            },
            streams: StreamOptions {
                connections: conf.get(keys::HEARTH_DATANODE_STREAM_CONNECTIONS)?,
                replicas: conf.get(keys::HEARTH_DATANODE_STREAM_REPLICAS)?.clamp(1, 1024),
                window_bytes: conf.get(keys::HEARTH_DATANODE_STREAM_WINDOW_BYTES)?,
                memory_bytes: conf.get(keys::HEARTH_DATANODE_STREAM_MEMORY_BYTES)?,
                nice: conf.get(keys::HEARTH_DATANODE_STREAM_NICE)?.min(19) as i32,
                cores_share: conf.get(keys::HEARTH_DATANODE_STREAM_CORES_SHARE)?.max(COPY_CORES_SHARE_MIN),
                resume_timeout: conf.get(keys::HEARTH_DATANODE_STREAM_RESUME_TIMEOUT)?,
            },
            timing: TimingOptions {
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
            },
            rpc: RpcOptions {
                connect_timeout: conf.timeout(keys::IPC_CLIENT_CONNECT_TIMEOUT)?,
                call_timeout: conf.timeout(keys::IPC_CLIENT_RPC_TIMEOUT)?,
                frame_bytes_max: conf.get(keys::IPC_MAXIMUM_DATA_LENGTH)?.clamp(1 << 20, 1 << 30) as usize,
                message_bytes_max: conf
                    .get(keys::HEARTH_RPC_MESSAGE_MEMORY)?
                    .max(conf.get(keys::IPC_MAXIMUM_DATA_LENGTH)?),
                handlers: conf.get(keys::DFS_DATANODE_HANDLER_COUNT)?.max(1) as usize,
            },
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

/// `own`: where packets are served; the card behind it is the one, unless the configuration names another.
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
        // Packets may go over another card than the one that has verbs.
        (None, Some(own)) => open(Some(own)).or_else(|_| open(None)),
        (None, None) => open(None),
    };
    let transport = opened.unwrap_or_else(|error| {
        tracing::info!(%error, "no one-sided reads and writes");
        None
    });
    Ok(OneSidedOptions {
        transport,
        address,
        lease: conf.get(keys::HEARTH_ADVERTISE_LEASE)?,
        registered_bytes_max: match conf.get(keys::HEARTH_RDMA_REGISTERED_MAX)? {
            0 => u64::MAX,
            bytes => bytes,
        },
        announce_lease: conf.get(keys::HEARTH_ANNOUNCE_LEASE)?,
        announced_bytes_max: conf.get(keys::HEARTH_ANNOUNCE_MAX)?,
        connections_max: conf.get(keys::HEARTH_ONE_SIDED_CONNECTIONS_MAX)?.clamp(1, 1 << 16) as usize,
    })
}

/// The first address that a configured `host:port` names.
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
            // Its directory is memory already.
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
    let limit = match conf.get(keys::HEARTH_MEMORY_LIMIT)? {
        // The rest is for everything else on the machine.
        0 => available_memory(&memory_dir) / 10 * 9,
        bytes => bytes,
    };
    let mut store = StoreOptions::new(volumes, MemoryOptions::new(memory_dir, limit));
    // -1: all but one.
    let tolerated = conf.get(keys::DFS_DATANODE_FAILED_VOLUMES_TOLERATED)?;
    store.failed_volumes_tolerated = usize::try_from(tolerated).unwrap_or(usize::MAX);
    store.open_file_cache.replicas_max = conf.get(keys::HEARTH_STORAGE_OPEN_MAX)? as usize;
    store.open_file_cache.mapped_bytes_max = conf.get(keys::HEARTH_STORAGE_MAPPED_MAX)?;
    store.flush_delay = conf.get(keys::HEARTH_MEMORY_FLUSH_DELAY)?;
    store.sync_on_finalize = conf.get(keys::DFS_DATANODE_SYNCONCLOSE)?;
    store.default_block_bytes = conf.get(keys::DFS_BLOCKSIZE)?;
    store.writer_stop_timeout = conf.get(keys::DFS_DATANODE_XCEIVER_STOP_TIMEOUT)?;
    // One walk checks all of them.
    let of_each = conf.get(keys::DFS_BLOCK_SCANNER_VOLUME_BYTES_PER_SECOND)?;
    store.scrub_bytes_per_second = match conf.get(keys::DFS_DATANODE_SCAN_PERIOD_HOURS)? {
        ..0 => 0,
        _ => of_each.saturating_mul(store.volumes.len() as u64),
    };
    store.clock = clock;
    Ok(store)
}

/// A directory under /dev/shm that is this datanode's own, named after its first storage directory, so that the same
/// datanode finds it again after a restart and two datanodes on one machine never share it.
fn default_memory_dir(volumes: &[VolumeOptions]) -> PathBuf {
    let first = volumes.first().map(|volume| volume.dir.as_os_str().as_encoded_bytes()).unwrap_or_default();
    PathBuf::from(format!("/dev/shm/hearth-{:08x}", hearth_types::crc32c(first)))
}

/// The bytes that replicas in `dir` could take: what its tmpfs has, as far as the machine has that much memory available.
/// What lies on the tmpfs already counts as room.
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
    size.min(available)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protection_that_is_not_there_is_not_promised() {
        let (key, value) = ("dfs.encrypt.data.transfer", "true");
        let configuration = Configuration::empty().with("fs.defaultFS", "hdfs://127.0.0.1:9000").with(key, value);
        let refused = DatanodeOptions::from_configuration(Arc::new(configuration), "me", "here");
        let said = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains(key) && said.contains(value), "{said}");
    }

    #[test]
    fn keys_of_hadoop_and_of_hearth_become_options() {
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
        let options = DatanodeOptions::from_configuration(Arc::new(configuration), "me", "here").unwrap();
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
        assert_eq!(options.timing.heartbeat, Duration::from_secs(1));
        assert_eq!(options.nameservices[0].namenodes[0].rpc.port, 9000);
        assert_eq!(options.host_name, "here");
    }
}
