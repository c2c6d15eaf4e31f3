//! A block pool that this DataNode serves: its namespace, its NameNodes, and which of them is active.
//!
//! With high availability several NameNodes serve one pool. All of them receive every report; only the active one is
//! obeyed. The active one is determined by transaction id, so that a NameNode that wrongly still considers itself
//! active is ignored (fencing by `lastActiveTxId`).

use std::collections::HashMap;
use std::sync::Arc;

use hearth_types::{
    Block, BlockPoolId, DatanodeId, DatanodeInfo, ExtendedBlock, PoolIdentity, StorageId, StorageType, Token,
};
use hearth_wire::data_transfer::PipelineTarget;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::reports::{Notice, PendingReports, ReplicaEvent};
use crate::tokens::BlockTokens;

/// HA state that a NameNode reports of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HaState {
    Active,
    Standby,
    Observer,
}

/// Index of a NameNode among those of its pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NamenodeIndex(pub usize);

/// State of a pool that its NameNodes and the data paths share.
pub struct Pool {
    pub identity: PoolIdentity,
    /// One for each configured NameNode of the nameservice, in configured order.
    reports: Vec<Arc<PendingReports>>,
    active: Mutex<ActiveView>,
    /// This DataNode's ID as the NameNodes know it; from the last registration.
    registered_id: RwLock<Option<DatanodeId>>,
    pub tokens: BlockTokens,
    /// Number of NameNodes that this DataNode is currently registered with.
    registered: watch::Sender<usize>,
}

/// The NameNode that is considered active, and the last transaction id that confirmed it.
#[derive(Clone, Copy, Debug)]
struct ActiveView {
    active: Option<NamenodeIndex>,
    last_txid: Option<u64>,
}

impl Pool {
    /// `namenodes`: number of NameNodes that serve this pool.
    pub fn new(identity: PoolIdentity, namenodes: usize, tokens: BlockTokens) -> Self {
        Self {
            identity,
            registered_id: RwLock::new(None),
            tokens,
            reports: (0..namenodes).map(|_| Arc::new(PendingReports::default())).collect(),
            active: Mutex::new(ActiveView { active: None, last_txid: None }),
            registered: watch::Sender::new(0),
        }
    }

    pub fn id(&self) -> &BlockPoolId {
        &self.identity.pool
    }

    /// Returns the queue of reports that `namenode` has not received yet.
    pub fn reports(&self, namenode: NamenodeIndex) -> &Arc<PendingReports> {
        &self.reports[namenode.0]
    }

    /// Reports an event of a replica to every NameNode of the pool.
    pub fn notify(&self, storage: &StorageId, block: Block, event: ReplicaEvent) {
        for reports in &self.reports {
            reports.add(storage, block, event.clone());
        }
    }

    /// Sends pending reports at once instead of with the next turn.
    pub fn flush_reports(&self) {
        for reports in &self.reports {
            reports.flush();
        }
    }

    /// Records the ID with which a NameNode has registered this DataNode.
    pub fn set_registered_id(&self, id: DatanodeId) {
        *self.registered_id.write() = Some(id);
    }

    /// Returns this DataNode's ID as the NameNodes know it; `None` before the first registration.
    pub fn registered_id(&self) -> Option<DatanodeId> {
        self.registered_id.read().clone()
    }

    /// Returns the `ip:port` by which clients name this DataNode; empty before the first registration.
    pub fn own_transfer_address(&self) -> String {
        self.registered_id.read().as_ref().map(DatanodeId::transfer_address).unwrap_or_default()
    }

    /// Returns this DataNode as the source of a copy.
    pub fn own_datanode_info(&self) -> Option<DatanodeInfo> {
        Some(DatanodeInfo::of(self.registered_id()?))
    }

    /// Returns the token with which this DataNode may write `block` to `target`.
    pub fn token_for(&self, block: &ExtendedBlock, target: &PipelineTarget) -> Token {
        self.tokens.mint_write(block, &[target.storage_type], target.storage_id.as_slice())
    }

