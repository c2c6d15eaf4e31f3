//! Random reports and failures: no block is lost, the last good replica is never deleted, and in the end every block
//! has the requested replicas.

use std::collections::BTreeMap;
use std::time::Duration;

use hearth_types::Block;
use proptest::prelude::*;

use super::cluster::*;
use crate::blocks::*;

const NODES: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    Write {
        replication: u16,
        reached: usize,
    },
    Append {
        which: usize,
    },
    /// A writer goes away with the block half written: every disk has at least `kept` bytes of it.
    Abandon {
        replication: u16,
        kept: u64,
    },
    Remove {
        which: usize,
    },
    Replication {
        which: usize,
        replication: u16,
    },
    Down {
        node: usize,
    },
    Up {
        node: usize,
    },
    /// A node restarts: registers and reports again.
    Restart {
        node: usize,
    },
    /// Commands to a node are lost until it is up again.
    Deaf {
        node: usize,
    },
    /// The periodic full report.
    Report {
        node: usize,
    },
    Rot {
        which: usize,
        node: usize,
    },
    Leave {
        node: usize,
    },
    Stay,
    Wait {
        seconds: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u16..4, 1usize..4).prop_map(|(replication, reached)| Step::Write { replication, reached }),
        2 => any::<usize>().prop_map(|which| Step::Append { which }),
        2 => (1u16..4, 1u64..100).prop_map(|(replication, kept)| Step::Abandon { replication, kept }),
        1 => any::<usize>().prop_map(|which| Step::Remove { which }),
        2 => (any::<usize>(), 1u16..5).prop_map(|(which, replication)| Step::Replication { which, replication }),
        2 => (0..NODES).prop_map(|node| Step::Down { node }),
        2 => (0..NODES).prop_map(|node| Step::Up { node }),
        2 => (0..NODES).prop_map(|node| Step::Restart { node }),
        1 => (0..NODES).prop_map(|node| Step::Deaf { node }),
        1 => (0..NODES).prop_map(|node| Step::Report { node }),
        1 => (any::<usize>(), 0..NODES).prop_map(|(which, node)| Step::Rot { which, node }),
        1 => (0..NODES).prop_map(|node| Step::Leave { node }),
        1 => Just(Step::Stay),
        4 => (1u64..30).prop_map(|seconds| Step::Wait { seconds }),
        1 => Just(Step::Wait { seconds: 700 }),
    ]
}

/// The blocks that must survive, with their replication.
type Model = BTreeMap<i64, (Block, u16)>;

/// Half-written blocks: with the length that every disk has at least, replication, and number of disks that have them.
type Open = BTreeMap<i64, (Block, u16, usize)>;

/// Recovers every block whose writer is gone, like the lease checker, repeatedly until it is done.
fn recover(cluster: &mut Cluster, model: &mut Model, open: &mut Open) {
    for (id, (block, replication, on)) in open.clone() {
        if on == 0 {
            cluster.map.remove(block.id);
            open.remove(&id);
            continue;
        }
        if cluster.map.may_recover(block.id, cluster.now) {
            let stamp = cluster.new_stamp();
            cluster.map.start_recovery(block.id, stamp, cluster.now).unwrap();
        }
        for nth in 0..NODES {
            let tasks = std::mem::take(&mut cluster.nodes[nth].recoveries);
            for task in tasks {
                if let Some(recovered) = lead(cluster, &task) {
                    assert!(recovered.length >= open[&recovered.id.0].0.length, "acknowledged bytes are lost");
                    let replication =
                        open.remove(&recovered.id.0).map_or(replication, |(_, replication, _)| replication);
                    model.insert(recovered.id.0, (recovered, replication));
                }
            }
        }
    }
}

