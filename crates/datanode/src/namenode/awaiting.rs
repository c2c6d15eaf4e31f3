//! Hears of work as soon as the namenode has some, instead of with the next heartbeat: one call to a namenode of Hearth's is always
//! open (awaitWork), which it answers when this datanode is to beat. Apache's namenodes are not asked.

use std::future::pending;
use std::time::Duration;

use hearth_wire::proto::hdfs::{AwaitWorkRequestProto, DatanodeRegistrationProto};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::proxy::{CallError, Proxy};

/// Between two heartbeats that a namenode asks for, so that one that is out of its mind is not asked without end.
const PAUSE: Duration = Duration::from_millis(2);

pub struct Awaiting {
    proxy: Proxy,
    registration: DatanodeRegistrationProto,
    /// The open call: true when there is work.
    question: Option<JoinHandle<Result<bool, CallError>>>,
}

impl Awaiting {
    pub fn new(proxy: Proxy, registration: DatanodeRegistrationProto) -> Self {
        Self { proxy, registration, question: None }
    }

    /// To be called when a heartbeat was answered. `offered`: the namenode answers such questions.
    pub fn answered(&mut self, offered: bool) {
        if offered && self.question.is_none() {
            let proxy = self.proxy.clone();
            let request = AwaitWorkRequestProto { registration: self.registration.clone() };
            self.question = Some(tokio::spawn(async move {
                let asked = Instant::now();
                let waiting = proxy.await_work(&request).await?;
                tokio::time::sleep_until(asked + PAUSE).await;
                Ok(waiting)
            }));
        }
    }

    /// Resolves when the namenode has work for this datanode. May be dropped and called again.
    pub async fn work(&mut self) {
        loop {
            let Some(question) = &mut self.question else { return pending().await };
            let answer = question.await;
            self.question = None;
            match answer {
                Ok(Ok(true)) => return,
                // Nothing came up.
                Ok(Ok(false)) => self.answered(true),
                // The next heartbeat asks again.
                Ok(Err(error)) => tracing::debug!(%error, "awaiting work"),
                Err(_) => {}
            }
        }
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        if let Some(question) = &self.question {
            question.abort();
        }
    }
}
