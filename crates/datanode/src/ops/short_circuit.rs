//! The operations of short-circuit reads (87, 88, 89), as a datanode answers them over TCP or with the feature off:
//! clients then read over TCP. Source: datatransfer.proto.

use hearth_wire::proto::hdfs::{
    BlockOpResponseProto, ReleaseShortCircuitAccessResponseProto, ShortCircuitShmResponseProto, Status,
};

use crate::ops::{After, OpError, response};
use crate::session::Session;

/// REQUEST_SHORT_CIRCUIT_FDS: descriptors travel over Unix sockets only.
pub async fn refuse_descriptors(session: &Session) -> Result<After, OpError> {
    let message = "You cannot pass file descriptors over anything but a UNIX domain socket.".to_owned();
    session.send(&BlockOpResponseProto { message: Some(message), ..response(Status::Error) }).await?;
    Ok(After::Close)
}

/// RELEASE_SHORT_CIRCUIT_FDS: there is no slot to release.
pub async fn refuse_release(session: &Session) -> Result<After, OpError> {
    let answer = ReleaseShortCircuitAccessResponseProto {
        status: Status::ErrorUnsupported as i32,
        error: Some("unsupported operation".to_owned()),
    };
    session.send(&answer).await?;
    Ok(After::KeepAlive)
}

/// REQUEST_SHORT_CIRCUIT_SHM: ERROR_INVALID is the answer over TCP.
pub async fn refuse_shared_memory(session: &Session) -> Result<After, OpError> {
    let answer = ShortCircuitShmResponseProto {
        status: Status::ErrorInvalid as i32,
        error: Some("shared memory segments are handed over on a UNIX domain socket only".to_owned()),
        id: None,
    };
    session.send(&answer).await?;
    Ok(After::Close)
}
