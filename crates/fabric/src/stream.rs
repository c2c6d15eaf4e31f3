//! Byte streams between two processes, over TCP or a Unix socket: one connection type for both, so that whatever is said on
//! the one can be said on the other.
//!
//! A [`Connection`] works through `&self`, so that one task may read while another writes (a pipeline's packets and its
//! acknowledgements). Every call first tries the system call and only then waits for readiness, each wait bounded by
//! the caller's time-out; a time-out is noticed by the clock, never by an error's text.

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
