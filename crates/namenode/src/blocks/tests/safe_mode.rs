use hearth_types::{Block, BlockId, GenerationStamp, ReplicaState};

use super::cluster::*;
use crate::blocks::*;

fn restarted(blocks: usize) -> (Cluster, Vec<Block>) {
    let mut cluster = Cluster::empty(BlockSettings::default());
    let blocks: Vec<Block> = (0..blocks).map(|_| Block { length: 10, ..cluster.new_block() }).collect();
    for block in &blocks {
        cluster.map.restore(*block, 16386, 1, 0, true);
    }
    cluster.map.restored(cluster.now);
    (cluster, blocks)
}

fn on_disk(block: &Block) -> OnDisk {
    OnDisk { stamp: block.stamp.0, length: block.length, state: ReplicaState::Finalized, rotten: false }
}

#[test]
fn an_empty_namespace_is_ready_at_once() {
    let (cluster, _) = restarted(0);
    assert!(!cluster.map.in_safe_mode());
    assert_eq!(cluster.map.safe_mode_tip(cluster.now), "");
}

#[test]
fn safe_mode_ends_after_blocks_and_extension() {
    let (mut cluster, blocks) = restarted(4);
    assert!(cluster.map.in_startup_safe_mode());
    assert_eq!(
        cluster.map.safe_mode_tip(cluster.now),
        "The reported blocks 0 needs additional 3 blocks to reach the threshold 0.9990 of total blocks 4.\n\
         The minimum number of live datanodes is not required. Safe mode will be turned off automatically once the thresholds have been reached."
    );
    let nth = cluster.add("/a");
    for block in &blocks {
        cluster.nodes[nth].disk.insert(block.id.0, on_disk(block));
    }
    // A stray block is not deleted during safe mode.
    let stray = Block { id: BlockId(5), stamp: blocks[0].stamp, length: 1 };
    cluster.nodes[nth].disk.insert(5, on_disk(&stray));
    cluster.nodes[nth].registered = false;
    cluster.beat(nth);
    cluster.beat(nth);
    assert!(cluster.map.in_safe_mode());
    assert_eq!(
        cluster.map.safe_mode_tip(cluster.now),
        "The reported blocks 4 has reached the threshold 0.9990 of total blocks 4. The minimum number of live datanodes is not \
         required. In safe mode extension. Safe mode will be turned off automatically in 30 seconds."
    );
    assert!(cluster.nodes[nth].disk.contains_key(&5));
    cluster.run(29);
    assert!(cluster.map.in_safe_mode());
    cluster.run(6);
    assert!(!cluster.map.in_safe_mode());
    assert!(!cluster.nodes[nth].disk.contains_key(&5));
}

#[test]
fn manual_safe_mode_stays_and_stops_work() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, _) = cluster.write(1, 10);
    cluster.map.enter_safe_mode();
    cluster.map.set_replication(block.id, 2, cluster.now);
    cluster.run(60);
    assert!(cluster.map.in_safe_mode() && !cluster.map.in_startup_safe_mode());
    assert_eq!(
        cluster.map.safe_mode_tip(cluster.now),
        "It was turned on manually. Use \"hdfs dfsadmin -safemode leave\" to turn safe mode off."
    );
    assert_eq!(cluster.good(block).len(), 1);
    assert!(cluster.map.leave_safe_mode(false, cluster.now));
    cluster.run(10);
    assert_eq!(cluster.good(block).len(), 2);
}

#[test]
fn blocks_from_the_future_are_not_deleted_without_force() {
    let (mut cluster, blocks) = restarted(2);
    let nth = cluster.add("/a");
    let future = Block { id: BlockId(77), stamp: GenerationStamp(999_999), length: 33 };
    cluster.nodes[nth].disk.insert(77, on_disk(&future));
    for block in &blocks {
        cluster.nodes[nth].disk.insert(block.id.0, on_disk(block));
    }
    cluster.nodes[nth].registered = false;
    cluster.run(100);
    assert_eq!(cluster.map.bytes_in_future(), 33);
    assert!(cluster.map.in_safe_mode());
    assert!(!cluster.map.leave_safe_mode(false, cluster.now));
    assert!(cluster.map.safe_mode_tip(cluster.now).contains("will cause loss of 33 byte(s)"));
    assert!(cluster.map.leave_safe_mode(true, cluster.now));
    assert!(!cluster.map.in_safe_mode());
    cluster.nodes[nth].reported = false;
    cluster.run(10);
    assert!(!cluster.nodes[nth].disk.contains_key(&77), "after forceExit");
}

