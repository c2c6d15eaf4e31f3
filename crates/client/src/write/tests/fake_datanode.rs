//! A fake datanode that accepts packets. By default it accepts writers on the other paths only to break off later.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hearth_fabric::one_sided::{self, Access, Domain, Limits, Listener};
use hearth_fabric::stream::{Connection, ReceiveBuffer};
use hearth_fabric::tcp::{self, SocketOptions};
use hearth_fabric::{Memory, TransportName, local};
use hearth_protocol::data_transfer::{DataSender, MESSAGE_BUFFER_BYTES, Timeouts, split};
use hearth_types::{BlockId, ChecksumSpec, DatanodeId, DatanodeInfo, DatanodeUuid};
use hearth_wire::data_transfer::{
    AckReply, BlockOpResponse, CongestionState, DatanodeDescription, Decoded, HEARTBEAT_SEQNO, LocalGrant, OpCode,
    Operation, PacketHead, PipelineAck, SlowState, Status, WriteBlock,
};
use hearth_wire::offer::Offer;
use hearth_wire::rdma_control::{Grant, PURPOSE_WRITING, WriteMessage, encode_acceptance};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{BLOCK, WAIT};
use crate::DataPath;

const INCARNATION: u64 = 1;

/// Moment at which it breaks off a write that does not come in packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Breaks {
    /// Before it answers.
    AtOnce,
    /// At the first packet, which it does not acknowledge.
    AtThePacket,
    /// It accepts what local writers put into its memory, and breaks off one-sided writers at once.
    NotLocal,
    /// It accepts what one-sided writers put into a quarter of a block, answers all messages, and grants no more
    /// memory.
    WithoutMore,
}

pub(super) struct FakeDatanode {
    state: Arc<State>,
    transfer_port: u16,
    offer: Offer,
    // The servers end when this is dropped.
    _servers: JoinSet<()>,
    _socket: tempfile::TempDir,
}

struct State {
    breaks: Breaks,
    /// Bytes that came in packets, by block.
    replicas: Mutex<BTreeMap<i64, Vec<u8>>>,
    /// Number of write requests, by path.
    asked: Mutex<HashMap<DataPath, usize>>,
    connections: Mutex<Vec<Arc<Connection>>>,
    /// It sends copies of its replicas to other datanodes.
    copies: AtomicBool,
    /// Number of copies requested.
    transfers: AtomicUsize,
    /// Number of heartbeats received, and the number required before it acknowledges anything.
    heartbeats: AtomicUsize,
    heartbeats_awaited: AtomicUsize,
    /// Time that it takes for each packet, ms.
    pause_ms: AtomicU64,
    /// Address of a datanode that restarts. With the next packet, a pipeline with that datanode behind this one breaks
    /// and cannot be set up again.
    restarting: Mutex<Option<String>>,
}

