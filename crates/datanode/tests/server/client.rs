//! A small client: writes blocks and reads them, packet by packet.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hearth_datanode::Handle;
use hearth_fabric::tcp::{Listener, SocketOptions};
use hearth_protocol::data_transfer::{DataReceiver, DataSender, PACKET_BUFFER_BYTES, Timeouts, connect, split};
use hearth_types::{
    Block, BlockId, ChecksumKind, ChecksumSpec, DatanodeId, DatanodeInfo, DatanodeUuid, ExtendedBlock, GenerationStamp,
    StorageType, Token,
};
use hearth_wire::data_transfer::{
    AckReply, BlockOpResponse, CachingStrategy, Operation, PacketHeader, PipelineAck, PipelineTarget, ReadBlock, Stage,
    Status, WriteBlock,
};

use super::namenode::pool;

/// Timeout for events that must occur eventually: threads of a busy machine may stall for seconds.
pub const WAIT: Duration = Duration::from_secs(60);

pub fn block(id: i64, stamp: u64, length: u64) -> ExtendedBlock {
    ExtendedBlock { pool: pool(), block: Block { id: BlockId(id), stamp: GenerationStamp(stamp), length } }
}

/// Returns `bytes` of content that differs between seeds.
pub fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

const TIMEOUTS: Timeouts = Timeouts { connect: WAIT, read: WAIT, write: WAIT };

pub async fn open(address: SocketAddr) -> (DataSender, DataReceiver) {
    connect(address, None, SocketOptions::default(), PACKET_BUFFER_BYTES, TIMEOUTS).await.unwrap()
}

pub fn target(handle: &Handle) -> PipelineTarget {
    let addresses = handle.addresses();
    PipelineTarget {
        datanode: DatanodeInfo::of(DatanodeId {
            ip: addresses.transfer.ip().to_string(),
            host_name: "localhost".to_owned(),
            uuid: handle.uuid(),
            transfer_port: addresses.transfer.port(),
            info_port: addresses.http.port(),
            ipc_port: addresses.ipc.port(),
            info_secure_port: 0,
        }),
        storage_type: StorageType::Disk,
        storage_id: None,
        pinned: false,
    }
}

/// Starts a DataNode on the machine of `node` that accepts blocks in packets only, and stores none. While the returned
/// flag is true it acknowledges nothing; the delayed acknowledgements are sent with the next packet.
pub fn slow_datanode(node: &Handle) -> (PipelineTarget, Arc<AtomicBool>) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default(), 16).unwrap();
    let mut slow = target(node);
    slow.datanode.id.uuid = DatanodeUuid("slow".into());
    slow.datanode.id.transfer_port = listener.address().port();
    let holds = Arc::new(AtomicBool::new(false));
    tokio::spawn(take_slowly(listener, holds.clone()));
    (slow, holds)
}

async fn take_slowly(listener: Listener, holds: Arc<AtomicBool>) {
    while let Ok(connection) = listener.accept().await {
        let (sender, mut receiver) = split(connection, PACKET_BUFFER_BYTES, TIMEOUTS);
        // It offers no other paths.
        let Ok(Some(Operation::WriteBlock(_))) = receiver.receive_operation(WAIT).await else { continue };
        sender.send_response(&BlockOpResponse::pipeline(Status::Success, "")).await.unwrap();
        let (mut acks, mut is_over) = (Vec::new(), false);
        while !is_over {
            let Ok(packet) = receiver.receive_packet().await else { break };
            let PacketHeader { seqno, last, .. } = packet.header;
            acks.push(PipelineAck { seqno, replies: vec![AckReply::SUCCESS], downstream_nanos: 0, granted: None });
            if holds.load(Ordering::Relaxed) {
                continue;
            }
            for ack in acks.drain(..) {
                if sender.send_ack(&ack).await.is_err() {
                    return;
                }
            }
            is_over = last;
        }
    }
}

pub fn write_request(block: &ExtendedBlock, stage: Stage, targets: Vec<PipelineTarget>) -> WriteBlock {
    WriteBlock {
        block: block.clone(),
        token: Token::default(),
        client_name: "DFSClient_test".to_owned(),
        pipeline_size: targets.len() as u32 + 1,
        targets,
        source: None,
        stage,
        bytes_received_min: 0,
        bytes_received_max: 0,
        latest_stamp: GenerationStamp(0),
        checksum: ChecksumSpec::DEFAULT,
        caching: CachingStrategy::default(),
        storage_type: StorageType::Disk,
        storage_id: None,
        allow_lazy_persist: false,
        pinned: false,
    }
}

/// A block that is being written.
pub struct Writer {
    pub sender: DataSender,
    pub receiver: DataReceiver,
    pub seqno: i64,
    pub offset: u64,
}

