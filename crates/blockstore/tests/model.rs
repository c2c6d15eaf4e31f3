//! Random operations against a map of bytes, with the store killed and opened again in between.

mod common;

use std::collections::HashMap;

use common::*;
use hearth_blockstore::*;
use hearth_types::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Create {
        id: u8,
        seed: u64,
    },
    /// Writes bytes, from the writer's end or from the chunk boundary below; acknowledged or not.
    Write {
        id: u8,
        length: usize,
        resend: bool,
        acked: bool,
        /// Fill the bytes into granted memory, if there is any.
        granted: bool,
    },
    Sync {
        id: u8,
    },
    Finalize {
        id: u8,
        durable: bool,
    },
    Abandon {
        id: u8,
    },
    Append {
        id: u8,
    },
    RecoverPipeline {
        id: u8,
    },
    RecoverBlock {
        id: u8,
        keep: u16,
    },
    Invalidate {
        id: u8,
    },
    HoldReader {
        id: u8,
    },
    Flush,
    Verify,
    Kill,
    PowerFailureIfAllOnDisk,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let id = || 0u8..6;
    let length = prop_oneof![4 => 0usize..600, 2 => 0usize..5000, 2 => 50_000usize..80_000, 1 => 0usize..400_000];
    let op = prop_oneof![
        4 => (id(), any::<u64>()).prop_map(|(id, seed)| Op::Create { id, seed }),
        10 => (id(), length, any::<bool>(), proptest::bool::weighted(0.8), any::<bool>())
            .prop_map(|(id, length, resend, acked, granted)| Op::Write { id, length, resend, acked, granted }),
        1 => id().prop_map(|id| Op::Sync { id }),
        4 => (id(), proptest::bool::weighted(0.2)).prop_map(|(id, durable)| Op::Finalize { id, durable }),
        1 => id().prop_map(|id| Op::Abandon { id }),
        3 => id().prop_map(|id| Op::Append { id }),
        2 => id().prop_map(|id| Op::RecoverPipeline { id }),
        2 => (id(), any::<u16>()).prop_map(|(id, keep)| Op::RecoverBlock { id, keep }),
        1 => id().prop_map(|id| Op::Invalidate { id }),
        1 => id().prop_map(|id| Op::HoldReader { id }),
        2 => Just(Op::Flush),
        1 => Just(Op::Verify),
        2 => Just(Op::Kill),
        1 => Just(Op::PowerFailureIfAllOnDisk),
    ];
    proptest::collection::vec(op, 1..60)
}

#[derive(Clone, Debug, PartialEq)]
struct Model {
    data: Vec<u8>,
    acked: usize,
    stamp: u64,
    state: ReplicaState,
    seed: u64,
}

struct World {
    kind: Kind,
    bed: Bed,
    store: Option<Blockstore>,
    models: HashMap<u8, Model>,
    writers: HashMap<u8, ReplicaWriter>,
    guards: Vec<(ReplicaReader, Vec<u8>)>,
    /// Descriptors that were lent, with the replica and the stamp that they were lent for.
    lent: Vec<(u8, u64, std::fs::File)>,
    next_stamp: u64,
}

impl World {
    fn new(kind: Kind, limit: u64) -> Self {
        let mut bed = Bed::new(kind);
        bed.options.memory.limit = bed.options.memory.limit.min(limit);
        let store = Some(bed.open());
        Self {
            kind,
            bed,
            store,
            models: HashMap::new(),
            writers: HashMap::new(),
            guards: Vec::new(),
            lent: Vec::new(),
            next_stamp: 1000,
        }
    }

    fn store(&self) -> &Blockstore {
        self.store.as_ref().unwrap()
    }

    fn stamp(&mut self) -> GenerationStamp {
        self.next_stamp += 1;
        GenerationStamp(self.next_stamp)
    }

