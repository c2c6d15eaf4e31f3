//! Actor for one NameNode: registers, then sends heartbeats and reports and queues commands, until the DataNode stops
//! or the NameNode refuses it.

use std::sync::Arc;
use std::time::Duration;

use hearth_wire::announcement::{Announcement, AnnouncementAck};
use hearth_wire::proto::hdfs::{DatanodeCommandProto, HeartbeatResponseProto, datanode_command_proto};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use super::announcer::{Announcer, PoolMemory};
use super::handshake::{self, HandshakeError, Registered, ha_state};
use super::proxy::{FailureKind, Proxy};
use super::reporting::{self, FullReports, ListedReport, NotListed};
use super::work_poll::WorkPoll;
use super::{commands, heartbeat, lifeline};
use crate::block_pool_service::BlockPoolService;
use crate::datanode::Datanode;
use crate::options::AnnouncementOptions;
use crate::pool::{NamenodeIndex, Pool};

/// Maximum number of command lists that wait to be executed. A NameNode sends few with each heartbeat, and no heartbeat
/// waits for them: lists that do not fit are dropped.
const COMMANDS_QUEUED_MAX: usize = 64;

/// Delay after a failed call.
const RETRY: Duration = Duration::from_secs(1);

/// Reason why a session ended.
enum SessionEnd {
    Stopping,
    /// Start over: the NameNode does not know this DataNode any more.
    Reregister,
    /// End permanently.
    Refused,
}

pub async fn run(datanode: Arc<Datanode>, service: Arc<BlockPoolService>, index: NamenodeIndex) {
    let address = service.namenodes[index.0].address.clone();
    let proxy = Proxy::new(datanode.rpc.clone(), address.clone(), &datanode.options.user);
    loop {
        let registered = match handshake::run(&datanode, &service, index, &proxy).await {
            Ok(registered) => registered,
            Err(HandshakeError::Stopping) => return,
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::error!(namenode = %address, error, "cannot serve this namenode");
                break;
            }
        };
        tracing::info!(namenode = %address, pool = %registered.pool.id(), "registered");
        registered.pool.add_registered();
        let pool = registered.pool.clone();
        let namenode = &service.namenodes[index.0];
        namenode.last_contact.heartbeat_answered();
        let registration = registered.registration.clone();
        let since = Instant::now();
        let session = NamenodeSession::new(&datanode, &service, index, proxy.clone(), registered);
        let ended = tokio::select! {
            ended = session.run() => ended,
            () = lifeline::run(&datanode, namenode, &pool, &registration) => unreachable!("it never ends"),
        };
        pool.remove_registered();
        match ended {
            SessionEnd::Stopping => return,
            SessionEnd::Reregister => {
                if !pool.is_active(index) {
                    // The full report covers all events.
                    pool.reports(index).clear();
                }
                // Two DataNodes with the same UUID make each other register again: this limits the pace.
                tokio::select! {
                    () = tokio::time::sleep_until(since + datanode.options.current().timing.heartbeat) => {}
                    () = datanode.lifecycle.stopping() => return,
                }
            }
            SessionEnd::Refused => break,
        }
    }
    if service.actor_ended() {
        tracing::error!(nameservice = service.name, "no namenode of this nameservice is left to serve");
        if let Some(pool) = service.pool() {
            datanode.replicas.pools.remove(pool.id());
        }
        if !datanode.services.any_alive() {
            datanode.lifecycle.request_shutdown();
        }
    }
}

/// Returns the options for announcing memory to one NameNode: each nameservice gets an equal share. `None`: there is no
/// memory that can be read one-sidedly.
fn announcement_options(datanode: &Datanode) -> Option<AnnouncementOptions> {
    let one_sided = datanode.one_sided.as_ref()?;
    let AnnouncementOptions { lease, bytes_max } = datanode.options.current().announcements;
    let bytes_max = match bytes_max {
        0 => one_sided.advertiser.registered_bytes_max().min(datanode.replicas.store.memory_limit()) / 4,
        bytes => bytes,
    };
    let services = datanode.services.all().len().max(1) as u64;
    Some(AnnouncementOptions { lease, bytes_max: bytes_max / services })
}