impl FakeDatanode {
    pub async fn start(breaks: Breaks) -> Self {
        let (replicas, asked, connections) = (Mutex::default(), Mutex::default(), Mutex::default());
        let state = Arc::new(State {
            breaks,
            replicas,
            asked,
            connections,
            copies: AtomicBool::new(true),
            transfers: AtomicUsize::new(0),
            heartbeats: AtomicUsize::new(0),
            heartbeats_awaited: AtomicUsize::new(0),
            pause_ms: AtomicU64::new(0),
            restarting: Mutex::default(),
        });
        let socket = tempfile::tempdir().unwrap();
        let path = socket.path().join("dn");
        let local = local::Listener::bind(&path, 0o600, 16).unwrap();
        let packets = tcp::Listener::bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default(), 16).unwrap();
        let transfer_port = packets.address().port();
        let transport = TransportName::Tcp.open(None, Duration::ZERO).unwrap().expect("it is there");
        let domain = transport.domain().unwrap();
        let one_sided = transport.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let offer = Offer {
            incarnation: INCARNATION,
            domain_socket: Some(path.to_str().unwrap().to_owned()),
            one_sided: vec![one_sided.address()],
            transport: Some("tcp".to_owned()),
            ..Offer::default()
        };
        let mut servers = JoinSet::new();
        servers.spawn(take_one_sided(one_sided, domain, Arc::clone(&state)));
        let (taken, uuid) = (Arc::clone(&state), uuid("one"));
        servers.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok(connection) = local.accept().await {
                connections.spawn(take_local(connection, uuid.clone(), Arc::clone(&taken)));
            }
        });
        let taken = Arc::clone(&state);
        servers.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok(connection) = packets.accept().await {
                connections.spawn(take_packets(connection, Arc::clone(&taken)));
            }
        });
        Self { state, transfer_port, offer, _servers: servers, _socket: socket }
    }

    /// Returns its description as the namenode gives it. Under a name other than "one" it is another datanode, without
    /// a domain socket.
    pub fn info(&self, name: &str) -> DatanodeInfo {
        let id = DatanodeId {
            ip: "127.0.0.1".to_owned(),
            host_name: "localhost".to_owned(),
            uuid: uuid(name),
            transfer_port: self.transfer_port,
            info_port: 0,
            ipc_port: 0,
            info_secure_port: 0,
        };
        DatanodeInfo { offer: Some(self.offer.encode()), ..DatanodeInfo::of(id) }
    }

    /// Returns the number of write requests by this path.
    pub fn asked(&self, path: DataPath) -> usize {
        self.state.asked.lock().get(&path).copied().unwrap_or(0)
    }

    /// Returns the bytes of all blocks, in the order of their ids.
    pub fn bytes(&self) -> Vec<u8> {
        self.state.replicas.lock().values().flatten().copied().collect()
    }

    /// Makes it refuse to copy its replicas to other datanodes.
    pub fn refuse_copies(&self) {
        self.state.copies.store(false, Ordering::Relaxed);
    }

    /// Returns the number of copies requested.
    pub fn transfers(&self) -> usize {
        self.state.transfers.load(Ordering::Relaxed)
    }

    /// Returns the number of heartbeats received.
    pub fn heartbeats(&self) -> usize {
        self.state.heartbeats.load(Ordering::Relaxed)
    }

    /// Makes it acknowledge nothing until this many heartbeats have arrived.
    pub fn await_heartbeats(&self, heartbeats: usize) {
        self.state.heartbeats_awaited.store(heartbeats, Ordering::Relaxed);
    }

    /// Sets the time that it takes for each packet.
    pub fn takes(&self, pause: Duration) {
        self.state.pause_ms.store(pause.as_millis() as u64, Ordering::Relaxed);
    }

    /// Makes `datanode`, behind it in pipelines, announce a restart and go away.
    pub fn restarts_behind(&self, datanode: &DatanodeInfo) {
        *self.state.restarting.lock() = Some(datanode.id.transfer_address());
    }

    /// Stores `bytes` as the replica of `block`.
    pub fn has(&self, block: BlockId, bytes: &[u8]) {
        self.state.replicas.lock().insert(block.0, bytes.to_vec());
    }

    /// Copies the replicas of `head`, as a datanode behind it in a pipeline has them.
    pub fn follow(&self, head: &FakeDatanode) {
        *self.state.replicas.lock() = head.state.replicas.lock().clone();
    }

    /// Ends all pipelines that carry packets.
    pub fn end_pipelines(&self) {
        for connection in self.state.connections.lock().drain(..) {
            connection.shutdown();
        }
    }
}

fn uuid(name: &str) -> DatanodeUuid {
    DatanodeUuid(name.into())
}

impl State {
    fn asked(&self, path: DataPath) {
        *self.asked.lock().entry(path).or_default() += 1;
    }

    fn put(&self, block: i64, offset: u64, data: &[u8]) {
        let mut replicas = self.replicas.lock();
        let bytes = replicas.entry(block).or_default();
        let (from, to) = (offset as usize, offset as usize + data.len());
        assert!(from <= bytes.len(), "a gap");
        bytes.resize(bytes.len().max(to), 0);
        bytes[from..to].copy_from_slice(data);
    }
}