    fn named(&self, id: u8) -> Option<(ExtendedBlock, Model)> {
        let model = self.models.get(&id)?;
        Some((block(id.into(), model.stamp, model.data.len() as u64), model.clone()))
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Create { id, seed } => {
                let stamp = self.stamp();
                let replace = self.models.contains_key(&id);
                if replace && self.models[&id].state == ReplicaState::Finalized && !seed.is_multiple_of(3) {
                    return;
                }
                let created = self.store().create(
                    &block(id.into(), stamp.0, 0),
                    CreateKind::BeingWritten { replace },
                    &CreateOptions::default(),
                );
                self.writers.insert(id, created.unwrap());
                let state = ReplicaState::BeingWritten;
                self.models.insert(id, Model { data: Vec::new(), acked: 0, stamp: stamp.0, state, seed });
            }
            Op::Write { id, length, resend, acked, granted } => {
                let Some(writer) = self.writers.get_mut(&id) else { return };
                let model = self.models.get_mut(&id).unwrap();
                let at = model.data.len();
                let boundary = at / 512 * 512;
                // Data within a chunk may not extend beyond it, unless it begins at the boundary.
                let fits = length <= 512 - at % 512 || at.is_multiple_of(512);
                let from = if resend || !fits { boundary } else { at };
                model.seed = model.seed.wrapping_add(1);
                model.data.extend(bytes(model.seed, length));
                let packet = &model.data[from..];
                let given = crcs(ChecksumSpec::DEFAULT, packet);
                let end = model.data.len() as u64;
                // Nothing is granted for bytes that were all received.
                let received = if granted && length > 0 && writer.grant(end).unwrap() >= end {
                    let file = std::fs::File::from(writer.lend(false).unwrap());
                    std::os::unix::fs::FileExt::write_all_at(&file, packet, from as u64).unwrap();
                    self.lent.push((id, model.stamp, file));
                    writer.commit(from as u64, packet.len() as u64, &given)
                } else {
                    writer.write(from as u64, packet, Checksums::Given(&given))
                };
                assert_eq!(received.unwrap(), end);
                if acked {
                    writer.acker().set(model.data.len() as u64).unwrap();
                    model.acked = model.data.len();
                }
            }
            Op::Sync { id } => {
                if let Some(writer) = self.writers.get_mut(&id) {
                    writer.sync().unwrap();
                }
            }
            Op::Finalize { id, durable } => {
                let Some(writer) = self.writers.remove(&id) else { return };
                let durability = if durable { Durability::Disk } else { Durability::Memory };
                let summary = writer.finalize(durability).unwrap();
                let model = self.models.get_mut(&id).unwrap();
                model.state = ReplicaState::Finalized;
                model.acked = model.data.len();
                assert_eq!(summary.block.length(), model.data.len() as u64);
                assert!(!durable || info(self.store(), id.into()).on_disk);
                self.scribble(id);
            }
            Op::Abandon { id } => drop(self.writers.remove(&id)),
            Op::Append { id } => {
                let Some((named, model)) = self.named(id) else { return };
                let stamp = self.stamp();
                let opened = self.store().append(&named, stamp, model.data.len() as u64);
                if model.state != ReplicaState::Finalized {
                    assert!(opened.is_err());
                    return;
                }
                self.writers.insert(id, opened.unwrap());
                let model = self.models.get_mut(&id).unwrap();
                (model.stamp, model.state) = (stamp.0, ReplicaState::BeingWritten);
            }
            Op::RecoverPipeline { id } => {
                let Some((named, model)) = self.named(id) else { return };
                let new_stamp = self.stamp();
                let recovery = PipelineRecovery {
                    new_stamp,
                    min_acked: model.acked as u64,
                    max_received: model.data.len() as u64,
                };
                let opened = self.store().recover_being_written(&named, recovery);
                if !matches!(model.state, ReplicaState::BeingWritten | ReplicaState::WaitingToBeRecovered) {
                    assert!(opened.is_err());
                    return;
                }
                let writer = opened.unwrap();
                let received = writer.received() as usize;
                // A start that finds a replica on disk counts all of it as acknowledged.
                let least = model.acked..=model.data.len();
                let found = model.state == ReplicaState::WaitingToBeRecovered && least.contains(&received);
                assert!(
                    received == model.acked || found,
                    "{received} of {}, {} acknowledged",
                    model.data.len(),
                    model.acked
                );
                self.writers.insert(id, writer);
                let model = self.models.get_mut(&id).unwrap();
                model.data.truncate(received);
                (model.acked, model.stamp, model.state) = (received, new_stamp.0, ReplicaState::BeingWritten);
            }
            Op::RecoverBlock { id, keep } => {
                let Some((named, model)) = self.named(id) else { return };
                let stamp = self.stamp();
                let found = self.store().initiate_recovery(&named, stamp).unwrap().unwrap();
                assert_eq!(found.original_state, model.state);
                assert_eq!(found.block.length, model.data.len() as u64);
                let length = model.data.len() * usize::from(keep) / usize::from(u16::MAX);
                let summary = self.store().update_under_recovery(&named, stamp, length as u64, None).unwrap();
                assert_eq!(summary.block, block(id.into(), stamp.0, length as u64));
                self.writers.remove(&id);
                let model = self.models.get_mut(&id).unwrap();
                model.data.truncate(length);
                model.acked = length;
                (model.stamp, model.state) = (stamp.0, ReplicaState::Finalized);
                self.scribble(id);
            }
            Op::Invalidate { id } => {
                let Some((named, _)) = self.named(id) else { return };
                let outcome = self.store().invalidate(&self.bed.pool.pool, &[named.block]);
                outcome.into_iter().next().unwrap().unwrap();
                self.models.remove(&id);
                self.writers.remove(&id);
            }
            Op::HoldReader { id } => {
                let Some((named, model)) = self.named(id) else { return };
                if let Ok(reader) = self.store().reader(&named) {
                    self.guards.push((reader, model.data));
                }
            }
            Op::Flush => assert_eq!(self.bed.flush(self.store()).failures, 0),
            Op::Verify => {
                for id in self.models.keys() {
                    self.store().verify(&block((*id).into(), 0, 0)).unwrap();
                }
            }
            Op::Kill => {
                self.store = None;
                // Slots are never lent to other processes: their readers die with this one, and the next process reuses
                // the slots. Files stay unchanged for processes that have them open.
                if self.kind == Kind::Memory {
                    self.guards.clear();
                }
                self.reopen();
            }
            Op::PowerFailureIfAllOnDisk => {
                let finalized = self.models.values().all(|model| model.state == ReplicaState::Finalized);
                if !finalized {
                    return;
                }
                self.bed.flush(self.store());
                self.store = None;
                self.guards.clear();
                std::fs::remove_dir_all(&self.bed.options.memory.dir).unwrap();
                self.reopen();
            }
        }
    }

    /// Lets the borrower of a replica that is finalized now continue to write. Only guards opened while the replica was
    /// being written may see that; they were promised nothing.
    fn scribble(&mut self, id: u8) {
        let (late, rest) = std::mem::take(&mut self.lent).into_iter().partition(|(of, ..)| *of == id);
        self.lent = rest;
        let late: Vec<(u8, u64, std::fs::File)> = late;
        if !late.is_empty() {
            self.guards
                .retain(|(guard, _)| guard.block().id().0 != i64::from(id) || guard.state() == ReplicaState::Finalized);
        }
        late.iter().for_each(|(.., file)| scribble(file));
    }

    fn reopen(&mut self) {
        self.writers.clear();
        self.store = Some(self.bed.open());
        for model in self.models.values_mut() {
            if model.state != ReplicaState::Finalized {
                model.state = ReplicaState::WaitingToBeRecovered;
            }
        }
    }

    fn check(&self) {
        let mut reported: Vec<(Block, ReplicaState)> = self.store().report(&self.bed.pool.pool)[0].replicas.clone();
        reported.sort_by_key(|(block, _)| block.id);
        let mut expected: Vec<(Block, ReplicaState)> = self
            .models
            .iter()
            .map(|(id, model)| (block((*id).into(), model.stamp, model.data.len() as u64).block, model.state))
            .collect();
        expected.sort_by_key(|(block, _)| block.id);
        assert_eq!(reported, expected);
        for (id, model) in &self.models {
            let named = block((*id).into(), model.stamp, 0);
            let reader = self.store().reader(&named);
            if model.state == ReplicaState::WaitingToBeRecovered {
                assert!(reader.is_err());
                continue;
            }
            let reader = reader.unwrap();
            assert!(read(&reader) == model.data, "bytes of {id} differ");
            assert_eq!(reader.visible_length(), model.acked as u64);
        }
        for (guard, data) in &self.guards {
            // On disk, replicas being written are truncated in place: only finalized bytes are guaranteed there.
            if guard.in_memory() || guard.state() == ReplicaState::Finalized {
                assert!(read(guard) == *data, "bytes under a guard differ");
            }
        }
        let metrics = self.store().metrics();
        assert_eq!(metrics.corruptions, 0);
        // The budget is never exceeded, except by memory found at a start.
        assert!(metrics.memory_used <= metrics.memory_limit.max(64 << 20));
    }
}

