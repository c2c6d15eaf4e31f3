//! Copies on a namenode's word, and pipelines, between datanodes of one machine: through memory that the next one lends.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hearth_types::{ChecksumSpec, GenerationStamp};
use hearth_wire::data_transfer::{HEARTBEAT_SEQNO, PacketHeader, Stage};

use super::client::{WAIT, Writer, block, content, read, slow_datanode, target, write, write_request};
use super::local_writes::{self, socket_of};
use super::namenode::FakeNamenode;
use super::one_sided_copies::{came_in, copies_of_all_sizes, copies_of_some_mebibytes, copy_of_odd_chunks, temporary};
use super::one_sided_writes::figure;
use super::scratch;
use super::streams::{Two, walk};
use super::transfers::transfer;

const MIB: usize = 1 << 20;

/// Both with domain sockets. `settings`: of either.
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

/// Trusted or not, which is whether the memory is kept or copied at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_replicas_go_through_memory_and_small_ones_are_streamed() {
    for trusted in ["true", "false"] {
        let settings = [("hearth.local.write.trusted", trusted)];
        let two = two([&settings, &settings]).await;
        let copies = copies_of_all_sizes(&two, 12).await;
        let bytes = |large: bool| copies.iter().map(|copy| copy.length).filter(|l| (*l >= MIB as u64) == large).sum();
        assert_eq!(came_in(&two).await, [12, 0, bytes(false)]);
        assert_eq!((forwarded(&two).await, temporary(&two).await), (bytes(true), 0));
        let copied_back = figure(&two.nodes[1], "hearth_copied_back_bytes").await;
        assert!(
            if trusted == "true" { copied_back < bytes(true) } else { copied_back == bytes(true) },
            "{copied_back}"
        );

        // Those that are there already stay.
        let more = two.write(99, 3 * MIB).await;
        two.namenodes[0].told(|told| told.commands.push_back(transfer(&[copies[4], more], &two.nodes[1])));
        two.check(&[more]).await;
        two.check(&copies).await;
    }
}

/// Whose size is no divisor of anything here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_of_any_size_stay_whole() {
    let two = two([&[], &[]]).await;
    let length = copy_of_odd_chunks(&two).await;
    assert_eq!(forwarded(&two).await, length);
}

/// From a disk, into memory that is too small for them: what was not granted comes with its packets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_memory_the_bytes_come_with_their_packets() {
    let two = two([&[("hearth.memory.limit", "1k")], &[("hearth.memory.limit", "9m")]]).await;
    let bytes = copies_of_some_mebibytes(&two).await;
    assert_eq!(came_in(&two).await, [5, 0, 0], "none of them by a stream");
    let forwarded = forwarded(&two).await;
    assert!(forwarded > 0 && forwarded < bytes, "{forwarded} of {bytes}");
}

/// The receiver finds them, the sender looks at its own replica, and the copy is made from the disk. Nobody's replica is called corrupt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_have_changed_in_memory_are_found_and_come_from_the_disk() {
    let two = two([&[], &[]]).await;
    let copies = [two.write(1, 4 * MIB).await];
    let flushed = async {
        while figure(&two.nodes[0], "hearth_flushed_replicas").await == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, flushed).await.expect("is flushed");
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
    assert_eq!(temporary(&two).await, 0);
}

/// From a client elsewhere: over a socket to the first, through memory from there on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_that_begins_with_packets_goes_on_through_memory() {
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

/// It has memory for more when the one behind it has answered, and hears of who waits for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_datanode_behind_which_another_is_slow_does_not_take_who_waits_for_memory_for_dead() {
    let settings = [("dfs.client.socket-timeout", "4000")];
    let two = two([&settings, &settings]).await;
    let (slow, holds) = slow_datanode(&two.nodes[1]);
    let (stored, data) = (block(1, 1001, 128 << 20), content(3 * MIB, 1));
    let request = write_request(&stored, Stage::PipelineSetupCreate, vec![target(&two.nodes[1]), slow]);
    let mut writer = Writer::new(two.nodes[0].addresses().transfer, request).await;
    holds.store(true, Ordering::Relaxed);
    tokio::spawn(async move {
        // Longer than silence is borne.
        tokio::time::sleep(Duration::from_secs(5)).await;
        holds.store(false, Ordering::Relaxed);
    });
    for piece in data.chunks(MIB) {
        writer.send(piece, false).await;
    }
    let heartbeat = PacketHeader { offset: 0, seqno: HEARTBEAT_SEQNO, last: false, data_bytes: 0, sync: false };
    let mut awaited = 0;
    // Whose heartbeats are answered is not given up by anybody else.
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
    assert!(forwarded > 0 && forwarded < data.len() as u64, "{forwarded} bytes went through memory");
}

/// As a client may send them: four bytes look as the CRC of a packet whose data are in place does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_without_crcs_are_not_taken_for_crcs() {
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

/// A packet that comes again, and is bad this time, is refused by the last datanode, and what it had stays as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_again_is_not_put_over_what_is_there() {
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
    assert_eq!(forwarded(&two).await, MIB as u64, "a pipeline that goes on does so in packets");
}

/// Packets may be longer than what one that is in place may speak of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_of_any_length_go_on() {
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

/// A path says nothing of who listens there now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_another_datanode_has_taken_is_not_used() {
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
async fn one_that_wants_no_copies_through_memory_gets_streams() {
    let two = two([&[("hearth.datanode.forward.local", "false")], &[]]).await;
    let copies = [two.write(1, 3 * MIB).await];
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.check(&copies).await;
    assert_eq!(came_in(&two).await, [1, 0, copies[0].length]);
}
