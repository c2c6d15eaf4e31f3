//! One-sided reads of replicas in the memory of remote datanodes, without running the datanode's code.
//!
//! The datanode's offer ([`Datanodes::offer`]) contains the address on which it listens. The addresses of a
//! replica's bytes come with the block's locations ([`piggybacked`]); otherwise the datanode is asked. Either is a
//! lease. From then on a read is a batch of READs: data, CRCs, and the record that identifies the replica in that
//! memory. Connections, registered buffers, leases and CRCs are cached.
//!
//! ```text
//! OneSided     one for a file system and its clones
//!  ├ PeerState   one for each datanode: the connection ([`read_connection`])
//!  ├ leases      of replicas, by block and datanode ([`advertised_replica`])
//!  ├ PiggybackedAdvertisements  advertisements from the namenode, for replicas not read yet
//!  ├ BufferPool     registered memory
//!  └ CrcTables      cached tables of CRCs
//! ```

mod advertised_replica;
mod buffer_pool;
mod crc_tables;
mod piggybacked;
mod read_connection;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hearth_fabric::one_sided::{Access, Connection, Domain, Error, Limits, Region, Transport};
use hearth_protocol::one_sided_write::{WriteBuffers, WriterConnectionPool};
use hearth_types::{ChecksumError, ChecksumSpec, DatanodeId, DatanodeUuid, LocatedBlock};
use hearth_wire::data_transfer::Status;
use hearth_wire::offer::Offer;
use hearth_wire::rdma_control::{
    Located, PURPOSE_READING, PURPOSE_WRITING, SmallBytes, SmallReplica, VERSION, decode_acceptance,
};
use parking_lot::Mutex;

use crate::datanode::Datanodes;
use crate::options::{OneSidedOptions, PacketOptions};
use crate::single_flight::SingleFlight;
use crate::statistics::AdvertisementCounts;
use crate::{DataPath, DatanodeError};
pub(crate) use advertised_replica::{AdvertisedReplica, CompletedRead, PostedRead, ReadError};
use advertised_replica::{AdvertisementSource, Key, ReceivedAdvertisement};
use buffer_pool::BufferPool;
use crc_tables::{CrcTables, TABLES_BYTES_MAX};
use piggybacked::PiggybackedAdvertisements;
use read_connection::ReadConnection;

/// Time for which a datanode that could not be reached one-sidedly is not tried while there is another path.
const FAILURE_BACKOFF: Duration = Duration::from_secs(30);

/// Time for which a refusal of one-sided reads of a replica is remembered.
const REFUSAL_BACKOFF: Duration = Duration::from_secs(5);

/// Maximum numbers of datanodes, leases and refusals remembered.
const PEERS_MAX: usize = 4096;
const LEASES_MAX: usize = 16384;
const REFUSALS_MAX: usize = 4096;

/// Room for the largest small replica with its CRCs.
const SMALL_BYTES_MAX: u64 = 80 << 10;

/// Room at a datanode for the CRCs of the slices that a writer has in flight.
const WRITER_CHECKSUM_BYTES: u64 = 256 << 10;

/// Maximum size of a packet: it must not exceed the first grant of a datanode.
const WRITER_PACKET_BYTES_MAX: u64 = 1 << 20;

/// Reason why a datanode cannot be read from, as text for messages.
const NOT_LISTENING: &str = "the datanode does not listen for one-sided reads";

/// The replica was truncated, or is older than the one that the namenode knows.
const OTHER_REPLICA: &str = "the datanode advertises a different replica";

/// Resources that a writer needs for a block.
type WriterParts = (Arc<dyn Connection>, Arc<WriterConnectionPool>, Arc<WriteBuffers>);

/// Limits of this side of a connection.
const CONNECTION_LIMITS: Limits = Limits { reads_in_flight: 16, operations: 128, messages: 32 };

