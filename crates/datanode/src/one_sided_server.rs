//! Listener for one-sided connections, and the messages on them.
//!
//! The first private byte of a client states the purpose of its connection. A reader gets a connection in the one
//! domain in which replicas are shown; it sends requests for the locations of replicas.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use hearth_fabric::one_sided::{
    Access, Connection, Domain, Error, Incoming, Limits, Listener, Region, Transfer, Transport,
};
use hearth_fabric::{ConnectionLimit, ConnectionLimitOptions, ConnectionPermit, Memory, Party};
use hearth_protocol::block_token::AccessMode;
use hearth_types::RemoteSlice;
use hearth_wire::data_transfer::Status;
use hearth_wire::rdma_control::{
    ControlMessage, Locate, Located, MESSAGE_BYTES_MAX, PURPOSE_READING, PURPOSE_WRITING, Refusal, SmallBytes,
    SmallReplica, VERSION, encode_acceptance,
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::advertise::{AdvertiseError, Advertiser, Bounds, LocateOutcome, small_bytes};
use crate::datanode::Datanode;
use crate::forward::OneSidedForwarding;
use crate::ops::{OpError, check_token, write_one_sided};
use crate::options::OneSidedOptions;

/// Readers send little on a connection: a few requests at a time.
const READER_LIMITS: Limits = Limits { reads_in_flight: 16, operations: 64, messages: 16 };

/// A writer has a window of slices in flight.
const WRITER_LIMITS: Limits = Limits { reads_in_flight: 1, operations: 64, messages: 64 };

/// Timeout for steps of a connection that need the peer.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time without messages after which a connection is closed, because the peer's machine may be gone. A reader with keys
/// sends at least one message per lease.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Small replicas that are written to clients concurrently.
const SMALL_WRITES_MAX: usize = 16;

/// Buffer size for a small replica with its CRCs.
const SMALL_BYTES_MAX: u64 = 80 << 10;

/// Linux's default limit of mappings per process (`DEFAULT_MAX_MAP_COUNT`).
const DEFAULT_MAP_COUNT: u64 = 65_530;

/// Server for one-sided access.
pub struct OneSidedServer {
    pub advertiser: Arc<Advertiser>,
    pub forwarding: Arc<OneSidedForwarding>,
    transport: Arc<dyn Transport>,
    address: SocketAddr,
    connection_limit: Arc<ConnectionLimit>,
    /// Registered memory from which small replicas are written.
    small_buffers: Mutex<Vec<Arc<dyn Region>>>,
    small_write_permits: Semaphore,
    /// Domains of writers' connections, one each.
    writer_domains: Mutex<Vec<Weak<dyn Domain>>>,
}

impl OneSidedServer {
    /// Starts to listen. `descriptors`: the process's limit of descriptors. `None` if one-sided access is not
    /// configured or the machine has no such network: the other paths remain.
    pub async fn start(
        options: &OneSidedOptions,
        store: &Arc<hearth_blockstore::Blockstore>,
        incarnation: u64,
        descriptors: usize,
    ) -> Result<Option<(Arc<Self>, Box<dyn Listener>)>, Error> {
        let Some(transport) = &options.transport else { return Ok(None) };
        let domain = match transport.domain() {
            Ok(domain) => domain,
            Err(error @ Error::Unavailable { .. }) => {
                tracing::info!(%error, "one-sided reads and writes are disabled");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let listener = match transport.listen(options.address).await {
            Ok(listener) => listener,
            // The port was not chosen explicitly: the other paths remain.
            Err(error) if options.address.port() == 0 => {
                tracing::warn!(%error, "one-sided reads and writes are disabled");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let bounds = Bounds { bytes: options.registered_bytes_max, replicas: replicas_max(descriptors) };
        let this = Self {
            forwarding: OneSidedForwarding::new(transport)?,
            advertiser: Advertiser::new(store, domain, incarnation, options.lease, bounds),
            transport: transport.clone(),
            address: listener.address(),
            // An active reader is silent for at most one lease.
            connection_limit: ConnectionLimit::new(ConnectionLimitOptions {
                idle_min: 2 * options.lease,
                ..ConnectionLimitOptions::new(options.connections_max)
            }),
            small_buffers: Mutex::new(Vec::new()),
            small_write_permits: Semaphore::new(SMALL_WRITES_MAX),
            writer_domains: Mutex::new(Vec::new()),
        };
        Ok(Some((Arc::new(this), listener)))
    }

    /// Returns the name of the network in which it listens.
    pub fn transport_name(&self) -> &'static str {
        self.transport.name()
    }

    /// Returns the address for clients; an unspecified address means any address of this machine.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the bytes that are registered for writers' connections and for forwarding to the next DataNode.
    pub fn writer_registered_bytes(&self) -> u64 {
        let writing = self.writer_domains.lock();
        let others: u64 = writing.iter().filter_map(Weak::upgrade).map(|domain| domain.registered_bytes()).sum();
        others + self.forwarding.registered_bytes()
    }

    /// Creates a domain for the memory that one connection may write to.
    fn new_writer_domain(&self) -> Result<Arc<dyn Domain>, Error> {
        let domain = self.transport.domain()?;
        let mut writing = self.writer_domains.lock();
        writing.retain(|domain| domain.strong_count() > 0);
        writing.push(Arc::downgrade(&domain));
        Ok(domain)
    }
}

/// Returns the maximum number of shown replicas. Each keeps up to four descriptors and two mappings; three quarters of
/// both are left to connections, open replicas, writers and the allocator.
fn replicas_max(descriptors: usize) -> u64 {
    const DESCRIPTORS_EACH: u64 = 4;
    const MAPPINGS_EACH: u64 = 2;
    let setting = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let mappings = setting.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_MAP_COUNT);
    (descriptors as u64 / DESCRIPTORS_EACH).min(mappings / MAPPINGS_EACH) / 4
}

/// Accepts connections until the DataNode stops.
pub async fn accept(datanode: Arc<Datanode>, one_sided: Arc<OneSidedServer>, listener: Box<dyn Listener>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = datanode.stopping() => return,
        };
        let incoming = match accepted {
            Ok(incoming) => incoming,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a one-sided connection");
                one_sided.connection_limit.shed();
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let peer = incoming.peer();
        let Some((place, mut gives_way)) = one_sided.connection_limit.admit(Party::from(peer.ip())) else {
            tracing::warn!(%peer, "rejecting a one-sided connection: the maximum is reached and all are busy");
            tokio::spawn(async move { incoming.reject(b"too many connections").await.is_ok() });
            continue;
        };
        let (datanode, one_sided) = (datanode.clone(), one_sided.clone());
        tokio::spawn(async move {
            place.mark_established();
            tokio::select! {
                () = serve_connection(&datanode, &one_sided, incoming, &place) => {}
                () = datanode.stopping() => {}
                () = gives_way.wait() => tracing::debug!(%peer, "closing an idle one-sided connection: the maximum is reached"),
            }
        });
    }
}

async fn serve_connection(
    datanode: &Arc<Datanode>,
    one_sided: &Arc<OneSidedServer>,
    incoming: Box<dyn Incoming>,
    place: &ConnectionPermit,
) {
    let peer = incoming.peer();
    let served = match incoming.private() {
        [PURPOSE_READING, VERSION, ..] => {
            let domain = one_sided.advertiser.domain();
            match incoming
                .accept(domain, &encode_acceptance(PURPOSE_READING, datanode.incarnation), READER_LIMITS, PEER_TIMEOUT)
                .await
            {
                Ok(connection) => serve_reader(datanode, one_sided, &connection, place).await,
                Err(error) => Err(error.into()),
            }
        }
        [PURPOSE_WRITING, VERSION, ..] => serve_writer(datanode, one_sided, incoming).await,
        _ => incoming.reject(b"unknown purpose or version").await.map_err(Into::into),
    };
    if let Err(error) = served {
        tracing::debug!(%peer, %error, "one-sided connection ended");
    }
}

/// Serves a writer. Its keys are valid only on its own connection, and so is its domain.
async fn serve_writer(
    datanode: &Arc<Datanode>,
    one_sided: &Arc<OneSidedServer>,
    incoming: Box<dyn Incoming>,
) -> Result<(), ServeError> {
    let domain = one_sided.new_writer_domain()?;
    let private = encode_acceptance(PURPOSE_WRITING, datanode.incarnation);
    let connection = incoming.accept(&domain, &private, WRITER_LIMITS, PEER_TIMEOUT).await?;
    let served = write_one_sided::serve(datanode, connection.clone(), domain).await;
    connection.close().await;
    Ok(served?)
}

/// Reason why a connection is closed.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Connection(#[from] Error),
    #[error("the peer sent an invalid message: {0}")]
    Message(#[from] hearth_wire::rdma_control::ControlError),
    #[error("the peer sent an answer without a request")]
    Unexpected,
    #[error(transparent)]
    Write(#[from] write_one_sided::WriteError),
}

/// Answers requests until the connection ends.
async fn serve_reader(
    datanode: &Arc<Datanode>,
    one_sided: &Arc<OneSidedServer>,
    connection: &Arc<dyn Connection>,
    place: &ConnectionPermit,
) -> Result<(), ServeError> {
    // One more than the peer can have sent.
    let places = Arc::new(Semaphore::new(usize::from(READER_LIMITS.messages) + 1));
    loop {
        // A reader may be reading with its keys all the time. It sends at least one message per lease.
        place.mark_idle();
        let message = connection.receive(IDLE_TIMEOUT).await?;
        let ControlMessage::Locate(locate) = ControlMessage::decode(&message)? else {
            return Err(ServeError::Unexpected);
        };
        let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (datanode, one_sided, connection) = (datanode.clone(), one_sided.clone(), connection.clone());
        // A request that has to register memory first delays no other request.
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = answer_locate(&datanode, &one_sided, &*connection, locate).await {
                tracing::debug!(peer = %connection.peer(), %error, "cannot answer a request");
            }
        });
    }
}

async fn answer_locate(
    datanode: &Arc<Datanode>,
    one_sided: &Arc<OneSidedServer>,
    connection: &dyn Connection,
    locate: Locate,
) -> Result<(), Error> {
    let request = locate.request;
    let refused = |status, message: String| Located::Refused { request, refusal: Refusal { status, message } };
    let located = match locate_replica(datanode, one_sided, &locate).await {
        Ok(LocateOutcome::Shown(advertisement)) => {
            datanode.metrics.note_client_activity();
            Located::Shown { request, advertisement: *advertisement }
        }
        Ok(LocateOutcome::NotShown(why)) => refused(Status::ErrorUnsupported, why.to_owned()),
        Ok(LocateOutcome::Small(reader)) => match small_bytes(&reader) {
            Ok((data, crcs)) => {
                datanode.metrics.record_read(data.len() as u64);
                datanode.metrics.note_client_activity();
                let replica =
                    |bytes| SmallReplica { block: reader.block().clone(), checksum: reader.checksum(), bytes };
                if data.len() + crcs.len() <= inline_max(&locate) {
                    let bytes = SmallBytes::Inline { data: data.into(), checksums: crcs.into() };
                    Located::Small { request, replica: replica(bytes) }
                } else {
                    match locate.into.and_then(|into| into.part(0, (data.len() + crcs.len()) as u64)) {
                        Some(into) => {
                            let message = Located::Small { request, replica: replica(SmallBytes::Written) };
                            return write_small(one_sided, connection, into, &data, &crcs, message).await;
                        }
                        None => refused(Status::ErrorUnsupported, "the replica is too large for an answer".to_owned()),
                    }
                }
            }
            Err(error) => refused(Status::Error, error.to_string()),
        },
        Err(error) => refused(error.status(), error.text()),
    };
    connection.send(encode(located), PEER_TIMEOUT).await
}

/// Returns the maximum number of bytes of a replica that fit into a message beside its other fields.
fn inline_max(locate: &Locate) -> usize {
    const REST: usize = 512;
    (locate.inline_bytes_max as usize).min(MESSAGE_BYTES_MAX - REST)
}

fn encode(located: Located) -> Bytes {
    let request = located.request();
    ControlMessage::Located(located).encode().unwrap_or_else(|error| {
        // Occurs only if the name of a pool is thousands of bytes long.
        let refusal = Refusal { status: Status::Error, message: error.to_string() };
        ControlMessage::Located(Located::Refused { request, refusal }).encode().expect("a short refusal fits")
    })
}

async fn locate_replica(
    datanode: &Arc<Datanode>,
    one_sided: &Arc<OneSidedServer>,
    locate: &Locate,
) -> Result<LocateOutcome, OpError> {
    let pool = datanode.ready_pool(&locate.block.pool).await?;
    check_token(&pool, &locate.token, &locate.block, AccessMode::Read)?;
    one_sided.advertiser.locate(&datanode.store, &locate.block).await.map_err(|error| match error {
        AdvertiseError::Store(error) => OpError::Store(error),
        AdvertiseError::Interrupted => OpError::Interrupted,
        error => OpError::Refused(format!("{error}")),
    })
}

/// Writes a small replica into the client's memory, followed by the message that reports it.
async fn write_small(
    one_sided: &OneSidedServer,
    connection: &dyn Connection,
    into: RemoteSlice,
    data: &[u8],
    crcs: &[u8],
    message: Located,
) -> Result<(), Error> {
    let _place = one_sided.small_write_permits.acquire().await.expect("the semaphore is never closed");
    let kept = one_sided.small_buffers.lock().pop();
    let local = match kept {
        Some(local) => local,
        None => {
            let failed = |source| Error::Register { bytes: SMALL_BYTES_MAX, source };
            let memory = Arc::new(Memory::fresh(SMALL_BYTES_MAX).map_err(failed)?);
            one_sided.advertiser.domain().register(&memory, 0..SMALL_BYTES_MAX, Access::Local)?
        }
    };
    assert!(into.length <= SMALL_BYTES_MAX, "replicas above the slab limit have files of their own");
    local.memory().write(0, data);
    local.memory().write(data.len() as u64, crcs);
    let transfer = Transfer { local: local.clone(), offset: 0, remote: into };
    connection.write(vec![transfer], Some(encode(message)), PEER_TIMEOUT).await?;
    // Returned only after a complete write: otherwise the memory may still be in flight.
    one_sided.small_buffers.lock().push(local);
    Ok(())
}
