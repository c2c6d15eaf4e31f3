//! Bytes that are received from a socket straight to their place in a replica's memory, which is in huge pages here: in
//! packets that arrive in arbitrary pieces, and by replica streams.

use std::time::Duration;

use hearth_datanode::Handle;
use hearth_testkit::skip_or_fail;
use hearth_types::{ChecksumSpec, ExtendedBlock, GenerationStamp};
use hearth_wire::data_transfer::{PACKET_HEADER_BYTES_MAX, PacketHeader, Stage, Status};
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;

use super::client::{WAIT, Writer, block, content, read, target, write, write_request};
use super::local_writes;
use super::namenode::FakeNamenode;
use super::one_sided_writes::figure;
use super::streams::{Meddler, Meddling};
use super::transfers::transfer_to;
use super::{HugeScratch, start_datanode};

/// DataNodes, each with a NameNode of its own.
struct Nodes {
    namenodes: Vec<FakeNamenode>,
    nodes: Vec<Handle>,
    dirs: Vec<HugeScratch>,
}

impl Nodes {
    async fn start(count: usize, settings: &[(&str, &str)]) -> Self {
        Self::start_with(count, settings, false).await
    }

    /// `sockets`: each has a domain socket, so that data is forwarded through memory.
    async fn start_with(count: usize, settings: &[(&str, &str)], sockets: bool) -> Self {
        let mut all = Self { namenodes: Vec::new(), nodes: Vec::new(), dirs: Vec::new() };
        for _ in 0..count {
            let (namenode, dir) = (FakeNamenode::start().await, HugeScratch::new());
            let node = match sockets {
                true => local_writes::start(&namenode, dir.path(), settings).await,
                false => start_datanode(&namenode, dir.path(), settings).await,
            };
            all.nodes.push(node);
            all.namenodes.push(namenode);
            all.dirs.push(dir);
        }
        all
    }

    /// Checks that more than `least` of the bytes that `test` sent were received in place. Without huge pages no byte is.
    fn check_in_place(&self, test: &str, in_place: u64, least: u64) {
        if !self.dirs.iter().all(HugeScratch::is_huge) {
            return skip_or_fail(
                test,
                "its last check: no tmpfs with huge pages can be mounted here, which needs root",
            );
        }
        assert!(in_place > least, "{in_place} bytes");
    }

    async fn in_place(&self, node: usize) -> u64 {
        figure(&self.nodes[node], "hearth_received_in_place_bytes").await
    }
}

/// Returns a block as its packets on the wire, including the last one.
fn packets(data: &[u8], sizes: &[usize], spec: ChecksumSpec) -> (Vec<u8>, usize) {
    let (mut wire, mut at, mut seqno) = (Vec::new(), 0, 0);
    let mut add = |header: PacketHeader, data: &[u8]| {
        let (mut crcs, mut head) = (Vec::new(), [0; PACKET_HEADER_BYTES_MAX]);
        spec.compute(data, &mut crcs);
        let bytes = header.encode(crcs.len(), &mut head);
        wire.extend_from_slice(&head[..bytes]);
        wire.extend_from_slice(&crcs);
        wire.extend_from_slice(data);
    };
    let mut sizes = sizes.iter().cycle();
    while at < data.len() {
        let size = *sizes.next().unwrap();
        if size == 0 {
            add(PacketHeader { offset: 0, seqno: -1, last: false, data_bytes: 0, sync: false }, &[]);
            continue;
        }
        let size = size.min(data.len() - at);
        let header =
            PacketHeader { offset: at as u64, seqno, last: false, data_bytes: size as u32, sync: seqno % 7 == 6 };
        add(header, &data[at..at + size]);
        (at, seqno) = (at + size, seqno + 1);
    }
    add(PacketHeader { offset: at as u64, seqno, last: true, data_bytes: 0, sync: false }, &[]);
    (wire, seqno as usize + 1)
}