async fn take_packets(connection: Connection, state: Arc<State>) {
    let (sender, mut receiver) = split(connection, MESSAGE_BUFFER_BYTES, TIMEOUTS);
    let write = match receiver.receive_operation(WAIT).await {
        Ok(Some(Operation::WriteBlock(write))) => write,
        Ok(Some(Operation::TransferBlock(_))) => {
            state.transfers.fetch_add(1, Ordering::Relaxed);
            let status = if state.copies.load(Ordering::Relaxed) { Status::Success } else { Status::Error };
            sender.send_response(&BlockOpResponse::new(status)).await.unwrap();
            return;
        }
        _ => return,
    };
    let is_behind =
        |address: &String| write.targets.iter().any(|target| target.datanode.id.transfer_address() == *address);
    let gone = state.restarting.lock().clone().filter(is_behind);
    let status = if gone.is_some() { Status::Error } else { Status::Success };
    let answer = BlockOpResponse::pipeline(status, gone.unwrap_or_default());
    if sender.send_response(&answer).await.is_err() || status != Status::Success {
        return;
    }
    // The set-up has been answered, so a test may end the pipeline from now on.
    state.connections.lock().push(Arc::clone(receiver.connection()));
    state.asked(DataPath::Packets);
    let mut acks = Vec::new();
    while let Ok(packet) = receiver.receive_packet().await {
        ChecksumSpec::DEFAULT.verify(packet.data, packet.checksums).unwrap();
        let header = packet.header;
        state.put(write.block.id().0, header.offset, packet.data);
        // The pace of a slow datanode.
        tokio::time::sleep(Duration::from_millis(state.pause_ms.load(Ordering::Relaxed))).await;
        if header.seqno == HEARTBEAT_SEQNO {
            state.heartbeats.fetch_add(1, Ordering::Relaxed);
        }
        let mut replies = vec![AckReply::SUCCESS; write.targets.len() + 1];
        let restarts = state.restarting.lock().as_ref().is_some_and(is_behind);
        if restarts && let Some(last) = replies.last_mut() {
            *last = AckReply::new(Status::OobRestart, CongestionState::Disabled, SlowState::Disabled);
        }
        acks.push(PipelineAck { seqno: header.seqno, replies, downstream_nanos: 0, granted: None });
        if state.heartbeats.load(Ordering::Relaxed) < state.heartbeats_awaited.load(Ordering::Relaxed) {
            continue;
        }
        for ack in acks.drain(..) {
            if sender.send_ack(&ack).await.is_err() {
                return;
            }
        }
        if header.last || restarts {
            return;
        }
    }
}

async fn take_local(connection: Connection, uuid: DatanodeUuid, state: Arc<State>) {
    let (sender, mut receiver) = split(connection, MESSAGE_BUFFER_BYTES, TIMEOUTS);
    let connection = Arc::clone(receiver.connection());
    while let Ok(Some(operation)) = receiver.receive_operation(WAIT).await {
        let Operation::WriteLocal(write) = operation else {
            let (datanode, operations) = (uuid.clone(), vec![OpCode::Describe, OpCode::WriteLocal]);
            let description = DatanodeDescription { datanode, offer: Offer::default(), operations };
            sender.send(&description.encode()).await.unwrap();
            continue;
        };
        state.asked(DataPath::Local);
        if state.breaks != Breaks::AtOnce {
            sender.send_response(&BlockOpResponse::pipeline(Status::Success, "")).await.unwrap();
            let memory = tempfile::tempfile().unwrap();
            memory.set_len(BLOCK as u64).unwrap();
            let grant = LocalGrant(BLOCK as u64).encode();
            connection.send_with_descriptors(&grant, &[memory.as_fd()], WAIT).await.unwrap();
            match state.breaks {
                Breaks::NotLocal => take_in_place(&connection, &sender, &memory, &write, &state).await,
                _ => connection.read_exact(&mut [0], WAIT).await.unwrap(),
            }
        }
        return;
    }
}

