//! REPLICA_STREAM (0xA4): another Hearth DataNode sends replicas, many at once, as ordered by its NameNode.
//!
//! Bounds: each connection has a window; all windows together are limited by `hearth.datanode.stream.memory.bytes`.

mod sink;

use std::sync::Arc;

use hearth_protocol::replica_stream;
use hearth_wire::data_transfer::{ReplicaRefusal, ReplicaStream, Status, StreamTerms};

use crate::datanode::Datanode;
use crate::ops::{Continuation, OpError};
use crate::session::Session;
use crate::streams::{self, CopyError, Window};
use sink::StreamStore;

pub async fn serve(
    datanode: &Arc<Datanode>,
    session: &Session,
    request: ReplicaStream,
) -> Result<Continuation, OpError> {
    tracing::debug!(peer = %session.connection.peer(), source = request.source_uuid, "accepting a replica stream");
    let window = if datanode.streams.is_enabled() { datanode.streams.window() } else { None };
    let Some(window) = window else {
        let message = "no memory for another replica stream; see hearth.datanode.stream.memory.bytes";
        let refusal = ReplicaRefusal::new(Status::ErrorUnsupported, message);
        session.send(&StreamTerms::Refused(refusal).encode()).await?;
        return Ok(Continuation::Close);
    };
    session.send(&StreamTerms::Accepted(window.limits).encode()).await?;
    Ok(Continuation::ReplicaStream(window))
}

/// Receives replicas until the sender has no more, or sends none for a while. Runs on the stream threads, because the
/// other threads serve readers.
pub async fn receive_replicas(datanode: &Arc<Datanode>, session: Session, window: Window) -> Result<(), OpError> {
    let shared = datanode.clone();
    let conversation = datanode.streams.threads.start_connection(async move {
        tokio::select! {
            outcome = receive(&shared, session, window) => outcome,
            () = shared.lifecycle.stopping() => Ok(()),
        }
    })?;
    conversation.await.map_err(|_| OpError::Interrupted)?
}

async fn receive(datanode: &Arc<Datanode>, session: Session, window: Window) -> Result<(), OpError> {
    let session = session.moved_here().map_err(CopyError::Threads)?.ok_or(OpError::Interrupted)?;
    let Session { connection, mut buffer, .. } = session;
    buffer.release();
    let timeouts = streams::stream_timeouts(&datanode.options.transfer);
    let store = StreamStore::new(datanode);
    let received = replica_stream::receive(&connection, &mut buffer, store, window.limits, timeouts).await;
    Ok(received.map_err(CopyError::Stream)?)
}
