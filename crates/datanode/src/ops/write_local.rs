//! WRITE_LOCAL (0xA2): WRITE_BLOCK over the Unix socket. The writer, a client or another DataNode on this machine, gets
//! the replica's own memory to fill, and its packets need not carry their data; everything else is as in `write_block`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use hearth_blockstore::{ReplicaWriter, StoreError};
use hearth_fabric::stream::PeerAddress;
use hearth_wire::data_transfer::{LocalGrant, WriteBlock};

use crate::datanode::Datanode;
use crate::grants::Grants;
use crate::ops::{Continuation, OpError, write_block};
use crate::session::Session;
use crate::streams::CopyError;

pub async fn serve(
    datanode: &Arc<Datanode>,
    session: &mut Session,
    write: WriteBlock,
) -> Result<Continuation, OpError> {
    if !session.connection.is_unix() {
        return Err(OpError::Malformed("WRITE_LOCAL is available only over a UNIX domain socket"));
    }
    if !write.is_from_client() {
        return Ok(Continuation::LocalCopy(Box::new(write)));
    }
    write_block::serve_local(datanode, session, write).await
}

/// Receives a copy from another DataNode on the stream threads, because the other threads serve readers.
pub async fn serve_copy(datanode: &Arc<Datanode>, session: Session, write: WriteBlock) -> Result<(), OpError> {
    let here = datanode.clone();
    let taking = datanode.streams.threads.spawn(async move {
        let mut session = session.moved_here().map_err(CopyError::Threads)?.ok_or(OpError::Interrupted)?;
        tokio::select! {
            outcome = write_block::serve_local(&here, &mut session, write) => outcome.map(drop),
            () = here.lifecycle.stopping() => Ok(()),
        }
    })?;
    taking.await.map_err(|_| OpError::Interrupted)?
}

/// Lends memory for the replica's first bytes to the peer, if there is any, in the second part of the answer to the
/// set-up.
///
/// Not to another user's process: its bytes would have to be copied when the block ends, while it waits. Packets take
/// less time, and half the memory (docs/benchmarks, local-write).
pub async fn lend(
    datanode: &Datanode,
    session: &Session,
    writer: &mut ReplicaWriter,
    request: &WriteBlock,
) -> Result<Grants, OpError> {
    if !is_own_user(session) {
        return lend_nothing(
            session,
            Grants::new(datanode.options.current().write_slice_bytes, request.block.length()),
        )
        .await;
    }
    lend_to(datanode, session, writer, request, datanode.options.current().local_write_trusted).await
}

/// Like `lend`, for a peer that is already known to be `trusted` or not.
pub async fn lend_to(
    datanode: &Datanode,
    session: &Session,
    writer: &mut ReplicaWriter,
    request: &WriteBlock,
    trusted: bool,
) -> Result<Grants, OpError> {
    let mut grants = Grants::new(datanode.options.current().write_slice_bytes, request.block.length());
    // CRCs of another type are computed from the data, which therefore has to arrive in packets.
    let usable = writer.checksum() == request.checksum;
    let lent = if usable { take(&mut grants, writer, trusted)? } else { None };
    let Some((granted, descriptor)) = lent else { return lend_nothing(session, grants).await };
    let (bytes, timeout) = (LocalGrant(granted).encode(), session.write_timeout);
    session.connection.send_with_descriptors(&bytes, &[descriptor.as_fd()], timeout).await?;
    Ok(grants)
}

/// Says that there is no memory: all data come in packets.
async fn lend_nothing(session: &Session, grants: Grants) -> Result<Grants, OpError> {
    session.send(&LocalGrant(0).encode()).await?;
    Ok(grants)
}

/// Returns true if, according to the kernel, the peer runs as this process's user and so has its rights anyway.
fn is_own_user(session: &Session) -> bool {
    match session.connection.peer() {
        PeerAddress::Process { uid, .. } => uid == rustix::process::geteuid().as_raw(),
        PeerAddress::Tcp(_) => false,
    }
}

fn take(grants: &mut Grants, writer: &mut ReplicaWriter, trusted: bool) -> Result<Option<(u64, OwnedFd)>, StoreError> {
    match grants.extend(writer)? {
        None | Some(0) => Ok(None),
        Some(granted) => Ok(Some((granted, writer.lend(trusted)?))),
    }
}
