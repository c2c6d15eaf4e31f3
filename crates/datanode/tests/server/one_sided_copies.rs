//! Copies ordered by a NameNode that one DataNode writes into another's memory: over a transport that needs no card,
//! over RDMA in the virtual machine, and over a network with faults.

use std::sync::Arc;

use hearth_fabric::one_sided::Transport;
use hearth_fabric::sim::{Fault, FaultAction, Sim, Step};
use hearth_testkit::until;
use hearth_types::{Block, ChecksumSpec};
use hearth_wire::data_transfer::Stage;

use super::client::{WAIT, Writer, block, content, target, write, write_request};
use super::namenode::FakeNamenode;
use super::one_sided_writes::{figure, in_network};
use super::streams::{Two, walk};
use super::transfers::transfer;
use super::{scratch, start_datanode_in};

const MIB: usize = 1 << 20;

/// `networks`, `settings`: for each of the two DataNodes.
pub async fn two(networks: [Option<Arc<dyn Transport>>; 2], settings: [&[(&str, &str)]; 2]) -> Two {
    let namenodes = [FakeNamenode::start().await, FakeNamenode::start().await];
    let dirs = [scratch(), scratch()];
    let mut nodes = Vec::new();
    for (index, network) in networks.into_iter().enumerate() {
        nodes.push(start_datanode_in(network, &namenodes[index], dirs[index].path(), settings[index]).await);
    }
    Two { namenodes, nodes, dirs }
}

/// Starts both in the machine's network.
pub async fn two_of_one_network(settings: [&[(&str, &str)]; 2]) -> Two {
    let settings = settings.map(|own| [&in_network(), own].concat());
    two([None, None], [&settings[0], &settings[1]]).await
}

/// Starts both in a network with faults.
async fn two_in(sim: &Sim, settings: &[(&str, &str)]) -> Two {
    let network: Arc<dyn Transport> = Arc::new(sim.clone());
    let settings = [&[("hearth.one-sided.address", "127.0.0.1:0")], settings].concat();
    two([Some(network.clone()), Some(network)], [&settings, &settings]).await
}

pub async fn came_in(two: &Two) -> [u64; 3] {
    let node = &two.nodes[1];
    [
        figure(node, "hearth_stream_replicas").await,
        figure(node, "hearth_one_sided_written_bytes").await,
        figure(node, "hearth_stream_received_bytes").await,
    ]
}

/// Waits until the second DataNode has no partial copies. Its flusher, which writes there too, may begin others after
/// that.
pub async fn no_partial_copies(two: &Two) {
    let is_partial = |path: String| path.contains("/tmp/blk_");
    until("the end of partial copies", async || !walk(two.dirs[1].path()).into_iter().any(is_partial)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_replicas_use_memory_and_small_streams() {
    let two = two_of_one_network([&[], &[]]).await;
    let copies = copies_of_all_sizes(&two, 18).await;
    let bytes = |large: bool| copies.iter().map(|copy| copy.length).filter(|l| (*l >= MIB as u64) == large).sum();
    assert_eq!(came_in(&two).await, [18, bytes(true), bytes(false)]);
    assert_eq!(figure(&two.nodes[0], "hearth_stream_sent_bytes").await, bytes(false));
    no_partial_copies(&two).await;

    // Existing replicas stay, and the connections can be used again.
    let more = two.write(99, 3 * MIB).await;
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&[copies[4], more], &two.nodes[1])));
    two.check(&[more]).await;
    two.check(&copies).await;
}

/// Writes small and large replicas to the first DataNode, and copies them to the second.
pub async fn copies_of_all_sizes(two: &Two, count: i64) -> Vec<Block> {
    let mut copies = Vec::new();
    for id in 1..=count {
        let size = [700, 70_000, MIB - 1, MIB, 1_300_000, 5 * MIB + 77][id as usize % 6];
        copies.push(two.write(id, size).await);
    }
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.check(&copies).await;
    copies
}

/// The chunk size divides no other size here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_chunk_sizes_are_copied_whole() {
    let two = two_of_one_network([&[], &[]]).await;
    let length = copy_of_odd_chunks(&two).await;
    assert_eq!(came_in(&two).await, [1, length, 0]);
}

/// Writes a replica with chunks of 1536 bytes to the first DataNode, and copies it to the second. Returns its length.
pub async fn copy_of_odd_chunks(two: &Two) -> u64 {
    let (stored, data) = (block(1, 1001, 128 << 20), content(3 * MIB + 5, 1));
    let spec = ChecksumSpec { bytes_per_chunk: 1536, ..ChecksumSpec::DEFAULT };
    let mut request = write_request(&stored, Stage::PipelineSetupCreate, Vec::new());
    request.checksum = spec;
    let mut writer = Writer::new(two.nodes[0].addresses().transfer, request).await;
    for piece in data.chunks(40 * 1536) {
        let mut sums = Vec::new();
        spec.compute(piece, &mut sums);
        writer.send_with(piece, &sums, false).await;
        assert!(writer.ack().await.is_success());
    }
    writer.send_last().await;
    assert!(writer.ack().await.is_success());
    let copies = [Block { length: data.len() as u64, ..stored.block }];
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.check(&copies).await;
    copies[0].length
}