    /// Reports to every NameNode that the replica of `block` at `datanode` is corrupt.
    pub fn report_bad_replica(
        &self,
        block: &ExtendedBlock,
        datanode: DatanodeInfo,
        storage: Option<(StorageId, StorageType)>,
    ) {
        for reports in &self.reports {
            let (block, datanode) = (block.clone(), Box::new(datanode.clone()));
            reports.add_notice(Notice::BadReplica { block, datanode, storage: storage.clone() });
        }
    }

    /// Reports to every NameNode that this DataNode's own replica is corrupt.
    pub fn report_own_bad_replica(&self, block: &ExtendedBlock, storage: &StorageId, storage_type: StorageType) {
        if let Some(own) = self.own_datanode_info() {
            self.report_bad_replica(block, own, Some((storage.clone(), storage_type)));
        }
    }

    /// Sends another notice to every NameNode.
    pub fn add_notice(&self, notice: &Notice) {
        for reports in &self.reports {
            reports.add_notice(notice.clone());
        }
    }

    /// Records the HA state that `namenode` reports. Returns true if it is now considered the active one.
    ///
    /// A NameNode that claims to be active with a transaction id not above that of the last active one dates from
    /// before a failover, and is ignored.
    pub fn note_ha_state(&self, namenode: NamenodeIndex, state: HaState, txid: u64) -> bool {
        let mut view = self.active.lock();
        let held = view.active == Some(namenode);
        match (state, held) {
            (HaState::Active, true) => {
                view.last_txid = Some(txid);
                true
            }
            (HaState::Active, false) => {
                if view.last_txid.is_some_and(|last| txid <= last) {
                    tracing::warn!(
                        pool = %self.identity.pool, namenode = namenode.0, txid, last = view.last_txid,
                        "ignoring a namenode that claims to be active with an old transaction id"
                    );
                    return false;
                }
                tracing::info!(pool = %self.identity.pool, namenode = namenode.0, txid, "namenode is active");
                *view = ActiveView { active: Some(namenode), last_txid: Some(txid) };
                true
            }
            (_, true) => {
                tracing::info!(pool = %self.identity.pool, namenode = namenode.0, "namenode is no longer active");
                view.active = None;
                false
            }
            (_, false) => false,
        }
    }

    /// Records the state from the first handshake, where the state alone decides: no transaction id is known yet.
    pub fn note_handshake_state(&self, namenode: NamenodeIndex, state: Option<HaState>) {
        let mut view = self.active.lock();
        if state == Some(HaState::Active) && view.active.is_none() && view.last_txid.is_none() {
            view.active = Some(namenode);
        }
    }

    pub fn is_active(&self, namenode: NamenodeIndex) -> bool {
        self.active.lock().active == Some(namenode)
    }

    /// Returns the NameNode that is considered active, if any.
    #[cfg(test)]
    pub fn active(&self) -> Option<NamenodeIndex> {
        self.active.lock().active
    }

    pub(crate) fn add_registered(&self) {
        self.registered.send_modify(|count| *count += 1);
    }

    pub(crate) fn remove_registered(&self) {
        self.registered.send_modify(|count| *count = count.saturating_sub(1));
    }

    pub fn is_registered(&self) -> bool {
        *self.registered.borrow() > 0
    }

    /// Resolves when the pool is registered with a NameNode.
    pub async fn registered(&self) {
        let mut watch = self.registered.subscribe();
        // The sender is a field of `self`, so it outlives this future.
        let _ = watch.wait_for(|count| *count > 0).await;
    }
}

/// No NameNode of the block pool has registered this DataNode.
#[derive(Debug, thiserror::Error)]
#[error("block pool {pool} is not registered with a namenode")]
pub struct PoolNotReady {
    pub pool: BlockPoolId,
}

/// All pools of the process, by id. Grows only through configured NameNodes.
#[derive(Default)]
pub struct Pools {
    by_id: RwLock<HashMap<BlockPoolId, Arc<Pool>>>,
    changed: watch::Sender<u64>,
}