#[test]
fn blocks_of_a_lost_journal_end_are_not_deleted_without_force() {
    let (mut cluster, blocks) = restarted(2);
    cluster.map.note_stamp(GenerationStamp(9000));
    let lost = [(2000, 3000), (7000, 8000)].map(|(from, to)| GenerationStamp(from)..=GenerationStamp(to));
    cluster.map.protect_stamps(lost.to_vec());
    let nth = cluster.add("/a");
    for block in &blocks {
        cluster.nodes[nth].disk.insert(block.id.0, on_disk(block));
    }
    let lost = [(70, 2000), (71, 8000)];
    let others = [(72, 1999), (73, 5000), (74, 8001)];
    for (id, stamp) in lost.iter().chain(&others) {
        let block = Block { id: BlockId(*id), stamp: GenerationStamp(*stamp), length: 33 };
        cluster.nodes[nth].disk.insert(*id, on_disk(&block));
    }
    cluster.nodes[nth].registered = false;
    cluster.run(100);
    assert_eq!(cluster.map.bytes_in_future(), 66);
    assert!(cluster.map.in_safe_mode() && !cluster.map.leave_safe_mode(false, cluster.now));
    assert!(!cluster.map.take_lost_stamps_given_up());
    assert!(cluster.map.leave_safe_mode(true, cluster.now));
    assert!(cluster.map.take_lost_stamps_given_up() && !cluster.map.take_lost_stamps_given_up());
    cluster.run(10);
    let left = |cluster: &Cluster| cluster.nodes[nth].disk.keys().copied().filter(|id| *id < 100).collect::<Vec<_>>();
    assert_eq!(left(&cluster), [70, 71], "their deletion was not queued in safe mode");
    cluster.nodes[nth].reported = false;
    cluster.run(10);
    assert!(left(&cluster).is_empty(), "after forceExit");
}

#[test]
fn newer_replica_of_a_known_block_keeps_safe_mode_on() {
    // With a stamp that a recovery has skipped, and with one from the future.
    for stamp in [5000, 999_999] {
        let (mut cluster, blocks) = restarted(3);
        cluster.map.note_stamp(GenerationStamp(9000));
        cluster.map.protect_stamps(vec![GenerationStamp(2000)..=GenerationStamp(8000)]);
        let nth = cluster.add("/a");
        let appended = Block { stamp: GenerationStamp(stamp), length: 25, ..blocks[2] };
        // The other two blocks are enough for the threshold.
        for block in [blocks[0], blocks[1], appended] {
            cluster.nodes[nth].disk.insert(block.id.0, on_disk(&block));
        }
        cluster.nodes[nth].registered = false;
        cluster.run(100);
        assert_eq!(cluster.map.bytes_in_future(), 25, "{stamp}");
        assert!(cluster.map.in_safe_mode() && !cluster.map.leave_safe_mode(false, cluster.now), "{stamp}");
        assert!(cluster.map.leave_safe_mode(true, cluster.now), "{stamp}");
        cluster.run(10);
        assert_eq!(cluster.good(appended), [nth], "{stamp}: the last replica stays");
    }
}

/// Returns a cluster outside of safe mode, and a block of which a recovery has lost an append: node 0 has the block as
/// the namespace knows it, nodes 1 and 2 have the appended replicas.
fn with_lost_append(nodes: usize) -> (Cluster, Block, Block) {
    let mut cluster = Cluster::empty(BlockSettings::default());
    let block = Block { length: 10, ..cluster.new_block() };
    cluster.map.restore(block, 16386, 3, 0, true);
    cluster.map.note_stamp(GenerationStamp(9000));
    cluster.map.protect_stamps(vec![GenerationStamp(2000)..=GenerationStamp(8000)]);
    cluster.map.restored(cluster.now);
    assert!(!cluster.map.in_safe_mode());
    for _ in 0..nodes {
        cluster.add("/a");
    }
    let appended = Block { stamp: GenerationStamp(5000), length: 25, ..block };
    cluster.receive(0, block);
    cluster.receive(1, appended);
    cluster.receive(2, appended);
    (cluster, block, appended)
}

#[test]
fn replicas_of_a_lost_append_are_not_deleted_without_force() {
    let (mut cluster, block, appended) = with_lost_append(5);
    cluster.run(60);
    assert_eq!(cluster.good(block), [0, 3, 4], "copies are made");
    assert_eq!(cluster.good(appended), [1, 2]);
    // The block is appended to again.
    let pipeline = cluster.map.reopen(block.id).unwrap();
    let again = Block { stamp: GenerationStamp(9001), length: 60, ..block };
    cluster.map.update_pipeline(block, again.stamp, block.length, &pipeline).unwrap();
    for storage in &pipeline {
        cluster.receive(cluster.nth_of(*storage), again);
    }
    cluster.map.commit(again, cluster.now).unwrap();
    for nth in [1, 2] {
        cluster.nodes[nth].reported = false;
    }
    cluster.run(30);
    assert_eq!(cluster.good(again), [0, 3, 4]);
    assert_eq!(cluster.good(appended), [1, 2]);
    // Corrupt replicas of the block as it is are deleted as before.
    cluster.nodes[3].disk.get_mut(&block.id.0).unwrap().rotten = true;
    let (id, storage) = (cluster.nodes[3].id.clone(), cluster.nodes[3].storage());
    cluster.map.report_bad_replica(again, &id, Some(&storage), cluster.now);
    cluster.run(60);
    assert_eq!(cluster.good(again), [0, 3, 4]);
    assert_eq!(cluster.good(appended), [1, 2]);
    // After forceExit without another report.
    assert!(cluster.map.leave_safe_mode(true, cluster.now));
    cluster.run(10);
    assert_eq!(cluster.good(again), [0, 3, 4]);
    assert!(cluster.good(appended).is_empty(), "after forceExit");
}

#[test]
fn replicas_of_a_lost_append_make_no_room_without_force() {
    let (mut cluster, block, appended) = with_lost_append(3);
    cluster.run(60);
    assert_eq!(cluster.good(block), [0]);
    assert_eq!(cluster.good(appended), [1, 2]);
    assert!(cluster.map.leave_safe_mode(true, cluster.now));
    cluster.run(60);
    assert_eq!(cluster.good(block), [0, 1, 2], "after forceExit");
}
