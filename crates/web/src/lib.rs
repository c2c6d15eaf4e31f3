//! HTTP of both servers: `/jmx`, `/metrics`, `/conf`, a status page, and whatever text pages a server adds (`/fsck`).
//!
//! A [`Site`] is put together from closures that read the server's state when asked; nothing is cached here. Text pages are told
//! while they are being made ([`Telling`]). Connections, text pages at work, what waits for a client and how long, and query strings
//! are bounded, for HTTP/1.1, which is all that is spoken.

mod bounded;
mod connections;
mod figures;
mod jmx;
mod page;
mod site;
mod telling;
pub mod webhdfs;

pub use bounded::Work;
pub use figures::Figure;
pub use jmx::Bean;
pub use page::{Page, size};
pub use site::{BoundSite, ConfEntry, Query, Site, WebServer};
pub use telling::{Gone, Listening, Telling};

/// The HTTP library, in whose words answers of WebHDFS are made.
pub use axum;

/// What can go wrong while bringing up the web port.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address} for HTTP: {source}")]
    Listen { address: String, source: std::io::Error },
}