impl Pools {
    pub fn get(&self, id: &BlockPoolId) -> Option<Arc<Pool>> {
        self.by_id.read().get(id).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Pool>> {
        self.by_id.read().values().cloned().collect()
    }

    pub fn insert(&self, pool: Arc<Pool>) {
        self.by_id.write().insert(pool.identity.pool.clone(), pool);
        self.changed.send_modify(|version| *version += 1);
    }

    pub fn remove(&self, id: &BlockPoolId) {
        self.by_id.write().remove(id);
        self.changed.send_modify(|version| *version += 1);
    }

    /// Returns the pool once it is registered with a NameNode, waiting at most `timeout`
    /// (`dfs.datanode.bp-ready.timeout`).
    ///
    /// Errors: it is unknown or not registered by then.
    pub async fn ready(&self, id: &BlockPoolId, timeout: std::time::Duration) -> Result<Arc<Pool>, PoolNotReady> {
        if let Some(pool) = self.get(id)
            && pool.is_registered()
        {
            return Ok(pool);
        }
        let ready = tokio::time::timeout(timeout, self.wait_ready(id)).await;
        ready.map_err(|_| PoolNotReady { pool: id.clone() })
    }

    async fn wait_ready(&self, id: &BlockPoolId) -> Arc<Pool> {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            if let Some(pool) = self.get(id) {
                pool.registered().await;
                return pool;
            }
            if changed.changed().await.is_err() {
                // Unreachable: the sender is a field of `self`.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hearth_types::{BlockId, GenerationStamp};

    use super::*;

    fn pool(namenodes: usize) -> Pool {
        let identity = PoolIdentity {
            pool: BlockPoolId::new("BP-1-127.0.0.1-1"),
            namespace_id: 1,
            cluster_id: "CID-1".to_owned(),
            created_ms: 1,
        };
        Pool::new(identity, namenodes, BlockTokens::for_tests())
    }

    #[test]
    fn active_namenode_is_determined_by_transaction_id() {
        let (a, b) = (NamenodeIndex(0), NamenodeIndex(1));
        let pool = pool(2);
        assert!(pool.note_ha_state(a, HaState::Active, 10));
        assert!(!pool.note_ha_state(b, HaState::Standby, 10));
        // Split brain: both claim to be active.
        assert!(!pool.note_ha_state(b, HaState::Active, 10));
        assert!(pool.is_active(a));
        // A failover: b has written more.
        assert!(pool.note_ha_state(b, HaState::Active, 11));
        assert!(!pool.is_active(a));
        assert!(!pool.note_ha_state(a, HaState::Active, 11));
        assert!(!pool.note_ha_state(b, HaState::Standby, 12));
        assert_eq!(pool.active(), None);
        // No NameNode is active now, and still an old transaction id does not make one active.
        assert!(!pool.note_ha_state(a, HaState::Active, 11));
        assert!(pool.note_ha_state(a, HaState::Active, 13));
    }

    #[test]
    fn every_namenode_receives_every_event() {
        let pool = pool(3);
        let block = Block { id: BlockId(1), stamp: GenerationStamp(2), length: 3 };
        pool.notify(&StorageId("DS-1".into()), block, ReplicaEvent::Deleted);
        for index in 0..3 {
            assert_eq!(pool.reports(NamenodeIndex(index)).len(), 1);
        }
    }

    #[tokio::test]
    async fn a_pool_is_ready_once_it_is_registered() {
        let pools = Arc::new(Pools::default());
        let one = Arc::new(pool(1));
        assert!(pools.ready(one.id(), Duration::from_millis(10)).await.is_err());
        let waiting = {
            let (pools, id) = (pools.clone(), one.id().clone());
            tokio::spawn(async move { pools.ready(&id, Duration::from_secs(60)).await.is_ok() })
        };
        tokio::task::yield_now().await;
        pools.insert(one.clone());
        tokio::task::yield_now().await;
        one.add_registered();
        assert!(waiting.await.unwrap());
    }
}
