//! All that the NameNode knows, behind one lock.

use std::sync::Arc;

use hearth_types::{Clock, PoolIdentity};
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::blocks::BlockMap;

/// What the lock protects. Everything in it is a pure in-memory state machine: time comes in as an argument, nothing
/// waits, nothing does I/O.
pub struct State {
    pub blocks: BlockMap,
}

/// A running NameNode, shared by all calls.
pub struct Namenode {
    /// Held for the in-memory part of an operation only, never across an await.
    pub state: RwLock<State>,
    pub clock: Arc<dyn Clock>,
    pub identity: PoolIdentity,
    /// Woken whenever a datanode's report may have made a block complete: held `complete` calls look again.
    pub blocks_reported: Notify,
}