/// `None`: there is no memory that can be read one-sidedly.
fn new_announcer(datanode: &Datanode) -> Option<Announcer> {
    let options = announcement_options(datanode)?;
    let metrics = datanode.one_sided.as_ref()?.advertiser.announcement_metrics().clone();
    Some(Announcer::new(options, metrics))
}

struct NamenodeSession<'a> {
    datanode: &'a Arc<Datanode>,
    service: &'a Arc<BlockPoolService>,
    index: NamenodeIndex,
    proxy: Proxy,
    pool: Arc<Pool>,
    registered: Registered,
    full_reports: FullReports,
    announcer: Option<Announcer>,
    work_poll: WorkPoll,
    /// When slow DataNodes and disks are reported next.
    next_outliers: Instant,
    commands: mpsc::Sender<Vec<DatanodeCommandProto>>,
}

impl<'a> NamenodeSession<'a> {
    fn new(
        datanode: &'a Arc<Datanode>,
        service: &'a Arc<BlockPoolService>,
        index: NamenodeIndex,
        proxy: Proxy,
        registered: Registered,
    ) -> Self {
        let pool = registered.pool.clone();
        let (commands, queue) = mpsc::channel(COMMANDS_QUEUED_MAX);
        tokio::spawn(commands::execute_all(datanode.clone(), pool.clone(), index, proxy.clone(), queue));
        let full_reports = FullReports::new(&datanode.options.current().timing);
        let announcer = new_announcer(datanode);
        let work_poll = WorkPoll::new(proxy.clone(), registered.registration.clone());
        let next_outliers = Instant::now();
        Self {
            datanode,
            service,
            index,
            proxy,
            pool,
            registered,
            full_reports,
            announcer,
            work_poll,
            next_outliers,
            commands,
        }
    }

    async fn run(mut self) -> SessionEnd {
        let reports = self.pool.reports(self.index).clone();
        let namenode = &self.service.namenodes[self.index.0];
        let report_trigger = &namenode.report_trigger;
        let mut next_heartbeat = Instant::now();
        let mut next_incremental = Instant::now();
        let mut next_cache = Instant::now();
        loop {
            if self.datanode.lifecycle.is_stopping() {
                return SessionEnd::Stopping;
            }
            let timing = self.datanode.options.current().timing;
            self.full_reports.set_interval(timing.block_report);
            // The interval may have become shorter.
            next_cache = next_cache.min(Instant::now() + timing.cache_report);
            if Instant::now() >= next_heartbeat {
                next_heartbeat = Instant::now() + timing.heartbeat;
                match self.heartbeat().await {
                    Ok(None) => {}
                    Ok(Some(ended)) => return ended,
                    Err(wait) => next_heartbeat = Instant::now() + wait.min(timing.heartbeat),
                }
            }
            // The events wait while a full report is listed: see `FullReports::is_listing`.
            if !self.full_reports.is_listing() {
                if reports.take_overflow() {
                    self.full_reports.make_due();
                }
                let forced = report_trigger.take_full_report();
                let full_due = forced || self.full_reports.may_send();
                // `None` also while an abandoned list, or one of an earlier session, waits for a disk: retried after
                // the next heartbeat.
                let permit = if full_due { namenode.listing.clone().try_acquire_owned().ok() } else { None };
                if permit.is_none() {
                    report_trigger.request_again(forced);
                }
                if permit.is_some() || Instant::now() >= next_incremental {
                    next_incremental = Instant::now() + timing.incremental_report;
                    // Sent before a full report, so that no old event follows the newer state in the report.
                    if let Err(error) =
                        reporting::send_incremental(self.datanode, &self.proxy, &self.registered, &reports).await
                    {
                        match error.failure_kind() {
                            FailureKind::Refused => return self.on_refused(&error),
                            _ => {
                                tracing::warn!(%error, "incremental block report failed");
                                tokio::time::sleep(RETRY).await;
                                // Clients wait for these events to close their files. The next heartbeat may be seconds
                                // away.
                                next_incremental = Instant::now();
                                reports.flush();
                            }
                        }
                    }
                }
                if let Some(permit) = permit {
                    self.full_reports.begin_listing(self.datanode, &self.registered, permit, forced);
                }
            }
            if self.datanode.locked_memory.capacity() > 0 && Instant::now() >= next_cache {
                next_cache = Instant::now() + timing.cache_report;
                if let Err(error) = reporting::send_cache_report(self.datanode, &self.proxy, &self.registered).await {
                    match error.failure_kind() {
                        FailureKind::Refused => return self.on_refused(&error),
                        _ => tracing::warn!(%error, "cache report failed"),
                    }
                }
            }
            let is_listing = self.full_reports.is_listing();
            // A disk may delay the list, but no heartbeat.
            tokio::select! {
                () = tokio::time::sleep_until(next_heartbeat) => {}
                listed = self.full_reports.listed(), if is_listing => {
                    let ended = match listed {
                        Ok(report) => self.send_full_report(report).await,
                        Err(NotListed { forced }) => {
                            report_trigger.request_again(forced);
                            // The next list may fail at once, too.
                            tokio::time::sleep(RETRY).await;
                            None
                        }
                    };
                    if let Some(ended) = ended {
                        return ended;
                    }
                }
                () = reports.wait_urgent(), if !is_listing => {
                    if timing.incremental_report.is_zero() {
                        continue;
                    }
                    tokio::time::sleep_until(next_incremental.min(next_heartbeat)).await;
                }
                () = report_trigger.woken() => {}
                () = self.work_poll.wait_for_work() => next_heartbeat = Instant::now(),
                () = self.datanode.lifecycle.stopping() => return SessionEnd::Stopping,
            }
        }
    }