fn run(kind: Kind, limit: u64, ops: Vec<Op>) {
    let mut world = World::new(kind, limit);
    for op in ops {
        world.step(op);
        world.check();
    }
    // In the end everything can be written to disk and found there.
    world.step(Op::Kill);
    world.check();
    let left = world.store().flush_all(&mut |_| true);
    assert_eq!(left.replicas_left, 0);
    world.guards.clear();
    world.store = None;
    std::fs::remove_dir_all(&world.bed.options.memory.dir).unwrap();
    world.reopen();
    world.check();
    // No memory is left that is not counted.
    for id in world.models.keys().copied().collect::<Vec<u8>>() {
        world.step(Op::Invalidate { id });
    }
    world.check();
    let report = &world.store().storage_reports(&world.bed.pool.pool)[0];
    assert_eq!(report.dfs_used, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn with_memory(ops in ops()) {
        run(Kind::Memory, u64::MAX, ops);
    }

    #[test]
    fn with_little_memory(ops in ops()) {
        run(Kind::Memory, 600 << 10, ops);
    }

    #[test]
    fn without_slabs(ops in ops()) {
        run(Kind::NoSlabs, 2 << 20, ops);
    }

    #[test]
    fn in_files(ops in ops()) {
        run(Kind::File, u64::MAX, ops);
    }

    #[test]
    fn in_mapped_files(ops in ops()) {
        run(Kind::Mmap, u64::MAX, ops);
    }
}
