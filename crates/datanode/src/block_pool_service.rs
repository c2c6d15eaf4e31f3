//! A configured nameservice: its NameNodes and, once one of them has answered, its block pool.

mod last_contact;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hearth_config::{HostPort, Nameservice};
use hearth_types::PoolIdentity;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};

use self::last_contact::LastContact;
use crate::pool::Pool;
use crate::replica_service::ReplicaService;
use crate::tokens::BlockTokens;

/// Requests of an administrator to an actor.
#[derive(Default)]
pub struct ReportTrigger {
    full_report: AtomicBool,
    wake: Notify,
}

impl ReportTrigger {
    /// Requests a full block report without a lease.
    pub fn request_full_report(&self) {
        self.full_report.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    pub fn take_full_report(&self) -> bool {
        self.full_report.swap(false, Ordering::Relaxed)
    }

    /// Restores a request whose report failed. `forced`: its value when it was taken.
    pub fn request_again(&self, forced: bool) {
        self.full_report.fetch_or(forced, Ordering::Relaxed);
    }

    pub async fn woken(&self) {
        self.wake.notified().await;
    }
}

/// One NameNode of a nameservice.
pub struct ServedNamenode {
    pub address: HostPort,
    /// Address for lifelines, if it accepts any.
    pub lifeline: Option<HostPort>,
    pub report_trigger: ReportTrigger,
    /// Held while the replicas for a full report are listed, which a disk may delay: one list at a time.
    pub listing: Arc<Semaphore>,
    pub last_contact: LastContact,
}

/// One nameservice.
pub struct BlockPoolService {
    pub name: String,
    pub namenodes: Vec<ServedNamenode>,
    pool: watch::Sender<Option<Arc<Pool>>>,
    /// Held while the pool's storage is being opened, so that two NameNodes do not open it twice.
    opening: tokio::sync::Mutex<()>,
    /// Number of actors that still run.
    alive: AtomicUsize,
}

/// Reason why a NameNode is not served.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("the namenode serves block pool {found}, but its nameservice uses {known}")]
    OtherPool { found: String, known: String },
    #[error(transparent)]
    Store(#[from] hearth_blockstore::StoreError),
    #[error("a task of the store was interrupted")]
    Interrupted,
}

impl BlockPoolService {
    pub fn new(named: &Nameservice) -> Self {
        let namenodes: Vec<_> = named
            .namenodes
            .iter()
            .map(|namenode| ServedNamenode {
                address: namenode.rpc.clone(),
                lifeline: namenode.lifeline.clone(),
                report_trigger: ReportTrigger::default(),
                listing: Arc::new(Semaphore::new(1)),
                last_contact: LastContact::default(),
            })
            .collect();
        Self {
            name: named.id.clone().unwrap_or_else(|| named.namenodes[0].rpc.to_string()),
            alive: AtomicUsize::new(namenodes.len()),
            namenodes,
            pool: watch::Sender::new(None),
            opening: tokio::sync::Mutex::new(()),
        }
    }

    pub fn pool(&self) -> Option<Arc<Pool>> {
        self.pool.borrow().clone()
    }

    /// Returns the pool of this nameservice, opened on the first call. All its NameNodes must name the same pool.
    pub async fn attach_pool(
        &self,
        replicas: &ReplicaService,
        identity: PoolIdentity,
    ) -> Result<Arc<Pool>, AttachError> {
        let _opening = self.opening.lock().await;
        if let Some(pool) = self.pool() {
            if pool.identity == identity {
                return Ok(pool);
            }
            let known = format!("{:?}", pool.identity);
            return Err(AttachError::OtherPool { found: format!("{identity:?}"), known });
        }
        let store = replicas.store.clone();
        let attached = identity.clone();
        let summary = tokio::task::spawn_blocking(move || store.attach_pool(&attached))
            .await
            .map_err(|_| AttachError::Interrupted)??;
        tracing::info!(
            pool = %identity.pool, replicas = summary.replicas, bytes = summary.bytes,
            in_memory = summary.in_memory, dirty = summary.dirty, "block pool attached"
        );
        if summary.quarantined {
            tracing::warn!(pool = %identity.pool, "moved aside memory that did not belong to the storage directories");
        }
        let tokens = BlockTokens::new(replicas.options.clock.clone(), &replicas.options.user);
        let pool = Arc::new(Pool::new(identity, self.namenodes.len(), tokens));
        replicas.pools.insert(pool.clone());
        self.pool.send_replace(Some(pool.clone()));
        Ok(pool)
    }

    /// Records that an actor has ended. Returns true if it was the last one.
    pub fn actor_ended(&self) -> bool {
        self.alive.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire) > 0
    }

    async fn registered(&self) {
        let mut watch = self.pool.subscribe();
        // The sender is a field of `self`, so it outlives this future.
        let pool = match watch.wait_for(Option::is_some).await {
            Ok(pool) => pool.clone(),
            Err(_) => return,
        };
        if let Some(pool) = pool {
            pool.registered().await;
        }
    }
}

/// All nameservices, and the data that all their heartbeats share.
#[derive(Default)]
pub struct BlockPoolServices {
    list: Mutex<Vec<Arc<BlockPoolService>>>,
    failed: Mutex<FailedVolumes>,
}

/// Storage directories that have failed.
#[derive(Clone, Default, Debug)]
pub struct FailedVolumes {
    pub dirs: Vec<String>,
    /// Time of the last failure, in milliseconds since the epoch.
    pub last_ms: u64,
    /// Lost capacity in bytes.
    pub capacity_lost: u64,
}

impl BlockPoolServices {
    pub fn set(&self, services: Vec<Arc<BlockPoolService>>) {
        *self.list.lock() = services;
    }

    pub fn all(&self) -> Vec<Arc<BlockPoolService>> {
        self.list.lock().clone()
    }

    /// Returns true if any actor still runs.
    pub fn any_alive(&self) -> bool {
        self.list.lock().iter().any(|service| service.is_alive())
    }

    /// Resolves when, for each nameservice, this DataNode is registered with one of its NameNodes.
    pub async fn all_registered(&self) {
        for service in self.all() {
            service.registered().await;
        }
    }

    pub fn note_failed_volume(&self, dir: &Path, capacity_lost: u64, now_ms: u64) {
        let mut failed = self.failed.lock();
        failed.dirs.push(dir.display().to_string());
        failed.last_ms = now_ms;
        failed.capacity_lost += capacity_lost;
    }

    pub fn failed_volumes(&self) -> FailedVolumes {
        self.failed.lock().clone()
    }
}
