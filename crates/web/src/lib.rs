//! HTTP for both servers: `/jmx`, `/metrics`, `/conf`, a status page, and further text pages of a server (`/fsck`).
//!
//! A [`Site`] consists of closures that read the server's state on each request; nothing is cached here. Text pages are
//! streamed while they are produced ([`TextSender`]). The number of connections and of text pages in progress, the data
//! queued for a client and its waiting time, and the length of query strings are limited. Only HTTP/1.1 is supported.

mod bounded;
mod conf;
mod connections;
mod jmx;
mod metrics;
mod page;
mod site;
mod text_stream;
pub mod webhdfs;

pub use bounded::InFlight;
pub use conf::ConfEntry;
pub use jmx::Bean;
pub use metrics::Metric;
pub use page::{Page, size};
pub use site::{BoundSite, FileAnswer, Query, Refusal, Site, WebServer};
pub use text_stream::{Disconnected, TextBody, TextSender};

/// The HTTP library. Its types appear in the interface of WebHDFS services.
pub use axum;

/// Errors of opening the web port.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address} for HTTP: {source}")]
    Listen { address: String, source: std::io::Error },
}
