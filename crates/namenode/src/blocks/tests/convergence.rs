//! Random reports and failures: no block is lost, the last good replica is never deleted, and in the end every block has what
//! was asked for.

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
    /// A node restarts: registers and reports anew.
    Restart {
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
        1 => any::<usize>().prop_map(|which| Step::Remove { which }),
        2 => (any::<usize>(), 1u16..5).prop_map(|(which, replication)| Step::Replication { which, replication }),
        2 => (0..NODES).prop_map(|node| Step::Down { node }),
        2 => (0..NODES).prop_map(|node| Step::Up { node }),
        2 => (0..NODES).prop_map(|node| Step::Restart { node }),
        1 => (any::<usize>(), 0..NODES).prop_map(|(which, node)| Step::Rot { which, node }),
        1 => (0..NODES).prop_map(|node| Step::Leave { node }),
        1 => Just(Step::Stay),
        4 => (1u64..30).prop_map(|seconds| Step::Wait { seconds }),
        1 => Just(Step::Wait { seconds: 700 }),
    ]
}

/// The blocks that must live, with what was asked for.
type Model = BTreeMap<i64, (Block, u16)>;

fn carry_out(cluster: &mut Cluster, model: &mut Model, step: Step) {
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
        Step::Up { node } => cluster.nodes[node].up = true,
        Step::Restart { node } => {
            cluster.nodes[node].registered = false;
            cluster.nodes[node].transfers.clear();
            cluster.beat(node);
        }
        Step::Rot { which, node } => {
            // Only a replica that is not the last good one, and somebody notices.
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
    fn whatever_happens_no_block_is_lost_and_all_recover(steps in proptest::collection::vec(step(), 1..60)) {
        let mut cluster = Cluster::new(&["/a", "/a", "/a", "/b", "/b"]);
        let mut model = Model::new();
        for step in steps {
            let name = format!("{step:?}");
            carry_out(&mut cluster, &mut model, step);
            check_none_lost(&cluster, &model, &name);
        }
        // Calm returns: everybody is up and stays, reports once more, and has time.
        cluster.map.set_hosts(HostLists::default(), cluster.now);
        for nth in 0..NODES {
            cluster.nodes[nth].up = true;
            cluster.nodes[nth].registered = false;
            cluster.nodes[nth].transfers.clear();
        }
        cluster.run(400);
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
        prop_assert_eq!(on_disks, wanted, "nothing else is left on the disks");
        let figures = cluster.map.figures(cluster.now);
        prop_assert_eq!((figures.low_redundancy, figures.missing, figures.corrupt, figures.pending_deletion), (0, 0, 0, 0));
    }
}