/// Sends `wire` in pieces of the given sizes, with or without pauses, while acknowledgements are received.
async fn send_in_pieces(mut writer: Writer, wire: &[u8], pieces: &[usize], expected: usize, datanodes: usize) {
    let connection = writer.receiver.connection().clone();
    let sending = async {
        let (mut rest, mut pieces) = (wire, pieces.iter().cycle());
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(rest.len().min(*pieces.next().unwrap()));
            connection.write_all(piece, WAIT).await.unwrap();
            rest = more;
            if piece.len() < 40_000 {
                // Time for the kernel to deliver the piece alone.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let hearing = async {
        for seqno in 0..expected {
            let mut ack = writer.ack().await;
            while ack.seqno == -1 {
                ack = writer.ack().await;
            }
            assert_eq!(ack.seqno, seqno as i64, "{ack:?}");
            assert!(ack.is_success(), "{ack:?}");
            assert_eq!(ack.replies.len(), datanodes, "{ack:?}");
        }
    };
    tokio::join!(sending, hearing);
}

fn creating(block: &ExtendedBlock, rest: &[Handle], spec: ChecksumSpec) -> hearth_wire::data_transfer::WriteBlock {
    let mut request = write_request(block, Stage::PipelineSetupCreate, rest.iter().map(target).collect());
    request.checksum = spec;
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_in_any_pieces_form_whole_blocks() {
    packets_of_all_sizes(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_forwarded_through_memory_form_whole_blocks() {
    packets_of_all_sizes(true).await;
}

async fn packets_of_all_sizes(through_memory: bool) {
    let all = Nodes::start_with(2, &[("hearth.memory.limit", "256m")], through_memory).await;
    let chunks_of = |bytes_per_chunk| ChecksumSpec { bytes_per_chunk, ..ChecksumSpec::DEFAULT };
    let packet_sizes: [&[usize]; 5] = [
        &[64_512],
        // Some packets end within a chunk, which the next packet fills.
        &[64_512, 700, 324, 131_072, 0, 5_000_192, 512, 8_192, 9_000, 216],
        &[1 << 20, 0],
        &[100, 412, 1_536],
        &[3_000_320],
    ];
    let pieces: [&[usize]; 4] =
        [&[usize::MAX], &[65_036], &[17, 100_000, 1, 516, 30_000, 64_512], &[400_000, 3, 70_000]];
    let mut id = 0;
    for (index, sizes) in packet_sizes.into_iter().enumerate() {
        for pieces in pieces {
            for datanodes in [1, 2] {
                id += 1;
                let spec = if sizes.len() == 1 { chunks_of([512, 64, 65_536][id as usize % 3]) } else { chunks_of(4) };
                let spec = if index % 2 == 1 { ChecksumSpec::DEFAULT } else { spec };
                let size = if sizes.len() == 4 { 300_000 } else { 6_000_001 };
                // Packets end on chunk boundaries, unless a case states otherwise.
                let sizes: Vec<usize> = match sizes.len() {
                    1 => vec![sizes[0] / spec.bytes_per_chunk as usize * spec.bytes_per_chunk as usize],
                    _ => sizes.to_vec(),
                };
                let sizes: Vec<usize> = if sizes == [0] { vec![spec.bytes_per_chunk as usize] } else { sizes };
                let data = content(size, id as u64);
                let (wire, count) = packets(&data, &sizes, spec);
                let stored = block(id, 1001, 128 << 20);
                let request = creating(&stored, &all.nodes[1..datanodes], spec);
                let writer = Writer::new(all.nodes[0].addresses().transfer, request).await;
                send_in_pieces(writer, &wire, pieces, count, datanodes).await;
                for node in &all.nodes[..datanodes] {
                    assert!(read(node, &stored, 0, None).await.unwrap() == data, "{id}: {sizes:?} in {pieces:?}");
                }
                for namenode in &all.namenodes[..datanodes] {
                    let length = size as u64;
                    namenode.wait_event(BlockStatus::Received, hearth_types::Block { length, ..stored.block }).await;
                }
            }
        }
    }
    // Data that is written into the second DataNode's memory does not arrive over a socket.
    for node in 0..if through_memory { 1 } else { 2 } {
        all.check_in_place("packets_of_all_sizes", all.in_place(node).await, 20 << 20);
    }
    let passed_on = figure(&all.nodes[0], "hearth_locally_forwarded_bytes").await;
    assert_eq!(passed_on > 20 << 20, through_memory, "{passed_on} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrupt_packet_is_reported_and_earlier_data_stays() {
    let all = Nodes::start(1, &[]).await;
    let node = &all.nodes[0];
    let (stored, data) = (block(1, 1001, 128 << 20), content(1_000_000, 1));
    let mut writer = Writer::new(node.addresses().transfer, creating(&stored, &[], ChecksumSpec::DEFAULT)).await;
    writer.send(&data[..262_144], false).await;
    assert!(writer.ack().await.is_success());
    let mut sums = Vec::new();
    ChecksumSpec::DEFAULT.compute(&data[262_144..524_288], &mut sums);
    let mut damaged = data[262_144..524_288].to_vec();
    damaged[200_000] ^= 16;
    writer.send_with(&damaged, &sums, false).await;
    let ack = writer.ack().await;
    assert_eq!(ack.replies.first().map(|reply| reply.status()), Some(Status::ErrorChecksum));
    drop(writer);

    let mut request = creating(&stored, &[], ChecksumSpec::DEFAULT);
    request.stage = Stage::PipelineSetupStreamingRecovery;
    request.latest_stamp = GenerationStamp(1002);
    request.bytes_received_min = 262_144;
    request.bytes_received_max = 524_288;
    Writer::new(node.addresses().transfer, request).await.finish(&data[262_144..], 1).await;
    let mut asked = stored.clone();
    asked.block.stamp = GenerationStamp(1002);
    assert!(read(node, &asked, 0, None).await.unwrap() == data);
    all.check_in_place("corrupt_packet_is_reported_and_earlier_data_stays", all.in_place(0).await, 100_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_resumes_after_disconnect_within_packet() {
    let all = Nodes::start(2, &[]).await;
    let (stored, data) = (block(1, 1001, 128 << 20), content(2_000_000, 1));
    let spec = ChecksumSpec::DEFAULT;
    let (wire, _) = packets(&data, &[131_072], spec);
    let mut writer = Writer::new(all.nodes[0].addresses().transfer, creating(&stored, &all.nodes[1..], spec)).await;
    let connection = writer.receiver.connection().clone();
    connection.write_all(&wire[..700_000], WAIT).await.unwrap();
    for _ in 0..5 {
        assert!(writer.ack().await.is_success());
    }
    // The next writer takes the replica over while this writer is within a packet.
    let mut request = creating(&stored, &all.nodes[1..], spec);
    request.stage = Stage::PipelineSetupStreamingRecovery;
    request.latest_stamp = GenerationStamp(1002);
    request.bytes_received_min = 5 * 131_072;
    request.bytes_received_max = 2_000_000;
    Writer::new(all.nodes[0].addresses().transfer, request).await.finish(&data[5 * 131_072..], 2).await;
    let mut asked = stored.clone();
    asked.block.stamp = GenerationStamp(1002);
    for node in &all.nodes {
        assert!(read(node, &asked, 0, None).await.unwrap() == data);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_packets_before_partial_one_are_stored() {
    let all = Nodes::start(1, &[]).await;
    let spec = ChecksumSpec::DEFAULT;
    for (id, cut) in (1..).zip([700_000, 528_000, 600_100, 460_900]) {
        let (stored, data) = (block(id, 1001, 128 << 20), content(2_000_000, id as u64));
        let (wire, _) = packets(&data, &[65_536], spec);
        let mut writer = Writer::new(all.nodes[0].addresses().transfer, creating(&stored, &[], spec)).await;
        let connection = writer.receiver.connection().clone();
        // Sent all at once, so that the packets arrive together and are followed by the end of the connection.
        connection.write_all(&wire[..cut], WAIT).await.unwrap();
        connection.shutdown_write();
        let of_one = packets(&data[..65_536], &[65_536], spec).0.len() - packets(&[], &[1], spec).0.len();
        let whole = cut / of_one * 65_536;
        let mut acknowledged = 0;
        while let Ok(ack) = writer.receiver.receive_ack().await {
            assert!(ack.is_success(), "{ack:?}");
            acknowledged += 65_536;
        }
        assert_eq!(acknowledged, whole, "of {cut} bytes");
        let mut request = creating(&stored, &[], spec);
        request.stage = Stage::PipelineSetupStreamingRecovery;
        request.latest_stamp = GenerationStamp(1002);
        request.bytes_received_min = whole as u64;
        request.bytes_received_max = 2_000_000;
        let writer = Writer::new(all.nodes[0].addresses().transfer, request).await;
        writer.finish(&data[whole..], 1).await;
        let mut asked = stored.clone();
        asked.block.stamp = GenerationStamp(1002);
        assert!(read(&all.nodes[0], &asked, 0, None).await.unwrap() == data);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn block_continues_on_disk_when_memory_is_full() {
    let all = Nodes::start(2, &[("hearth.memory.limit", "3m")]).await;
    for id in 1..=3 {
        let (stored, data) = (block(id, 1001, 128 << 20), content(7_000_000, id as u64));
        write(&all.nodes[0], &[&all.nodes[1]], &stored, &data).await;
        for node in &all.nodes {
            assert!(read(node, &stored, 0, None).await.unwrap() == data);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_copies_are_read_straight_into_target_memory() {
    let all = Nodes::start_with(2, &[], true).await;
    for (id, size) in (1..).zip([1 << 20, 5_000_001, 2_097_152 + 512]) {
        let (stored, data) = (block(id, 1001, 128 << 20), content(size, id as u64));
        write(&all.nodes[0], &[], &stored, &data).await;
        let copy = hearth_types::Block { length: size as u64, ..stored.block };
        let way = target(&all.nodes[1]).datanode;
        all.namenodes[0].told(|told| told.commands.push_back(transfer_to(&[copy], &way)));
        all.namenodes[1].wait_event(BlockStatus::Received, copy).await;
        assert!(read(&all.nodes[1], &stored, 0, None).await.unwrap() == data, "{size} bytes");
    }
    let passed_on = figure(&all.nodes[0], "hearth_locally_forwarded_bytes").await;
    assert_eq!(passed_on, (1 << 20) + 5_000_001 + 2_097_152 + 512);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streamed_replicas_survive_interruptions() {
    let window = 2 << 20;
    let settings = [("hearth.datanode.stream.window.bytes", "2097152"), ("hearth.memory.limit", "256m")];
    let all = Nodes::start(2, &settings).await;
    let to = all.nodes[1].addresses().transfer;
    let meddlings =
        [None, Some(Meddling::Break(7 << 20)), Some(Meddling::Flip(5_000_001)), Some(Meddling::Break(99_999))];
    let mut id = 0;
    for meddling in meddlings {
        let mut copies = Vec::new();
        for size in [9_000_001, 100_000, 65_537, 2_000_000, 700] {
            id += 1;
            let stored = block(id, 1001, 128 << 20);
            write(&all.nodes[0], &[], &stored, &content(size, id as u64)).await;
            copies.push(hearth_types::Block { length: size as u64, ..stored.block });
        }
        let (before, sent) = (all.in_place(1).await, figure(&all.nodes[0], "hearth_stream_sent_bytes").await);
        let mut way = target(&all.nodes[1]).datanode;
        let meddler = match meddling {
            Some(meddling) => Some(Meddler::start(to, meddling).await),
            None => None,
        };
        way.id.transfer_port = meddler.as_ref().map_or(to.port(), |meddler| meddler.address.port());
        all.namenodes[0].told(|told| told.commands.push_back(transfer_to(&copies, &way)));
        for copy in &copies {
            all.namenodes[1].wait_event(BlockStatus::Received, *copy).await;
            let data = content(copy.length as usize, copy.id.0 as u64);
            assert!(read(&all.nodes[1], &block(copy.id.0, 1001, 0), 0, None).await.unwrap() == data, "{copy}");
        }
        let in_place = all.in_place(1).await - before;
        all.check_in_place("streamed_replicas_survive_interruptions", in_place, 5_000_000);
        let sent = figure(&all.nodes[0], "hearth_stream_sent_bytes").await - sent;
        let bytes: u64 = copies.iter().map(|copy| copy.length).sum();
        // Each of the two connections of replicas breaks at most once.
        assert!(sent >= bytes, "{sent} bytes for {bytes}");
        assert!(sent <= bytes + 4 * window, "{sent} bytes for {bytes}");
    }
    for node in &all.nodes {
        assert_eq!(figure(node, "hearth_corruptions").await, 0);
    }
}
