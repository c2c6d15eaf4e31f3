//! HTTP of both servers: `/jmx`, `/metrics`, `/conf`, a status page, and whatever text pages a server adds (`/fsck`).
//!
//! A [`Site`] is put together from closures that read the server's state when asked; nothing is cached here. Connections, text pages
//! at work, query strings and the time a page may take are bounded.

mod bounded;
mod figures;
mod jmx;
mod page;
mod site;

pub use figures::Figure;
pub use jmx::{Bean, select_beans};
pub use page::{Page, size};
pub use site::{ConfEntry, Query, Site, WebServer};

/// What can go wrong while bringing up the web port.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address} for HTTP: {source}")]
    Listen { address: String, source: std::io::Error },
}
