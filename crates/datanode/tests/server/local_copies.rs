//! Copies ordered by a NameNode, and pipelines, between DataNodes on one machine: through memory that the next DataNode
//! lends.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hearth_testkit::until;
use hearth_types::{ChecksumSpec, GenerationStamp};
use hearth_wire::data_transfer::{HEARTBEAT_SEQNO, PacketHeader, Stage};

use super::client::{WAIT, Writer, block, content, read, slow_datanode, target, write, write_request};
use super::local_writes::{self, socket_of};
use super::namenode::FakeNamenode;
use super::one_sided_copies::{
    came_in, copies_of_all_sizes, copies_of_some_mebibytes, copy_of_odd_chunks, no_partial_copies,
};
use super::one_sided_writes::figure;
use super::scratch;
use super::streams::{Two, walk};
use super::transfers::transfer;

const MIB: usize = 1 << 20;

/// Starts two DataNodes with domain sockets. `settings`: for each of them.
pub async fn two(settings: [&[(&str, &str)]; 2]) -> Two {
    let namenodes = [FakeNamenode::start().await, FakeNamenode::start().await];
    let dirs = [scratch(), scratch()];
    let mut nodes = Vec::new();
    for (index, settings) in settings.into_iter().enumerate() {
        nodes.push(local_writes::start(&namenodes[index], dirs[index].path(), settings).await);
    }
    Two { namenodes, nodes, dirs }
}

async fn forwarded(two: &Two) -> u64 {
    figure(&two.nodes[0], "hearth_locally_forwarded_bytes").await
}

/// With trusted and untrusted writers: the memory is kept or copied at the end, respectively.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_replicas_use_memory_and_small_streams() {
    for trusted in ["true", "false"] {
        let settings = [("hearth.local.write.trusted", trusted)];
        let two = two([&settings, &settings]).await;
        let copies = copies_of_all_sizes(&two, 12).await;
        let bytes = |large: bool| copies.iter().map(|copy| copy.length).filter(|l| (*l >= MIB as u64) == large).sum();
        assert_eq!(came_in(&two).await, [12, 0, bytes(false)]);
        assert_eq!(forwarded(&two).await, bytes(true));
        no_partial_copies(&two).await;
        let copied_back = figure(&two.nodes[1], "hearth_copied_back_bytes").await;
        assert!(
            if trusted == "true" { copied_back < bytes(true) } else { copied_back == bytes(true) },
            "{copied_back}"
        );

        // Existing replicas stay.
        let more = two.write(99, 3 * MIB).await;
        two.namenodes[0].told(|told| told.commands.push_back(transfer(&[copies[4], more], &two.nodes[1])));
        two.check(&[more]).await;
        two.check(&copies).await;
    }
}

/// The chunk size divides no other size here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_chunk_sizes_are_copied_whole() {
    let two = two([&[], &[]]).await;
    let length = copy_of_odd_chunks(&two).await;
    assert_eq!(forwarded(&two).await, length);
}

/// From a disk into memory that is too small: bytes without a grant arrive with their packets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_memory_falls_back_to_packet_data() {
    let two = two([&[("hearth.memory.limit", "1k")], &[("hearth.memory.limit", "9m")]]).await;
    let bytes = copies_of_some_mebibytes(&two).await;
    assert_eq!(came_in(&two).await, [5, 0, 0], "none of them by a stream");
    let forwarded = forwarded(&two).await;
    assert!(forwarded > 0 && forwarded < bytes, "{forwarded} of {bytes}");
}

/// The receiver detects the changed bytes, the sender checks its own replica, and the copy is made from the disk. No
/// replica is reported as corrupt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrupt_memory_is_detected_and_copied_from_disk() {
    let two = two([&[], &[]]).await;
    let copies = [two.write(1, 4 * MIB).await];
    until("the flush", async || figure(&two.nodes[0], "hearth_flushed_replicas").await != 0).await;
    let data = walk(&two.dirs[0].path().join("memory"));
    let data = data.iter().find(|path| path.contains("blk_1_") && path.ends_with(".data")).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(data).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 3 * MIB as u64).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 3 * MIB as u64).unwrap();
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.check(&copies).await;
    assert!(forwarded(&two).await > 0, "it began through memory");
    for namenode in &two.namenodes {
        namenode.told(|told| assert!(told.bad.is_empty(), "{:?}", told.bad));
    }
    no_partial_copies(&two).await;
}