/// State of the one-sided reads of a file system.
#[derive(Debug)]
pub(crate) struct OneSided {
    options: OneSidedOptions,
    /// Packets of writers.
    packets: PacketOptions,
    datanodes: Arc<Datanodes>,
    /// `None` if this machine has no such network.
    rdma: Option<RdmaContext>,
    peers: Mutex<HashMap<DatanodeUuid, Arc<PeerState>>>,
    leases: Mutex<HashMap<Key, Arc<AdvertisedReplica>>>,
    refusals: Mutex<HashMap<Key, Instant>>,
    piggybacked: PiggybackedAdvertisements,
    /// Number of requests to datanodes for the location of a replica.
    asked: AtomicU64,
}

/// RDMA context: the transport, and this client's memory in it.
#[derive(Debug)]
struct RdmaContext {
    transport: Arc<dyn Transport>,
    domain: Arc<dyn Domain>,
    buffers: Arc<BufferPool>,
    tables: Arc<CrcTables>,
    /// Memory that datanodes may write small replicas to.
    small: Mutex<Vec<Arc<dyn Region>>>,
    /// Created for the first writer.
    write_buffers: OnceLock<Arc<WriteBuffers>>,
    writers: Arc<WriterConnectionPool>,
}

/// State of a datanode.
#[derive(Debug, Default)]
struct PeerState {
    read_connection: Mutex<Option<Arc<ReadConnection>>>,
    /// Single-flight for opening the connection.
    connecting: SingleFlight,
    failed: Mutex<Option<Instant>>,
}

impl PeerState {
    /// Returns the connection, if there is one. Drops one that has ended.
    fn open_connection(&self) -> Option<Arc<ReadConnection>> {
        let mut read_connection = self.read_connection.lock();
        read_connection.take_if(|read_connection| !read_connection.is_open());
        read_connection.clone()
    }

    /// Drops the connection `ended`. A request may see its end before the connection itself is marked as closed.
    fn discard_connection(&self, ended: &Arc<ReadConnection>) {
        self.read_connection.lock().take_if(|read_connection| Arc::ptr_eq(read_connection, ended));
    }

    fn failed_lately(&self) -> bool {
        self.failed.lock().is_some_and(|failed| failed.elapsed() < FAILURE_BACKOFF)
    }

    fn note_failure(&self) {
        *self.failed.lock() = Some(Instant::now());
    }

    fn note_success(&self) {
        *self.failed.lock() = None;
    }
}

/// A replica, ready to be read.
#[derive(Debug)]
pub(crate) enum OpenRemoteReplica {
    Advertised(Arc<AdvertisedReplica>),
    /// All bytes of the replica.
    Small(SmallCopy),
}

/// Bytes of a small replica, not verified.
#[derive(Debug)]
pub(crate) struct SmallCopy {
    pub(crate) data: Vec<u8>,
    checksums: Vec<u8>,
    checksum: ChecksumSpec,
}

impl SmallCopy {
    pub(crate) fn verify(&self) -> Result<(), ChecksumError> {
        self.checksum.verify(&self.data, &self.checksums)
    }
}

impl OneSided {
    pub(crate) fn new(options: OneSidedOptions, packets: PacketOptions, datanodes: Arc<Datanodes>) -> Self {
        let rdma = options.transport.clone().and_then(|transport| match transport.domain() {
            Ok(domain) => {
                let buffers = Arc::new(BufferPool::new(domain.clone(), options.idle_buffer_bytes_max));
                Some(RdmaContext {
                    transport,
                    domain,
                    buffers,
                    tables: CrcTables::new(TABLES_BYTES_MAX),
                    small: Mutex::new(Vec::new()),
                    write_buffers: OnceLock::new(),
                    writers: Arc::default(),
                })
            }
            Err(error) => {
                tracing::debug!(%error, "one-sided reads and writes disabled");
                None
            }
        });
        Self {
            options,
            packets,
            datanodes,
            rdma,
            peers: Mutex::default(),
            leases: Mutex::default(),
            refusals: Mutex::default(),
            piggybacked: PiggybackedAdvertisements::default(),
            asked: AtomicU64::new(0),
        }
    }

