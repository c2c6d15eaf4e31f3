//! Reads of single blocks from Hearth's DataNodes on this machine, for other HDFS clients. Such a client knows a block by
//! its id, and has a path of its own to fall back to. [`FileSystem`](crate::FileSystem) reads whole files and needs none
//! of this.
//!
//! The DataNodes are found by their domain sockets: `dfs.domain.socket.path`, with a number in the place of `_PORT`.
//!
//! - A replica is mapped, and its mapping is cached by block pool, block and generation stamp. The cache has the bounds
//!   of Hadoop's short-circuit cache (`dfs.client.read.shortcircuit.streams.cache.*`).
//! - A short block comes inline, in one round trip, until it was opened several times.
//! - A block that no DataNode here has is not asked for again for a minute.
//! - A replica with bad bytes is not opened again for a minute either, so that the client finds and reports it by its own
//!   path. This module does not report it: the client may have meant a replica of another DataNode.
//! - The sockets are listed in the background while a DataNode is known. A DataNode that does not answer in time is left
//!   alone for a minute, so that it delays one caller, and not the blocks of the other DataNodes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hearth_config::{Configuration, keys};
use hearth_fabric::local;
use hearth_protocol::rpc::RpcClientOptions;
use hearth_types::{
    BlockId, BlockPoolId, ByteRange, ChecksumError, DatanodeId, ExtendedBlock, GenerationStamp, LocatedBlock, Token,
};
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::checksummed::{Checksummed, FetchedRange};
use crate::data_path::SMALL_BYTES;
use crate::datanode::Datanodes;
use crate::options::{DatanodeOptions, MultiplexOptions, ShortCircuitOptions};
use crate::short_circuit::{LocalReplica, Probed, ShortCircuit};
use crate::{DatanodeError, Error, ErrorKind, backoff};

/// Interval at which the sockets are listed again: with DataNodes found, and without.
const LIST_INTERVAL: Duration = Duration::from_secs(60);
const LIST_INTERVAL_WITHOUT: Duration = Duration::from_secs(5);

/// Time-out of one DataNode's answer when the sockets are listed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time-out of the opening of a replica. The client then reads the block by its own path.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which a DataNode that did not answer a listing is not asked again. It doubles with each silence, because a
/// busy machine may stall for a second.
const SILENT_BACKOFF_MIN: Duration = Duration::from_secs(5);
const SILENT_BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Maximum number of DataNodes used on one machine.
const DATANODES_MAX: usize = 64;

/// From this open on, a short block is mapped: it is read often enough to be worth a mapping.
const OPENS_BEFORE_MAPPING: u8 = 4;

/// Maximum number of short blocks whose opens are counted. At the limit all are forgotten.
const COUNTED_MAX: usize = 8192;

/// Bytes per read of a replica that is not in memory.
const FETCH_BYTES: usize = 1 << 20;

/// Replicas of Hearth's DataNodes on this machine. Clones share one cache.
#[derive(Clone, Debug)]
pub struct LocalBlocks {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    short_circuit: Arc<ShortCircuit>,
    sockets: SocketPattern,
    datanodes: RwLock<Vec<Arc<DatanodeId>>>,
    /// Time of the last listing.
    listed: Mutex<Option<Instant>>,
    /// Locked while the sockets are listed, which is done once at a time.
    listing: Arc<tokio::sync::Mutex<()>>,
    /// Sockets of DataNodes that did not answer when they were last asked. At most [`DATANODES_MAX`], and those that an
    /// opening adds until the next listing.
    silent: Mutex<HashMap<PathBuf, Silence>>,
    /// Number of times that each short block was opened.
    opens: Mutex<HashMap<(BlockPoolId, BlockId, GenerationStamp), u8>>,
}

/// A DataNode did not answer in time.
#[derive(Clone, Copy, Debug)]
struct Silence {
    since: Instant,
    /// Time for which it is not asked again.
    backoff: Duration,
}

impl Silence {
    fn now(backoff: Duration) -> Self {
        Self { since: Instant::now(), backoff }
    }

    fn has_ended(&self) -> bool {
        self.since.elapsed() >= self.backoff
    }
}

