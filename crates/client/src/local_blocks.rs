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

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hearth_config::{Configuration, keys};
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
use crate::short_circuit::{LocalReplica, ShortCircuit};
use crate::{DatanodeError, Error, ErrorKind, backoff};

/// Interval at which the sockets are listed again: with DataNodes found, and without.
const LIST_INTERVAL: Duration = Duration::from_secs(60);
const LIST_INTERVAL_WITHOUT: Duration = Duration::from_secs(5);

/// Time-out of one DataNode's answer when the sockets are listed.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// Time of the last listing. Locked while the sockets are listed.
    listed: tokio::sync::Mutex<Option<Instant>>,
    /// Number of times that each short block was opened.
    opens: Mutex<HashMap<(BlockPoolId, BlockId, GenerationStamp), u8>>,
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
            listed: tokio::sync::Mutex::default(),
            opens: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the number of Hearth's DataNodes that answer on this machine. Needs a tokio runtime. The number is at most
    /// a minute old.
    pub async fn datanodes(&self) -> usize {
        self.list_datanodes().await.len()
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
        for datanode in self.list_datanodes().await {
            if self.shared.short_circuit.failed_lately(&located, &datanode) != Ok(false) {
                continue;
            }
            match self.open_at(&located, &datanode, inline).await {
                Ok(contents) => return Some(self.opened(block, &datanode, contents)),
                Err(error) => {
                    tracing::debug!(%block, %datanode, error = &error as &dyn std::error::Error, "no replica here")
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

    async fn list_datanodes(&self) -> Vec<Arc<DatanodeId>> {
        let mut listed = self.shared.listed.lock().await;
        let known = self.shared.datanodes.read().clone();
        let interval = if known.is_empty() { LIST_INTERVAL_WITHOUT } else { LIST_INTERVAL };
        if listed.is_some_and(|at| at.elapsed() < interval) {
            return known;
        }
        let mut found = Vec::new();
        for (port, path) in self.shared.sockets.list().into_iter().take(DATANODES_MAX) {
            if let Some(uuid) = self.shared.short_circuit.hearth_datanode_at(path, LIST_TIMEOUT).await {
                found.push(Arc::new(DatanodeId {
                    ip: "127.0.0.1".to_owned(),
                    host_name: "localhost".to_owned(),
                    uuid,
                    transfer_port: port,
                    info_port: 0,
                    ipc_port: 0,
                    info_secure_port: 0,
                }));
            }
        }
        *self.shared.datanodes.write() = found.clone();
        *listed = Some(Instant::now());
        found
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
                into.copy_from_slice(&fetched.data()[offset as usize..][..into.len()]);
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
    into.copy_from_slice(&from.data[offset..offset + into.len()]);
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
    use super::*;

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