    /// Returns true if this path to the replica recently failed. Does not wait.
    ///
    /// Errors: the reason why it cannot be used, as text.
    pub(crate) fn failed_lately(&self, block: &LocatedBlock, datanode: &DatanodeId) -> Result<bool, &'static str> {
        let Some(rdma) = &self.rdma else {
            return Err("this machine has no one-sided network, or hearth.one-sided.transport disables it");
        };
        if let Some(offer) = self.datanodes.offers.known(&datanode.uuid)
            && !offer.is_some_and(|offer| rdma.can_reach(&offer))
        {
            return Err(NOT_LISTENING);
        }
        if self.peers.lock().get(&datanode.uuid).is_some_and(|peer| peer.failed_lately()) {
            return Ok(true);
        }
        let refused = self.refusals.lock().get(&Key::new(block, datanode)).copied();
        if refused.is_some_and(|refused| refused.elapsed() < REFUSAL_BACKOFF) {
            return Err("the datanode recently refused one-sided reads of the replica");
        }
        Ok(false)
    }

    /// Looks up the replica of `block` on `datanode`, or returns a cached lease.
    pub(crate) async fn open(
        &self,
        block: &LocatedBlock,
        datanode: &DatanodeId,
    ) -> Result<OpenRemoteReplica, DatanodeError> {
        let key = Key::new(block, datanode);
        if let Some(replica) = self.leases.lock().get(&key)
            && replica.is_usable()
        {
            return Ok(OpenRemoteReplica::Advertised(replica.clone()));
        }
        let Some(rdma) = &self.rdma else { return Err(not_shown(block, "this machine has no one-sided network")) };
        let peer = self.peer_state(&datanode.uuid);
        if let Some(replica) = self.open_piggybacked(rdma, &peer, block, datanode).await? {
            return Ok(OpenRemoteReplica::Advertised(replica));
        }
        let located = self.locate(rdma, &peer, block, datanode).await;
        match located {
            Ok((Located::Shown { advertisement, .. }, asked, read_connection, _)) => {
                peer.note_success();
                let received = ReceivedAdvertisement { advertisement, asked, source: AdvertisementSource::Datanode };
                let kept = self.add_lease(rdma, key, read_connection, received, block);
                kept.map(OpenRemoteReplica::Advertised).map_err(|why| self.note_refusal(block, datanode, why))
            }
            Ok((Located::Small { replica, .. }, _, _, into)) => {
                peer.note_success();
                let copied = small_copy(rdma, block, replica, into);
                copied.map(OpenRemoteReplica::Small).map_err(|why| self.note_refusal(block, datanode, why))
            }
            Ok((Located::Refused { refusal, .. }, ..)) => {
                if refusal.status == Status::ErrorAccessToken {
                    return Err(DatanodeError::AccessToken { block: Box::new(block.block.clone()) });
                }
                Err(self.note_refusal(block, datanode, &refusal.message))
            }
            Err(error) => {
                if !matches!(error, DatanodeError::NotAdvertised { .. }) {
                    peer.note_failure();
                }
                Err(error)
            }
        }
    }

    /// Stores the advertisements of a block's replicas from a response of the namenode. `asked`: time of the request.
    pub(crate) fn note(&self, block: &LocatedBlock, asked: Instant) {
        if self.rdma.is_some() {
            self.piggybacked.note(block, asked);
        }
    }

    pub(crate) fn counts(&self) -> AdvertisementCounts {
        let (piggybacked, refused) = self.piggybacked.counts();
        AdvertisementCounts { asked: self.asked.load(Ordering::Relaxed), piggybacked, refused }
    }

    /// Opens the replica with the namenode's advertisement, if there is one and it is still valid. Otherwise returns
    /// `None`, and the datanode must be asked.
    async fn open_piggybacked(
        &self,
        rdma: &RdmaContext,
        peer: &PeerState,
        block: &LocatedBlock,
        datanode: &DatanodeId,
    ) -> Result<Option<Arc<AdvertisedReplica>>, DatanodeError> {
        let key = Key::new(block, datanode);
        if !self.piggybacked.has(&key) {
            return Ok(None);
        }
        let (read_connection, _) = match self.read_connection(rdma, peer, block, datanode).await {
            Ok(read_connection) => read_connection,
            Err(error) => {
                if !matches!(error, DatanodeError::NotAdvertised { .. }) {
                    peer.note_failure();
                }
                return Err(error);
            }
        };
        // Another task may have opened it in the meantime.
        if let Some(replica) = self.leases.lock().get(&key)
            && replica.is_usable()
        {
            return Ok(Some(replica.clone()));
        }
        let Some((advertisement, asked)) = self.piggybacked.take(&key, read_connection.incarnation(), Instant::now())
        else {
            return Ok(None);
        };
        peer.note_success();
        let received = ReceivedAdvertisement { advertisement, asked, source: AdvertisementSource::Namenode };
        match self.add_lease(rdma, key.clone(), read_connection, received, block) {
            Ok(replica) if replica.is_usable() => {
                self.piggybacked.note_used();
                Ok(Some(replica))
            }
            _ => {
                self.leases.lock().remove(&key);
                self.piggybacked.note_refused();
                Ok(None)
            }
        }
    }

    /// Returns true if this machine has such a network.
    pub(crate) fn is_possible(&self) -> bool {
        self.rdma.is_some()
    }

    /// Returns a connection for writing a block at `datanode`, with the resources for it. Returns `None` if there is no
    /// such path, or if it recently failed.
    pub(crate) async fn writer(&self, datanode: &DatanodeId) -> Option<WriterParts> {
        let rdma = self.rdma.as_ref()?;
        let (data_bytes, packets) = (self.packets.data_bytes as u64, self.packets.in_flight as u64);
        let checksum_bytes = self.packets.checksum.checksum_bytes(data_bytes);
        // The datanode has room for a limited number of slices.
        if checksum_bytes * (packets + 4) > WRITER_CHECKSUM_BYTES || data_bytes > WRITER_PACKET_BYTES_MAX {
            return None;
        }
        let make = || WriteBuffers::new(rdma.domain.clone(), data_bytes, checksum_bytes, packets as usize * 2);
        let buffers = rdma.write_buffers.get_or_init(make).clone();
        let writers = rdma.writers.clone();
        if let Some(connection) = writers.take(datanode) {
            return Some((connection, writers, buffers));
        }
        let peer = self.peer_state(&datanode.uuid);
        if peer.failed_lately() {
            return None;
        }
        match self.connect(rdma, datanode, PURPOSE_WRITING).await {
            Ok(connection) => Some((connection?.0, writers, buffers)),
            Err(error) => {
                if self.datanodes.warning_limit.is_due(&datanode.uuid, DataPath::OneSided, Instant::now()) {
                    tracing::warn!(%datanode, %error, "cannot write one-sided, trying another path");
                }
                peer.note_failure();
                None
            }
        }
    }

    /// Drops the lease.
    pub(crate) fn forget(&self, block: &LocatedBlock, datanode: &DatanodeId, replica: &Arc<AdvertisedReplica>) {
        let key = Key::new(block, datanode);
        // The namenode's advertisement is no newer.
        self.piggybacked.forget(&key);
        let mut leases = self.leases.lock();
        if leases.get(&key).is_some_and(|kept| Arc::ptr_eq(kept, replica)) {
            leases.remove(&key);
        }
    }

    /// Asks the datanode for the location of the replica. Retries over a new connection if the existing one has just
    /// ended.
    async fn locate(
        &self,
        rdma: &RdmaContext,
        peer: &PeerState,
        block: &LocatedBlock,
        datanode: &DatanodeId,
    ) -> Result<(Located, Instant, Arc<ReadConnection>, Option<Arc<dyn Region>>), DatanodeError> {
        let mut again = true;
        loop {
            let (read_connection, fresh) = self.read_connection(rdma, peer, block, datanode).await?;
            // Memory is lent only for replicas that fit. Most replicas are larger, and most others fit into the answer.
            let lend = block.block.length() <= SMALL_BYTES_MAX && read_connection.may_grant_memory();
            let into = if lend { Some(rdma.small_memory()?) } else { None };
            let asked = Instant::now();
            self.asked.fetch_add(1, Ordering::Relaxed);
            match read_connection.locate(&block.block, &block.token, into, self.options.timeout).await {
                Ok((located, into)) => return Ok((located, asked, read_connection, into)),
                Err(Error::Closed { .. }) if again && !fresh => {
                    peer.discard_connection(&read_connection);
                    again = false;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the connection to a datanode, and whether it was opened just now.
    async fn read_connection(
        &self,
        rdma: &RdmaContext,
        peer: &PeerState,
        block: &LocatedBlock,
        datanode: &DatanodeId,
    ) -> Result<(Arc<ReadConnection>, bool), DatanodeError> {
        let find = || Some((peer.open_connection()?, false));
        if let Some(found) = find() {
            return Ok(found);
        }
        let make = async {
            let Some((connection, incarnation)) = self.connect(rdma, datanode, PURPOSE_READING).await? else {
                return Err(self.note_refusal(block, datanode, NOT_LISTENING));
            };
            let read_connection = Arc::new(ReadConnection::new(connection, incarnation));
            *peer.read_connection.lock() = Some(read_connection.clone());
            Ok((read_connection, true))
        };
        peer.connecting.get_or_try_init(find, make).await
    }

    /// Opens a new connection, and returns it with the incarnation of the datanode. Returns `None` if the datanode does
    /// not listen in this client's network.
    ///
    /// Errors: also if the datanode does not listen at the offered address and gives no newer one.
    async fn connect(
        &self,
        rdma: &RdmaContext,
        datanode: &DatanodeId,
        purpose: u8,
    ) -> Result<Option<(Arc<dyn Connection>, u64)>, DatanodeError> {
        let mut again = true;
        loop {
            let offer = self.datanodes.offer(datanode).await?;
            let Some(offer) = offer.filter(|offer| rdma.can_reach(offer)) else { return Ok(None) };
            let Some(address) = self.address_in(&offer, datanode).await? else { return Ok(None) };
            let (private, timeout) = ([purpose, VERSION], self.options.timeout);
            let connected = rdma.transport.connect(&rdma.domain, address, &private, CONNECTION_LIMITS, timeout).await;
            let error: DatanodeError = match connected {
                Ok(connection) if decode_acceptance(connection.private()) == Some(offer.incarnation) => {
                    return Ok(Some((connection, offer.incarnation)));
                }
                Ok(connection) => {
                    connection.close().await;
                    DatanodeError::OtherIncarnation { peer: address }
                }
                Err(error) => error.into(),
            };
            // The datanode may have restarted on another port.
            self.datanodes.offers.note_stale(&datanode.uuid, &offer);
            // A datanode that timed out here will most likely not answer DESCRIBE either, and that wait may be longer.
            let silent = matches!(error, DatanodeError::OneSided(Error::TimedOut { .. }));
            if silent || !std::mem::take(&mut again) {
                return Err(error);
            }
            tracing::debug!(%datanode, %error, "asking the datanode for its address, then retrying");
        }
    }

    /// Returns the address on which the datanode of `offer` listens, as this client reaches it.
    async fn address_in(&self, offer: &Offer, datanode: &DatanodeId) -> Result<Option<SocketAddr>, DatanodeError> {
        let own = self.datanodes.address(datanode, datanode.transfer_port).await?.ip();
        Ok(offer.listener(own))
    }

    fn peer_state(&self, datanode: &DatanodeUuid) -> Arc<PeerState> {
        let mut peers = self.peers.lock();
        if peers.len() >= PEERS_MAX && !peers.contains_key(datanode) {
            // Tasks that use an entry keep their reference to it.
            peers.clear();
        }
        peers.entry(datanode.clone()).or_default().clone()
    }

    /// Creates a lease from an advertisement. Errors: the reason why it is not the requested replica, as text.
    fn add_lease(
        &self,
        rdma: &RdmaContext,
        key: Key,
        read_connection: Arc<ReadConnection>,
        received: ReceivedAdvertisement,
        block: &LocatedBlock,
    ) -> Result<Arc<AdvertisedReplica>, &'static str> {
        let shown = &received.advertisement.block;
        let other = shown.pool != block.block.pool || shown.id() != block.block.id();
        if other || shown.stamp() < block.block.stamp() || shown.length() < block.block.length() {
            return Err(OTHER_REPLICA);
        }
        let buffers = rdma.buffers.clone();
        let mut leases = self.leases.lock();
        let table = leases.get(&key).and_then(|earlier| earlier.table_of(&received.advertisement));
        let table = table.unwrap_or_else(|| rdma.tables.new_table());
        let replica = Arc::new(AdvertisedReplica::new(read_connection, buffers, table, received, self.options.timeout));
        if leases.len() >= LEASES_MAX {
            leases.retain(|_, kept| kept.is_usable());
            if leases.len() >= LEASES_MAX {
                leases.clear();
            }
        }
        leases.insert(key, replica.clone());
        Ok(replica)
    }

    /// Excludes the replica from this path for a while.
    pub(crate) fn note_refusal(&self, block: &LocatedBlock, datanode: &DatanodeId, why: &str) -> DatanodeError {
        let key = Key::new(block, datanode);
        let mut refusals = self.refusals.lock();
        if refusals.len() >= REFUSALS_MAX {
            refusals.retain(|_, since| since.elapsed() < REFUSAL_BACKOFF);
        }
        if refusals.len() < REFUSALS_MAX {
            refusals.insert(key, Instant::now());
        }
        not_shown(block, why)
    }
}

impl RdmaContext {
    /// Returns true if the datanode of `offer` listens in this network.
    fn can_reach(&self, offer: &Offer) -> bool {
        let same = offer.transport.as_ref().is_none_or(|name| name == self.transport.name());
        same && !offer.one_sided.is_empty()
    }

    /// Returns memory to which no datanode may write any more.
    fn small_memory(&self) -> Result<Arc<dyn Region>, Error> {
        if let Some(kept) = self.small.lock().pop() {
            return Ok(kept);
        }
        let failed = |source| Error::Register { bytes: SMALL_BYTES_MAX, source };
        let memory = Arc::new(hearth_fabric::Memory::fresh(SMALL_BYTES_MAX).map_err(failed)?);
        self.domain.register(&memory, 0..SMALL_BYTES_MAX, Access::RemoteWrite)
    }
}

/// Maximum number of idle regions for small replicas.
const SMALL_REGIONS_MAX: usize = 16;

/// Takes a small replica out of the answer, or out of the memory that it was written to.
///
/// Errors: the reason why it is not the requested replica, as text.
fn small_copy(
    rdma: &RdmaContext,
    block: &LocatedBlock,
    replica: SmallReplica,
    into: Option<Arc<dyn Region>>,
) -> Result<SmallCopy, &'static str> {
    let SmallReplica { block: found, checksum, bytes } = replica;
    if found.id() != block.block.id() || found.length() < block.block.length() {
        return Err(OTHER_REPLICA);
    }
    let copy = match bytes {
        SmallBytes::Inline { data, checksums } => {
            SmallCopy { data: data.to_vec(), checksums: checksums.to_vec(), checksum }
        }
        SmallBytes::Written => {
            const TOO_LONG: &str = "the replica is longer than the memory lent for it";
            let length = found.length();
            // Checked first: for an invalid length the number of CRC bytes cannot be computed.
            let written = into.as_ref().filter(|into| length <= into.memory().length()).ok_or(TOO_LONG)?;
            let crc_bytes = checksum.checksum_bytes(length);
            if length + crc_bytes > written.memory().length() {
                return Err(TOO_LONG);
            }
            let (mut data, mut checksums) = (vec![0; length as usize], vec![0; crc_bytes as usize]);
            written.memory().read(0, &mut data);
            written.memory().read(length, &mut checksums);
            SmallCopy { data, checksums, checksum }
        }
    };
    // The answer has arrived, so the datanode writes there no more.
    if let Some(into) = into {
        let mut kept = rdma.small.lock();
        if kept.len() < SMALL_REGIONS_MAX {
            kept.push(into);
        }
    }
    Ok(copy)
}

fn not_shown(block: &LocatedBlock, why: &str) -> DatanodeError {
    DatanodeError::NotAdvertised { block: Box::new(block.block.clone()), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hearth_fabric::sim::Sim;
    use hearth_types::{Block, BlockId, BlockPoolId, ExtendedBlock, GenerationStamp};

    use super::*;

    fn rdma() -> RdmaContext {
        let transport: Arc<dyn Transport> = Arc::new(Sim::new());
        let domain = transport.domain().unwrap();
        RdmaContext {
            buffers: Arc::new(BufferPool::new(domain.clone(), 0)),
            transport,
            domain,
            tables: CrcTables::new(0),
            small: Mutex::default(),
            write_buffers: OnceLock::new(),
            writers: Arc::default(),
        }
    }

    fn extended(length: u64) -> ExtendedBlock {
        let block = Block { id: BlockId(1), stamp: GenerationStamp(1), length };
        ExtendedBlock { pool: BlockPoolId::new("BP-1"), block }
    }

    #[test]
    fn small_replica_must_fit_lent_memory() {
        let rdma = rdma();
        let copy = |length, bytes, into| {
            let replica = SmallReplica { block: extended(length), checksum: ChecksumSpec::DEFAULT, bytes };
            small_copy(&rdma, &LocatedBlock::nowhere(extended(1000)), replica, into)
        };
        let written = |length| copy(length, SmallBytes::Written, Some(rdma.small_memory().unwrap()));
        let (data, mut checksums) = (vec![7; 1000], Vec::new());
        ChecksumSpec::DEFAULT.compute(&data, &mut checksums);
        let into = rdma.small_memory().unwrap();
        into.memory().write(0, &data);
        into.memory().write(1000, &checksums);
        let taken = copy(1000, SmallBytes::Written, Some(into)).unwrap();
        assert!(taken.data == data && taken.verify().is_ok());
        // The greatest length with room for its CRCs, and invalid lengths.
        let most = SMALL_BYTES_MAX / 516 * 512;
        assert_eq!(written(most).unwrap().data.len() as u64, most);
        for length in [most + 512, SMALL_BYTES_MAX, SMALL_BYTES_MAX + 1, 1 << 62, u64::MAX - 1, u64::MAX] {
            written(length).unwrap_err();
        }
        copy(1000, SmallBytes::Written, None).unwrap_err();
        assert_eq!(copy(999, SmallBytes::Written, None).unwrap_err(), OTHER_REPLICA);
        let (data, checksums) = (Bytes::from(data), Bytes::from(checksums));
        assert!(copy(1000, SmallBytes::Inline { data, checksums }, None).unwrap().verify().is_ok());
    }
}