impl LocalBlocks {
    /// Creates an empty cache. Nothing is sent yet.
    ///
    /// Errors: kind `InvalidConfiguration` if `dfs.domain.socket.path` is not set, or a value cannot be used.
    pub fn new(configuration: &Configuration) -> Result<Self, Error> {
        let pattern = configuration.get(keys::DFS_DOMAIN_SOCKET_PATH)?.filter(|path| !path.is_empty());
        let Some(pattern) = pattern else {
            let why = "dfs.domain.socket.path is not set: DataNodes on this machine are found by it";
            return Err(Error::new(ErrorKind::InvalidConfiguration, why));
        };
        let datanode = DatanodeOptions::read(configuration)?;
        let timeouts = datanode.read_timeouts();
        let options =
            ShortCircuitOptions::read(configuration, timeouts, MultiplexOptions::read(configuration, timeouts)?)?;
        let client_name = format!("HearthLocalBlocks_{}_{}", backoff::random_u32() as i32, std::process::id());
        let datanodes = Arc::new(Datanodes::new(datanode, RpcClientOptions::default(), client_name));
        let shared = Shared {
            short_circuit: Arc::new(ShortCircuit::new(options, datanodes)),
            sockets: SocketPattern::new(pattern),
            datanodes: RwLock::default(),
            listed: Mutex::default(),
            listing: Arc::default(),
            silent: Mutex::default(),
            opens: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the number of Hearth's DataNodes that answer on this machine. Needs a tokio runtime. The number is at most
    /// a minute old.
    pub async fn datanodes(&self) -> usize {
        self.list_datanodes(Stale::Wait).await.len()
    }

    /// Returns the replica of `block` if it is open, valid and at least as long as `block`. Never waits.
    pub fn cached(&self, block: &ExtendedBlock) -> Option<LocalBlock> {
        self.shared.datanodes.read().iter().find_map(|datanode| {
            let replica = self.shared.short_circuit.cached_replica(block, &datanode.uuid)?;
            Some(self.opened(block, datanode, Contents::Replica(replica)))
        })
    }

    /// Opens the replica of `block` that a DataNode on this machine has. `block`'s length is the number of bytes that the
    /// caller will read at most; the replica may be longer. `token`: permits to read the block. Needs a tokio runtime,
    /// whose tasks must go on for as long as the cache is used.
    ///
    /// Returns `None` if no replica here can be used, whatever the reason.
    pub async fn open(&self, block: &ExtendedBlock, token: &Token) -> Option<LocalBlock> {
        if let Some(cached) = self.cached(block) {
            return Some(cached);
        }
        let located = LocatedBlock { token: token.clone(), ..LocatedBlock::nowhere(block.clone()) };
        let inline = block.length() <= SMALL_BYTES && self.count_open(block) < OPENS_BEFORE_MAPPING;
        for datanode in self.list_datanodes(Stale::Use).await {
            if self.shared.short_circuit.failed_lately(&located, &datanode) != Ok(false) {
                continue;
            }
            match tokio::time::timeout(OPEN_TIMEOUT, self.open_at(&located, &datanode, inline)).await {
                Ok(Ok(contents)) => return Some(self.opened(block, &datanode, contents)),
                Ok(Err(error)) => {
                    tracing::debug!(%block, %datanode, error = &error as &dyn std::error::Error, "no replica here")
                }
                Err(_) => {
                    tracing::info!(%block, %datanode, "the local DataNode does not answer, leaving it alone for a while");
                    self.shared.leave_alone(&datanode);
                }
            }
        }
        None
    }

    async fn open_at(
        &self,
        located: &LocatedBlock,
        datanode: &DatanodeId,
        inline: bool,
    ) -> Result<Contents, DatanodeError> {
        let short_circuit = &self.shared.short_circuit;
        if inline && let Some(small) = short_circuit.open_small(located, datanode).await? {
            let length = located.block.length();
            let checked = match small.fetch(ByteRange::new(0, length).expect("0 is the least")).await {
                Ok(fetched) => verified(fetched, located, length),
                Err(error) => Err(error),
            };
            return checked.map(Contents::Inline).inspect_err(|error| {
                // The caller gets a new token from the NameNode.
                if !matches!(error.cause(), DatanodeError::AccessToken { .. }) {
                    short_circuit.refuse(&located.block, datanode);
                }
            });
        }
        Ok(Contents::Replica(short_circuit.open_replica(located, datanode).await?))
    }

    fn opened(&self, block: &ExtendedBlock, datanode: &Arc<DatanodeId>, contents: Contents) -> LocalBlock {
        let short_circuit = Arc::clone(&self.shared.short_circuit);
        LocalBlock { short_circuit, datanode: Arc::clone(datanode), block: block.clone(), contents }
    }

    /// Returns how often `block` was opened before.
    fn count_open(&self, block: &ExtendedBlock) -> u8 {
        let mut opens = self.shared.opens.lock();
        let key = (block.pool.clone(), block.id(), block.stamp());
        if opens.len() >= COUNTED_MAX && !opens.contains_key(&key) {
            opens.clear();
        }
        let count = opens.entry(key).or_default();
        let before = *count;
        *count = before.saturating_add(1);
        before
    }

    /// Returns Hearth's DataNodes on this machine.
    async fn list_datanodes(&self, stale: Stale) -> Vec<Arc<DatanodeId>> {
        let shared = &self.shared;
        if let Some(known) = shared.listed_recently() {
            return known;
        }
        let known = shared.datanodes.read().clone();
        if stale == Stale::Wait || known.is_empty() {
            let _listing = shared.listing.lock().await;
            // Another caller may have listed them while this one waited for the lock.
            return match shared.listed_recently() {
                Some(known) => known,
                None => shared.list().await,
            };
        }
        if let Ok(listing) = Arc::clone(&shared.listing).try_lock_owned() {
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                shared.list().await;
                drop(listing);
            });
        }
        known
    }
}