/// From a remote client: over a socket to the first DataNode, through memory from there on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packet_pipeline_continues_through_memory() {
    let two = two([&[], &[("hearth.memory.limit", "20m")]]).await;
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let third = local_writes::start(&namenode, dir.path(), &[]).await;
    let sizes = [1, 700, 70_001, 4 * MIB + 5, 30 * MIB];
    for (id, size) in sizes.into_iter().enumerate() {
        let (stored, data) = (block(id as i64, 1001, 128 << 20), content(size, id as u64));
        write(&two.nodes[0], &[&two.nodes[1], &third], &stored, &data).await;
        for node in [&two.nodes[0], &two.nodes[1], &third] {
            assert!(read(node, &stored, 0, None).await.unwrap() == data, "{size} bytes");
        }
    }
    let all = sizes.iter().sum::<usize>() as u64;
    assert!(forwarded(&two).await < all, "memory was full in the middle");
    assert_eq!(figure(&two.nodes[1], "hearth_locally_forwarded_bytes").await, all);
}

/// The middle DataNode grants more memory when the one after it has answered. It must receive heartbeats from the
/// DataNode that waits for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sender_waiting_for_memory_is_kept_alive() {
    let settings = [("dfs.client.socket-timeout", "4000")];
    let two = two([&settings, &settings]).await;
    let (slow, holds) = slow_datanode(&two.nodes[1]);
    let (stored, data) = (block(1, 1001, 128 << 20), content(3 * MIB, 1));
    let request = write_request(&stored, Stage::PipelineSetupCreate, vec![target(&two.nodes[1]), slow]);
    let mut writer = Writer::new(two.nodes[0].addresses().transfer, request).await;
    holds.store(true, Ordering::Relaxed);
    tokio::spawn(async move {
        // Longer than the read timeout.
        tokio::time::sleep(Duration::from_secs(5)).await;
        holds.store(false, Ordering::Relaxed);
    });
    for piece in data.chunks(MIB) {
        writer.send(piece, false).await;
    }
    let heartbeat = PacketHeader { offset: 0, seqno: HEARTBEAT_SEQNO, last: false, data_bytes: 0, sync: false };
    let mut awaited = 0;
    // A DataNode whose heartbeats are answered is not considered dead.
    let answered = async {
        while awaited < writer.seqno {
            match tokio::time::timeout(Duration::from_secs(1), writer.ack()).await {
                Ok(ack) => {
                    assert!(ack.is_success(), "{ack:?}");
                    awaited += i64::from(ack.seqno != HEARTBEAT_SEQNO);
                }
                Err(_) => writer.sender.send_packet(&heartbeat, &[], &[]).await.unwrap(),
            }
        }
        writer.send_last().await;
        while awaited < writer.seqno {
            let ack = writer.ack().await;
            assert!(ack.is_success(), "{ack:?}");
            awaited += i64::from(ack.seqno != HEARTBEAT_SEQNO);
        }
    };
    tokio::time::timeout(2 * WAIT, answered).await.expect("all is acknowledged");
    for node in &two.nodes {
        assert!(read(node, &stored, 0, None).await.unwrap() == data);
    }
    let forwarded = forwarded(&two).await;
    assert!(forwarded > 0 && forwarded < data.len() as u64, "{forwarded} bytes were sent through memory");
}

/// A client may send such packets: their four data bytes look like the CRC of a packet whose data is in place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_without_crcs_is_not_taken_for_crcs() {
    let two = two([&[], &[]]).await;
    let (stored, data) = (block(1, 1001, 128 << 20), content(600, 1));
    let request = write_request(&stored, Stage::PipelineSetupCreate, vec![target(&two.nodes[1])]);
    let mut writer = Writer::new(two.nodes[0].addresses().transfer, request).await;
    for piece in [0..4, 4..512, 512..600] {
        writer.send_with(&data[piece], &[], false).await;
        assert!(writer.ack().await.is_success());
    }
    writer.send_last().await;
    assert!(writer.ack().await.is_success());
    for node in &two.nodes {
        assert!(read(node, &stored, 0, None).await.unwrap() == data);
    }
}

