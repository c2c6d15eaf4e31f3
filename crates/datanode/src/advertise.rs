//! Replicas in memory that clients read one-sidedly, without running any code of this process. These rules keep that
//! safe:
//!
//! 1. Only finalized replicas with files of their own are shown: their data never changes. Slabs are never shown.
//! 2. A replica is registered first. Then the store agrees that it is shown; from then on it is never truncated,
//!    rewritten or used for anything else. Then the record beside its CRCs is written, which identifies the owner of
//!    the memory. Only then is the replica advertised.
//! 3. Before the store changes or releases a replica, it requests its withdrawal. The record is zeroed before that call
//!    returns. A reader reads the record after the data, and trusts no data without it.
//! 4. An advertisement is a lease. Advertised memory stays registered, guarded and counted until its last lease has
//!    expired, whatever happens to the replica. Its files are unlinked, and the kernel frees them when guard, mapping
//!    and registration are gone. Only the keys of corrupt replicas are withdrawn at once.
//! 5. A NameNode that passes advertisements on receives only replicas that were recently finalized or requested. Their
//!    memory is held for another lease before they are sent ([`Advertiser::lease_until`]).
//!
//! So a read in flight, however late, finds the promised bytes, or no record, or no key. Neither side waits for the
//! other. [`lease_table`] defines the order of these steps and is tested in all interleavings.

mod lease_table;
mod recent_replicas;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hearth_blockstore::{
    Blockstore, InPlace, Reaction, ReplicaReader, StoreError, WithdrawHook, WithdrawReason, WithdrawReply,
};
use hearth_fabric::Memory;
use hearth_fabric::one_sided::{self, Access, Domain, Region};
use hearth_types::{BlockId, BlockPoolId, ByteRange, ChecksumSpec, Clock, ExtendedBlock, ReplicaState, ValidityRecord};
use hearth_wire::rdma_control::Advertisement;
use tokio::sync::{Notify, mpsc};

use lease_table::{AdvertisedMemory, ClaimResult, LeaseTable, WithdrawOutcome};
pub use lease_table::{AdvertisedMetrics, Bounds};
use recent_replicas::RecentReplicas;

/// Maximum number of replicas that wait to be registered ahead of requests; further ones are registered on request.
const PREREGISTER_QUEUE_MAX: usize = 4096;

/// Number of attempts to locate a replica that changes during the request.
const LOCATE_ATTEMPTS: usize = 4;

/// Maximum time that a request waits for another one that registers the same replica.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval of the search for memory without a valid lease.
const SWEEP_INTERVAL: Duration = Duration::from_millis(200);

type BlockKey = (BlockPoolId, BlockId);

/// Replicas that this DataNode shows to one-sided readers.
pub struct Advertiser {
    domain: Arc<dyn Domain>,
    lease_table: LeaseTable<BlockKey, RegisteredReplica>,
    incarnation: u64,
    lease: Duration,
    clock: Arc<dyn Clock>,
    preregister: mpsc::Sender<ExtendedBlock>,
    /// Notified when a replica has been registered, or could not be.
    registration_done: Notify,
    leases: AtomicU64,
    recent: RecentReplicas,
    announced: Arc<AnnouncementMetrics>,
}

/// Metrics of the advertisements that NameNodes hold.
#[derive(Debug, Default)]
pub struct AnnouncementMetrics {
    replicas: AtomicU64,
    advertisements: AtomicU64,
}

impl AnnouncementMetrics {
    /// Records an announcement of `added` replicas to one NameNode, which held `before` replicas and now holds `after`.
    pub fn record(&self, added: usize, after: usize, before: usize) {
        self.advertisements.fetch_add(added as u64, Ordering::Relaxed);
        self.replicas.fetch_add(after as u64, Ordering::Relaxed);
        self.replicas.fetch_sub(before as u64, Ordering::Relaxed);
    }

    /// Returns how many replicas NameNodes hold advertisements of.
    pub fn replicas(&self) -> u64 {
        self.replicas.load(Ordering::Relaxed)
    }

    /// Returns how many advertisements were sent to NameNodes.
    pub fn advertisements(&self) -> u64 {
        self.advertisements.load(Ordering::Relaxed)
    }
}

/// A replica that is registered for remote reads. The fields are dropped in this order.
struct RegisteredReplica {
    data: Arc<dyn Region>,
    crcs: Arc<dyn Region>,
    block: ExtendedBlock,
    checksum: ChecksumSpec,
    nonce: u64,
    /// Keeps the memory counted.
    _guard: ReplicaReader,
}