impl Writer {
    /// Sets up the write. Also returns the answer.
    pub async fn ask(address: SocketAddr, request: WriteBlock) -> (Self, BlockOpResponse) {
        let (sender, mut receiver) = open(address).await;
        let offset = request.bytes_received_min;
        sender.send_operation(&Operation::WriteBlock(Box::new(request))).await.unwrap();
        let answer = receiver.receive_response().await.unwrap();
        (Self { sender, receiver, seqno: 0, offset }, answer)
    }

    pub async fn new(address: SocketAddr, request: WriteBlock) -> Self {
        let (writer, answer) = Self::ask(address, request).await;
        assert_eq!(answer.status, Status::Success, "{answer:?}");
        writer
    }

    /// Sends one packet of `data` at the current offset.
    pub async fn send(&mut self, data: &[u8], sync: bool) {
        let mut checksums = Vec::new();
        ChecksumSpec::DEFAULT.compute(data, &mut checksums);
        self.send_with(data, &checksums, sync).await;
    }

    pub async fn send_with(&mut self, data: &[u8], checksums: &[u8], sync: bool) {
        let header =
            PacketHeader { offset: self.offset, seqno: self.seqno, last: false, data_bytes: data.len() as u32, sync };
        self.sender.send_packet(&header, checksums, data).await.unwrap();
        self.offset += data.len() as u64;
        self.seqno += 1;
    }

    pub async fn send_last(&mut self) {
        let header = PacketHeader { offset: self.offset, seqno: self.seqno, last: true, data_bytes: 0, sync: false };
        self.sender.send_packet(&header, &[], &[]).await.unwrap();
        self.seqno += 1;
    }

    pub async fn ack(&mut self) -> PipelineAck {
        self.receiver.receive_ack().await.unwrap()
    }

    /// Sends all of `data` in packets, and the last packet; each acknowledgement must be a success of `datanodes`.
    pub async fn finish(mut self, data: &[u8], datanodes: usize) {
        let mut expected = self.seqno;
        for piece in data.chunks(64 * 1024) {
            self.send(piece, false).await;
        }
        self.send_last().await;
        while expected < self.seqno {
            let ack = self.ack().await;
            assert_eq!(ack.seqno, expected);
            assert!(ack.is_success(), "{ack:?}");
            assert_eq!(ack.replies.len(), datanodes);
            expected += 1;
        }
    }
}

/// Writes a whole block.
pub async fn write(first: &Handle, rest: &[&Handle], block: &ExtendedBlock, data: &[u8]) {
    let targets = rest.iter().map(|handle| target(handle)).collect();
    let request = write_request(block, Stage::PipelineSetupCreate, targets);
    Writer::new(first.addresses().transfer, request).await.finish(data, rest.len() + 1).await;
}

pub fn read_request(block: &ExtendedBlock, offset: u64, length: Option<u64>) -> ReadBlock {
    ReadBlock {
        block: block.clone(),
        token: Token::default(),
        client_name: "DFSClient_test".to_owned(),
        offset,
        length,
        send_checksums: true,
        caching: CachingStrategy::default(),
    }
}

/// Reads on an open connection, with all checks that clients make, and returns the requested bytes.
pub async fn read_on(
    connection: &mut (DataSender, DataReceiver),
    request: ReadBlock,
) -> Result<Vec<u8>, BlockOpResponse> {
    let (sender, receiver) = connection;
    let (offset, length) = (request.offset, request.length);
    sender.send_operation(&Operation::ReadBlock(request)).await.unwrap();
    let answer = receiver.receive_response().await.unwrap();
    if answer.status != Status::Success {
        return Err(answer);
    }
    let info = answer.read_checksum.expect("a successful answer names the checksum type");
    assert!(info.chunk_offset <= offset && offset - info.chunk_offset < u64::from(info.spec.bytes_per_chunk));
    let mut bytes = Vec::new();
    for seqno in 0.. {
        let packet = receiver.receive_packet().await.unwrap();
        assert_eq!(packet.header.seqno, seqno);
        assert_eq!(packet.header.offset, info.chunk_offset + bytes.len() as u64);
        if packet.header.last {
            assert!(packet.data.is_empty());
            break;
        }
        assert!(!packet.data.is_empty());
        if info.spec.kind == ChecksumKind::Null {
            assert!(packet.checksums.is_empty());
        } else {
            info.spec.verify(packet.data, packet.checksums).unwrap();
        }
        bytes.extend_from_slice(packet.data);
    }
    sender.send_read_status(Status::ChecksumOk).await.unwrap();
    let skip = (offset - info.chunk_offset) as usize;
    let end = length.map_or(bytes.len(), |length| skip + length as usize);
    assert!(bytes.len() >= end && bytes.len() - end < info.spec.bytes_per_chunk as usize);
    Ok(bytes[skip..end].to_vec())
}

/// Reads over a connection of its own.
pub async fn read(
    handle: &Handle,
    block: &ExtendedBlock,
    offset: u64,
    length: Option<u64>,
) -> Result<Vec<u8>, BlockOpResponse> {
    let mut connection = open(handle.addresses().transfer).await;
    read_on(&mut connection, read_request(block, offset, length)).await
}
