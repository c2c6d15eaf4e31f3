//! HTTP of both servers: `/jmx`, `/metrics`, `/conf`, a status page, and whatever text pages a server adds (`/fsck`).
//!
//! A [`Site`] is put together from closures that read the server's state when asked; nothing is cached here. Text pages are told
//! while they are being made ([`TextSender`]). Connections, text pages at work, what waits for a client and how long, and query strings
//! are bounded, for HTTP/1.1, which is all that is spoken.

mod bounded;
mod connections;
mod jmx;
mod metrics;
mod page;
mod site;
mod text_stream;
pub mod webhdfs;

pub use bounded::InFlight;
pub use jmx::Bean;
pub use metrics::Metric;
pub use page::{Page, size};
pub use site::{BoundSite, ConfEntry, Query, Site, WebServer};
pub use text_stream::{Disconnected, TextBody, TextSender};

/// The HTTP library, in whose words answers of WebHDFS are made.
pub use axum;

/// What can go wrong while bringing up the web port.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address} for HTTP: {source}")]
    Listen { address: String, source: std::io::Error },
}
