//! A fake datanode that shows its replicas for one-sided reads, over TCP, and answers requests when enabled.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hearth_fabric::one_sided::{Access, Connection, Domain, Limits, Listener, Region, Transfer};
use hearth_fabric::{Memory, TransportName};
use hearth_types::{ChecksumSpec, DatanodeInfo, ExtendedBlock, ValidityRecord};
use hearth_wire::offer::Offer;
use hearth_wire::rdma_control::{
    Advertisement, ControlMessage, Locate, Located, PURPOSE_READING, SmallBytes, SmallReplica, encode_acceptance,
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::{WAIT, datanode_info, extended};

const INCARNATION: u64 = 1;

/// Replicas up to this many bytes are written to the client instead of being shown.
const SMALL_BYTES_MAX: usize = 64 << 10;

pub(super) struct OneSidedDatanode {
    address: SocketAddr,
    state: Arc<State>,
    server: tokio::task::JoinHandle<()>,
}

struct State {
    domain: Arc<dyn Domain>,
    replicas: HashMap<i64, Replica>,
    connections: Mutex<Vec<Arc<dyn Connection>>>,
    asked: AtomicUsize,
    /// Requests are answered.
    answers: watch::Sender<bool>,
}

/// Memory of a replica: data, CRCs and record, in this order.
struct Replica {
    block: ExtendedBlock,
    region: Arc<dyn Region>,
    crc_bytes: u64,
}

impl Drop for OneSidedDatanode {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl OneSidedDatanode {
    /// Starts it with `replicas`: bytes by block.
    pub async fn start(replicas: impl IntoIterator<Item = (i64, Vec<u8>)>) -> Self {
        let transport = TransportName::Tcp.open(None, Duration::ZERO).unwrap().expect("it is there");
        let domain = transport.domain().unwrap();
        let listener = transport.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.address();
        let replicas = replicas.into_iter().map(|(id, bytes)| (id, Replica::new(&*domain, id, &bytes))).collect();
        let (connections, asked, answers) = (Mutex::default(), AtomicUsize::new(0), watch::Sender::new(true));
        let state = Arc::new(State { domain, replicas, connections, asked, answers });
        let server = tokio::spawn(accept(listener, Arc::clone(&state)));
        Self { address, state, server }
    }

    pub fn info(&self) -> DatanodeInfo {
        let (one_sided, transport) = (vec![self.address], Some("tcp".to_owned()));
        datanode_info(1, &Offer { incarnation: INCARNATION, one_sided, transport, ..Offer::default() })
    }

    pub fn answer(&self, answers: bool) {
        self.state.answers.send_replace(answers);
    }

    /// Returns the number of requests received.
    pub fn asked(&self) -> usize {
        self.state.asked.load(Ordering::Relaxed)
    }

    /// Returns the number of connections made, open or not.
    pub fn connections(&self) -> usize {
        self.state.connections.lock().len()
    }

    pub async fn end_connections(&self) {
        let connections = self.state.connections.lock().clone();
        for connection in connections {
            connection.close().await;
        }
    }
}

impl Replica {
    fn new(domain: &dyn Domain, id: i64, data: &[u8]) -> Self {
        let block = extended(id, data.len());
        let mut crcs = Vec::new();
        ChecksumSpec::DEFAULT.compute(data, &mut crcs);
        let record = ValidityRecord { block: block.block, nonce: id as u64 }.encode();
        let (data_bytes, crc_bytes) = (data.len() as u64, crcs.len() as u64);
        let bytes = data_bytes + crc_bytes + record.len() as u64;
        let memory = Arc::new(Memory::fresh(bytes).unwrap());
        memory.write(0, data);
        memory.write(data_bytes, &crcs);
        memory.write(data_bytes + crc_bytes, &record);
        Self { block, region: domain.register(&memory, 0..bytes, Access::RemoteRead).unwrap(), crc_bytes }
    }

    fn advertisement(&self) -> Advertisement {
        let length = self.block.length();
        let part = |start, length| self.region.remote().part(start, length).unwrap();
        Advertisement {
            block: self.block.clone(),
            checksum: ChecksumSpec::DEFAULT,
            nonce: self.block.id().0 as u64,
            data: part(0, length),
            checksums: part(length, self.crc_bytes),
            shown: part(length + self.crc_bytes, ValidityRecord::BYTES as u64),
            lease: 10 * WAIT,
            incarnation: INCARNATION,
        }
    }
}

async fn accept(listener: Box<dyn Listener>, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok(incoming) = listener.accept().await {
        let private = encode_acceptance(PURPOSE_READING, INCARNATION);
        let accepted = incoming.accept(&state.domain, &private, Limits::default(), WAIT).await;
        let Ok(connection) = accepted else { continue };
        state.connections.lock().push(Arc::clone(&connection));
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let (heard, mut questions) = mpsc::unbounded_channel();
            let hearing = async {
                // Dropped at the end, so that the channel closes.
                let heard = heard;
                while let Ok(message) = connection.receive(WAIT).await {
                    let Ok(ControlMessage::Locate(locate)) = ControlMessage::decode(&message) else { return };
                    state.asked.fetch_add(1, Ordering::Relaxed);
                    let _ = heard.send(locate);
                }
            };
            let answering = async {
                // In the order of the requests.
                while let Some(locate) = questions.recv().await {
                    let _ = state.answers.subscribe().wait_for(|answers| *answers).await;
                    answer(&*connection, &state, locate).await;
                }
            };
            tokio::join!(hearing, answering);
        });
    }
}

async fn answer(connection: &dyn Connection, state: &State, Locate { request, block, into, .. }: Locate) {
    let replica = &state.replicas[&block.id().0];
    let length = replica.block.length();
    let (mut transfers, mut located) = (Vec::new(), Located::Shown { request, advertisement: replica.advertisement() });
    if length <= SMALL_BYTES_MAX as u64 {
        let remote = into.and_then(|into| into.part(0, length + replica.crc_bytes)).expect("room for it");
        transfers.push(Transfer { local: Arc::clone(&replica.region), offset: 0, remote });
        let (block, checksum, bytes) = (replica.block.clone(), ChecksumSpec::DEFAULT, SmallBytes::Written);
        located = Located::Small { request, replica: SmallReplica { block, checksum, bytes } };
    }
    let message = ControlMessage::Located(located).encode().unwrap();
    // The client may have ended the connection.
    let _ = connection.write(transfers, Some(message), WAIT).await;
}
