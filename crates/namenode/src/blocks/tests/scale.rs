//! Time that the lock is held, and memory per block. Not part of the usual run: `--ignored`.

#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::time::Instant;

use hearth_types::{Block, GenerationStamp, ReplicaState, StorageType};
use hearth_wire::block_report::ReportedReplica;

use super::cluster::*;
use crate::blocks::*;

fn resident_mib() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096 / (1 << 20)
}

#[test]
#[ignore = "takes seconds and much memory"]
fn a_million_blocks() {
    const COUNT: usize = 1_000_000;
    let before = resident_mib();
    let mut cluster = Cluster::empty(BlockSettings { safe_extension: std::time::Duration::ZERO, ..Default::default() });
    let blocks: Vec<Block> = (0..COUNT).map(|_| Block { length: 100, ..cluster.new_block() }).collect();
    let began = Instant::now();
    for block in &blocks {
        cluster.map.restore(*block, 16386, 3, 0, true);
    }
    cluster.map.note_stamp(GenerationStamp(cluster.stamp));
    cluster.map.restored(cluster.now);
    println!("restore: {:?}, {} MiB", began.elapsed(), resident_mib() - before);
    for nth in 0..3 {
        cluster.nodes.push(Node {
            id: node_id(nth),
            rack: "/a".into(),
            up: true,
            registered: true,
            reported: true,
            disk: Default::default(),
            room: 1 << 50,
            xceivers: 0,
            deaf: false,
            awaits: false,
            transfers: Vec::new(),
            recoveries: Vec::new(),
            lockable: 0,
            locked: Default::default(),
        });
        let node = &cluster.nodes[nth];
        let registration = Registration {
            id: node.id.clone(),
            software_version: "3.4.2".into(),
            rack: node.rack.clone(),
            offer: None,
        };
        cluster.map.register(registration, cluster.now).unwrap();
        cluster.beat(nth);
        let replicas =
            blocks.iter().map(|block| ReportedReplica { block: *block, state: ReplicaState::Finalized }).collect();
        let storage = cluster.nodes[nth].storage();
        let contents = [StorageContents { storage, storage_type: StorageType::Disk, replicas }];
        let id = cluster.nodes[nth].id.clone();
        let began = Instant::now();
        cluster.map.full_report(&id, None, &contents, cluster.now).unwrap();
        println!("full report {nth}: {:?}, safe mode {}", began.elapsed(), cluster.map.in_safe_mode());
        let began = Instant::now();
        cluster.map.full_report(&id, None, &contents, cluster.now).unwrap();
        println!("again: {:?}", began.elapsed());
    }
    println!("{} MiB", resident_mib() - before);
    let began = Instant::now();
    cluster.map.tick(cluster.now);
    println!("tick: {:?}", began.elapsed());
    let began = Instant::now();
    for _ in 0..1000 {
        cluster.write(3, 10);
    }
    println!("1000 writes: {:?}", began.elapsed());
    let began = Instant::now();
    for block in &blocks[..1000] {
        cluster.map.locate(block.id, 0, ReaderLocation { ip: Some("10.0.0.1") }, cluster.now).unwrap();
    }
    println!("1000 locates: {:?}", began.elapsed());
    cluster.nodes[0].up = false;
    cluster.pass(std::time::Duration::from_secs(700));
    cluster.beat(1);
    cluster.beat(2);
    let began = Instant::now();
    cluster.map.tick(cluster.now);
    println!("a node dies: {:?}, {} low", began.elapsed(), cluster.map.cluster_statistics(cluster.now).low_redundancy);
    let began = Instant::now();
    for _ in 0..100 {
        cluster.beat(1);
    }
    println!("100 heartbeats with nothing to copy to: {:?}", began.elapsed());
}
