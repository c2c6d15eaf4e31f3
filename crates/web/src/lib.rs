//! HTTP for both servers: the user interface, `/jmx`, `/metrics`, `/conf`, and further pages of a server (`/fsck`).
//!
//! A [`Site`] consists of closures that read the server's state on each request; nothing is cached here. The user
//! interface is a set of files in the program (`assets/`), which fetch JSON from the server. Text pages are streamed while they are produced ([`TextSender`]). The number of connections and of text pages in progress, the data
//! queued for a client and its waiting time, and the length of query strings are limited. Only HTTP/1.1 is supported.

mod application;
mod bounded;
mod conf;
mod connections;
mod history;
mod jmx;
pub mod log_level;
mod log_tail;
mod metrics;
mod page;
mod process;
mod protection;
mod rpc;
mod site;
mod stacks;
mod text_stream;
pub mod webhdfs;

pub use bounded::InFlight;
pub use conf::{ConfEntry, configuration_findings};
pub use history::{History, Series, SeriesKind};
pub use jmx::Bean;
pub use log_tail::{LogWriter, log_lines};
pub use metrics::Metric;
pub use page::{Page, size};
pub use process::{BuildInfo, process_beans, set_build_info};
pub use protection::{Protection, Server};
pub use rpc::{rpc_beans, rpc_metrics};
pub use site::{BoundSite, Document, FileAnswer, Query, Refusal, Site, WebServer};
pub use text_stream::{Disconnected, TextBody, TextSender};

/// The HTTP library. Its types appear in the interface of WebHDFS services.
pub use axum;

/// Errors of opening the web port.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address} for HTTP: {source}")]
    Listen { address: String, source: std::io::Error },
}
