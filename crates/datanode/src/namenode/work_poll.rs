//! Hears of work as soon as the namenode has some, instead of with the next heartbeat: one call to a namenode of Hearth's is always
//! open (awaitWork), which it answers when this datanode is to beat. Apache's namenodes are not asked.

use std::future::pending;
use std::time::Duration;

use hearth_wire::proto::hdfs::{AwaitWorkRequestProto, DatanodeRegistrationProto};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::proxy::{CallError, Proxy};

/// Between two heartbeats that a namenode asks for, so that one that is out of its mind is not asked without end.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(2);

pub struct WorkPoll {
    proxy: Proxy,
    registration: DatanodeRegistrationProto,
    /// The open call: true when there is work.
    call: Option<JoinHandle<Result<bool, CallError>>>,
}

impl WorkPoll {
    pub fn new(proxy: Proxy, registration: DatanodeRegistrationProto) -> Self {
        Self { proxy, registration, call: None }
    }

    /// To be called when a heartbeat was answered. `offered`: the namenode answers such questions.
    pub fn on_heartbeat_answer(&mut self, offered: bool) {
        if offered && self.call.is_none() {
            let proxy = self.proxy.clone();
            let request = AwaitWorkRequestProto { registration: self.registration.clone() };
            self.call = Some(tokio::spawn(async move {
                let asked = Instant::now();
                let waiting = proxy.await_work(&request).await?;
                tokio::time::sleep_until(asked + POLL_INTERVAL_MIN).await;
                Ok(waiting)
            }));
        }
    }

    /// Resolves when the namenode has work for this datanode. May be dropped and called again.
    pub async fn wait_for_work(&mut self) {
        loop {
            let Some(call) = &mut self.call else { return pending().await };
            let answer = call.await;
            self.call = None;
            match answer {
                Ok(Ok(true)) => return,
                // Nothing came up.
                Ok(Ok(false)) => self.on_heartbeat_answer(true),
                // The next heartbeat asks again.
                Ok(Err(error)) => tracing::debug!(%error, "awaiting work"),
                Err(_) => {}
            }
        }
    }
}

impl Drop for WorkPoll {
    fn drop(&mut self) {
        if let Some(call) = &self.call {
            call.abort();
        }
    }
}