/// From a disk into memory that is too small. The sender copies each slice to a buffer, and uses that again once the
/// write has completed. If the receiver got later bytes of it, it would refuse them, and a stream would send the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_memory_falls_back_to_buffers() {
    let two = two_of_one_network([&[("hearth.memory.limit", "1k")], &[("hearth.memory.limit", "9m")]]).await;
    let bytes = copies_of_some_mebibytes(&two).await;
    assert_eq!(came_in(&two).await, [5, bytes, 0]);
}

/// Writes five replicas to the first DataNode, and copies them to the second. Returns their total bytes.
pub async fn copies_of_some_mebibytes(two: &Two) -> u64 {
    let mut copies = Vec::new();
    for id in 1..=5 {
        copies.push(two.write(id, 3 * MIB + [0, 1, 700, 512 << 10, 99_999][id as usize - 1]).await);
    }
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.check(&copies).await;
    copies.iter().map(|copy| copy.length).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datanode_without_one_sided_network_gets_stream() {
    let two = two([None, None], [&in_network(), &[("hearth.one-sided.transport", "none")]]).await;
    let copies = [two.write(1, 3 * MIB).await];
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.check(&copies).await;
    assert_eq!(came_in(&two).await, [1, 0, copies[0].length]);
}

/// Acknowledged bytes are not sent again: a stream sends the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_resumes_broken_one_sided_copy() {
    let sim = Sim::new();
    let two = two_in(&sim, &[]).await;
    let size = 24 * MIB;
    let copies = [two.write(1, size).await];
    // Data and CRCs of a slice of half a MiB are two writes.
    sim.fault(Fault { at: Step::Write, nth: 60, then: FaultAction::End });
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.check(&copies).await;
    let [replicas, _, streamed] = came_in(&two).await;
    let resumed = figure(&two.nodes[1], "hearth_stream_resumed_bytes").await;
    assert_eq!((replicas, resumed + streamed), (1, size as u64));
    // For the thirtieth slice memory was granted four times, each time for bytes that had been checked.
    assert!((2 * MIB as u64..15 * MIB as u64).contains(&resumed), "{resumed}");
    no_partial_copies(&two).await;

    // A repeated command finds the replica already there; another replica takes the one-sided path again.
    let more = two.write(2, 2 * MIB).await;
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&[more], &two.nodes[1])));
    two.check(&[more]).await;
    assert_eq!(came_in(&two).await[2], streamed);
}

/// If the rest is never sent, the partial replica is discarded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_partial_replica_is_removed() {
    let sim = Sim::new();
    let mut two = two_in(&sim, &[("hearth.datanode.stream.resume.timeout", "1")]).await;
    let copies = [two.write(1, 8 * MIB).await];
    sim.fault(Fault { at: Step::Write, nth: 20, then: FaultAction::Hold });
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    tokio::time::timeout(WAIT, sim.held()).await.unwrap();
    assert!(figure(&two.nodes[1], "hearth_memory_used_bytes").await > 0);
    two.nodes.remove(0).shutdown(false).await;
    sim.release();
    until("the removal of the partial replica", async || {
        figure(&two.nodes[0], "hearth_replicas").await == 0
            && figure(&two.nodes[0], "hearth_memory_used_bytes").await == 0
    })
    .await;
    // The block can still be received in any way.
    let stored = block(1, 1001, 8 << 20);
    write(&two.nodes[0], &[], &stored, &content(8 * MIB, 1)).await;
}

/// A source reports its own replica that no longer matches its CRCs; no part of it stays at the other end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrupt_source_replica_is_detected_and_reported() {
    use std::os::unix::fs::FileExt;
    // Once a good copy is on disk, that copy is sent.
    let two = two_of_one_network([&[("hearth.memory.flush.delay", "3600")], &[]]).await;
    let copies = [two.write(1, 4 * MIB).await];
    let data = walk(&two.dirs[0].path().join("memory"));
    let data = data.iter().find(|path| path.contains("blk_1_") && path.ends_with(".data")).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(data).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 3 * MIB as u64).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 3 * MIB as u64).unwrap();
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.namenodes[0].wait("a corrupt replica to be reported", |told| !told.bad.is_empty()).await;
    two.namenodes[0].told(|told| {
        let bad = &told.bad[0].blocks[0];
        assert_eq!(bad.b.block_id, 1);
        assert_eq!(bad.locs[0].id.datanode_uuid, target(&two.nodes[0]).datanode.id.uuid.to_string());
    });
    two.namenodes[1].told(|told| assert!(told.bad.is_empty(), "{:?}", told.bad));
    assert_eq!(came_in(&two).await[0], 0);
}
