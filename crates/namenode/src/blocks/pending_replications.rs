//! Pending replications: replicas that a source was asked to send, or that a pipeline will produce, and that are not
//! yet reported. Also counts the load of each datanode as source and as target.

use std::collections::HashMap;
use std::time::Duration;

use hearth_types::BlockId;

use super::datanodes::{DatanodeIndex, StorageIndex};

/// Storage that shall receive a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PendingTarget {
    pub storage: StorageIndex,
    pub node: DatanodeIndex,
}

/// The pending replicas of one block.
#[derive(Clone, Debug)]
pub(super) struct PendingReplication {
    pub targets: Vec<PendingTarget>,
    pub since: Duration,
    /// `None` for a writer's pipeline.
    pub source: Option<DatanodeIndex>,
    /// Size of one replica.
    pub bytes: u64,
}

/// Number of copies that one datanode sends or receives. A pipeline's replicas are not copies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct TransferLoad {
    pub blocks: usize,
    pub bytes: u64,
}

impl TransferLoad {
    fn add(&mut self, bytes: u64) {
        self.blocks += 1;
        self.bytes += bytes;
    }

    fn take(&mut self, bytes: u64) {
        assert!(self.blocks > 0 && self.bytes >= bytes, "only added load is subtracted");
        self.blocks -= 1;
        self.bytes -= bytes;
    }
}

#[derive(Default)]
pub(super) struct PendingReplications {
    by_block: HashMap<BlockId, PendingReplication>,
    sending: HashMap<DatanodeIndex, TransferLoad>,
    receiving: HashMap<DatanodeIndex, TransferLoad>,
}

impl PendingReplications {
    /// Returns the number of blocks with pending replicas.
    pub fn len(&self) -> usize {
        self.by_block.len()
    }

    /// Returns the blocks with pending replicas, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (BlockId, &PendingReplication)> {
        self.by_block.iter().map(|(block, pending)| (*block, pending))
    }

    pub fn of(&self, block: BlockId) -> &[PendingTarget] {
        self.by_block.get(&block).map_or(&[], |pending| &pending.targets)
    }

    pub fn sent_by(&self, node: DatanodeIndex) -> TransferLoad {
        self.sending.get(&node).copied().unwrap_or_default()
    }

    pub fn received_by(&self, node: DatanodeIndex) -> TransferLoad {
        self.receiving.get(&node).copied().unwrap_or_default()
    }

    /// Records that a pipeline's members are about to report the block.
    pub fn expect(&mut self, block: BlockId, targets: Vec<PendingTarget>, since: Duration) {
        self.replace(block, Some(PendingReplication { targets, since, source: None, bytes: 0 }));
    }

    /// Records that `source` shall send a replica of `bytes` to `targets`, in addition to the block's other pending
    /// replicas.
    pub fn send(
        &mut self,
        block: BlockId,
        source: DatanodeIndex,
        targets: &[PendingTarget],
        bytes: u64,
        since: Duration,
    ) {
        let all = self.of(block).iter().chain(targets).copied().collect();
        self.replace(block, Some(PendingReplication { targets: all, since, source: Some(source), bytes }));
    }

    /// Records that a replica has arrived, or will not arrive. Returns the source if it was the last one of the block.
    pub fn arrived(&mut self, block: BlockId, node: DatanodeIndex) -> Option<DatanodeIndex> {
        let mut pending = self.by_block.get(&block)?.clone();
        pending.targets.retain(|target| target.node != node);
        let done = pending.targets.is_empty();
        let source = pending.source.filter(|_| done);
        self.replace(block, Some(pending));
        source
    }

    /// Forgets the pending replicas of a block.
    pub fn forget(&mut self, block: BlockId) {
        self.replace(block, None);
    }

    /// Cancels the pending replicas on a storage that will report nothing. Returns their blocks.
    pub fn cancel_target(&mut self, storage: StorageIndex) -> Vec<BlockId> {
        let touched = self.blocks_where(|_, pending| pending.targets.iter().any(|target| target.storage == storage));
        for block in &touched {
            let mut pending = self.by_block[block].clone();
            pending.targets.retain(|target| target.storage != storage);
            self.replace(*block, Some(pending));
        }
        touched
    }

    /// Forgets every block for which `is_over` returns true; returns them.
    pub fn forget_where(&mut self, is_over: impl Fn(BlockId, &PendingReplication) -> bool) -> Vec<BlockId> {
        let over = self.blocks_where(is_over);
        for block in &over {
            self.forget(*block);
        }
        over
    }

    fn blocks_where(&self, is: impl Fn(BlockId, &PendingReplication) -> bool) -> Vec<BlockId> {
        self.by_block.iter().filter(|(block, pending)| is(**block, pending)).map(|(block, _)| *block).collect()
    }

    /// Every change of the table goes through this method, so that the loads stay consistent.
    fn replace(&mut self, block: BlockId, pending: Option<PendingReplication>) {
        let pending = pending.filter(|pending| !pending.targets.is_empty());
        if let Some(PendingReplication { source: Some(source), targets, bytes, .. }) = &pending {
            self.sending.entry(*source).or_default().add(*bytes);
            for target in targets {
                self.receiving.entry(target.node).or_default().add(*bytes);
            }
        }
        let before = match pending {
            Some(pending) => self.by_block.insert(block, pending),
            None => self.by_block.remove(&block),
        };
        if let Some(PendingReplication { source: Some(source), targets, bytes, .. }) = before {
            take(&mut self.sending, source, bytes);
            for target in targets {
                take(&mut self.receiving, target.node, bytes);
            }
        }
    }
}