/// Acts as a primary datanode: asks all reachable nodes, cuts to the shortest replica, reports.
fn lead(cluster: &mut Cluster, task: &RecoveryTask) -> Option<Block> {
    cluster.map.check_recovery(task.block.block.id, task.recovery_id).ok()?;
    let id = task.block.block.id;
    let reached: Vec<usize> = task
        .locations
        .iter()
        .map(|target| cluster.nth(&target.datanode.id))
        .filter(|nth| cluster.nodes[*nth].up && cluster.nodes[*nth].registered)
        .filter(|nth| cluster.nodes[*nth].disk.get(&id.0).is_some_and(|on_disk| on_disk.length > 0))
        .collect();
    let length = reached.iter().map(|nth| cluster.nodes[*nth].disk[&id.0].length).min()?;
    let result = Block { id, stamp: task.recovery_id, length };
    let mut holders = Vec::new();
    for nth in reached {
        cluster.receive(nth, result);
        let node = &cluster.nodes[nth];
        holders.extend(cluster.map.find_storage(&node.id, &node.storage()));
    }
    cluster.map.finish_recovery(id, task.recovery_id, length, &holders, cluster.now).ok()?;
    Some(result)
}

fn carry_out(cluster: &mut Cluster, model: &mut Model, open: &mut Open, step: Step) {
    let pick = |model: &Model, which: usize| model.values().nth(which % model.len().max(1)).copied();
    match step {
        Step::Write { replication, reached } => {
            let request = PlacementRequest {
                additional: usize::from(replication),
                block_size: BLOCK_SIZE,
                ..PlacementRequest::default()
            };
            let Ok(targets) = cluster.map.allocate_targets(&request, cluster.now) else { return };
            let block = Block { length: 100, ..cluster.new_block() };
            cluster.map.begin(Block { length: 0, ..block }, 16386, replication, 0, &targets);
            let up: Vec<usize> = targets
                .iter()
                .map(|target| cluster.nth_of(*target))
                .filter(|nth| cluster.nodes[*nth].up && cluster.nodes[*nth].registered)
                .collect();
            if up.is_empty() {
                cluster.map.abandon(block.id);
                return;
            }
            for nth in up.iter().take(reached) {
                cluster.receive(*nth, block);
            }
            cluster.map.commit(block, cluster.now).unwrap();
            assert_eq!(cluster.map.state(block.id), Some(BlockState::Complete));
            model.insert(block.id.0, (block, replication));
        }
        Step::Append { which } => {
            let Some((block, replication)) = pick(model, which) else { return };
            let Ok(pipeline) = cluster.map.reopen(block.id) else { return };
            let alive: Vec<StorageIndex> = pipeline
                .into_iter()
                .filter(|storage| {
                    let nth = cluster.nth_of(*storage);
                    cluster.nodes[nth].up && cluster.nodes[nth].registered && cluster.good(block).contains(&nth)
                })
                .collect();
            if alive.is_empty() {
                // The writer gives up without having changed anything.
                cluster.map.commit(block, cluster.now).unwrap();
                return;
            }
            let stamp = cluster.new_stamp();
            cluster.map.update_pipeline(block, stamp, block.length, &alive).unwrap();
            let longer = Block { stamp, length: block.length + 50, ..block };
            for storage in &alive {
                cluster.receive(cluster.nth_of(*storage), longer);
            }
            cluster.map.commit(longer, cluster.now).unwrap();
            model.insert(block.id.0, (longer, replication));
        }
        Step::Abandon { replication, kept } => {
            let request = PlacementRequest {
                additional: usize::from(replication),
                block_size: BLOCK_SIZE,
                ..PlacementRequest::default()
            };
            let Ok(targets) = cluster.map.allocate_targets(&request, cluster.now) else { return };
            let block = cluster.new_block();
            cluster.map.begin(block, 16386, replication, 0, &targets);
            let up: Vec<usize> = targets
                .iter()
                .map(|target| cluster.nth_of(*target))
                .filter(|nth| cluster.nodes[*nth].up && cluster.nodes[*nth].registered)
                .collect();
            for (more, nth) in up.iter().enumerate() {
                cluster.writing(*nth, Block { length: kept + more as u64, ..block });
            }
            open.insert(block.id.0, (Block { length: kept, ..block }, replication, up.len()));
        }
        Step::Remove { which } => {
            if let Some((block, _)) = pick(model, which) {
                cluster.map.remove(block.id);
                model.remove(&block.id.0);
            }
        }
        Step::Replication { which, replication } => {
            if let Some((block, _)) = pick(model, which) {
                cluster.map.set_replication(block.id, replication, cluster.now);
                model.insert(block.id.0, (block, replication));
            }
        }
        Step::Down { node } => cluster.nodes[node].up = false,
        Step::Up { node } => (cluster.nodes[node].up, cluster.nodes[node].deaf) = (true, false),
        Step::Deaf { node } => cluster.nodes[node].deaf = true,
        Step::Report { node } => cluster.nodes[node].reported = false,
        Step::Restart { node } => {
            cluster.nodes[node].registered = false;
            cluster.nodes[node].transfers.clear();
            cluster.beat(node);
        }
        Step::Rot { which, node } => {
            // Only a replica that is not the last good one, and whose corruption is reported.
            let Some((block, _)) = pick(model, which) else { return };
            if cluster.good(block).len() > 1 && cluster.good(block).contains(&node) && cluster.nodes[node].registered {
                cluster.nodes[node].disk.get_mut(&block.id.0).unwrap().rotten = true;
                let (id, storage) = (cluster.nodes[node].id.clone(), cluster.nodes[node].storage());
                cluster.map.report_bad_replica(block, &id, Some(&storage), cluster.now);
            }
        }
        Step::Leave { node } => {
            let exclude = vec![HostEntry { names: vec![format!("host{}", node + 1)], port: None }];
            cluster.map.set_hosts(HostLists { exclude, ..HostLists::default() }, cluster.now);
        }
        Step::Stay => cluster.map.set_hosts(HostLists::default(), cluster.now),
        Step::Wait { seconds } => cluster.run(seconds),
    }
}

