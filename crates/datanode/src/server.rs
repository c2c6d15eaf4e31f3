//! DataTransferProtocol: takes connections, reads which operation is asked for, and hands over to `ops/`.
//!
//! A read may be followed by another operation on the same connection; everything else ends it.

use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::tcp::{Connection, Listener};
use hearth_wire::proto::hdfs::{
    OpBlockChecksumProto, OpBlockGroupChecksumProto, OpCopyBlockProto, OpReadBlockProto, OpReplaceBlockProto,
    OpRequestShortCircuitAccessProto, OpTransferBlockProto, OpWriteBlockProto, ReleaseShortCircuitAccessRequestProto,
    ShortCircuitShmRequestProto,
};

use crate::datanode::Datanode;
use crate::ops::{self, After, OpError};
use crate::session::Session;

/// The version of DataTransferProtocol that Hadoop 2 and 3 speak.
pub const DATA_TRANSFER_VERSION: u16 = 28;

/// `u16` version and the operation's code.
const OP_PREFIX_BYTES: usize = 3;

/// The operations and their codes.
pub mod op {
    pub const WRITE_BLOCK: u8 = 80;
    pub const READ_BLOCK: u8 = 81;
    pub const REPLACE_BLOCK: u8 = 83;
    pub const COPY_BLOCK: u8 = 84;
    pub const BLOCK_CHECKSUM: u8 = 85;
    pub const TRANSFER_BLOCK: u8 = 86;
    pub const REQUEST_SHORT_CIRCUIT_FDS: u8 = 87;
    pub const RELEASE_SHORT_CIRCUIT_FDS: u8 = 88;
    pub const REQUEST_SHORT_CIRCUIT_SHM: u8 = 89;
    pub const BLOCK_GROUP_CHECKSUM: u8 = 90;
}

/// Accepts until the datanode stops. Connections beyond the limit are closed at once.
pub async fn accept(datanode: Arc<Datanode>, listener: Listener) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = datanode.stopping() => return,
        };
        let connection = match accepted {
            Ok(connection) => connection,
            Err(error) => {
                // Out of descriptors, or the peer was gone already: others may still be served in a moment.
                tracing::warn!(%error, "accepting a data connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(served) = datanode.load.connection(datanode.options.transfer.connections_max) else {
            tracing::warn!(peer = %connection.peer(), "too many data connections: closed");
            continue;
        };
        let datanode = datanode.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = serve(&datanode, connection) => (),
                () = datanode.stopping() => (),
            }
            drop(served);
        });
    }
}

/// Serves one connection until its end.
async fn serve(datanode: &Arc<Datanode>, connection: Connection) {
    let options = &datanode.options.transfer;
    let peer = connection.peer();
    let mut session = Session::new(Arc::new(connection), options.packet_bytes_max, options.write_timeout);
    let mut wait = options.read_timeout;
    loop {
        let code = match next_operation(&mut session, wait).await {
            Some(code) => code,
            None => return,
        };
        let served = datanode.load.operation();
        match dispatch(datanode, &mut session, code).await {
            Ok(After::KeepAlive) if !options.keepalive.is_zero() => {}
            Ok(_) => return,
            Err(error) => {
                if error.is_disconnect() {
                    tracing::debug!(%peer, op = code, error = &error as &dyn std::error::Error, "operation ended early");
                } else {
                    tracing::warn!(%peer, op = code, error = &error as &dyn std::error::Error, "operation failed");
                }
                return;
            }
        }
        drop(served);
        wait = options.keepalive;
    }
}

/// The code of the next operation; `None` when the peer closed, was silent, or does not speak this protocol.
async fn next_operation(session: &mut Session, wait: Duration) -> Option<u8> {
    session.buffer.fill_to(&session.connection, OP_PREFIX_BYTES, wait).await.ok()?;
    let prefix = &session.buffer.available()[..OP_PREFIX_BYTES];
    let version = u16::from_be_bytes([prefix[0], prefix[1]]);
    let code = prefix[2];
    session.buffer.consume(OP_PREFIX_BYTES);
    if version != DATA_TRANSFER_VERSION {
        tracing::info!(peer = %session.connection.peer(), version, "closing a connection of another protocol version");
        return None;
    }
    Some(code)
}

async fn dispatch(datanode: &Arc<Datanode>, session: &mut Session, code: u8) -> Result<After, OpError> {
    let wait = datanode.options.transfer.read_timeout;
    match code {
        op::READ_BLOCK => {
            let request = session.receive::<OpReadBlockProto>(wait).await?;
            ops::read_block::serve(datanode, session, request).await
        }
        op::WRITE_BLOCK => {
            let request = session.receive::<OpWriteBlockProto>(wait).await?;
            ops::write_block::serve(datanode, session, request).await
        }
        op::TRANSFER_BLOCK => {
            let request = session.receive::<OpTransferBlockProto>(wait).await?;
            ops::transfer_block::serve(datanode, session, request).await
        }
        op::BLOCK_CHECKSUM => {
            let request = session.receive::<OpBlockChecksumProto>(wait).await?;
            ops::block_checksum::serve(datanode, session, request).await
        }
        op::COPY_BLOCK => {
            let request = session.receive::<OpCopyBlockProto>(wait).await?;
            ops::copy_block::serve(datanode, session, request).await
        }
        op::REPLACE_BLOCK => {
            let request = session.receive::<OpReplaceBlockProto>(wait).await?;
            ops::replace_block::serve(datanode, session, request).await
        }
        op::REQUEST_SHORT_CIRCUIT_FDS => {
            session.receive::<OpRequestShortCircuitAccessProto>(wait).await?;
            ops::short_circuit::refuse_descriptors(session).await
        }
        op::RELEASE_SHORT_CIRCUIT_FDS => {
            session.receive::<ReleaseShortCircuitAccessRequestProto>(wait).await?;
            ops::short_circuit::refuse_release(session).await
        }
        op::REQUEST_SHORT_CIRCUIT_SHM => {
            session.receive::<ShortCircuitShmRequestProto>(wait).await?;
            ops::short_circuit::refuse_shared_memory(session).await
        }
        op::BLOCK_GROUP_CHECKSUM => {
            session.receive::<OpBlockGroupChecksumProto>(wait).await?;
            ops::block_checksum::refuse_group(session).await
        }
        code => Err(OpError::UnknownOperation { code }),
    }
}