/// Use of the last listing of the sockets, if it is old.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stale {
    /// It is used if it has found a DataNode, and a new one is started in the background.
    Use,
    /// The caller waits for a new one, [`PROBE_TIMEOUT`] at most.
    Wait,
}

impl Shared {
    /// Returns the known DataNodes, or `None` if the sockets must be listed again.
    fn listed_recently(&self) -> Option<Vec<Arc<DatanodeId>>> {
        let at = (*self.listed.lock())?;
        if self.silent.lock().values().any(Silence::has_ended) {
            return None;
        }
        let known = self.datanodes.read();
        let interval = if known.is_empty() { LIST_INTERVAL_WITHOUT } else { LIST_INTERVAL };
        (at.elapsed() < interval).then(|| known.clone())
    }

    /// Asks the DataNodes at all sockets, at the same time, and stores those that are Hearth's.
    async fn list(&self) -> Vec<Arc<DatanodeId>> {
        let mut sockets = self.sockets.list();
        sockets.truncate(DATANODES_MAX);
        {
            let mut silent = self.silent.lock();
            silent.retain(|path, _| sockets.iter().any(|(_, listed)| listed == path));
            sockets.retain(|(_, path)| silent.get(path).is_none_or(Silence::has_ended));
        }
        let asked = join_all(sockets.into_iter().map(|(port, path)| self.ask(port, path))).await;
        let found: Vec<_> = asked.into_iter().flatten().collect();
        *self.datanodes.write() = found.clone();
        *self.listed.lock() = Some(Instant::now());
        found
    }

    async fn ask(&self, port: u16, path: PathBuf) -> Option<Arc<DatanodeId>> {
        let probed = self.short_circuit.probe(path.clone(), PROBE_TIMEOUT).await;
        let earlier = self.silent.lock().remove(&path);
        let uuid = match probed {
            Probed::Hearth(uuid) => uuid,
            Probed::Other => return None,
            Probed::Silent => {
                let after = |earlier: Silence| backoff::doubled(earlier.backoff, SILENT_BACKOFF_MAX);
                let backoff = earlier.map_or(SILENT_BACKOFF_MIN, after);
                self.silent.lock().insert(path, Silence::now(backoff));
                return None;
            }
        };
        Some(Arc::new(DatanodeId {
            ip: "127.0.0.1".to_owned(),
            host_name: "localhost".to_owned(),
            uuid,
            transfer_port: port,
            info_port: 0,
            ipc_port: 0,
            info_secure_port: 0,
        }))
    }