    /// Sends a full report and handles its answer. `Some`: the session has ended.
    async fn send_full_report(&mut self, report: ListedReport) -> Option<SessionEnd> {
        let namenode = &self.service.namenodes[self.index.0];
        let forced = report.forced;
        match self.full_reports.send(self.datanode, &self.proxy, &self.registered, report).await {
            Ok(command) => {
                namenode.last_contact.full_report_accepted();
                return self.take_commands(command.into_iter().collect()).await;
            }
            Err(error) => match error.failure_kind() {
                FailureKind::Refused => return Some(self.on_refused(&error)),
                FailureKind::LeaseExpired => {
                    self.full_reports.forget_lease();
                    namenode.report_trigger.request_again(forced);
                }
                FailureKind::Transient => {
                    namenode.report_trigger.request_again(forced);
                    tracing::warn!(%error, "full block report failed");
                    self.full_reports.forget_lease();
                    tokio::time::sleep(RETRY).await;
                }
            },
        }
        None
    }

    /// Sends one heartbeat and handles its answer. `Err`: time to wait before the next heartbeat.
    async fn heartbeat(&mut self) -> Result<Option<SessionEnd>, Duration> {
        // While another list is unfinished, a lease would expire unused, and other DataNodes would wait for it.
        let can_list = self.service.namenodes[self.index.0].listing.available_permits() > 0;
        let wants_lease = can_list && self.full_reports.wants_lease();
        let mut request = heartbeat::request(self.datanode, &self.pool, &self.registered.registration, wants_lease);
        request.hearth_announcement = self.announcement().map(|announcement| announcement.encode());
        let outliers_interval = self.datanode.options.current().outliers.interval;
        // The interval may have become shorter.
        self.next_outliers = self.next_outliers.min(Instant::now() + outliers_interval);
        let reports_outliers = Instant::now() >= self.next_outliers;
        if reports_outliers {
            request.slow_peers = self.datanode.slow_peers().iter().map(Into::into).collect();
            request.slow_disks = self.datanode.slow_disks().iter().map(Into::into).collect();
        }
        let answer = match self.proxy.heartbeat(&request).await {
            Ok(answer) => answer,
            Err(error) => {
                if let Some(announcer) = &mut self.announcer {
                    announcer.on_failure();
                }
                match error.failure_kind() {
                    FailureKind::Refused => return Ok(Some(self.on_refused(&error))),
                    FailureKind::LeaseExpired => self.full_reports.forget_lease(),
                    FailureKind::Transient => tracing::warn!(%error, "heartbeat failed"),
                }
                return Err(RETRY);
            }
        };
        if reports_outliers {
            self.next_outliers = Instant::now() + outliers_interval;
        }
        let last_contact = &self.service.namenodes[self.index.0].last_contact;
        last_contact.heartbeat_answered();
        let HeartbeatResponseProto {
            cmds,
            ha_status,
            full_block_report_lease_id,
            is_slow_node,
            hearth_word,
            hearth_awaits_work,
            ..
        } = answer;
        last_contact.note_slow(is_slow_node.unwrap_or(false));
        self.work_poll.on_heartbeat_answer(hearth_awaits_work.unwrap_or(false));
        self.on_word(hearth_word.as_ref().and_then(AnnouncementAck::decode));
        self.full_reports.set_lease(full_block_report_lease_id.unwrap_or(0));
        let state = ha_state(ha_status.state());
        self.pool.note_ha_state(self.index, state, ha_status.txid);
        Ok(self.take_commands(cmds).await)
    }

