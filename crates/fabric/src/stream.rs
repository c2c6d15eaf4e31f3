//! Byte streams between two processes, over TCP or a Unix socket. Both have the same connection type, so every protocol
//! runs on either.
//!
//! A [`Connection`] works through `&self`, so that one task can read while another writes (a pipeline's packets and its
//! acknowledgements). Every call first tries the system call and only then waits for readiness. The caller's timeout
//! limits each wait. A timeout is detected by the clock, never by an error's text.

mod connection;
mod error;
mod low_water;
mod peer;
mod receive_buffer;
mod send_file;

pub use connection::Connection;
pub use error::Error;
pub use peer::{Party, PeerAddress};
pub use receive_buffer::{ReceiveBuffer, UNCLAIMED_BYTES};
