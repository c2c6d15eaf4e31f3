//! DataTransferProtocol over a connection, for either end: a [`DataSender`] and a [`DataReceiver`], which may work in
//! different tasks as a pipeline needs it (packets one way, acknowledgements the other).
//!
//! What arrives is parsed in one buffer that is reused for the life of the connection: one system call brings several
//! small messages or much of a large packet, and a packet's checksums and data are lent out of it without a copy.

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

/// Receives operations, answers and acknowledgements: enough for any of them in one call.
pub const MESSAGE_BUFFER_BYTES: usize = 8 << 10;

/// Receives packets of the usual 64 KiB: several in one call, and still in the second-level cache when they are looked at.
pub const PACKET_BUFFER_BYTES: usize = 256 << 10;

/// Both halves for a connection.
///
/// `buffer_bytes`: what the receiving half starts with, and so what one system call fetches at most;
/// [`MESSAGE_BUFFER_BYTES`] or [`PACKET_BUFFER_BYTES`]. It grows with the packets that really come.
pub fn split(connection: Connection, buffer_bytes: usize, timeouts: Timeouts) -> (DataSender, DataReceiver) {
    let connection = Arc::new(connection);
    let sender = DataSender::new(Arc::clone(&connection), timeouts.write);
    (sender, DataReceiver::new(connection, buffer_bytes, timeouts.read))
}

/// Connects to a DataNode's transfer port, from address `from` when given.
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

/// The next message, and not a byte of what comes behind it: a descriptor may be attached there. Costs a call for each piece of the message.
///
/// `failed`: the error of bytes that are no such message. `timeout`: for each piece.
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