fn check_none_lost(cluster: &Cluster, model: &Model, step: &str) {
    for (block, _) in model.values() {
        assert!(!cluster.good(*block).is_empty(), "{block} has no good replica left after {step}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn no_block_is_lost_and_all_recover(steps in proptest::collection::vec(step(), 1..60)) {
        let mut cluster = Cluster::new(&["/a", "/a", "/a", "/b", "/b"]);
        // Both kinds of datanodes: with and without awaitWork.
        cluster.nodes.iter_mut().step_by(2).for_each(|node| node.awaits = true);
        let mut model = Model::new();
        let mut open = Open::new();
        for step in steps {
            let name = format!("{step:?}");
            carry_out(&mut cluster, &mut model, &mut open, step);
            recover(&mut cluster, &mut model, &mut open);
            check_none_lost(&cluster, &model, &name);
            // Checks that the incrementally kept counts equal a recount.
            cluster.map.cluster_statistics(cluster.now);
        }
        // Calm returns: all nodes are up and stay up, report once more, and have time.
        cluster.map.set_hosts(HostLists::default(), cluster.now);
        for nth in 0..NODES {
            (cluster.nodes[nth].up, cluster.nodes[nth].deaf) = (true, false);
            cluster.nodes[nth].registered = false;
            cluster.nodes[nth].transfers.clear();
        }
        for _ in 0..100 {
            cluster.run(4);
            recover(&mut cluster, &mut model, &mut open);
        }
        // Replicas left behind by recovery have an old stamp: the next full report removes them.
        for node in &mut cluster.nodes {
            node.reported = false;
        }
        cluster.run(60);
        prop_assert!(open.is_empty(), "not recovered: {:?}", open);
        check_none_lost(&cluster, &model, "the end");
        cluster.pass(Duration::from_secs(1));
        for (block, replication) in model.values() {
            let good = cluster.good(*block);
            prop_assert_eq!(good.len(), usize::from(*replication).min(NODES), "{} on {:?}", block, good);
            prop_assert_eq!(cluster.map.block_report(block.id, cluster.now).unwrap().live, *replication);
            if *replication > 1 {
                prop_assert!(good.iter().any(|nth| *nth < 3) && good.iter().any(|nth| *nth >= 3), "{} in one rack", block);
            }
        }
        let on_disks: usize = cluster.nodes.iter().map(|node| node.disk.len()).sum();
        let wanted: usize = model.values().map(|(_, replication)| usize::from(*replication)).sum();
        prop_assert_eq!(on_disks, wanted, "the disks have no other replicas");
        let figures = cluster.map.cluster_statistics(cluster.now);
        prop_assert_eq!((figures.low_redundancy, figures.missing, figures.corrupt, figures.pending_deletion), (0, 0, 0, 0));
    }
}
