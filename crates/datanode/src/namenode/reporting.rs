//! Block reports: full ones under a lease, and incremental ones.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::StorageReplicas;
use hearth_types::{StorageId, StorageType};
use hearth_wire::block_report::{self, ReportedReplica};
use hearth_wire::proto::common::TokenProto;
use hearth_wire::proto::hdfs::received_deleted_block_info_proto::BlockStatus;
use hearth_wire::proto::hdfs::{
    BlockReceivedAndDeletedRequestProto, BlockReportContextProto, BlockReportRequestProto, CacheReportRequestProto,
    DatanodeCommandProto, DatanodeInfoProto, DatanodeStorageProto, ErrorReportRequestProto, LocatedBlockProto,
    ReceivedDeletedBlockInfoProto, ReportBadBlocksRequestProto, StorageBlockReportProto,
    StorageReceivedDeletedBlocksProto, datanode_storage_proto,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::handshake::Registered;
use super::proxy::{CallError, Proxy};
use crate::datanode::Datanode;
use crate::options::TimingOptions;
use crate::reports::{self, Notice, PendingReports, ReplicaEvent};

/// Codes of errorReport.
const DISK_ERROR: u32 = 1;
const INVALID_BLOCK: u32 = 2;
const FATAL_DISK_ERROR: u32 = 3;

/// Schedule of the full reports, and the lease for sending one.
pub struct FullReports {
    interval: Duration,
    due: Instant,
    sent_before: bool,
    /// 0: no lease.
    lease: u64,
    /// Number of the next report; incremented with each report.
    id: i64,
    listing: Option<Listing>,
    /// Time for a list, in multiples of its usual bound. Doubled by each list that takes longer: perhaps no disk hangs,
    /// and there are very many replicas. A list that ends in the usual time resets it.
    patience: u32,
}

/// Maximum of [`FullReports::patience`]: ten minutes of the usual ten seconds.
const PATIENCE_MAX: u32 = 64;

/// A full report whose replicas are being listed.
struct Listing {
    replicas: JoinHandle<Vec<StorageReplicas>>,
    began: Instant,
    /// When the list is abandoned.
    deadline: Instant,
    /// Usual time in which a list ends.
    bound: Duration,
    forced: bool,
    /// 0: no lease.
    lease: u64,
    /// Another report has become due since the start.
    again: bool,
}

/// A full report that is ready to be sent.
pub struct ListedReport {
    storages: Vec<StorageReplicas>,
    /// An administrator requested it.
    pub forced: bool,
    lease: u64,
    again: bool,
}

/// No list for a full report: it failed or took too long.
pub struct NotListed {
    /// An administrator requested the report.
    pub forced: bool,
}

impl FullReports {
    pub fn new(timing: &TimingOptions) -> Self {
        Self {
            interval: timing.block_report,
            due: Instant::now() + random_part(timing.block_report_initial_delay),
            sent_before: false,
            lease: 0,
            id: (random() >> 2) as i64 | 1,
            listing: None,
            patience: 1,
        }
    }

    /// Changes the interval. A report that is due later than after a new interval is due then.
    pub fn set_interval(&mut self, interval: Duration) {
        if interval != self.interval {
            self.interval = interval;
            self.due = self.due.min(Instant::now() + interval);
        }
    }

    /// Makes a full report due now. A report that is being listed does not count.
    pub fn make_due(&mut self) {
        self.due = Instant::now();
        if let Some(listing) = &mut self.listing {
            listing.again = true;
        }
    }

    pub fn wants_lease(&self) -> bool {
        self.lease == 0 && Instant::now() >= self.due
    }

    pub fn set_lease(&mut self, lease: u64) {
        if lease != 0 {
            self.lease = lease;
        }
    }

    pub fn forget_lease(&mut self) {
        self.lease = 0;
    }

    pub fn may_send(&self) -> bool {
        self.lease != 0 && Instant::now() >= self.due
    }

    /// Returns whether a report is being listed. No incremental report may be sent then: the full report could follow
    /// it with an older state.
    pub fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    /// Starts to list the replicas for a full report; [`Self::listed`] returns the list. `permit`: held until the list
    /// ends, even if it is abandoned. `forced`: an administrator requested the report; it is sent without a lease.
    pub fn begin_listing(
        &mut self,
        datanode: &Datanode,
        registered: &Registered,
        permit: OwnedSemaphorePermit,
        forced: bool,
    ) {
        let store = datanode.replicas.store.clone();
        let pool = registered.pool.id().clone();
        // Listing millions of replicas takes time, and may wait for a disk: not on a thread that serves connections.
        let replicas = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            store.say_corrupt_again(&pool);
            store.report(&pool)
        });
        let lease = if forced { 0 } else { self.lease };
        let (began, bound) = (Instant::now(), datanode.options.report_list_timeout);
        let deadline = began + bound * self.patience;
        self.listing = Some(Listing { replicas, began, deadline, bound, forced, lease, again: false });
    }

    /// Waits for the list of [`Self::begin_listing`]. `Err`: it failed or took too long, and a heartbeat asks for a new
    /// lease. A list that takes too long is never sent, because incremental reports are sent before it ends. It keeps
    /// its permit until it ends. Cancel safety: may be dropped and called again.
    pub async fn listed(&mut self) -> Result<ListedReport, NotListed> {
        let Some(listing) = &mut self.listing else { return pending().await };
        let replicas = timeout_at(listing.deadline, &mut listing.replicas).await;
        let Listing { began, bound, forced, again, lease, .. } = *listing;
        self.listing = None;
        match replicas {
            Ok(Ok(storages)) => {
                if began.elapsed() < bound {
                    self.patience = 1;
                }
                return Ok(ListedReport { storages, forced, lease, again });
            }
            Ok(Err(error)) => tracing::error!(%error, "cannot list the replicas for a full block report"),
            Err(_) => {
                self.patience = (2 * self.patience).min(PATIENCE_MAX);
                tracing::warn!(
                    "abandoned a full block report: listing the replicas takes too long, perhaps because a disk hangs; \
                     the report is repeated once that list has ended"
                );
            }
        }
        self.forget_lease();
        Err(NotListed { forced })
    }

    /// Sends a full report.
    pub async fn send(
        &mut self,
        datanode: &Arc<Datanode>,
        proxy: &Proxy,
        registered: &Registered,
        report: ListedReport,
    ) -> Result<Option<DatanodeCommandProto>, CallError> {
        let ListedReport { storages, lease, again, .. } = report;
        let total: u64 = storages.iter().map(|storage| storage.replicas.len() as u64).sum();
        let split = datanode.options.current().timing.block_report_split;
        let calls: Vec<Vec<StorageReplicas>> = if total < split || storages.len() < 2 {
            vec![storages]
        } else {
            storages.into_iter().map(|storage| vec![storage]).collect()
        };
        let total_rpcs = calls.len() as i32;
        let mut command = None;
        for (index, storages) in calls.into_iter().enumerate() {
            let request = BlockReportRequestProto {
                registration: registered.registration.clone(),
                block_pool_id: registered.pool.id().as_str().to_owned(),
                reports: storages.into_iter().map(|storage| storage_report(storage, registered.capabilities)).collect(),
                context: Some(BlockReportContextProto {
                    total_rpcs,
                    cur_rpc: index as i32,
                    id: self.id,
                    lease_id: Some(lease),
                }),
            };
            command = proxy.block_report(&request).await?.cmd.or(command);
        }
        tracing::info!(pool = %registered.pool.id(), replicas = total, "full block report sent");
        self.lease = 0;
        self.id += 1;
        // The second report is sent after a random delay, so that DataNodes that were started together spread out.
        let wait = if self.sent_before { self.interval } else { random_part(self.interval) };
        self.due = if again { Instant::now() } else { Instant::now() + wait };
        self.sent_before = true;
        Ok(command)
    }
}

