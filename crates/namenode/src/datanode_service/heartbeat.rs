use std::time::Duration;

use hearth_protocol::rpc::{Caller, RemoteError, application_error};
use hearth_types::{DatanodeId, Outlier, SlowDisk, StorageReport};
use hearth_wire::announcement::Announcement;
use hearth_wire::proto::hdfs::nnha_status_heartbeat_proto::State;
use hearth_wire::proto::hdfs::{
    AwaitWorkRequestProto, AwaitWorkResponseProto, HeartbeatRequestProto, HeartbeatResponseProto,
    LifelineResponseProto, NnhaStatusHeartbeatProto,
};
use hearth_wire::rpc::exceptions;

use super::{DatanodeService, malformed};
use crate::blocks::{ConnectionId, DatanodeCommand, Heartbeat, Now};
use crate::store::Durable;

/// Longest wait of an awaitWork call before it is answered without work. Much less than the time-outs of the datanode's
/// calls.
const WORK_WAIT_TIMEOUT: Duration = Duration::from_secs(30);

impl DatanodeService {
    /// Handles a heartbeat; the answer carries all the work that the datanode can take.
    ///
    /// Work can destroy bytes: a replica is deleted because its file was deleted or truncated. That change must be on
    /// disk before a datanode gets the command. Otherwise a NameNode that is killed now comes back with the old file,
    /// but without its bytes.
    pub(super) async fn send_heartbeat(
        &self,
        caller: &Caller,
        mut request: HeartbeatRequestProto,
    ) -> Result<HeartbeatResponseProto, RemoteError> {
        // Reports without a name are ignored. The rest of the heartbeat is valid.
        let slow_peers = std::mem::take(&mut request.slow_peers).into_iter();
        let slow_peers = slow_peers.filter_map(|peer| Outlier::try_from(peer).ok()).collect();
        let slow_disks = std::mem::take(&mut request.slow_disks).into_iter();
        let slow_disks = slow_disks.filter_map(|disk| SlowDisk::try_from(disk).ok()).collect();
        let announcement = request.hearth_announcement.as_ref().and_then(Announcement::decode);
        let (datanode, heartbeat) = self.read_heartbeat(request)?;
        let (answer, newest_stamp, word, settled) = {
            let mut state = self.namenode.state.write();
            let now = Now::of(&*self.namenode.clock);
            state.blocks.heard_on(&datanode, ConnectionId(caller.connection));
            let answer = state.blocks.heartbeat(&datanode, heartbeat, now);
            let word = state.blocks.receive_announcement(&datanode, announcement, now);
            let has_work = answer.as_ref().is_ok_and(|answer| !answer.commands.is_empty());
            // Taken with the lock held: the changes that led to the work have been queued by now.
            let settled = if has_work { self.namenode.store.flushed() } else { Durable::already() };
            (answer, state.blocks.newest_stamp(), word, settled)
        };
        let answer =
            answer.map_err(|refused| application_error(exceptions::DISALLOWED_DATANODE, refused.to_string()))?;
        settled.wait().await.map_err(|failed| application_error(exceptions::IO, failed.to_string()))?;
        let now = self.namenode.clock.monotonic();
        // A sender that has to register first is not known as a part of the cluster.
        if !answer.commands.iter().any(|command| matches!(command, DatanodeCommand::Register)) {
            self.namenode.slow_nodes.report(&datanode, slow_peers, slow_disks, now);
        }
        Ok(HeartbeatResponseProto {
            cmds: answer.commands.into_iter().map(|command| self.command_to_wire(command)).collect(),
            // Datanodes compare the number only between namenodes of one file system; it must not fall.
            ha_status: NnhaStatusHeartbeatProto { state: State::Active as i32, txid: newest_stamp.0 },
            rolling_upgrade_status: None,
            rolling_upgrade_status_v2: None,
            full_block_report_lease_id: Some(answer.report_lease),
            is_slow_node: Some(self.namenode.slow_nodes.is_slow(&datanode, now)),
            hearth_awaits_work: Some(true),
            hearth_word: word.map(|word| word.encode()),
        })
    }

    /// Answers when there is work for the datanode, so that it learns of work before its next heartbeat.
    pub(super) async fn await_work(
        &self,
        caller: &Caller,
        request: AwaitWorkRequestProto,
    ) -> Result<AwaitWorkResponseProto, RemoteError> {
        let datanode = self.check_registration(request.registration)?;
        let wait = {
            let mut state = self.namenode.state.write();
            state.blocks.heard_on(&datanode, ConnectionId(caller.connection));
            state.blocks.await_work(&datanode)
        };
        let waiting = match wait {
            None => true,
            Some(wait) => matches!(tokio::time::timeout(WORK_WAIT_TIMEOUT, wait).await, Ok(Ok(()))),
        };
        Ok(AwaitWorkResponseProto { waiting: Some(waiting) })
    }

    /// Handles a lifeline: a heartbeat message on another port, which only keeps the node from being given up.
    pub(super) fn send_lifeline(
        &self,
        caller: &Caller,
        request: HeartbeatRequestProto,
    ) -> Result<LifelineResponseProto, RemoteError> {
        let (datanode, heartbeat) = self.read_heartbeat(request)?;
        let mut state = self.namenode.state.write();
        let now = Now::of(&*self.namenode.clock);
        state.blocks.heard_on(&datanode, ConnectionId(caller.connection));
        state.blocks.lifeline(&datanode, heartbeat, now);
        Ok(LifelineResponseProto {})
    }

    fn read_heartbeat(&self, request: HeartbeatRequestProto) -> Result<(DatanodeId, Heartbeat), RemoteError> {
        let heartbeat = Heartbeat {
            transmits: request.xmits_in_progress(),
            xceivers: request.xceiver_count(),
            failed_volumes: request.failed_volumes(),
            cache_capacity: request.cache_capacity(),
            cache_used: request.cache_used(),
            wants_report_lease: request.request_full_block_report_lease(),
            storages: request
                .reports
                .into_iter()
                .map(StorageReport::try_from)
                .collect::<Result<_, _>>()
                .map_err(malformed)?,
        };
        Ok((self.check_registration(request.registration)?, heartbeat))
    }
}