fn take(flows: &mut HashMap<DatanodeIndex, TransferLoad>, node: DatanodeIndex, bytes: u64) {
    let flow = flows.get_mut(&node).expect("only added load is subtracted");
    flow.take(bytes);
    if flow.blocks == 0 {
        flows.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(node: u32) -> PendingTarget {
        PendingTarget { storage: StorageIndex(node + 100), node: DatanodeIndex(node) }
    }

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn loads_match_pending_replicas() {
        let mut way = PendingReplications::default();
        let (first, second) = (BlockId(1), BlockId(2));
        way.send(first, DatanodeIndex(0), &[to(1)], 10, NOW);
        way.send(second, DatanodeIndex(0), &[to(1), to(2)], 5, NOW);
        way.expect(BlockId(3), vec![to(1)], NOW);
        assert_eq!(way.sent_by(DatanodeIndex(0)), TransferLoad { blocks: 2, bytes: 15 });
        assert_eq!(way.received_by(DatanodeIndex(1)), TransferLoad { blocks: 2, bytes: 15 });
        assert_eq!(way.received_by(DatanodeIndex(2)), TransferLoad { blocks: 1, bytes: 5 });
        // More replicas of a block, by another source: that source is responsible for it from now on.
        way.send(first, DatanodeIndex(3), &[to(2)], 10, NOW);
        assert_eq!(way.sent_by(DatanodeIndex(0)), TransferLoad { blocks: 1, bytes: 5 });
        assert_eq!(way.sent_by(DatanodeIndex(3)), TransferLoad { blocks: 1, bytes: 10 });
        assert_eq!(way.arrived(first, DatanodeIndex(1)), None);
        assert_eq!(way.arrived(first, DatanodeIndex(2)), Some(DatanodeIndex(3)));
        assert_eq!(way.sent_by(DatanodeIndex(3)), TransferLoad::default());
        assert_eq!(way.cancel_target(to(1).storage).len(), 2);
        assert_eq!(way.received_by(DatanodeIndex(1)), TransferLoad::default());
        assert_eq!(way.len(), 1, "the third had no other target");
        assert_eq!(way.forget_where(|_, pending| pending.source.is_some()), [second]);
        assert_eq!((way.len(), way.sending.len(), way.receiving.len()), (0, 0, 0));
    }
}