    /// Stops using a DataNode that does not answer, until it is asked again. Later than after a listing: it may answer
    /// that, and then let each opening wait for [`OPEN_TIMEOUT`].
    fn leave_alone(&self, datanode: &DatanodeId) {
        if let Some(path) = self.sockets.path(datanode.transfer_port) {
            self.silent.lock().insert(path, Silence::now(SILENT_BACKOFF_MAX));
        }
        self.datanodes.write().retain(|known| known.uuid != datanode.uuid);
    }
}

fn verified(fetched: FetchedRange, located: &LocatedBlock, length: u64) -> Result<FetchedRange, DatanodeError> {
    let block = || Box::new(located.block.clone());
    if (fetched.data().len() as u64) < length {
        let source = Arc::new(std::io::ErrorKind::UnexpectedEof.into());
        return Err(DatanodeError::Unusable { block: block(), source });
    }
    match fetched.checked().verify(0, length as usize) {
        Ok(()) => Ok(fetched),
        Err(source) => Err(DatanodeError::Checksum { block: block(), offset: 0, source }),
    }
}

/// A block of a DataNode on this machine, open for any number of readers. The bytes stay the same while it is open,
/// whatever happens to the file.
#[derive(Debug)]
pub struct LocalBlock {
    short_circuit: Arc<ShortCircuit>,
    datanode: Arc<DatanodeId>,
    block: ExtendedBlock,
    contents: Contents,
}

#[derive(Debug)]
enum Contents {
    Replica(Arc<LocalReplica>),
    /// All bytes of a short block, already verified.
    Inline(FetchedRange),
}

impl LocalBlock {
    /// Returns the number of bytes that can be read.
    pub fn length(&self) -> u64 {
        self.block.length()
    }

    /// Copies the bytes from `offset` on into `into`, if they are in memory. `verify`: checks each copied chunk against
    /// its CRC. Returns `None` if the bytes must be read from a file first: call [`Self::read_at`].
    ///
    /// Errors: kind `BeyondEnd`, or kind `DataUnavailable` if the bytes do not match their CRCs. The contents of `into`
    /// are then unspecified.
    pub fn try_read_at(&self, offset: u64, into: &mut [u8], verify: bool) -> Option<Result<(), Error>> {
        if let Err(error) = self.check_range(offset, into.len()) {
            return Some(Err(error));
        }
        let mapped = match &self.contents {
            Contents::Inline(fetched) => {
                local::copy(&fetched.data()[offset as usize..][..into.len()], into);
                return Some(Ok(()));
            }
            Contents::Replica(replica) => {
                replica.touch();
                replica.mapped()?
            }
        };
        Some(copy(mapped, offset as usize, into, verify).map_err(|error| self.bad(error)))
    }

    /// Like [`Self::try_read_at`], but also reads files. Needs a tokio runtime then.
    ///
    /// Errors: also kind `DataUnavailable` if the file cannot be read.
    pub async fn read_at(&self, offset: u64, into: &mut [u8], verify: bool) -> Result<(), Error> {
        if let Some(read) = self.try_read_at(offset, into, verify) {
            return read;
        }
        let Contents::Replica(replica) = &self.contents else { unreachable!("bytes that came inline are in memory") };
        let mut at = offset;
        for piece in into.chunks_mut(FETCH_BYTES) {
            let range = ByteRange::with_length(at, piece.len() as u64).expect("checked against the length");
            let fetched = replica.fetch(range).await.map_err(|error| self.unavailable(&error))?;
            copy(fetched.checked(), (at - fetched.start) as usize, piece, verify).map_err(|error| self.bad(error))?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn check_range(&self, offset: u64, length: usize) -> Result<(), Error> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.length() => Ok(()),
            _ => {
                let what = format!("{length} bytes at {offset} of {}, which has {}", self.block, self.length());
                Err(Error::new(ErrorKind::BeyondEnd, what))
            }
        }
    }

    fn bad(&self, error: ChecksumError) -> Error {
        self.unavailable(&error)
    }

