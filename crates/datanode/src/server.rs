//! DataTransferProtocol server: accepts connections, reads the requested operation, and dispatches it to `ops/`.
//!
//! A read may be followed by another operation on the same connection; every other operation ends the connection.
//!
//! Bounds: `DataConnections::limit` limits connections of both listeners; idle ones give way to new ones.
//! `DataConnections::message_memory` limits long packets and requests.

use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::tcp::{Connection, Listener, PeerAddress};
use hearth_fabric::{ConnectionPermit, local};
use hearth_protocol::trace::{self, Span};
use hearth_wire::data_transfer::{BlockOpResponse, OpCode, OpError as OperationError, Operation, Status};

use crate::datanode::Datanode;
use crate::ops::{self, Continuation, OpError};
use crate::session::{Session, SessionError};

/// Accepts connections until the DataNode stops.
pub async fn accept(datanode: Arc<Datanode>, listener: Listener) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = datanode.lifecycle.stopping() => return,
        };
        spawn_connection(&datanode, accepted).await;
    }
}

/// Like `accept`, for clients on this machine. Removes the socket's path when it ends.
pub async fn accept_local(datanode: Arc<Datanode>, listener: local::Listener) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = datanode.lifecycle.stopping() => return,
        };
        spawn_connection(&datanode, accepted).await;
    }
}

async fn spawn_connection(datanode: &Arc<Datanode>, accepted: std::io::Result<Connection>) {
    let connection = match accepted {
        Ok(connection) => connection,
        Err(error) => {
            // The peer was already gone, or descriptors have run out: dropping an idle connection frees a descriptor.
            tracing::warn!(%error, "cannot accept a data connection");
            datanode.connections.limit.shed();
            tokio::time::sleep(Duration::from_millis(50)).await;
            return;
        }
    };
    if datanode.lifecycle.is_restarting() {
        // The peer reconnects after the restart.
        return;
    }
    let peer = connection.peer();
    let Some((place, mut gives_way)) = datanode.connections.limit.admit(peer.party()) else {
        let limit = datanode.connections.limit.connections_max();
        tracing::warn!(%peer, limit, "closing a data connection: all others are busy; see dfs.datanode.max.transfer.threads");
        return;
    };
    let datanode = datanode.clone();
    tokio::spawn(async move {
        let counted = datanode.replicas.metrics.count_connection();
        tokio::select! {
            () = serve(&datanode, connection, &place) => {}
            () = datanode.lifecycle.stopping() => {}
            () = gives_way.wait() => tracing::debug!(%peer, "closing an idle data connection: the maximum is reached"),
        }
        drop((counted, place));
    });
}

/// Serves one connection until it closes.
async fn serve(datanode: &Arc<Datanode>, connection: Connection, place: &ConnectionPermit) {
    let options = &datanode.options.transfer;
    let mut session =
        Session::sharing(Arc::new(connection), options.write_timeout, &datanode.connections.message_memory);
    let mut is_first = true;
    loop {
        let wait = if is_first { options.read_timeout } else { options.keepalive };
        let (operation, sender) = match session.receive_operation(wait).await {
            Ok(received) => received,
            // Normal end of a connection.
            Err(SessionError::Connection(_)) => return,
            Err(error) => {
                refuse(&session, &error).await;
                return;
            }
        };
        if is_first {
            place.mark_established()
        } else {
            place.mark_busy()
        }
        let op = operation.code();
        // Ends with the operation.
        let mut span = Span::server(sender, || format!("DataTransfer/{op:?}"));
        if span.is_recording() {
            span.set("client.address", session.connection.peer().to_string());
        }
        let served = datanode.replicas.metrics.count_operation();
        let outcome = trace::within(span.context(), dispatch(datanode, &mut session, operation)).await;
        if let Err(error) = &outcome {
            span.fail(error);
        }
        match outcome {
            Ok(Continuation::KeepAlive) if !options.keepalive.is_zero() => {}
            Ok(Continuation::WatchSegment(segment)) => {
                // Watching a segment is not an operation that a peer waits for.
                drop(served);
                ops::short_circuit::watch(&session, segment).await;
                return;
            }
            Ok(Continuation::ReadMany { memory }) => {
                drop(served);
                if let Err(error) = ops::read_many::serve_ranges(&datanode.replicas, &mut session, memory, place).await
                {
                    report(session.connection.peer(), op, &error);
                }
                return;
            }
            Ok(Continuation::LocalCopy(write)) => {
                let peer = session.connection.peer();
                if let Err(error) = ops::write_local::serve_copy(datanode, session, *write).await {
                    report(peer, op, &error);
                }
                return;
            }
            Ok(Continuation::ReplicaStream(window)) => {
                drop(served);
                let peer = session.connection.peer();
                if let Err(error) = ops::replica_stream::receive_replicas(datanode, session, window).await {
                    report(peer, op, &error);
                }
                return;
            }
            Ok(_) => return,
            Err(error) => {
                report(session.connection.peer(), op, &error);
                return;
            }
        }
        drop(served);
        place.mark_idle();
        is_first = false;
    }
}

fn report(peer: PeerAddress, op: OpCode, error: &OpError) {
    let quiet = error.is_disconnect();
    let error: &dyn std::error::Error = error;
    if quiet {
        tracing::debug!(%peer, ?op, error, "operation ended early");
    } else {
        tracing::warn!(%peer, ?op, error, "operation failed");
    }
}

/// Refuses a request. An undecodable request is closed without an answer, as in Java's DataNode; a known operation that
/// is not supported is answered.
async fn refuse(session: &Session, error: &SessionError) {
    tracing::info!(error = error as &dyn std::error::Error, "closing a data connection");
    if let SessionError::Operation { source: OperationError::Unsupported { op: OpCode::BlockGroupChecksum }, .. } =
        error
    {
        let message = "checksums of erasure-coded block groups are not supported by this datanode";
        // The connection is closed in either case.
        let _ = session.send(&BlockOpResponse::error(Status::ErrorUnsupported, message).encode()).await;
    }
}

async fn dispatch(
    datanode: &Arc<Datanode>,
    session: &mut Session,
    operation: Operation,
) -> Result<Continuation, OpError> {
    match operation {
        Operation::ReadBlock(request) => ops::read_block::serve(&datanode.replicas, session, request).await,
        Operation::WriteBlock(request) => ops::write_block::serve(datanode, session, *request).await,
        Operation::WriteLocal(request) => ops::write_local::serve(datanode, session, *request).await,
        Operation::TransferBlock(request) => ops::transfer_block::serve(datanode, session, request).await,
        Operation::BlockChecksum(request) => ops::block_checksum::serve(&datanode.replicas, session, request).await,
        Operation::CopyBlock(request) => ops::copy_block::serve(datanode, session, request).await,
        Operation::ReplaceBlock(request) => ops::replace_block::serve(datanode, session, *request).await,
        Operation::RequestShortCircuitFds(request) => {
            ops::short_circuit::request_descriptors(datanode, session, request).await
        }
        Operation::ReleaseShortCircuitFds(slot) => ops::short_circuit::release(datanode, session, slot).await,
        Operation::RequestShortCircuitShm { client_name } => {
            ops::short_circuit::request_shared_memory(datanode, session, client_name).await
        }
        Operation::Describe(request) => ops::describe::serve(datanode, session, request).await,
        Operation::ReadMany(request) => ops::read_many::serve(&datanode.replicas, session, request).await,
        Operation::ReplicaStream(request) => ops::replica_stream::serve(datanode, session, request).await,
        Operation::SendReplica(request) => ops::send_replica::serve(datanode, session, request).await,
    }
}
