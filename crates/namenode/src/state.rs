//! The NameNode's whole state, behind one lock, and the one way of changing it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hearth_config::Reconfiguration;
use hearth_protocol::rpc::RpcServerOptions;
use hearth_types::{Clock, PoolIdentity};
use hearth_web::Protection;
use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::watch;

use crate::audit::AuditLog;
use crate::block_tokens::BlockTokens;
use crate::blocks::{BlockMap, Now};
use crate::caching::Caching;
use crate::changes::{Changes, RetryEntry, RetryKey};
use crate::error::Error;
use crate::fsck::LostFound;
use crate::groups::Groups;
use crate::image::{BackupSettings, Exports};
use crate::leases::Leases;
use crate::metasave::MetasaveFiles;
use crate::namespace::{Caller, InodeId, Namespace};
use crate::proxy_users::Impersonation;
use crate::retries::StoredRetries;
use crate::settings::Settings;
use crate::slow_nodes::SlowNodes;
use crate::store::Store;
use crate::top_users::TopUsers;

/// State protected by the lock. Everything in it is a pure in-memory state machine: time comes in as an argument,
/// nothing waits, nothing does I/O.
pub struct State {
    pub namespace: Namespace,
    pub leases: Leases,
    pub blocks: BlockMap,
    pub retries: StoredRetries,
    pub caching: Caching,
    /// Files without a writer that will be closed when their last blocks are recovered or reported, and have enough
    /// replicas.
    pub closing: BTreeSet<InodeId>,
    /// Files with a block that only snapshots keep and that was being written when the file lost it: the block must be
    /// recovered.
    pub unfinished: BTreeSet<InodeId>,
}

/// A running NameNode, shared by all calls.
pub struct Namenode {
    /// Held for the in-memory part of an operation only, never across an await.
    pub state: RwLock<State>,
    pub store: Store,
    pub clock: Arc<dyn Clock>,
    pub identity: PoolIdentity,
    pub settings: Settings,
    pub groups: Groups,
    pub impersonation: Impersonation,
    pub tokens: Arc<BlockTokens>,
    /// `None` if the audit log is off.
    pub audit: Option<AuditLog>,
    /// Keys that can change at run time; see [`Namenode::reconfigure`].
    pub reconfiguration: Reconfiguration<Self>,
    /// Time that reading the namespace took at the start.
    pub load_time: Duration,
    /// Writes images of the namespace.
    pub images: Exports,
    /// Settings of regular backups; `None`: there are none.
    pub backups: watch::Sender<Option<BackupSettings>>,
    /// Limits of the RPC ports, which share the memory for long requests.
    pub rpc: RpcServerOptions,
    /// Rules of the web port.
    pub protection: Protection,
    /// Writes lists of pending work to files.
    pub metasave: MetasaveFiles,
    /// Counts the recent calls of each user.
    pub top_users: TopUsers,
    /// DataNodes and disks that are reported as slow.
    pub slow_nodes: SlowNodes,
    /// Copies of `fsck -move`.
    pub lost_found: LostFound,
}

/// One call, from an operation's view.
pub struct CallContext {
    pub caller: Caller,
    /// Key under which an at-most-once call's answer is remembered, and until when (milliseconds since the epoch).
    pub retry: Option<(RetryKey, u64)>,
    remembered: AtomicBool,
}

impl CallContext {
    pub fn new(caller: Caller, retry: Option<(RetryKey, u64)>) -> Self {
        Self { caller, retry, remembered: AtomicBool::new(false) }
    }

    /// Returns true if the answer was stored for repetitions.
    pub fn is_remembered(&self) -> bool {
        self.remembered.load(Ordering::Relaxed)
    }
}

/// Decides whether an answer is stored for a client that repeats the call. If the call failed or did nothing, its
/// repetition runs again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remember {
    Yes,
    No,
}

impl State {
    fn take_changes(&mut self) -> Changes {
        let mut changes = self.namespace.take_changes();
        self.caching.take_changes(&mut changes);
        changes.storages = self.blocks.take_storage_changes();
        changes.lost_stamps_given_up = self.blocks.take_lost_stamps_given_up();
        changes
    }

    /// Has the datanodes lock the blocks that the cache directives require.
    pub fn scan_cache(&mut self, now: Now) {
        self.caching.scan(&self.namespace, &mut self.blocks, now);
    }
}

impl Namenode {
    pub fn now(&self) -> Now {
        Now::of(&*self.clock)
    }

    /// Locks the state for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// Executes one operation under the lock and returns its result when all its changes are on disk.
    ///
    /// A failing operation does its checks before it changes anything. The few that fail and still change something (a
    /// create that starts a lease recovery) do so on purpose, and these changes are made durable too.
    pub async fn change<T>(&self, operation: impl FnOnce(&mut State, Now) -> Result<T, Error>) -> Result<T, Error> {
        let (outcome, durable) = {
            let mut state = self.state.write();
            self.check_store()?;
            let outcome = operation(&mut state, self.now());
            (outcome, self.store.submit(state.take_changes()))
        };
        durable.wait().await.map_err(|failed| Error::StoreFailed { reason: failed.reason })?;
        outcome
    }

    /// Like [`Namenode::change`], for an at-most-once call: its encoded answer is stored with the change, so that a
    /// repetition of the call gets the same answer, even after a restart.
    pub async fn change_once<M: prost::Message>(
        &self,
        context: &CallContext,
        operation: impl FnOnce(&mut State, Now) -> Result<(M, Remember), Error>,
    ) -> Result<Bytes, Error> {
        let (outcome, durable) = {
            let mut state = self.state.write();
            self.check_store()?;
            let now = self.now();
            let outcome = operation(&mut state, now).map(|(answer, remember)| (encode(&answer), remember));
            let mut changes = state.take_changes();
            if let (Ok((answer, Remember::Yes)), Some((key, expires_ms))) = (&outcome, context.retry) {
                changes.retries_removed = state.retries.take_expired(now.wall_ms);
                changes.retry = Some((key, RetryEntry { expires_ms, answer: answer.to_vec() }));
                state.retries.push(expires_ms);
                context.remembered.store(true, Ordering::Relaxed);
            }
            (outcome, self.store.submit(changes))
        };
        durable.wait().await.map_err(|failed| Error::StoreFailed { reason: failed.reason })?;
        outcome.map(|(answer, _)| answer)
    }

    fn check_store(&self) -> Result<(), Error> {
        match self.store.failure() {
            None => Ok(()),
            Some(failed) => Err(Error::StoreFailed { reason: failed.reason }),
        }
    }

    /// Rejects a change while safe mode is on. `action`: as in "Cannot `action`. Name node is ...".
    pub fn check_safe_mode(&self, state: &State, now: Now, action: impl FnOnce() -> String) -> Result<(), Error> {
        if !state.blocks.in_safe_mode() {
            return Ok(());
        }
        Err(self.safe_mode_error(state, now, format!("Cannot {}", action())))
    }

    /// Returns the exception of safe mode. `what`: its first words.
    pub fn safe_mode_error(&self, state: &State, now: Now, what: String) -> Error {
        Error::SafeMode { what, tip: state.blocks.safe_mode_tip(now), host: self.settings.host_name.clone() }
    }
}

/// Encodes an answer.
pub fn encode<M: prost::Message>(answer: &M) -> Bytes {
    let bytes = answer.encode_to_vec();
    match bytes[..] {
        // The answer "true" of most changes. It is remembered for minutes, so often that an allocation for each would
        // matter.
        [0x08, 0x01] => Bytes::from_static(&[0x08, 0x01]),
        _ => bytes.into(),
    }
}
