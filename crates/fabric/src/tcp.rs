//! TCP: listening and connecting. What is sent and received on a connection is in [`crate::stream`].

mod connect;
mod listener;
mod pacing;

pub use crate::stream::{Connection, Error, PeerAddress, ReceiveBuffer};
pub use connect::{SocketOptions, connect};
pub use listener::Listener;
