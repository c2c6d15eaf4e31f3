//! Moves of replicas between datanodes, for a balancer. The target datanode is asked to copy the replica from a proxy.
//! It reports the copy with a hint which replica the namenode should delete.

use std::sync::Arc;
use std::time::Duration;

use hearth_protocol::block_token::{AccessMode, BlockAccess, BlockKeys, BlockTokenEncoding};
use hearth_types::{Block, BlockPoolId, Clock, DatanodeInfo, DatanodeUuid, ExtendedBlock, StorageType, SystemClock};
use hearth_wire::data_transfer::{Operation, ReplaceBlock, Status};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::Failure;
use crate::file_system::FileSystem;
use crate::session::Session;
use crate::{DatanodeError, Error, ErrorKind};

/// Longest time without an answer or a message of progress, as in Apache's balancer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5 * 60);
/// Longest time between two updates of the keys.
const KEYS_AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Pause after a failed update of the keys.
const KEYS_RETRY: Duration = Duration::from_secs(10);

/// A replica to move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaMove {
    /// The block.
    pub block: Block,
    /// Datanode whose replica the namenode should delete afterwards.
    pub source: DatanodeUuid,
    /// Datanode that the target copies from: the source, or another one with a replica.
    pub proxy: DatanodeInfo,
    /// Datanode that gets the replica.
    pub target: DatanodeInfo,
    /// Type of the target's storage.
    pub storage_type: StorageType,
}

/// Moves replicas of one namespace. It signs its own block tokens if the cluster requires them.
#[derive(Debug)]
pub struct ReplicaMover {
    session: Arc<Session>,
    pool: BlockPoolId,
    keys: BlockKeys,
    /// Time of the next update of the keys. `None`: block tokens are off.
    next_update: Mutex<Option<Instant>>,
}

impl FileSystem {
    /// Returns a mover of replicas. Requires superuser rights.
    pub async fn replica_mover(&self) -> Result<ReplicaMover, Error> {
        let session = Arc::clone(&self.session);
        let pool = session.namenode.block_pool().await?;
        let mover = ReplicaMover { session, pool, keys: BlockKeys::new(), next_update: Mutex::new(None) };
        mover.update_keys().await?;
        Ok(mover)
    }
}

impl ReplicaMover {
    async fn update_keys(&self) -> Result<(), Error> {
        let keys = self.session.namenode.block_keys().await?;
        self.keys.import(&keys, now_ms());
        // Four times per interval, as Apache's balancer, so that the datanodes never know newer keys only.
        let interval = Duration::from_millis(keys.update_interval_ms / 4).clamp(Duration::from_secs(1), KEYS_AGE_MAX);
        *self.next_update.lock() = keys.enabled.then(|| Instant::now() + interval);
        Ok(())
    }

    /// Updates the keys if it is time. One of several concurrent callers does it.
    async fn update_keys_if_due(&self) {
        let is_due = {
            let mut next = self.next_update.lock();
            let now = Instant::now();
            let is_due = next.is_some_and(|next| next <= now);
            if is_due {
                *next = Some(now + KEYS_RETRY);
            }
            is_due
        };
        if is_due && let Err(error) = self.update_keys().await {
            tracing::warn!(%error, "cannot update the keys of block tokens; trying again later");
        }
    }

    /// Moves a replica, within `limit`. Returns when the target has the replica. If the future is dropped, the target
    /// may still complete the move.
    pub async fn move_replica(&self, replica: &ReplicaMove, limit: Duration) -> Result<(), Error> {
        self.update_keys_if_due().await;
        let block = ExtendedBlock { pool: self.pool.clone(), block: replica.block };
        let storage_types = [replica.storage_type];
        let access = BlockAccess { storage_types: &storage_types, ..BlockAccess::new(&block, AccessMode::Replace) };
        // The target shows the same token to the proxy.
        let modes = [AccessMode::Replace, AccessMode::Copy];
        let token = self.keys.mint_for(&self.session.user, &access, &modes, BlockTokenEncoding::Legacy, now_ms());
        let operation = Operation::ReplaceBlock(Box::new(ReplaceBlock {
            block: block.clone(),
            token,
            delete_hint: replica.source.to_string(),
            source: replica.proxy.clone(),
            storage_type: replica.storage_type,
            storage_id: None,
        }));
        let target = replica.target.id.transfer_address();
        match tokio::time::timeout(limit, self.exchange(&replica.target, &operation, &block)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(source)) => Err(Failure::Move { block: Box::new(block), target, source: Arc::new(source) }.into()),
            Err(_) => {
                let message = format!("Block move timed out: {block} to {target} after {limit:?}");
                Err(Error::new(ErrorKind::DataUnavailable, message))
            }
        }
    }

    /// Sends the request to the target and awaits its last answer.
    async fn exchange(
        &self,
        target: &DatanodeInfo,
        operation: &Operation,
        block: &ExtendedBlock,
    ) -> Result<(), DatanodeError> {
        let datanodes = &self.session.datanodes;
        let mut timeouts = datanodes.options.read_timeouts();
        timeouts.read = timeouts.read.max(ANSWER_PATIENCE);
        let mut peer = datanodes.request(&target.id, operation, timeouts).await?;
        loop {
            let response = peer.receiver.receive_response().await?;
            match response.status {
                Status::InProgress => {}
                Status::Success => return Ok(()),
                Status::ErrorAccessToken => {
                    return Err(DatanodeError::AccessToken { block: Box::new(block.clone()) });
                }
                status => {
                    return Err(DatanodeError::Refused {
                        operation: "REPLACE_BLOCK",
                        block: Box::new(block.clone()),
                        status: format!("{status:?}"),
                        message: response.message.unwrap_or_default(),
                    });
                }
            }
        }
    }
}

fn now_ms() -> u64 {
    SystemClock::new().wall_ms()
}
