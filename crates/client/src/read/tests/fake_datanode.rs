//! A fake datanode that sends packets as configured: damaged, or only some of them.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use hearth_fabric::tcp::{Connection, Listener, SocketOptions};
use hearth_protocol::data_transfer::{DataSender, Timeouts, split};
use hearth_protocol::rpc::{
    Call, RemoteError, RpcServer, RpcServerOptions, Service, application_error, no_such_method,
};
use hearth_types::{ByteRange, ChecksumSpec, DatanodeInfo};
use hearth_wire::data_transfer::{BlockOpResponse, DatanodeDescription, OpCode, Operation, PacketHeader};
use hearth_wire::offer::Offer;
use hearth_wire::proto::hdfs::GetReplicaVisibleLengthResponseProto;
use hearth_wire::rpc::{exceptions, protocols};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Barrier;

use super::{WAIT, datanode_info};

pub(super) const PACKET_BYTES: usize = 64 << 10;

#[derive(Default)]
pub(super) struct Behaviour {
    /// Bytes of its replicas, by block.
    pub replicas: HashMap<i64, Vec<u8>>,
    /// No data matches its CRCs.
    pub spoiled: bool,
    /// Answers readers together, once this many have arrived.
    pub together: Option<Barrier>,
    /// The next answers end, with their connections, after this many packets.
    pub cut: Mutex<VecDeque<usize>>,
    pub asked: Mutex<Asked>,
}

/// What it does when it is asked for its offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Asked {
    /// It closes the connection, like a datanode that is not Hearth's.
    #[default]
    Closes,
    Answers,
    Hangs,
}

pub(super) struct FakeDatanode {
    address: SocketAddr,
    behaviour: Arc<Behaviour>,
    reads: Arc<AtomicUsize>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for FakeDatanode {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl FakeDatanode {
    pub fn start(behaviour: Behaviour) -> Self {
        let (behaviour, reads) = (Arc::new(behaviour), Arc::<AtomicUsize>::default());
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default(), 16).unwrap();
        let address = listener.address();
        let (served, counted) = (Arc::clone(&behaviour), Arc::clone(&reads));
        let server = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok(connection) = listener.accept().await {
                connections.spawn(serve(connection, address, Arc::clone(&served), Arc::clone(&counted)));
            }
        });
        Self { address, behaviour, reads, server }
    }

    /// Returns its description as the namenode gives it. It includes an empty offer, so that clients need not ask for
    /// it.
    pub fn info(&self) -> DatanodeInfo {
        datanode_info(self.address.port(), &Offer { incarnation: 1, ..Offer::default() })
    }

    /// Returns the number of read requests.
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    pub fn cut(&self, packets: impl IntoIterator<Item = usize>) {
        self.behaviour.cut.lock().extend(packets);
    }

    pub fn when_asked(&self, asked: Asked) {
        *self.behaviour.asked.lock() = asked;
    }
}

/// Serves one connection until it ends.
async fn serve(connection: Connection, address: SocketAddr, behaviour: Arc<Behaviour>, reads: Arc<AtomicUsize>) {
    let (sender, mut receiver) = split(connection, 8192, Timeouts { connect: WAIT, read: WAIT, write: WAIT });
    while let Ok(Some(operation)) = receiver.receive_operation(WAIT).await {
        let Operation::ReadBlock(read) = operation else {
            let asked = *behaviour.asked.lock();
            match asked {
                Asked::Closes => return,
                Asked::Answers => answer(&sender, address).await,
                Asked::Hangs => std::future::pending().await,
            }
            continue;
        };
        reads.fetch_add(1, Ordering::Relaxed);
        let cut = behaviour.cut.lock().pop_front();
        if let Some(together) = &behaviour.together {
            together.wait().await;
        }
        let bytes = &behaviour.replicas[&read.block.id().0];
        let asked = ByteRange::with_length(read.offset, read.length.unwrap()).unwrap();
        let range = asked.widened(512, bytes.len() as u64);
        if sender.send_response(&BlockOpResponse::read(ChecksumSpec::DEFAULT, range.start())).await.is_err() {
            return;
        }
        let packets = bytes[range.start() as usize..range.end() as usize].chunks(PACKET_BYTES).enumerate();
        for (number, data) in packets {
            if cut == Some(number) {
                return;
            }
            let mut crcs = Vec::new();
            ChecksumSpec::DEFAULT.compute(data, &mut crcs);
            crcs[0] ^= u8::from(behaviour.spoiled);
            let offset = range.start() + (number * PACKET_BYTES) as u64;
            let (seqno, data_bytes) = (number as i64, data.len() as u32);
            let header = PacketHeader { offset, seqno, last: false, data_bytes, sync: false };
            if sender.send_packet(&header, &crcs, data).await.is_err() {
                return;
            }
        }
        let seqno = range.length().div_ceil(PACKET_BYTES as u64) as i64;
        let end = PacketHeader { offset: range.end(), seqno, last: true, data_bytes: 0, sync: false };
        if sender.send_packet(&end, &[], &[]).await.is_err() || receiver.receive_read_status().await.is_err() {
            return;
        }
    }
}

async fn answer(sender: &DataSender, address: SocketAddr) {
    let offer = Offer { incarnation: 1, ..Offer::default() };
    let datanode = datanode_info(address.port(), &offer).id.uuid;
    let description = DatanodeDescription { datanode, offer, operations: vec![OpCode::Describe] };
    sender.send(&description.encode()).await.unwrap();
}

/// Fake server for the visible length of replicas, which is the same for all. `None`: it has no replica.
pub(super) struct VisibleLengths {
    server: RpcServer,
}

struct Visible(Option<usize>);

impl VisibleLengths {
    pub async fn start(length: Option<usize>) -> Self {
        let options = RpcServerOptions::default();
        Self { server: RpcServer::start("127.0.0.1:0", Arc::new(Visible(length)), options).await.unwrap() }
    }

    pub fn port(&self) -> u16 {
        self.server.address().port()
    }
}

impl Service for Visible {
    fn protocols(&self) -> &[&'static str] {
        &[protocols::CLIENT_DATANODE]
    }

    async fn call(&self, call: Call) -> Result<Bytes, RemoteError> {
        match call.method.as_str() {
            "getReplicaVisibleLength" => match self.0 {
                Some(length) => {
                    Ok(GetReplicaVisibleLengthResponseProto { length: length as u64 }.encode_to_vec().into())
                }
                None => Err(application_error(exceptions::REPLICA_NOT_FOUND, "it has no such replica")),
            },
            method => Err(no_such_method(&call.protocol, method)),
        }
    }
}
