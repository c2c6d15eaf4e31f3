//! TCP: listeners, connections, zero-copy file sends.
//!
//! A [`Connection`] works through `&self`, so that one task may read while another writes (a pipeline's packets and its
//! acknowledgements). Every call first tries the system call and only then waits for readiness, each wait bounded by
//! the caller's time-out; a time-out is noticed by the clock, never by an error's text.

mod connection;
mod error;
mod listener;
mod receive_buffer;
mod send_file;

pub use connection::{Connection, SocketOptions, connect};
pub use error::Error;
pub use listener::Listener;
pub use receive_buffer::ReceiveBuffer;