    /// Returns the announcement of this DataNode's memory that the NameNode passes on to clients.
    fn announcement(&mut self) -> Option<Announcement> {
        let advertiser = &self.datanode.one_sided.as_ref()?.advertiser;
        let memory = PoolMemory { advertiser, pool: self.pool.id() };
        let announcer = self.announcer.as_mut()?;
        announcer.set_options(announcement_options(self.datanode)?);
        // A key opens more than one block.
        announcer.next_announcement(&memory, !self.pool.tokens.is_enabled())
    }

    fn on_word(&mut self, word: Option<AnnouncementAck>) {
        if let (Some(announcer), Some(one_sided)) = (&mut self.announcer, &self.datanode.one_sided) {
            announcer.on_answer(word, one_sided.advertiser.now_ms());
        }
    }

    /// Handles the commands of a heartbeat's answer. Register is obeyed from any NameNode, and drops the rest of its
    /// list; other commands are queued.
    async fn take_commands(&mut self, commands: Vec<DatanodeCommandProto>) -> Option<SessionEnd> {
        if commands.is_empty() {
            return None;
        }
        if commands.iter().any(|command| command.cmd_type() == datanode_command_proto::Type::Register) {
            tracing::info!(pool = %self.pool.id(), "the namenode requests a new registration");
            return Some(SessionEnd::Reregister);
        }
        let (keys, commands): (Vec<_>, Vec<_>) =
            commands.into_iter().partition(|command| command.cmd_type() == datanode_command_proto::Type::KeyUpdate);
        // Keys are taken from standby NameNodes too: they will be in use after a failover. Clients wait for keys, so
        // they are installed at once.
        for update in keys.into_iter().filter_map(|command| command.key_update_cmd) {
            self.pool.tokens.install(self.index, &update.keys.into());
        }
        if commands.is_empty() {
            return None;
        }
        if let Err(TrySendError::Full(commands)) = self.commands.try_send(commands) {
            tracing::warn!(pool = %self.pool.id(), commands = commands.len(), "dropping commands: earlier ones are still waiting to be executed");
            // The NameNode repeats copies and recoveries; the full report corrects its view of dropped deletions.
            self.full_reports.make_due();
        }
        None
    }

    fn on_refused(&self, error: &super::proxy::CallError) -> SessionEnd {
        tracing::error!(pool = %self.pool.id(), %error, "the namenode refuses this datanode");
        SessionEnd::Refused
    }
}
