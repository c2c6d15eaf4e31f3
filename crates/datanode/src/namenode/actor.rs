//! One namenode's actor: registers, then beats, reports, and passes commands on, until the datanode stops or the
//! namenode will not have it.

use std::sync::Arc;
use std::time::Duration;

use hearth_wire::announcement::{Announcement, Word};
use hearth_wire::proto::hdfs::{DatanodeCommandProto, HeartbeatResponseProto, datanode_command_proto};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use super::announcing::{Announcing, PoolMemory};
use super::awaiting::Awaiting;
use super::handshake::{self, HandshakeError, Registered, ha_state};
use super::proxy::{Meaning, Proxy};
use super::reporting::{self, FullReports};
use super::{Service, commands, heartbeat, lifeline};
use crate::datanode::Datanode;
use crate::pool::{NamenodeIndex, Pool};

/// Lists of commands that wait to be carried out. A namenode gives few with each heartbeat; no heartbeat waits for them: what does not fit
/// is left.
const COMMANDS_QUEUED_MAX: usize = 64;

/// After a failed call.
const RETRY: Duration = Duration::from_secs(1);

/// Why a conversation ended.
enum Ended {
    Stopping,
    /// Begin again: the namenode does not know us any more.
    Register,
    /// For good.
    Refused,
}

pub async fn run(datanode: Arc<Datanode>, service: Arc<Service>, index: NamenodeIndex) {
    let address = service.namenodes[index.0].address.clone();
    let proxy = Proxy::new(datanode.rpc.clone(), address.clone(), &datanode.options.user);
    loop {
        let registered = match handshake::run(&datanode, &service, index, &proxy).await {
            Ok(registered) => registered,
            Err(HandshakeError::Stopping) => return,
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::error!(namenode = %address, error, "not serving this namenode");
                break;
            }
        };
        tracing::info!(namenode = %address, pool = %registered.pool.id(), "registered");
        registered.pool.add_registered();
        let pool = registered.pool.clone();
        let namenode = &service.namenodes[index.0];
        namenode.pulse.beat();
        let registration = registered.registration.clone();
        let since = Instant::now();
        let conversation = Conversation::new(&datanode, &service, index, proxy.clone(), registered);
        let ended = tokio::select! {
            ended = conversation.run() => ended,
            () = lifeline::run(&datanode, namenode, &pool, &registration) => unreachable!("it never ends"),
        };
        pool.remove_registered();
        match ended {
            Ended::Stopping => return,
            Ended::Register => {
                if !pool.is_active(index) {
                    // The full report will tell it all.
                    pool.reports(index).clear();
                }
                // Two datanodes with one UUID have each other register anew: at this pace at most.
                tokio::select! {
                    () = tokio::time::sleep_until(since + datanode.options.timing.heartbeat) => {}
                    () = datanode.stopping() => return,
                }
            }
            Ended::Refused => break,
        }
    }
    if service.actor_ended() {
        tracing::error!(nameservice = service.name, "no namenode of this nameservice is served any more");
        if let Some(pool) = service.pool() {
            datanode.pools.remove(pool.id());
        }
        if !datanode.services.any_alive() {
            datanode.ask_shutdown();
        }
    }
}

/// `None`: there is no memory to be read one-sidedly.
fn announcing(datanode: &Datanode) -> Option<Announcing> {
    let one_sided = datanode.one_sided.as_ref()?;
    let options = &datanode.options.one_sided;
    let bytes_max = match options.announced_bytes_max {
        0 => options.registered_bytes_max.min(datanode.store.metrics().memory_limit) / 4,
        bytes => bytes,
    };
    // Each nameservice has its share.
    let services = datanode.services.all().len().max(1) as u64;
    let figures = one_sided.advertiser.announced_figures().clone();
    Some(Announcing::new(options.announce_lease, bytes_max / services, figures))
}

