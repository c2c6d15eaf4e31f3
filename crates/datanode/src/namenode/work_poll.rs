//! Long poll for work, so that commands do not wait for the next heartbeat. One call (awaitWork) to Hearth's NameNode
//! is always open; the NameNode answers it when this DataNode should send a heartbeat. Apache's NameNode is not called.

use std::future::pending;
use std::time::Duration;

use hearth_wire::proto::hdfs::{AwaitWorkRequestProto, DatanodeRegistrationProto};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::proxy::{CallError, Proxy};

/// Minimum time between two heartbeats that a NameNode requests, to limit the load if a faulty NameNode requests them
/// continuously.
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

    /// Must be called when a heartbeat was answered. `offered`: the NameNode supports awaitWork.
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

    /// Resolves when the NameNode has work for this DataNode. Cancel safety: may be dropped and called again.
    pub async fn wait_for_work(&mut self) {
        loop {
            let Some(call) = &mut self.call else { return pending().await };
            let answer = call.await;
            self.call = None;
            match answer {
                Ok(Ok(true)) => return,
                // The call timed out without work.
                Ok(Ok(false)) => self.on_heartbeat_answer(true),
                // Repeated after the next heartbeat.
                Ok(Err(error)) => tracing::debug!(%error, "awaitWork failed"),
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
