//! Sends complete acknowledgements to the sender: those of packets, and the notice of a restart.

use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::tcp::Connection;
use hearth_wire::data_transfer::{PipelineAck, Status, UNKNOWN_SEQNO};
use tokio::sync::{Mutex, watch};

use super::error::ReceiveError;

pub(super) struct Upstream {
    connection: Arc<Connection>,
    timeout: Duration,
    /// Held while acknowledgements are written, so that the output of the two loops does not interleave.
    writing: Mutex<()>,
}

impl Upstream {
    pub fn new(connection: Arc<Connection>, timeout: Duration) -> Self {
        Self { connection, timeout, writing: Mutex::new(()) }
    }

    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub async fn send(&self, acknowledgements: &[u8]) -> Result<(), ReceiveError> {
        let _writing = self.writing.lock().await;
        Ok(self.connection.write_all(acknowledgements, self.timeout).await?)
    }

    /// Notifies the sender, once `restarting` is true, that this DataNode is about to restart, with an acknowledgement
    /// for no packet. A client that has no other DataNode waits for this one. Source: hdfs `PipelineAck`, OOB_RESTART;
    /// `BlockReceiver.sendOOBResponse`.
    pub async fn send_restart_oob(&self, mut restarting: watch::Receiver<bool>) {
        if restarting.wait_for(|restarting| *restarting).await.is_err() {
            return;
        }
        let told = self.send(&PipelineAck::last(UNKNOWN_SEQNO, Status::OobRestart).encode()).await;
        if let Err(error) = told {
            tracing::debug!(peer = %self.connection.peer(), %error, "cannot notify a writer of the restart");
        }
    }
}