/// Location of a replica's bytes.
pub enum LocateOutcome {
    Shown(Box<Advertisement>),
    /// Too small to be shown: the bytes themselves.
    Small(ReplicaReader),
    /// Currently not readable one-sidedly; the text is a reason for users.
    NotShown(&'static str),
}

/// Reason why a replica cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum AdvertiseError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot map {block}")]
    Map { block: ExtendedBlock, source: std::io::Error },
    #[error("cannot register the memory of {block}")]
    Register { block: ExtendedBlock, source: one_sided::Error },
    #[error("a task was interrupted")]
    Interrupted,
}

/// Result of a request to show a replica.
enum AdvertiseOutcome {
    Advertised,
    /// Another task is showing it.
    Busy,
    /// It was withdrawn during the attempt: start again.
    Withdrawn,
    Other(LocateOutcome),
}

impl Advertiser {
    /// `bounds` limit what is shown at once. The caller must register the result with the store as a [`WithdrawHook`].
    pub fn new(
        store: &Arc<Blockstore>,
        domain: Arc<dyn Domain>,
        incarnation: u64,
        lease: Duration,
        bounds: Bounds,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let (preregister, queue) = mpsc::channel(PREREGISTER_QUEUE_MAX);
        let this = Arc::new(Self {
            domain,
            lease_table: LeaseTable::new(bounds),
            incarnation,
            lease,
            clock,
            preregister,
            registration_done: Notify::new(),
            leases: AtomicU64::new(0),
            recent: RecentReplicas::default(),
            announced: Arc::default(),
        });
        tokio::spawn(preregister_all(Arc::downgrade(&this), Arc::downgrade(store), queue));
        tokio::spawn(sweep(Arc::downgrade(&this)));
        this
    }

    pub fn domain(&self) -> &Arc<dyn Domain> {
        &self.domain
    }

    /// Returns the limit of registered bytes.
    pub fn registered_bytes_max(&self) -> u64 {
        self.lease_table.bounds().bytes
    }

    /// Changes the limit of registered bytes.
    pub fn set_registered_bytes_max(&self, bytes: u64) {
        self.lease_table.set_bytes_max(bytes);
    }

    pub fn metrics(&self) -> AdvertisedMetrics {
        self.lease_table.metrics()
    }

    /// Returns the number of advertisements given out.
    pub fn leases(&self) -> u64 {
        self.leases.load(Ordering::Relaxed)
    }

    /// Returns the time on the monotonic clock, with which leases are measured.
    pub fn now_ms(&self) -> u64 {
        self.clock.monotonic().as_millis() as u64
    }

    pub fn announcement_metrics(&self) -> &Arc<AnnouncementMetrics> {
        &self.announced
    }

    /// Returns replicas that were finalized or requested at `since_ms` or later, with at most `bytes_max` bytes in
    /// total.
    pub fn recent(&self, pool: &BlockPoolId, since_ms: u64, bytes_max: u64) -> Vec<BlockId> {
        self.recent.used_since(pool, since_ms, bytes_max)
    }

    /// Returns the advertisement of a replica, for a NameNode that passes it on. Keeps the replica's memory until at
    /// least `until_ms`. `None`: it is not shown now.
    pub fn lease_until(&self, pool: &BlockPoolId, block: BlockId, until_ms: u64) -> Option<Advertisement> {
        let key = (pool.clone(), block);
        // The NameNode that passes the advertisement on fills in the remaining lease.
        self.lease_table.lease(&key, until_ms, |shown| shown.advertisement(Duration::ZERO, self.incarnation))
    }

    fn record_use(&self, block: &ExtendedBlock, bytes: u64) {
        self.recent.record((block.pool.clone(), block.id()), bytes, self.now_ms());
    }

    /// Queues a finalized replica for registration ahead of requests, if there is space.
    pub fn on_finalized(&self, block: ExtendedBlock) {
        // If the queue is full, the first request registers the replica.
        let _ = self.preregister.try_send(block);
    }

    /// Returns the location of the bytes of `block`, with a lease on them. The caller has checked the token.
    pub async fn locate(
        self: &Arc<Self>,
        store: &Arc<Blockstore>,
        block: &ExtendedBlock,
    ) -> Result<LocateOutcome, AdvertiseError> {
        for _ in 0..LOCATE_ATTEMPTS {
            let mut settled = std::pin::pin!(self.registration_done.notified());
            settled.as_mut().enable();
            if let Some(advertisement) = self.lease_advertisement(block) {
                return Ok(advertisement);
            }
            let (this, store, wanted) = (self.clone(), store.clone(), block.clone());
            let outcome = tokio::task::spawn_blocking(move || this.show(&store, &wanted, true))
                .await
                .map_err(|_| AdvertiseError::Interrupted)??;
            match outcome {
                AdvertiseOutcome::Other(found) => return Ok(found),
                AdvertiseOutcome::Advertised | AdvertiseOutcome::Withdrawn => {}
                AdvertiseOutcome::Busy => {
                    let _ = tokio::time::timeout(REGISTRATION_TIMEOUT, settled).await;
                }
            }
        }
        Ok(LocateOutcome::NotShown("the replica is changing"))
    }