fn storage_report(storage: StorageReplicas, capabilities: u64) -> StorageBlockReportProto {
    let proto = storage_proto(&storage.storage, storage.storage_type);
    if capabilities & block_report::CAPABILITY_BLOCK_REPORT_BUFFERS == 0 {
        return StorageBlockReportProto { storage: proto, blocks: legacy_block_list(&storage), ..Default::default() };
    }
    let replicas = storage.replicas.into_iter().map(|(block, state)| ReportedReplica { block, state });
    let (count, blocks_buffers) = block_report::encode(replicas);
    StorageBlockReportProto { storage: proto, blocks: Vec::new(), number_of_blocks: Some(count), blocks_buffers }
}

/// Returns the list format for a NameNode without buffers: counts, finalized replicas, three times -1, the other
/// replicas.
fn legacy_block_list(storage: &StorageReplicas) -> Vec<u64> {
    let finalized = |(_, state): &&(hearth_types::Block, hearth_types::ReplicaState)| {
        *state == hearth_types::ReplicaState::Finalized
    };
    let count = storage.replicas.iter().filter(finalized).count();
    let mut list = vec![count as u64, (storage.replicas.len() - count) as u64];
    for (block, _) in storage.replicas.iter().filter(finalized) {
        list.extend([block.id.0 as u64, block.length, block.stamp.0]);
    }
    list.extend([u64::MAX; 3]);
    for (block, state) in storage.replicas.iter().filter(|replica| !finalized(replica)) {
        list.extend([block.id.0 as u64, block.length, block.stamp.0, *state as u64]);
    }
    list
}