struct Conversation<'a> {
    datanode: &'a Arc<Datanode>,
    service: &'a Arc<Service>,
    index: NamenodeIndex,
    proxy: Proxy,
    pool: Arc<Pool>,
    registered: Registered,
    full_reports: FullReports,
    announcing: Option<Announcing>,
    awaiting: Awaiting,
    commands: mpsc::Sender<Vec<DatanodeCommandProto>>,
}

impl<'a> Conversation<'a> {
    fn new(
        datanode: &'a Arc<Datanode>,
        service: &'a Arc<Service>,
        index: NamenodeIndex,
        proxy: Proxy,
        registered: Registered,
    ) -> Self {
        let pool = registered.pool.clone();
        let (commands, queue) = mpsc::channel(COMMANDS_QUEUED_MAX);
        tokio::spawn(commands::carry_out(datanode.clone(), pool.clone(), index, proxy.clone(), queue));
        let full_reports = FullReports::new(&datanode.options.timing);
        let announcing = announcing(datanode);
        let awaiting = Awaiting::new(proxy.clone(), registered.registration.clone());
        Self { datanode, service, index, proxy, pool, registered, full_reports, announcing, awaiting, commands }
    }

    async fn run(mut self) -> Ended {
        let timing = &self.datanode.options.timing;
        let reports = self.pool.reports(self.index).clone();
        let signal = &self.service.namenodes[self.index.0].signal;
        let mut next_heartbeat = Instant::now();
        let mut next_incremental = Instant::now();
        let mut next_cache = Instant::now();
        loop {
            if self.datanode.is_stopping() {
                return Ended::Stopping;
            }
            if Instant::now() >= next_heartbeat {
                next_heartbeat = Instant::now() + timing.heartbeat;
                match self.heartbeat().await {
                    Ok(None) => {}
                    Ok(Some(ended)) => return ended,
                    Err(wait) => next_heartbeat = Instant::now() + wait.min(timing.heartbeat),
                }
            }
            if reports.take_overflow() {
                self.full_reports.ask();
            }
            let forced = signal.take_full_report();
            let full_due = forced || self.full_reports.may_send();
            if full_due || Instant::now() >= next_incremental {
                next_incremental = Instant::now() + timing.incremental_report;
                // Before a full report, or an old event could follow what the report says.
                if let Err(error) =
                    reporting::send_incremental(self.datanode, &self.proxy, &self.registered, &reports).await
                {
                    match error.meaning() {
                        Meaning::Refused => return self.refused(&error),
                        _ => {
                            tracing::warn!(%error, "incremental block report");
                            tokio::time::sleep(RETRY).await;
                        }
                    }
                }
            }
            if full_due {
                match self.full_reports.send(self.datanode, &self.proxy, &self.registered, forced).await {
                    Ok(command) => {
                        self.service.namenodes[self.index.0].pulse.reported();
                        if let Some(ended) = self.take_commands(command.into_iter().collect()).await {
                            return ended;
                        }
                    }
                    Err(error) => match error.meaning() {
                        Meaning::Refused => return self.refused(&error),
                        Meaning::LeaseLost => {
                            self.full_reports.forget_lease();
                            signal.ask_again(forced);
                        }
                        Meaning::Later => {
                            signal.ask_again(forced);
                            tracing::warn!(%error, "full block report");
                            self.full_reports.forget_lease();
                            tokio::time::sleep(RETRY).await;
                        }
                    },
                }
            }
            if self.datanode.locked_memory.capacity() > 0 && Instant::now() >= next_cache {
                next_cache = Instant::now() + timing.cache_report;
                if let Err(error) = reporting::send_cache(self.datanode, &self.proxy, &self.registered).await {
                    match error.meaning() {
                        Meaning::Refused => return self.refused(&error),
                        _ => tracing::warn!(%error, "cache report"),
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep_until(next_heartbeat) => {}
                () = reports.urgent() => {
                    if timing.incremental_report.is_zero() {
                        continue;
                    }
                    tokio::time::sleep_until(next_incremental.min(next_heartbeat)).await;
                }
                () = signal.woken() => {}
                () = self.awaiting.work() => next_heartbeat = Instant::now(),
                () = self.datanode.stopping() => return Ended::Stopping,
            }
        }
    }

    /// One heartbeat and what its answer asks for. `Err`: how long to wait before the next.
    async fn heartbeat(&mut self) -> Result<Option<Ended>, Duration> {
        let wants_lease = self.full_reports.wants_lease();
        let mut request = heartbeat::request(self.datanode, &self.pool, &self.registered.registration, wants_lease);
        request.hearth_announcement = self.announcement().map(|announcement| announcement.encode());
        let answer = match self.proxy.heartbeat(&request).await {
            Ok(answer) => answer,
            Err(error) => {
                if let Some(announcing) = &mut self.announcing {
                    announcing.failed();
                }
                match error.meaning() {
                    Meaning::Refused => return Ok(Some(self.refused(&error))),
                    Meaning::LeaseLost => self.full_reports.forget_lease(),
                    Meaning::Later => tracing::warn!(%error, "heartbeat"),
                }
                return Err(RETRY);
            }
        };
        self.service.namenodes[self.index.0].pulse.beat();
        let HeartbeatResponseProto {
            cmds, ha_status, full_block_report_lease_id, hearth_word, hearth_awaits_work, ..
        } = answer;
        self.awaiting.answered(hearth_awaits_work.unwrap_or(false));
        self.hear(hearth_word.as_ref().and_then(Word::decode));
        self.full_reports.granted(full_block_report_lease_id.unwrap_or(0));
        let state = ha_state(ha_status.state());
        self.pool.note_ha_state(self.index, state, ha_status.txid);
        Ok(self.take_commands(cmds).await)
    }

    /// What the namenode is to hand on of this datanode's memory.
    fn announcement(&mut self) -> Option<Announcement> {
        let advertiser = &self.datanode.one_sided.as_ref()?.advertiser;
        let memory = PoolMemory { advertiser, pool: self.pool.id() };
        // A key opens more than one block.
        self.announcing.as_mut()?.next(&memory, !self.pool.tokens.are_on())
    }

    fn hear(&mut self, word: Option<Word>) {
        if let (Some(announcing), Some(one_sided)) = (&mut self.announcing, &self.datanode.one_sided) {
            announcing.answered(word, one_sided.advertiser.now_ms());
        }
    }

    /// Register is obeyed here and from any namenode, and the rest of its list dropped; others are queued.
    async fn take_commands(&mut self, commands: Vec<DatanodeCommandProto>) -> Option<Ended> {
        if commands.is_empty() {
            return None;
        }
        if commands.iter().any(|command| command.cmd_type() == datanode_command_proto::Type::Register) {
            tracing::info!(pool = %self.pool.id(), "the namenode asks for a new registration");
            return Some(Ended::Register);
        }
        let (keys, commands): (Vec<_>, Vec<_>) =
            commands.into_iter().partition(|command| command.cmd_type() == datanode_command_proto::Type::KeyUpdate);
        // From standby namenodes, too: their keys will be in use after a failover. Clients wait for them.
        for update in keys.into_iter().filter_map(|command| command.key_update_cmd) {
            self.pool.tokens.install(self.index, &update.keys.into());
        }
        if commands.is_empty() {
            return None;
        }
        if let Err(TrySendError::Full(commands)) = self.commands.try_send(commands) {
            tracing::warn!(pool = %self.pool.id(), commands = commands.len(), "left, since those before are not carried out");
            // Copies and recoveries are ordered again; what it thinks deleted it is to hear of.
            self.full_reports.ask();
        }
        None
    }

    fn refused(&self, error: &super::proxy::CallError) -> Ended {
        tracing::error!(pool = %self.pool.id(), %error, "the namenode refuses this datanode");
        Ended::Refused
    }
}
