//! The operations of short-circuit reads (87, 88, 89), as a datanode answers them over TCP or with the feature off:
//! clients then read over TCP. Source: datatransfer.proto.

use hearth_wire::data_transfer::{BlockOpResponse, ShmResponse, ShortCircuitReleaseResponse, Status};

use crate::ops::{After, OpError};
use crate::session::Session;

/// REQUEST_SHORT_CIRCUIT_FDS: descriptors travel over Unix sockets only.
pub async fn refuse_descriptors(session: &Session) -> Result<After, OpError> {
    let message = "You cannot pass file descriptors over anything but a UNIX domain socket.";
    session.send(&BlockOpResponse::error(Status::Error, message).encode()).await?;
    Ok(After::Close)
}

/// RELEASE_SHORT_CIRCUIT_FDS: there is no slot to release.
pub async fn refuse_release(session: &Session) -> Result<After, OpError> {
    let error = Some("unsupported operation".to_owned());
    session.send(&ShortCircuitReleaseResponse { status: Status::ErrorUnsupported, error }.encode()).await?;
    Ok(After::KeepAlive)
}

/// REQUEST_SHORT_CIRCUIT_SHM: ERROR_INVALID is the answer over TCP.
pub async fn refuse_shared_memory(session: &Session) -> Result<After, OpError> {
    let error = Some("shared memory segments are handed over on a UNIX domain socket only".to_owned());
    session.send(&ShmResponse { status: Status::ErrorInvalid, error, segment: None }.encode()).await?;
    Ok(After::Close)
}