    /// Closes the replica for all readers, and keeps them from it for a while.
    fn unavailable(&self, error: &dyn std::error::Error) -> Error {
        let mut withdrawn = "";
        if let Contents::Replica(replica) = &self.contents {
            self.short_circuit.forget(&self.block, &self.datanode, replica);
            if replica.is_valid() {
                self.short_circuit.refuse(&self.block, &self.datanode);
            } else {
                withdrawn = ", which the DataNode has withdrawn";
            }
        }
        let message =
            format!("cannot read the local replica of {} at {}{withdrawn}: {error}", self.block, self.datanode);
        Error::new(ErrorKind::DataUnavailable, message)
    }
}

fn copy(from: Checksummed<'_>, offset: usize, into: &mut [u8], verify: bool) -> Result<(), ChecksumError> {
    if verify {
        return from.copy(offset, into);
    }
    local::copy(&from.data[offset..offset + into.len()], into);
    Ok(())
}

/// `dfs.domain.socket.path`.
#[derive(Debug)]
enum SocketPattern {
    /// A path without `_PORT`.
    One(PathBuf),
    /// A path whose last component contains `_PORT`.
    Numbered { directory: PathBuf, before: String, after: String },
    /// `_PORT` stands where the sockets cannot be listed: in a directory's name, or twice.
    Unlisted,
}

impl SocketPattern {
    const PORT: &'static str = "_PORT";

    fn new(pattern: String) -> Self {
        let Some((before, after)) = pattern.split_once(Self::PORT) else { return Self::One(pattern.into()) };
        if after.contains('/') || after.contains(Self::PORT) {
            return Self::Unlisted;
        }
        let (directory, before) = before.rsplit_once('/').unwrap_or((".", before));
        let directory = if directory.is_empty() { "/" } else { directory };
        Self::Numbered { directory: directory.into(), before: before.to_owned(), after: after.to_owned() }
    }

    /// Returns the path of the socket whose name has `port`.
    fn path(&self, port: u16) -> Option<PathBuf> {
        match self {
            Self::One(path) => Some(path.clone()),
            Self::Numbered { directory, before, after } => Some(directory.join(format!("{before}{port}{after}"))),
            Self::Unlisted => None,
        }
    }

