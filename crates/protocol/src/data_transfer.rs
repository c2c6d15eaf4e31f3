//! DataTransferProtocol over a connection, for either end: a [`DataSender`] and a [`DataReceiver`]. They can run in
//! different tasks, as a pipeline requires (packets one way, acknowledgements the other).
//!
//! All input is parsed in one buffer that is reused for the life of the connection. One system call fetches several
//! small messages or much of a large packet. A packet's checksums and data are borrowed from the buffer without a copy.

mod error;
mod grant;
mod receiver;
mod sender;
mod timeouts;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::stream::ReceiveBuffer;
use hearth_fabric::tcp::{self, Connection, SocketOptions};
use hearth_wire::data_transfer::Decoded;

pub use error::TransferError;
pub use grant::receive_grant;
pub use receiver::{DataReceiver, Packet, ReceivedData};
pub use sender::DataSender;
pub use timeouts::Timeouts;

/// Receive buffer size for operations, responses and acknowledgements. Any of them fits in one call.
pub const MESSAGE_BUFFER_BYTES: usize = 8 << 10;

/// Receive buffer size for packets of the usual 64 KiB. One call fetches several packets, which are still in the L2
/// cache when they are processed.
pub const PACKET_BUFFER_BYTES: usize = 256 << 10;

/// Splits a connection into its sending and receiving half.
///
/// `buffer_bytes`: initial size of the receive buffer, and so the most that one system call fetches;
/// [`MESSAGE_BUFFER_BYTES`] or [`PACKET_BUFFER_BYTES`]. The buffer grows with the packets that actually arrive.
pub fn split(connection: Connection, buffer_bytes: usize, timeouts: Timeouts) -> (DataSender, DataReceiver) {
    let connection = Arc::new(connection);
    let sender = DataSender::new(Arc::clone(&connection), timeouts.write);
    (sender, DataReceiver::new(connection, buffer_bytes, timeouts.read))
}

/// Connects to a DataNode's transfer port, from the local address `from` if given.
pub async fn connect(
    datanode: SocketAddr,
    from: Option<IpAddr>,
    options: SocketOptions,
    buffer_bytes: usize,
    timeouts: Timeouts,
) -> Result<(DataSender, DataReceiver), TransferError> {
    let connection = tcp::connect(datanode, from, options, timeouts.connect).await?;
    Ok(split(connection, buffer_bytes, timeouts))
}

/// Receives the next message and not one byte after it, because a descriptor may be attached to the following byte.
/// Costs one system call for each piece of the message.
///
/// `failed`: creates the error for bytes that are not such a message. `timeout`: for each piece.
pub async fn receive_message<T, B, E: From<tcp::Error>>(
    connection: &Connection,
    buffer: &mut ReceiveBuffer,
    decode: impl Fn(&[u8]) -> Result<Decoded<T>, B>,
    timeout: Duration,
    failed: impl Fn(B) -> E,
) -> Result<T, E> {
    loop {
        match decode(buffer.available()).map_err(&failed)? {
            Decoded::Complete(message, bytes) => {
                buffer.consume(bytes);
                return Ok(message);
            }
            Decoded::Needs(missing) => {
                let wanted = buffer.available().len() + missing;
                buffer.fill_no_further(connection, wanted, timeout).await?;
            }
        }
    }
}

#[cfg(test)]
mod tests;
