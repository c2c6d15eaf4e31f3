//! The second part of the answer to WRITE_LOCAL: the memory grant.

use std::os::fd::OwnedFd;
use std::time::Duration;

use hearth_fabric::stream::{Connection, Error};
use hearth_wire::data_transfer::LocalGrant;

/// Receives the offset in the block up to which memory is granted, and the descriptor of that memory. `None`: packets
/// carry all the data.
///
/// The caller must have received everything before the grant and not one byte of the grant itself: the descriptor is
/// attached to its first byte.
pub async fn receive_grant(connection: &Connection, timeout: Duration) -> Result<(u64, Option<OwnedFd>), Error> {
    let mut bytes = [0; LocalGrant::BYTES];
    let (received, descriptors) = connection.receive_with_descriptors(&mut bytes, timeout).await?;
    if received == 0 {
        return Err(Error::Closed { peer: connection.peer() });
    }
    connection.read_exact(&mut bytes[received..], timeout).await?;
    let LocalGrant(granted) = LocalGrant::decode(bytes);
    Ok((granted, descriptors.into_iter().next().filter(|_| granted > 0)))
}