    /// Returns the advertisement of `block`, with a lease from now.
    fn lease_advertisement(&self, block: &ExtendedBlock) -> Option<LocateOutcome> {
        let end = self.now_ms() + self.lease.as_millis() as u64;
        let key = (block.pool.clone(), block.id());
        let advertisement =
            self.lease_table.lease(&key, end, |shown| shown.advertisement(self.lease, self.incarnation))?;
        if advertisement.block.stamp() < block.stamp() {
            return Some(LocateOutcome::NotShown("the replica has an older generation stamp than requested"));
        }
        self.leases.fetch_add(1, Ordering::Relaxed);
        self.record_use(&advertisement.block, advertisement.data.length + advertisement.checksums.length);
        Some(LocateOutcome::Shown(Box::new(advertisement)))
    }

    /// Registers a replica and shows it. Takes milliseconds. `evict`: replicas with expired leases are withdrawn to
    /// make room.
    fn show(&self, store: &Blockstore, block: &ExtendedBlock, evict: bool) -> Result<AdvertiseOutcome, AdvertiseError> {
        let key = (block.pool.clone(), block.id());
        let claim = match self.lease_table.claim(&key) {
            ClaimResult::Claimed(claim) => claim,
            ClaimResult::Busy => return Ok(AdvertiseOutcome::Busy),
            ClaimResult::Advertised => return Ok(AdvertiseOutcome::Advertised),
        };
        let outcome = match self.register(store, block, &claim, evict) {
            Ok(RegisterOutcome::Registered(showing)) => match self.lease_table.show(claim, *showing) {
                Ok(()) => Ok(AdvertiseOutcome::Advertised),
                Err(_withdrawn) => Ok(AdvertiseOutcome::Withdrawn),
            },
            Ok(RegisterOutcome::Withdrawn) => {
                self.lease_table.abandon_claim(claim);
                Ok(AdvertiseOutcome::Withdrawn)
            }
            Ok(RegisterOutcome::Other(found)) => {
                self.lease_table.abandon_claim(claim);
                Ok(AdvertiseOutcome::Other(found))
            }
            Err(error) => {
                self.lease_table.abandon_claim(claim);
                Err(error)
            }
        };
        self.registration_done.notify_waiters();
        outcome
    }

    fn register(
        &self,
        store: &Blockstore,
        block: &ExtendedBlock,
        claim: &lease_table::Claim<BlockKey>,
        evict: bool,
    ) -> Result<RegisterOutcome, AdvertiseError> {
        let reader = store.reader(block)?;
        if reader.state() != ReplicaState::Finalized {
            return Ok(RegisterOutcome::Other(LocateOutcome::NotShown("the replica is being written")));
        }
        let Some(files) = reader.in_place()? else {
            let found = if reader.in_memory() {
                LocateOutcome::Small(reader)
            } else {
                LocateOutcome::NotShown("the replica is on disk")
            };
            return Ok(RegisterOutcome::Other(found));
        };
        let (length, checksum) = (reader.length(), reader.checksum());
        let table_bytes = checksum.checksum_bytes(length);
        let shown = InPlace::SHOWN..InPlace::TABLE + table_bytes;
        let mut gone = Vec::new();
        let evict = evict.then(|| self.now_ms());
        if !self.lease_table.reserve(claim, length + (shown.end - shown.start), evict, &mut gone) {
            return Ok(RegisterOutcome::Other(LocateOutcome::NotShown(
                "the maximum number of advertised replicas is reached",
            )));
        }
        drop(gone);
        let map = |file, bytes, writable| {
            let mapped = Memory::map(file, 0, bytes, writable).map(Arc::new);
            mapped.map_err(|source| AdvertiseError::Map { block: reader.block().clone(), source })
        };
        let data = map(files.data, length, false)?;
        let crcs = map(files.crcs, shown.end, true)?;
        let register = |memory: &Arc<Memory>, range| {
            let registered = self.domain.register(memory, range, Access::RemoteRead);
            registered.map_err(|source| AdvertiseError::Register { block: reader.block().clone(), source })
        };
        let data = register(&data, 0..length)?;
        let crcs = register(&crcs, shown)?;
        match reader.mark_shown() {
            Ok(_) => {}
            Err(StoreError::Withdrawn { .. }) => return Ok(RegisterOutcome::Withdrawn),
            Err(error) => return Err(error.into()),
        }
        let block = reader.block().clone();
        let showing = RegisteredReplica { data, crcs, block, checksum, nonce: files.nonce, _guard: reader };
        Ok(RegisterOutcome::Registered(Box::new(showing)))
    }
}

