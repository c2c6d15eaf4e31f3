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
