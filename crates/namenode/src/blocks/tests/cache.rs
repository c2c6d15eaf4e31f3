use std::time::Duration;

use hearth_types::Block;

use super::cluster::*;
use crate::blocks::*;

fn want(cluster: &mut Cluster, wanted: &[(Block, u16)]) {
    let wanted: WantedCopies = wanted.iter().map(|(block, copies)| (block.id, *copies)).collect();
    cluster.map.schedule_caching(&wanted, cluster.now);
}

fn locked_on(cluster: &Cluster, block: Block) -> Vec<usize> {
    (0..cluster.nodes.len()).filter(|nth| cluster.nodes[*nth].locked.contains(&block.id)).collect()
}

fn beat_all(cluster: &mut Cluster) {
    for nth in 0..cluster.nodes.len() {
        if cluster.nodes[nth].up {
            cluster.beat(nth);
        }
    }
}

#[test]
fn wanted_copies_are_locked_on_replica_holders() {
    let mut cluster = Cluster::new(&["/a", "/a", "/a", "/a"]);
    let (block, holders) = cluster.write(3, 100);
    want(&mut cluster, &[(block, 2)]);
    beat_all(&mut cluster);
    let locked = locked_on(&cluster, block);
    assert_eq!(locked.len(), 2);
    assert!(locked.iter().all(|nth| holders.contains(nth)), "only holders can lock the block");
    assert_eq!(cluster.map.cached_copies()[&block.id], 2);
    let located = cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now).unwrap();
    for (location, cached) in located.locations.iter().zip(&located.cached) {
        assert_eq!(locked.contains(&cluster.nth(&location.id)), *cached);
    }
    // Three copies, then one, then none.
    want(&mut cluster, &[(block, 9)]);
    beat_all(&mut cluster);
    assert_eq!(locked_on(&cluster, block).len(), 3, "at most one per replica");
    want(&mut cluster, &[(block, 1)]);
    beat_all(&mut cluster);
    assert_eq!(locked_on(&cluster, block).len(), 1);
    want(&mut cluster, &[]);
    beat_all(&mut cluster);
    assert!(locked_on(&cluster, block).is_empty());
    assert!(!cluster.map.caches_anything());
    assert!(cluster.map.locate(block.id, 0, ReaderLocation::default(), cluster.now).unwrap().cached.is_empty());
}

#[test]
fn locks_do_not_exceed_cache_capacity() {
    let mut cluster = Cluster::new(&["/a"]);
    cluster.nodes[0].lockable = 250;
    cluster.beat(0);
    let blocks: Vec<Block> = (0..4).map(|_| cluster.write(1, 100).0).collect();
    let wanted: Vec<_> = blocks.iter().map(|block| (*block, 1)).collect();
    want(&mut cluster, &wanted);
    cluster.beat(0);
    assert_eq!(cluster.nodes[0].locked.len(), 2);
    // Room that other blocks release is used.
    let first = blocks.iter().find(|block| cluster.nodes[0].locked.contains(&block.id)).copied().unwrap();
    let wanted: Vec<_> = wanted.into_iter().filter(|(block, _)| *block != first).collect();
    for _ in 0..2 {
        want(&mut cluster, &wanted);
        cluster.beat(0);
    }
    assert!(!cluster.nodes[0].locked.contains(&first.id));
    cluster.beat(0);
    want(&mut cluster, &wanted);
    cluster.beat(0);
    assert_eq!(cluster.nodes[0].locked.len(), 2);
}

#[test]
fn unfollowed_cache_command_is_repeated_after_interval() {
    let mut cluster = Cluster::new(&["/a"]);
    let (block, _) = cluster.write(1, 100);
    want(&mut cluster, &[(block, 1)]);
    // It reports room, and has none when the command arrives.
    let on_disk = cluster.nodes[0].disk.remove(&block.id.0).unwrap();
    cluster.beat(0);
    assert!(locked_on(&cluster, block).is_empty());
    cluster.nodes[0].disk.insert(block.id.0, on_disk);
    cluster.pass(Duration::from_secs(29));
    cluster.beat(0);
    assert!(locked_on(&cluster, block).is_empty(), "the retry is not due yet");
    cluster.pass(Duration::from_secs(1));
    cluster.beat(0);
    assert_eq!(locked_on(&cluster, block), [0]);
}

#[test]
fn cached_blocks_of_dead_node_move_elsewhere() {
    let mut cluster = Cluster::new(&["/a", "/a"]);
    let (block, _) = cluster.write(2, 100);
    want(&mut cluster, &[(block, 1)]);
    beat_all(&mut cluster);
    let first = locked_on(&cluster, block)[0];
    cluster.nodes[first].up = false;
    cluster.run(700);
    want(&mut cluster, &[(block, 1)]);
    beat_all(&mut cluster);
    assert!(cluster.nodes[1 - first].locked.contains(&block.id));
}

#[test]
fn reopened_or_deleted_block_is_uncached() {
    let mut cluster = Cluster::new(&["/a"]);
    let (reopened, _) = cluster.write(1, 100);
    let (removed, _) = cluster.write(1, 100);
    let wanted = [(reopened, 1), (removed, 1)];
    want(&mut cluster, &wanted);
    cluster.beat(0);
    assert_eq!(cluster.nodes[0].locked.len(), 2);
    cluster.map.remove(removed.id);
    cluster.map.reopen(reopened.id).unwrap();
    want(&mut cluster, &wanted);
    cluster.beat(0);
    assert!(cluster.nodes[0].locked.is_empty());
}