    /// Returns the port in the name of each socket and its path, in the order of the ports.
    fn list(&self) -> Vec<(u16, PathBuf)> {
        match self {
            Self::One(path) => vec![(0, path.clone())],
            Self::Numbered { directory, before, after } => {
                let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
                let port_of = |name: &Path| -> Option<u16> {
                    name.to_str()?.strip_prefix(before.as_str())?.strip_suffix(after.as_str())?.parse().ok()
                };
                let mut found: Vec<(u16, PathBuf)> = entries
                    .filter_map(|entry| {
                        let name = entry.ok()?.file_name();
                        Some((port_of(Path::new(&name))?, directory.join(name)))
                    })
                    .collect();
                found.sort();
                found
            }
            Self::Unlisted => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use hearth_testkit::StoppedClock;
    use hearth_types::Block;

    use super::*;
    use crate::short_circuit::tests::{Behaviour, Fake};

    const BLOCK_BYTES: usize = 100_000;

    /// Hearth's DataNode with the blocks 1 and 2.
    fn two_blocks() -> Behaviour {
        Behaviour::of(true, HashMap::from([1, 2].map(|id| (id, vec![id as u8; BLOCK_BYTES]))))
    }

    fn blocks_of(fake: &Fake) -> LocalBlocks {
        LocalBlocks::new(&Configuration::empty().with("dfs.domain.socket.path", fake.socket_pattern())).unwrap()
    }

    /// Runs `work` while time passes. Returns its outcome and the time that it took.
    async fn timed<T>(clock: &StoppedClock, work: impl Future<Output = T>) -> (T, Duration) {
        let start = Instant::now();
        let outcome = clock.during(Duration::from_millis(100), work).await;
        (outcome, start.elapsed())
    }

    async fn opens(blocks: &LocalBlocks, id: i64) -> bool {
        let block = Block { id: BlockId(id), stamp: GenerationStamp(1001), length: BLOCK_BYTES as u64 };
        let block = ExtendedBlock { pool: BlockPoolId::new("BP-1"), block };
        blocks.open(&block, &Token::default()).await.is_some()
    }

    /// Less than any time-out.
    const AT_ONCE: Duration = Duration::from_millis(900);

    #[tokio::test]
    async fn silent_datanode_delays_the_first_caller_only() {
        let fake = Fake::start(two_blocks());
        // Connections to it are made, and no request is answered.
        let _silent = UnixListener::bind(fake.socket_pattern().replace("_PORT", "50011")).unwrap();
        let blocks = blocks_of(&fake);
        let clock = StoppedClock::new();
        let (opened, took) = timed(&clock, opens(&blocks, 1)).await;
        assert!(opened && took >= PROBE_TIMEOUT && took < 3 * PROBE_TIMEOUT, "{took:?}");
        // The sockets are listed again, and the silent DataNode is asked again: in the background.
        *blocks.shared.listed.lock() = None;
        blocks.shared.silent.lock().clear();
        let (opened, took) = timed(&clock, opens(&blocks, 2)).await;
        assert!(opened && took < AT_ONCE, "{took:?}");
        clock.pass(2 * PROBE_TIMEOUT).await;
        assert_eq!(blocks.shared.silent.lock().len(), 1);
        // It is left alone for a while, so nothing waits for it.
        *blocks.shared.listed.lock() = None;
        let (found, took) = timed(&clock, blocks.datanodes()).await;
        assert!(found == 1 && took < AT_ONCE, "{found} in {took:?}");
    }

    #[tokio::test]
    async fn silent_datanode_is_asked_again_after_growing_pauses() {
        let fake = Fake::start(two_blocks());
        let path = fake.socket_pattern().replace("_PORT", "50011");
        let _silent = UnixListener::bind(&path).unwrap();
        let blocks = blocks_of(&fake);
        let clock = StoppedClock::new();
        for expected in [5, 10, 20, 40, 60, 60].map(Duration::from_secs) {
            let (found, took) = timed(&clock, blocks.datanodes()).await;
            assert!(found == 1 && took >= PROBE_TIMEOUT, "{found} in {took:?}");
            let backoff = blocks.shared.silent.lock()[Path::new(&path)].backoff;
            assert_eq!(backoff, expected);
            clock.pass(backoff - Duration::from_secs(1)).await;
            let (_, took) = timed(&clock, blocks.datanodes()).await;
            assert!(took < AT_ONCE, "asked {took:?} before the end of {backoff:?}");
            clock.pass(Duration::from_secs(1)).await;
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(blocks.datanodes().await, 1);
        assert!(blocks.shared.silent.lock().is_empty());
    }

    #[tokio::test]
    async fn datanode_that_stops_answering_is_left_alone() {
        let fake = Fake::start(two_blocks().hang());
        let blocks = blocks_of(&fake);
        let clock = StoppedClock::new();
        let (opened, took) = timed(&clock, opens(&blocks, 1)).await;
        assert!(!opened && took < 2 * OPEN_TIMEOUT, "{took:?}");
        let (opened, took) = timed(&clock, opens(&blocks, 2)).await;
        assert!(!opened && took < AT_ONCE, "{took:?}");
        assert_eq!(blocks.datanodes().await, 0);
    }

    #[test]
    fn sockets_are_listed_by_their_port() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["dn50010", "dn9866.sock", "dn9867.sock", "dn.sock", "dn99999.sock", "x9866.sock"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let list = |pattern: &str| {
            let pattern = directory.path().join(pattern).to_str().unwrap().to_owned();
            let found = SocketPattern::new(pattern).list();
            assert!(found.iter().all(|(_, path)| path.starts_with(directory.path())));
            found.into_iter().map(|(port, _)| port).collect::<Vec<_>>()
        };
        assert_eq!(list("dn_PORT"), [50010]);
        assert_eq!(list("dn_PORT.sock"), [9866, 9867]);
        assert_eq!(list("dn50010"), [0]);
        assert!(list("none_PORT").is_empty() && list("a_PORT/b").is_empty() && list("_PORT_PORT").is_empty());
    }

    #[test]
    fn socket_path_is_required() {
        for configuration in [Configuration::empty(), Configuration::empty().with("dfs.domain.socket.path", "")] {
            let error = LocalBlocks::new(&configuration).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
            assert!(error.to_string().contains("dfs.domain.socket.path"), "{error}");
        }
    }
}