/// A packet that is sent again with bad data is refused by the last DataNode, whose previous bytes stay unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_repeated_packet_does_not_overwrite_data() {
    let two = two([&[("hearth.local.write.trusted", "true")], &[("hearth.local.write.trusted", "true")]]).await;
    let (stored, data) = (block(1, 1001, 128 << 20), content(2 * MIB, 1));
    let request = write_request(&stored, Stage::PipelineSetupCreate, vec![target(&two.nodes[1])]);
    let mut writer = Writer::new(two.nodes[0].addresses().transfer, request).await;
    let mut sums = Vec::new();
    ChecksumSpec::DEFAULT.compute(&data[..MIB], &mut sums);
    writer.send_with(&data[..MIB], &sums, false).await;
    assert!(writer.ack().await.is_success());
    assert_eq!(forwarded(&two).await, MIB as u64);
    writer.offset = 0;
    let mut bad = data[..MIB].to_vec();
    bad[1000] ^= 1;
    writer.send_with(&bad, &sums, false).await;
    assert!(writer.receiver.receive_ack().await.map_or(true, |ack| !ack.is_success()));
    let mut recovery = write_request(&stored, Stage::PipelineSetupStreamingRecovery, vec![target(&two.nodes[1])]);
    recovery.latest_stamp = GenerationStamp(1002);
    recovery.bytes_received_min = MIB as u64;
    recovery.bytes_received_max = MIB as u64;
    Writer::new(two.nodes[0].addresses().transfer, recovery).await.finish(&data[MIB..], 2).await;
    let asked = block(1, 1002, 0);
    assert!(read(&two.nodes[1], &asked, 0, None).await.unwrap() == data);
    assert_eq!(forwarded(&two).await, MIB as u64, "a continued pipeline uses packets");
}

/// Packets may be longer than a packet with in-place data can describe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_of_any_length_are_forwarded() {
    let two = two([&[], &[]]).await;
    let (stored, data) = (block(1, 1001, 128 << 20), content(12 * MIB, 1));
    let request = write_request(&stored, Stage::PipelineSetupCreate, vec![target(&two.nodes[1])]);
    let mut writer = Writer::new(two.nodes[0].addresses().transfer, request).await;
    for piece in [&data[..MIB], &data[MIB..10 * MIB], &data[10 * MIB..]] {
        let mut sums = Vec::new();
        ChecksumSpec::DEFAULT.compute(piece, &mut sums);
        writer.send_with(piece, &sums, false).await;
        assert!(writer.ack().await.is_success());
    }
    writer.send_last().await;
    assert!(writer.ack().await.is_success());
    for node in &two.nodes {
        assert!(read(node, &stored, 0, None).await.unwrap() == data);
    }
    assert_eq!(forwarded(&two).await, 3 * MIB as u64);
}

/// A path does not identify the DataNode that listens there now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socket_taken_by_other_datanode_is_not_used() {
    let two = two([&[], &[]]).await;
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let other = local_writes::start(&namenode, dir.path(), &[]).await;
    std::fs::rename(socket_of(dir.path()), socket_of(two.dirs[1].path())).unwrap();
    let copies = [two.write(1, 3 * MIB).await];
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.check(&copies).await;
    assert_eq!(came_in(&two).await, [1, 0, copies[0].length], "by a stream");
    assert_eq!(forwarded(&two).await, 0);
    assert!(read(&other, &block(1, 1001, 0), 0, None).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn target_without_memory_copies_gets_streams() {
    let two = two([&[("hearth.datanode.forward.local", "false")], &[]]).await;
    let copies = [two.write(1, 3 * MIB).await];
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.check(&copies).await;
    assert_eq!(came_in(&two).await, [1, 0, copies[0].length]);
}
