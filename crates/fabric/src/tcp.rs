//! TCP: listening and connecting. [`crate::stream`] sends and receives on the connections.

mod connect;
mod listener;
mod pacing;

pub use crate::stream::{Connection, Error, PeerAddress, ReceiveBuffer};
pub use connect::{SocketOptions, connect};
pub use listener::{Listener, listen};
