//! The second part of the answer to WRITE_LOCAL: memory.

use std::os::fd::OwnedFd;
use std::time::Duration;

use hearth_fabric::stream::{Connection, Error};
use hearth_wire::data_transfer::LocalGrant;

/// Up to which byte of the block memory is granted, and the descriptor to fill it with; `None`: packets carry all the data.
///
/// Everything before it has been received, and not a byte of it: the descriptor is attached there.
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