fn storage_proto(id: &StorageId, storage_type: StorageType) -> DatanodeStorageProto {
    DatanodeStorageProto {
        storage_uuid: id.0.as_ref().to_owned(),
        state: Some(datanode_storage_proto::StorageState::Normal as i32),
        storage_type: Some(storage_type as i32),
    }
}

/// Sends what is pending: events of replicas in one call, then each notice.
pub async fn send_incremental(
    datanode: &Arc<Datanode>,
    proxy: &Proxy,
    registered: &Registered,
    reports: &PendingReports,
) -> Result<(), CallError> {
    let mut taken = reports.take();
    let mut storages = Vec::new();
    if !taken.is_empty() {
        storages = datanode.replicas.store.storage_states();
        let failed: Vec<&StorageId> =
            storages.iter().filter(|storage| storage.failed).map(|storage| &storage.id).collect();
        remove_failed_storages(&mut taken, &failed);
    }
    if !taken.is_empty() {
        let request = BlockReceivedAndDeletedRequestProto {
            registration: registered.registration.clone(),
            block_pool_id: registered.pool.id().as_str().to_owned(),
            blocks: taken
                .iter()
                .map(|(storage, replicas)| {
                    let known = storages.iter().find(|known| known.id == *storage);
                    let storage_type = known.map_or(StorageType::Disk, |known| known.storage_type);
                    StorageReceivedDeletedBlocksProto {
                        storage_uuid: storage.0.as_ref().to_owned(),
                        blocks: replicas.iter().map(event_proto).collect(),
                        storage: Some(storage_proto(storage, storage_type)),
                    }
                })
                .collect(),
        };
        if let Err(error) = proxy.received_and_deleted(&request).await {
            reports.put_back(taken);
            return Err(error);
        }
    }
    while let Some(notice) = reports.take_notice() {
        if let Err(error) = send_notice(proxy, registered, &notice).await {
            // An exception would recur; after a lost connection a retry is worthwhile.
            if !error.is_remote() {
                reports.put_back_notice(notice);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Removes the events of failed storages that must not be reported any more. A NameNode that has removed the storage
/// would add it again for a late event of one of its replicas, and count it forever. A replica that moves to another
/// storage is reported again from there; deletions remain valid.
fn remove_failed_storages(taken: &mut Vec<(StorageId, Vec<reports::PendingEvent>)>, failed: &[&StorageId]) {
    for (storage, replicas) in taken.iter_mut() {
        if failed.contains(&&*storage) {
            replicas.retain(|replica| replica.event == ReplicaEvent::Deleted);
        }
    }
    taken.retain(|(_, replicas)| !replicas.is_empty());
}

/// Reports the cached blocks.
pub async fn send_cache_report(
    datanode: &Arc<Datanode>,
    proxy: &Proxy,
    registered: &Registered,
) -> Result<(), CallError> {
    let blocks = datanode.cache.report(registered.pool.id());
    let request = CacheReportRequestProto {
        registration: registered.registration.clone(),
        block_pool_id: registered.pool.id().as_str().to_owned(),
        blocks: blocks.into_iter().map(|id| id.0 as u64).collect(),
    };
    proxy.cache_report(&request).await?;
    Ok(())
}

fn event_proto(replica: &reports::PendingEvent) -> ReceivedDeletedBlockInfoProto {
    let (status, delete_hint) = match &replica.event {
        ReplicaEvent::Receiving => (BlockStatus::Receiving, None),
        ReplicaEvent::Received { delete_hint } => (BlockStatus::Received, delete_hint.clone()),
        ReplicaEvent::Deleted => (BlockStatus::Deleted, None),
    };
    ReceivedDeletedBlockInfoProto { block: (&replica.block).into(), delete_hint, status: status as i32 }
}

async fn send_notice(proxy: &Proxy, registered: &Registered, notice: &Notice) -> Result<(), CallError> {
    let error_report = |error_code, message: &str| ErrorReportRequestProto {
        registration: registered.registration.clone(),
        error_code,
        msg: message.to_owned(),
    };
    match notice {
        Notice::BadReplica { block, datanode, storage } => {
            let located = LocatedBlockProto {
                b: block.into(),
                offset: 0,
                locs: vec![DatanodeInfoProto::from(&**datanode)],
                corrupt: false,
                block_token: TokenProto::default(),
                storage_types: storage.iter().map(|(_, kind)| *kind as i32).collect(),
                storage_ids: storage.iter().map(|(id, _)| id.0.as_ref().to_owned()).collect(),
                ..Default::default()
            };
            proxy.report_bad_blocks(&ReportBadBlocksRequestProto { blocks: vec![located] }).await
        }
        Notice::InvalidBlock { message } => proxy.error_report(&error_report(INVALID_BLOCK, message)).await,
        Notice::DiskError { message } => proxy.error_report(&error_report(DISK_ERROR, message)).await,
        Notice::FatalDiskError { message } => proxy.error_report(&error_report(FATAL_DISK_ERROR, message)).await,
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Used only to spread load: without randomness the load is not spread.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Returns a random part of `whole`.
fn random_part(whole: Duration) -> Duration {
    whole.mul_f64((random() >> 11) as f64 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use hearth_config::Configuration;
    use hearth_types::{Block, BlockId, GenerationStamp};

    use super::*;

    #[tokio::test]
    async fn report_without_a_list_is_still_due() {
        for forced in [false, true] {
            let mut full_reports = FullReports::new(&TimingOptions::read(&Configuration::empty()).unwrap());
            full_reports.make_due();
            let later = Instant::now() + Duration::from_secs(3600);
            let failing: JoinHandle<Vec<StorageReplicas>> =
                tokio::task::spawn_blocking(|| panic!("the test wants it to fail"));
            let hanging = tokio::spawn(pending());
            let listing = |replicas, deadline| {
                let (began, bound) = (Instant::now(), Duration::from_secs(3600));
                Some(Listing { replicas, began, deadline, bound, forced, lease: 5, again: false })
            };
            for (replicas, deadline, patience) in [(failing, later, 1), (hanging, Instant::now(), 2)] {
                full_reports.set_lease(5);
                full_reports.listing = listing(replicas, deadline);
                let Err(not_listed) = full_reports.listed().await else { panic!("there is a list") };
                assert_eq!((not_listed.forced, full_reports.patience), (forced, patience));
                assert!(!full_reports.is_listing() && !full_reports.may_send() && full_reports.wants_lease());
            }
            full_reports.listing = listing(tokio::spawn(async { Vec::new() }), later);
            assert!(full_reports.listed().await.is_ok_and(|report| report.forced == forced));
            assert_eq!(full_reports.patience, 1, "a list that ends in time resets it");
        }
    }

    #[test]
    fn failed_storage_reports_only_deletions() {
        let [failed, sound] = ["DS-1", "DS-2"].map(|id| StorageId(id.into()));
        let block = |id| Block { id: BlockId(id), stamp: GenerationStamp(1001), length: 7 };
        let received = || ReplicaEvent::Received { delete_hint: None };
        let reports = PendingReports::default();
        reports.add(&failed, block(1), received());
        reports.add(&failed, block(2), ReplicaEvent::Receiving);
        reports.add(&failed, block(3), ReplicaEvent::Deleted);
        // It has left the storage.
        reports.add(&failed, block(4), received());
        reports.add(&sound, block(4), received());
        let told = |failed: &[&StorageId]| {
            let mut taken = reports.take();
            remove_failed_storages(&mut taken, failed);
            let mut told: Vec<_> = taken
                .into_iter()
                .flat_map(|(storage, replicas)| replicas.into_iter().map(move |told| (storage.clone(), told)))
                .map(|(storage, told)| (told.block.id.0, storage, told.event))
                .collect();
            told.sort_unstable_by_key(|(id, ..)| *id);
            told
        };
        let left = told(&[&failed]);
        assert_eq!(left, [(3, failed.clone(), ReplicaEvent::Deleted), (4, sound, received())]);
        reports.add(&failed, block(1), received());
        assert_eq!(told(&[&failed]), [], "no call is made without events");
        reports.add(&failed, block(1), received());
        assert_eq!(told(&[]).len(), 1);
    }
}
