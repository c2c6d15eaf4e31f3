//! A server's web pages, and the options for serving them.
//!
//! [`Site::bind`] opens the port (`server.rs`); `routes.rs` maps each path to its page.

mod data;
mod file_page;
mod pages;
mod query;
mod routes;
mod server;
#[cfg(test)]
mod tests;
mod text_page;

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::routing::MethodFilter;
use serde_json::Value;

use crate::conf::ConfEntry;
use crate::connections::Timeouts;
use crate::jmx::Bean;
use crate::metrics::{Metric, MetricSource};
use crate::protection::{Protection, Server};
use crate::text_stream::{Disconnected, TextSender};
use crate::webhdfs;
pub use data::Document;
use data::{DataPage, DocumentSource};
use file_page::FilePage;
pub use file_page::{FileAnswer, Refusal};
pub use query::Query;
pub use server::{BoundSite, WebServer};
use text_page::TextPage;

/// A connection without traffic for this time is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Time within which a page must produce its first text; otherwise the answer is 503. After that it may take any time,
/// as long as its client receives some of the text within this time.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Time within which the whole head of a request must arrive, however many bytes arrive in between. Otherwise the
/// connection is closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time within which the client must receive an answer of known length.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The pages that a server offers over HTTP.
pub struct Site {
    beans: Arc<dyn Fn() -> Vec<Bean> + Send + Sync>,
    conf: Arc<dyn Fn() -> Vec<ConfEntry> + Send + Sync>,
    front: Arc<dyn Fn() -> String + Send + Sync>,
    metrics: MetricSource,
    pages: Vec<(&'static str, TextPage)>,
    data: Vec<DataPage>,
    documents: Vec<(&'static str, DocumentSource)>,
    interface: Option<Server>,
    protection: Option<Protection>,
    files: Vec<(&'static str, FilePage)>,
    webhdfs: Option<Arc<dyn webhdfs::Service>>,
    request_timeout: Duration,
    idle_timeout: Duration,
    timeouts: Timeouts,
}

impl Site {
    /// Creates a site. `front` returns the HTML of `/plain` (of `/` without [`Site::interface`]), `beans` the content of
    /// `/jmx`, and `metrics` the values of `/metrics`, beside those of the process. These closures run on threads that
    /// may block. `conf` must not block.
    pub fn new(
        front: impl Fn() -> String + Send + Sync + 'static,
        beans: impl Fn() -> Vec<Bean> + Send + Sync + 'static,
        conf: impl Fn() -> Vec<ConfEntry> + Send + Sync + 'static,
        metrics: impl Fn() -> Vec<Metric> + Send + Sync + 'static,
    ) -> Self {
        Self {
            beans: Arc::new(beans),
            conf: Arc::new(conf),
            front: Arc::new(front),
            metrics: Arc::new(metrics),
            pages: Vec::new(),
            data: Vec::new(),
            documents: Vec::new(),
            interface: None,
            protection: None,
            files: Vec::new(),
            webhdfs: None,
            request_timeout: REQUEST_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            timeouts: Timeouts { header: HEADER_TIMEOUT, answer: ANSWER_TIMEOUT },
        }
    }

    /// Adds a plain-text page, such as `/fsck`. `page` gets the request's parameters and the client's address. It runs
    /// in its own task and is never cancelled; its next write fails once the client has disconnected. A page that
    /// writes nothing for the idle time-out of a connection loses its client.
    #[must_use]
    pub fn page<F, A>(mut self, path: &'static str, page: F) -> Self
    where
        F: Fn(Query, IpAddr, TextSender) -> A + Send + Sync + 'static,
        A: Future<Output = Result<(), Disconnected>> + Send + 'static,
    {
        self.pages.push((path, Arc::new(move |query, peer, telling| Box::pin(page(query, peer, telling)))));
        self
    }

    /// Adds a page of JSON. `page` gets the request's parameters and the client's address. It ends with its client.
    #[must_use]
    pub fn data<F, A>(self, path: &'static str, page: F) -> Self
    where
        F: Fn(Query, IpAddr) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Value, webhdfs::Exception>> + Send + 'static,
    {
        self.add_data(MethodFilter::GET, path, page, false)
    }

    /// Like [`Site::data`], for data that pages of any other server may read, such as the NameNode's.
    #[must_use]
    pub fn public_data<F, A>(self, path: &'static str, page: F) -> Self
    where
        F: Fn(Query, IpAddr) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Value, webhdfs::Exception>> + Send + 'static,
    {
        self.add_data(MethodFilter::GET, path, page, true)
    }

    /// Adds a change that `PUT` of a path makes. Otherwise like [`Site::data`]. The rules of [`Site::protection`] apply.
    #[must_use]
    pub fn put<F, A>(self, path: &'static str, change: F) -> Self
    where
        F: Fn(Query, IpAddr) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Value, webhdfs::Exception>> + Send + 'static,
    {
        self.add_data(MethodFilter::PUT, path, change, false)
    }

    /// Like [`Site::put`], for `DELETE`.
    #[must_use]
    pub fn delete<F, A>(self, path: &'static str, change: F) -> Self
    where
        F: Fn(Query, IpAddr) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Value, webhdfs::Exception>> + Send + 'static,
    {
        self.add_data(MethodFilter::DELETE, path, change, false)
    }

    fn add_data<F, A>(mut self, method: MethodFilter, path: &'static str, page: F, is_public: bool) -> Self
    where
        F: Fn(Query, IpAddr) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Value, webhdfs::Exception>> + Send + 'static,
    {
        let source = Arc::new(move |query, peer| -> data::DataAnswer { Box::pin(page(query, peer)) });
        self.data.push(DataPage { method, path, source, is_public });
        self
    }

    /// Adds a page whose whole answer `page` makes from the request's headers, on a thread that may block.
    #[must_use]
    pub fn document(
        mut self,
        path: &'static str,
        page: impl Fn(&HeaderMap) -> Document + Send + Sync + 'static,
    ) -> Self {
        self.documents.push((path, Arc::new(page)));
        self
    }

    /// Serves the user interface at `/`, and redirects Apache's pages to it.
    #[must_use]
    pub fn interface(mut self, server: Server) -> Self {
        self.interface = Some(server);
        self
    }

    /// Sets the rules for requests and the headers of answers. Without them, all requests are passed on.
    #[must_use]
    pub fn protection(mut self, protection: Protection) -> Self {
        self.protection = Some(protection);
        self
    }

    /// Adds a download. `page` gets the request's parameters and returns a file, which may take any time. At most two are
    /// produced or sent at a time.
    #[must_use]
    pub fn file<F, A>(mut self, path: &'static str, page: F) -> Self
    where
        F: Fn(Query) -> A + Send + Sync + 'static,
        A: Future<Output = Result<FileAnswer, Refusal>> + Send + 'static,
    {
        self.files.push((path, Arc::new(move |query| Box::pin(page(query)))));
        self
    }

    /// Sets the WebHDFS service. Without one, WebHDFS requests are refused.
    #[must_use]
    pub fn webhdfs(mut self, service: Arc<dyn webhdfs::Service>) -> Self {
        self.webhdfs = Some(service);
        self
    }
}