/// Receives packets whose data may be in `memory`.
async fn take_in_place(connection: &Connection, sender: &DataSender, memory: &File, write: &WriteBlock, state: &State) {
    let mut buffer = ReceiveBuffer::new(MESSAGE_BUFFER_BYTES, 1 << 20);
    loop {
        let head = PacketHead::decode_local(buffer.available(), ChecksumSpec::DEFAULT).unwrap();
        let (head, sums_at) = match head {
            Decoded::Complete(head, bytes) => (head, bytes),
            Decoded::Needs(missing) => {
                let wanted = buffer.available().len() + missing;
                if buffer.fill_to(connection, wanted, WAIT).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let (header, data_at) = (head.header, sums_at + head.checksum_bytes);
        let end = sums_at + head.body_bytes();
        if buffer.fill_to(connection, end, WAIT).await.is_err() {
            return;
        }
        let mut data = buffer.available()[data_at..end].to_vec();
        if head.is_in_place() {
            data = vec![0; header.data_bytes as usize];
            memory.read_exact_at(&mut data, header.offset).unwrap();
        }
        ChecksumSpec::DEFAULT.verify(&data, &buffer.available()[sums_at..data_at]).unwrap();
        buffer.consume(end);
        state.put(write.block.id().0, header.offset, &data);
        let replies = vec![AckReply::SUCCESS; write.targets.len() + 1];
        let ack = PipelineAck { seqno: header.seqno, replies, downstream_nanos: 0, granted: None };
        if sender.send_ack(&ack).await.is_err() || header.last {
            return;
        }
    }
}

async fn take_one_sided(listener: Box<dyn Listener>, domain: Arc<dyn Domain>, state: Arc<State>) {
    let register = |bytes| {
        let memory = Arc::new(Memory::fresh(bytes).unwrap());
        domain.register(&memory, 0..bytes, Access::RemoteWrite).unwrap()
    };
    let (data, checksums) = (register(BLOCK as u64), register(256 << 10));
    while let Ok(incoming) = listener.accept().await {
        let private = encode_acceptance(PURPOSE_WRITING, INCARNATION);
        let connection = incoming.accept(&domain, &private, Limits::default(), WAIT).await.unwrap();
        let Ok(WriteMessage::Open(write)) = WriteMessage::decode(&connection.receive(WAIT).await.unwrap()) else {
            panic!("no block is opened")
        };
        state.asked(DataPath::OneSided);
        let granted = if state.breaks == Breaks::WithoutMore { BLOCK as u64 / 4 } else { BLOCK as u64 };
        if matches!(state.breaks, Breaks::AtThePacket | Breaks::WithoutMore) {
            let answer = Box::new(BlockOpResponse::pipeline(Status::Success, ""));
            let memory = data.remote().part(0, granted).unwrap();
            let grant = Some(Grant { offset: 0, data: memory, checksums: checksums.remote() });
            let opened = WriteMessage::Opened { answer, grant }.encode().unwrap();
            connection.send(opened, WAIT).await.unwrap();
        }
        match state.breaks {
            Breaks::AtThePacket => drop(connection.receive(WAIT).await.unwrap()),
            Breaks::WithoutMore => take_slices(&*connection, data.memory(), &write, &state).await,
            Breaks::AtOnce | Breaks::NotLocal => {}
        }
        connection.close().await;
    }
}

/// Receives slices whose data is in `memory`, from the start of the block on.
async fn take_slices(connection: &dyn one_sided::Connection, memory: &Memory, write: &WriteBlock, state: &State) {
    while let Ok(message) = connection.receive(WAIT).await {
        let Ok(WriteMessage::Slice(slice)) = WriteMessage::decode(&message) else { panic!("no slice") };
        let header = slice.header;
        if header.seqno == HEARTBEAT_SEQNO {
            state.heartbeats.fetch_add(1, Ordering::Relaxed);
        }
        let mut data = vec![0; header.data_bytes as usize];
        memory.read(header.offset, &mut data);
        state.put(write.block.id().0, header.offset, &data);
        let replies = vec![AckReply::SUCCESS; write.targets.len() + 1];
        let ack = WriteMessage::Acknowledged { seqno: header.seqno, replies, grant: None };
        if connection.send(ack.encode().unwrap(), WAIT).await.is_err() {
            return;
        }
    }
}

const TIMEOUTS: Timeouts = Timeouts { connect: WAIT, read: WAIT, write: WAIT };