enum RegisterOutcome {
    Registered(Box<RegisteredReplica>),
    Withdrawn,
    Other(LocateOutcome),
}

impl RegisteredReplica {
    fn record(&self) -> ValidityRecord {
        ValidityRecord { block: self.block.block, nonce: self.nonce }
    }

    fn advertisement(&self, lease: Duration, incarnation: u64) -> Advertisement {
        let crcs = self.crcs.remote();
        let within = |offset, length| crcs.part(offset, length).expect("data and CRCs are registered together");
        let table = InPlace::TABLE - InPlace::SHOWN;
        Advertisement {
            block: self.block.clone(),
            checksum: self.checksum,
            nonce: self.nonce,
            data: self.data.remote(),
            checksums: within(table, crcs.length - table),
            shown: within(0, ValidityRecord::BYTES as u64),
            lease,
            incarnation,
        }
    }
}

impl AdvertisedMemory for RegisteredReplica {
    fn bytes(&self) -> u64 {
        let length = |region: &Arc<dyn Region>| region.range().end - region.range().start;
        length(&self.data) + length(&self.crcs)
    }

    fn write_record(&self) {
        self.crcs.memory().write(InPlace::SHOWN, &self.record().encode());
    }

    fn clear_record(&self) {
        self.crcs.memory().write(InPlace::SHOWN, &[0; ValidityRecord::BYTES]);
    }
}

impl WithdrawHook for Advertiser {
    fn withdraw(&self, block: &ExtendedBlock, what: WithdrawReason) -> WithdrawReply {
        let key = (block.pool.clone(), block.id());
        self.recent.forget(&key);
        match self.lease_table.withdraw(&key, self.now_ms(), what == WithdrawReason::Corruption) {
            WithdrawOutcome::Nothing => WithdrawReply::Done,
            // Deregistering is faster than the store's next step, and an eviction needs the memory now.
            WithdrawOutcome::Over(showing) => {
                drop(showing);
                WithdrawReply::Done
            }
            WithdrawOutcome::Leased => WithdrawReply::Later,
        }
    }
}

impl Drop for Advertiser {
    fn drop(&mut self) {
        // The records outlive this process in their files, so they are cleared for the next process.
        drop(self.lease_table.clear());
    }
}

/// Returns the data and CRCs of a replica that is too small to be shown, one after the other.
pub fn small_bytes(reader: &ReplicaReader) -> Result<(Vec<u8>, Vec<u8>), StoreError> {
    let mut data = vec![0; reader.length() as usize];
    reader.read_at(0, &mut data)?;
    let mut crcs = Vec::new();
    reader.checksums(ByteRange::new(0, reader.length()).expect("0 is the least"), &mut crcs)?;
    Ok((data, crcs))
}

async fn preregister_all(
    advertiser: std::sync::Weak<Advertiser>,
    store: std::sync::Weak<Blockstore>,
    mut queue: mpsc::Receiver<ExtendedBlock>,
) {
    while let Some(block) = queue.recv().await {
        let (Some(advertiser), Some(store)) = (advertiser.upgrade(), store.upgrade()) else { return };
        let shown = tokio::task::spawn_blocking(move || {
            match advertiser.show(&store, &block, false) {
                Ok(AdvertiseOutcome::Advertised) => {
                    // The replica may be shown with a different length.
                    if let Some(shown) = advertiser.lease_until(&block.pool, block.id(), 0) {
                        advertiser.record_use(&shown.block, shown.data.length + shown.checksums.length);
                    }
                }
                Ok(_) => {}
                // The replica changed or was deleted before its turn.
                Err(AdvertiseError::Store(error)) if error.reaction() != Reaction::Machine => {}
                Err(error) => tracing::warn!(%block, %error, "cannot register a finalized replica ahead of requests"),
            }
        });
        let _ = shown.await;
    }
}

async fn sweep(advertiser: std::sync::Weak<Advertiser>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(advertiser) = advertiser.upgrade() else { return };
        let over = advertiser.lease_table.sweep(advertiser.now_ms());
        drop(advertiser);
        if !over.is_empty() {
            // Deregistering and unmapping take time.
            let _ = tokio::task::spawn_blocking(move || drop(over)).await;
        }
    }
}

#[cfg(test)]
mod tests;
