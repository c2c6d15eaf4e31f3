use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get};
use futures_util::stream::{Stream, StreamExt, once, unfold};
use hearth_config::Configuration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::Error;
use crate::bounded::{BoundedListener, ConnectionLimit};
use crate::connections::{self, Peer, Timeouts};
use crate::jmx::{self, Bean};
use crate::metrics::{self, Metric, MetricSource};
use crate::text_stream::{Disconnected, TextBody, TextSender};
use crate::webhdfs;

/// Decoded parameters of a request. The first value of a name counts.
pub type Query = BTreeMap<String, String>;

type TextAnswer = Pin<Box<dyn Future<Output = Result<(), Disconnected>> + Send>>;
type TextPage = Arc<dyn Fn(Query, IpAddr, TextSender) -> TextAnswer + Send + Sync>;

/// Longest query string. Longer ones are refused with 414.
const QUERY_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of requests served at a time. Further ones wait.
const REQUESTS_MAX: usize = 64;
/// Maximum number of pages produced at a time on blocking threads, which may wait for a disk or a lock. If one hangs,
/// only this number of threads is held.
const RENDERING_MAX: usize = 2;
/// Maximum number of open connections. At the limit an idle one is closed in favour of the next.
const CONNECTIONS_MAX: usize = 256;
/// Maximum number of them per address. Beyond it, idle connections of the same address are closed. Half of the total,
/// so that one client cannot take all places.
const CONNECTIONS_OF_ADDRESS_MAX: usize = CONNECTIONS_MAX / 2;
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

/// Answer to WebHDFS requests if no service is set.
const NO_WEBHDFS: &str =
    "WebHDFS is not enabled here: use hdfs://, with the NameNode's RPC port, instead of webhdfs://";

/// One entry of `/conf`.
#[derive(Clone, Debug)]
pub struct ConfEntry {
    pub key: String,
    pub value: String,
    pub is_final: bool,
    /// The file it came from, or `code`.
    pub source: String,
}

impl ConfEntry {
    /// Returns all entries of a server's configuration by name, without secrets.
    pub fn all(configuration: &Configuration) -> Vec<Self> {
        let entries = configuration.redacted_entries().into_iter();
        entries
            .map(|entry| Self {
                key: entry.name.to_owned(),
                value: entry.value.to_owned(),
                is_final: entry.is_final,
                source: entry.source.to_string(),
            })
            .collect()
    }
}

/// The pages that a server offers over HTTP.
pub struct Site {
    beans: Arc<dyn Fn() -> Vec<Bean> + Send + Sync>,
    conf: Arc<dyn Fn() -> Vec<ConfEntry> + Send + Sync>,
    front: Arc<dyn Fn() -> String + Send + Sync>,
    metrics: MetricSource,
    pages: Vec<(&'static str, TextPage)>,
    webhdfs: Option<Arc<dyn webhdfs::Service>>,
    request_timeout: Duration,
    idle_timeout: Duration,
    timeouts: Timeouts,
}

impl Site {
    /// Creates a site. `front` returns the HTML of `/`, `beans` the content of `/jmx`, and `metrics` the values of
    /// `/metrics`. These closures run on threads that may block. `conf` must not block.
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

    /// Sets the WebHDFS service. Without one, WebHDFS requests are refused.
    #[must_use]
    pub fn webhdfs(mut self, service: Arc<dyn webhdfs::Service>) -> Self {
        self.webhdfs = Some(service);
        self
    }

    /// Serves on `address` (port 0: any free one) until the returned server is dropped.
    ///
    /// Errors: `Listen` when the address cannot be bound.
    pub async fn serve(self, address: &str) -> Result<WebServer, Error> {
        Ok(self.bind(address).await?.serve())
    }

    /// Binds `address`. Clients can connect from then on; their requests are answered once the site is served.
    ///
    /// Errors: the same as those of [`Site::serve`].
    pub async fn bind(self, address: &str) -> Result<BoundSite, Error> {
        let failed = |source| Error::Listen { address: address.to_string(), source };
        let listener = listen(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(BoundSite { site: self, listener, address })
    }

    fn router(self) -> Router {
        let state = Shared {
            beans: self.beans,
            conf: self.conf,
            front: self.front,
            metrics: self.metrics,
            render_permits: Arc::new(Semaphore::new(RENDERING_MAX)),
            patience: self.request_timeout,
        };
        let mut router = Router::new()
            .route("/", get(front))
            .route("/jmx", get(jmx))
            .route("/metrics", get(metrics))
            .route("/prom", get(metrics))
            .route("/conf", get(conf));
        for path in ["/webhdfs/v1", "/webhdfs/v1/", "/webhdfs/v1/{*path}"] {
            let service = self.webhdfs.clone();
            router = router.route(
                path,
                any(move |ConnectInfo(Peer(address)): ConnectInfo<Peer>, request: axum::extract::Request| {
                    let service = service.clone();
                    async move {
                        match (service, webhdfs::Request::parse(request, address.ip().to_canonical())) {
                            (Some(service), Ok(request)) => service.answer(request).await,
                            (None, Ok(_)) => webhdfs::Exception::unsupported(NO_WEBHDFS).into_response(),
                            (_, Err(refusal)) => refusal.into_response(),
                        }
                    }
                }),
            );
        }
        let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
        for (path, page) in self.pages {
            let (permits, patience) = (requests.clone(), self.request_timeout);
            router = router.route(
                path,
                get(move |ConnectInfo(Peer(address)): ConnectInfo<Peer>, RawQuery(raw): RawQuery| {
                    text_page(page.clone(), permits.clone(), patience, raw, address.ip().to_canonical())
                }),
            );
        }
        router.with_state(state)
    }
}

/// Number of connections that the kernel queues until they are accepted. In a burst beyond it, clients wait a second
/// before they retry.
const BACKLOG: u32 = 1024;

/// Listens on the first of the addresses of `address` that can be bound.
async fn listen(address: &str) -> io::Result<TcpListener> {
    let mut failed = io::Error::other("the name has no address");
    for address in tokio::net::lookup_host(address).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restart must not wait until the last process's connections leave TIME_WAIT.
        socket.set_reuseaddr(true)?;
        match socket.bind(address).and_then(|()| socket.listen(BACKLOG)) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// A site that is bound to its address and does not serve requests yet.
pub struct BoundSite {
    site: Site,
    listener: TcpListener,
    address: SocketAddr,
}

impl BoundSite {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the returned server is dropped.
    pub fn serve(self) -> WebServer {
        let Self { site, listener, address } = self;
        let places = ConnectionLimit::new(CONNECTIONS_MAX, CONNECTIONS_OF_ADDRESS_MAX);
        let listener = BoundedListener { listener, places, idle_timeout: site.idle_timeout };
        let patience = site.timeouts;
        let (stop, stopped) = watch::channel(());
        let task = tokio::spawn(connections::serve(listener, site.router(), patience, stopped));
        WebServer { address, _stop: stop, task }
    }
}

/// A running web server. Dropping it closes the port.
pub struct WebServer {
    address: SocketAddr,
    /// Dropping the sender ends connections without a request in progress.
    _stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl WebServer {
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Shared {
    beans: Arc<dyn Fn() -> Vec<Bean> + Send + Sync>,
    conf: Arc<dyn Fn() -> Vec<ConfEntry> + Send + Sync>,
    front: Arc<dyn Fn() -> String + Send + Sync>,
    metrics: MetricSource,
    render_permits: Arc<Semaphore>,
    patience: Duration,
}

impl Shared {
    /// Runs `make` on a blocking thread, once one of the permits is free.
    ///
    /// Errors: 503 if that takes too long; 500 if `make` panicked.
    async fn render<T: Send + 'static>(&self, make: impl FnOnce() -> T + Send + 'static) -> Result<T, StatusCode> {
        let made = async {
            let place = self.render_permits.clone().acquire_owned().await.ok()?;
            let making = move || {
                // Hold the permit as long as the thread is busy, even if the request has timed out.
                let _place = place;
                make()
            };
            tokio::task::spawn_blocking(making).await.ok()
        };
        match tokio::time::timeout(self.patience, made).await {
            Ok(made) => made.ok_or(StatusCode::INTERNAL_SERVER_ERROR),
            Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}

/// Returns an answer that consists of a status only.
fn refused(status: StatusCode) -> Response {
    match status {
        StatusCode::SERVICE_UNAVAILABLE => (status, "busy: try again\n").into_response(),
        status => status.into_response(),
    }
}

async fn front(State(shared): State<Shared>) -> Response {
    let front = shared.front.clone();
    match shared.render(move || Html(front())).await {
        Ok(page) => page.into_response(),
        Err(status) => refused(status),
    }
}

/// Content type as Hadoop writes it.
const JSON: &str = "application/json; charset=utf8";

async fn jmx(State(shared): State<Shared>, RawQuery(raw): RawQuery) -> Response {
    let query = match parse_query(raw.as_deref().unwrap_or("")) {
        Ok(query) => query,
        Err(status) => return status.into_response(),
    };
    let beans = shared.beans.clone();
    let made = shared.render(move || {
        let asked = |name: &str| query.get(name).map(String::as_str);
        let (status, answer) = jmx::answer(&beans(), asked("get"), asked("qry"));
        (status, serde_json::to_string_pretty(&answer).unwrap_or_else(|_| "{}".to_string()))
    });
    match made.await {
        Ok((status, text)) => (status, [(header::CONTENT_TYPE, JSON)], text).into_response(),
        Err(status) => refused(status),
    }
}

async fn metrics(State(shared): State<Shared>) -> Response {
    let metrics = shared.metrics.clone();
    match shared.render(move || metrics::text(metrics)).await {
        Ok(Ok(text)) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Ok(Err(_)) => refused(StatusCode::INTERNAL_SERVER_ERROR),
        Err(status) => refused(status),
    }
}

async fn conf(State(shared): State<Shared>, headers: HeaderMap, RawQuery(raw): RawQuery) -> Response {
    let query = match parse_query(raw.as_deref().unwrap_or("")) {
        Ok(query) => query,
        Err(status) => return status.into_response(),
    };
    let accepts_json = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.contains("application/json"));
    let as_json = query.get("format").map_or(accepts_json, |format| format == "json");
    let wanted = query.get("name");
    let entries: Vec<ConfEntry> =
        (shared.conf)().into_iter().filter(|entry| wanted.is_none_or(|name| *name == entry.key)).collect();
    if let (Some(name), true) = (wanted, entries.is_empty()) {
        return (StatusCode::NOT_FOUND, format!("Property {name} not found")).into_response();
    }
    if as_json {
        let list: Vec<serde_json::Value> = entries
            .iter()
            .map(|entry| {
                serde_json::json!({
                    "key": entry.key, "value": entry.value, "isFinal": entry.is_final, "resource": entry.source,
                })
            })
            .collect();
        let text = serde_json::json!({ "properties": list }).to_string();
        return ([(header::CONTENT_TYPE, "application/json; charset=utf-8")], text).into_response();
    }
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?><configuration>\n");
    for entry in &entries {
        text.push_str(&format!(
            "<property><name>{}</name><value>{}</value><final>{}</final><source>{}</source></property>\n",
            escape(&entry.key),
            escape(&entry.value),
            entry.is_final,
            escape(&entry.source)
        ));
    }
    text.push_str("</configuration>\n");
    ([(header::CONTENT_TYPE, "text/xml; charset=utf-8")], text).into_response()
}

async fn text_page(
    page: TextPage,
    permits: Arc<Semaphore>,
    patience: Duration,
    raw: Option<String>,
    peer: IpAddr,
) -> Response {
    let query = match parse_query(raw.as_deref().unwrap_or("")) {
        Ok(query) => query,
        Err(status) => return status.into_response(),
    };
    let answer = async {
        let permit = permits.acquire_owned().await.ok()?;
        let (telling, mut listening) = TextSender::new(patience);
        let made = page(query, peer, telling.clone());
        tokio::spawn(async move {
            let _permit = permit;
            if made.await.is_ok() {
                // A client that has disconnected needs no end marker.
                let _ = telling.end().await;
            }
        });
        Some((listening.next().await, listening))
    };
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    match tokio::time::timeout(patience, answer).await {
        Ok(Some((Some(first), listening))) => {
            let body = once(ready(Ok(first))).chain(body_stream(listening));
            (kind, Body::from_stream(body)).into_response()
        }
        Ok(Some((None, listening))) if listening.is_whole() => (kind, "").into_response(),
        Ok(Some((None, _))) => refused(StatusCode::INTERNAL_SERVER_ERROR),
        _ => refused(StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// Returns the remaining pieces of a page. A page that was aborted ends with an error, which also ends the connection.
pub(crate) fn body_stream(listening: TextBody) -> impl Stream<Item = io::Result<Bytes>> {
    unfold(Some(listening), |listening| async {
        let mut listening = listening?;
        match listening.next().await {
            Some(piece) => Some((Ok(piece), Some(listening))),
            None if listening.is_whole() => None,
            None => Some((Err(io::ErrorKind::UnexpectedEof.into()), None)),
        }
    })
}

/// Decodes `a=b&c=d` with `%XX` and `+`. Errors: 414 for a query that is too long, 400 for an invalid escape or text
/// that is not UTF-8.
fn parse_query(raw: &str) -> Result<Query, StatusCode> {
    if raw.len() > QUERY_BYTES_MAX {
        return Err(StatusCode::URI_TOO_LONG);
    }
    let decoded = |text: &str| webhdfs::decode(text, true).ok_or(StatusCode::BAD_REQUEST);
    let mut query = Query::new();
    for part in raw.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        query.entry(decoded(name)?).or_insert(decoded(value)?);
    }
    Ok(query)
}

/// Escapes text for XML and HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use hearth_testkit::until;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const WAIT: Duration = Duration::from_secs(60);

    async fn fetch(address: SocketAddr, path: &str) -> String {
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_site_answers_its_pages() {
        let entry = ConfEntry {
            key: "fs.defaultFS".into(),
            value: "hdfs://a&b".into(),
            is_final: false,
            source: "core-site.xml".into(),
        };
        let site = Site::new(
            || "<h1>front</h1>".to_string(),
            || vec![Bean::new("Hadoop:service=NameNode,name=FSNamesystemState").with("FSState", "Operational")],
            move || vec![entry.clone()],
            || vec![Metric::counter("hearth_reads", "Reads", 7), Metric::gauge("hearth_files", "Files", 5)],
        )
        .page("/fsck", |query: Query, peer, telling: TextSender| async move {
            telling.send(format!("path {} from {peer}", query["path"])).await
        });
        let server = site.serve("127.0.0.1:0").await.unwrap();
        assert!(fetch(server.address(), "/").await.contains("<h1>front</h1>"));
        assert!(fetch(server.address(), "/jmx?qry=*:*").await.contains("Operational"));
        assert!(!fetch(server.address(), "/jmx?qry=none:*").await.contains("Operational"));
        assert!(fetch(server.address(), "/jmx?qry=none").await.starts_with("HTTP/1.1 400"));
        let get = "/jmx?get=Hadoop:name=FSNamesystemState,service=NameNode::";
        assert!(fetch(server.address(), &format!("{get}FSState")).await.contains("Operational"));
        assert!(fetch(server.address(), &format!("{get}None")).await.starts_with("HTTP/1.1 404"));
        assert!(fetch(server.address(), "/conf").await.contains("hdfs://a&amp;b"));
        assert!(fetch(server.address(), "/conf?name=none").await.starts_with("HTTP/1.1 404"));
        assert!(fetch(server.address(), "/fsck?path=%2Fa+b").await.contains("path /a b from 127.0.0.1"));
        for wrong in ["%zz", "%2", "%+f", "%ff"] {
            let answer = fetch(server.address(), &format!("/fsck?path={wrong}")).await;
            assert!(answer.starts_with("HTTP/1.1 400"), "{wrong}: {answer}");
        }
        assert!(fetch(server.address(), &format!("/jmx?qry={}", "a".repeat(9000))).await.starts_with("HTTP/1.1 414"));
        let metrics = fetch(server.address(), "/metrics").await;
        for line in ["hearth_reads_total 7", "# TYPE hearth_files gauge", "hearth_files 5", "# EOF"] {
            assert!(metrics.contains(line), "{line} in {metrics}");
        }
        assert!(fetch(server.address(), "/none").await.starts_with("HTTP/1.1 404"));
    }

    #[tokio::test]
    async fn blocking_page_does_not_delay_other_pages() {
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let beans = move || {
            // Blocks until the sender is dropped.
            let _ = wait.lock().unwrap().recv();
            vec![Bean::new("Hadoop:service=NameNode,name=FSNamesystemState")]
        };
        let mut site = Site::new(String::new, beans, Vec::new, Vec::new);
        site.request_timeout = Duration::from_millis(300);
        let server = site.serve("127.0.0.1:0").await.unwrap();
        // One request more than there are threads.
        for _ in 0..=RENDERING_MAX {
            assert!(fetch(server.address(), "/jmx").await.starts_with("HTTP/1.1 503"));
        }
        // Waiting requests, however many, do not delay other pages either.
        let address = server.address();
        let waiting: Vec<_> =
            (0..=REQUESTS_MAX).map(|_| tokio::spawn(async move { fetch(address, "/jmx").await })).collect();
        assert!(fetch(server.address(), "/conf").await.starts_with("HTTP/1.1 200"));
        for waited in waiting {
            assert!(waited.await.unwrap().starts_with("HTTP/1.1 503"));
        }
        drop(go_on);
        until("the places to be given back", async || {
            fetch(server.address(), "/jmx").await.starts_with("HTTP/1.1 200")
        })
        .await;
    }

    #[tokio::test]
    async fn disabled_webhdfs_is_refused_with_an_exception() {
        let server = Site::new(String::new, Vec::new, Vec::new, Vec::new).serve("127.0.0.1:0").await.unwrap();
        for asked in [
            "GET /webhdfs/v1/?op=LISTSTATUS",
            "GET /webhdfs/v1?op=LISTSTATUS",
            "PUT /webhdfs/v1/user/ann/a%20b?op=CREATE&overwrite=true",
            "DELETE /webhdfs/v1/tmp?op=DELETE",
        ] {
            let mut socket = tokio::net::TcpStream::connect(server.address()).await.unwrap();
            // Announce a body and never send it.
            let request = format!("{asked} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n");
            socket.write_all(request.as_bytes()).await.unwrap();
            let answer = read_until(&mut socket, "}}").await;
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 400 ") && head.contains("application/json"), "{head}");
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            let refused = &body["RemoteException"];
            assert_eq!(refused["exception"], "UnsupportedOperationException");
            assert_eq!(refused["javaClassName"], "java.lang.UnsupportedOperationException");
            assert!(refused["message"].as_str().unwrap().contains("use hdfs://"));
        }
        assert!(fetch(server.address(), "/webhdfs/v2/").await.starts_with("HTTP/1.1 404"));
    }

    #[tokio::test]
    async fn early_requests_are_answered_once_served() {
        let is_ready = Arc::new(std::sync::OnceLock::<&str>::new());
        let ready = is_ready.clone();
        let front = move || ready.get().copied().unwrap_or("requested too early").to_owned();
        let bound = Site::new(front, Vec::new, Vec::new, Vec::new).bind("127.0.0.1:0").await.unwrap();
        let address = bound.address();
        let asking = tokio::spawn(async move { fetch(address, "/").await });
        // Time for the kernel to deliver the request, and for the site to answer it by mistake.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!asking.is_finished());
        is_ready.set("what the address is needed for").unwrap();
        let server = bound.serve();
        assert_eq!(server.address(), address);
        assert!(asking.await.unwrap().ends_with("what the address is needed for"));
    }

    #[tokio::test]
    async fn other_http_versions_are_refused() {
        let server = Site::new(String::new, Vec::new, Vec::new, Vec::new).serve("127.0.0.1:0").await.unwrap();
        let mut socket = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        // The start of HTTP/2 without TLS, and an empty frame of settings.
        socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut answer = Vec::new();
        // A reset of the connection is also a refusal.
        let _ = tokio::time::timeout(WAIT, socket.read_to_end(&mut answer)).await.expect("the connection ends");
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
    }

    #[tokio::test]
    async fn slow_request_head_times_out() {
        let mut site = Site::new(String::new, Vec::new, Vec::new, Vec::new);
        site.timeouts.header = Duration::from_millis(300);
        let server = site.serve("127.0.0.1:0").await.unwrap();
        let (mut reading, mut writing) = tokio::net::TcpStream::connect(server.address()).await.unwrap().into_split();
        let asking = tokio::spawn(async move {
            let mut sent = writing.write_all(b"GET / HTTP/1.1\r\nHost: ").await;
            while sent.is_ok() {
                // The pace of a slow client.
                tokio::time::sleep(Duration::from_millis(20)).await;
                sent = writing.write_all(b"x").await;
            }
        });
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(WAIT, reading.read_to_end(&mut answer)).await.expect("the connection ends");
        assert!(answer.is_empty(), "{answer:?}");
        asking.abort();
    }

    #[tokio::test]
    async fn slow_receipt_of_a_complete_page_times_out() {
        const WHOLE: usize = 64 << 20;
        let mut site = Site::new(|| "x".repeat(WHOLE), Vec::new, Vec::new, Vec::new);
        site.timeouts.answer = Duration::from_millis(300);
        let server = site.serve("127.0.0.1:0").await.unwrap();
        // If this process stalls before it begins to answer, no data arrives. Then retry.
        for _ in 0..20 {
            let mut socket = tokio::net::TcpStream::connect(server.address()).await.unwrap();
            socket.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            let (mut taken, mut bytes) = (0, vec![0; 16 << 10]);
            // Read a little at a time, so that there is traffic.
            for _ in 0..60 {
                taken += socket.read(&mut bytes).await.unwrap();
                // The pace of a slow client.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // Only the data in the buffers of the two sockets arrives.
            while let Ok(count) = socket.read(&mut bytes).await
                && count > 0
            {
                taken += count;
            }
            assert!(taken < WHOLE, "{taken}");
            if taken > 0 {
                return;
            }
        }
        panic!("no data of the page arrives");
    }

    /// Starts a site with a single page at `/told` and these time-outs in milliseconds.
    async fn told<A>(limits_ms: [u64; 2], page: impl Fn(TextSender) -> A + Send + Sync + 'static) -> WebServer
    where
        A: Future<Output = Result<(), Disconnected>> + Send + 'static,
    {
        let mut site = Site::new(String::new, Vec::new, Vec::new, Vec::new);
        [site.request_timeout, site.idle_timeout] = limits_ms.map(Duration::from_millis);
        site.page("/told", move |_, _, telling| page(telling)).serve("127.0.0.1:0").await.unwrap()
    }

    async fn ask(server: &WebServer, version: &str) -> tokio::net::TcpStream {
        let mut socket = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        socket.write_all(format!("GET /told HTTP/{version}\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        socket
    }

    /// Reads until the text contains `end`.
    async fn read_until(socket: &mut tokio::net::TcpStream, end: &str) -> String {
        let (mut text, mut bytes) = (String::new(), [0; 4096]);
        while !text.contains(end) {
            let count = socket.read(&mut bytes).await.unwrap();
            assert_ne!(count, 0, "no {end} in {text}");
            text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
        text
    }

    #[tokio::test]
    async fn streamed_page_may_outlast_the_request_timeout() {
        // The page continues only after the client has read: the second line is never written before the first has
        // arrived.
        let heard = Arc::new(Semaphore::new(0));
        let lines = heard.clone();
        let server = told([400, 10_000], move |telling| {
            let lines = lines.clone();
            async move {
                for line in 0..8 {
                    telling.send(format!("line {line}\n")).await?;
                    lines.acquire().await.unwrap().forget();
                    // The work for a line: that for all lines exceeds the time-out.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                telling.send("the end".to_owned()).await
            }
        })
        .await;
        let mut socket = ask(&server, "1.0").await;
        for line in 0..8 {
            read_until(&mut socket, &format!("line {line}\n")).await;
            heard.add_permits(1);
        }
        assert!(read_until(&mut socket, "the end").await.ends_with("the end"));
        assert_eq!(socket.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn page_detects_a_disconnected_client() {
        let (sender, mut ended) = tokio::sync::mpsc::channel(1);
        let server = told([60_000, 90_000], move |telling| {
            let sender = sender.clone();
            async move {
                telling.send("first".to_owned()).await?;
                // It has no more text and checks the connection with empty writes.
                while telling.send(String::new()).await.is_ok() {
                    // The pace of the checks.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                sender.send(()).await.unwrap();
                Err(Disconnected)
            }
        })
        .await;
        let mut socket = ask(&server, "1.1").await;
        read_until(&mut socket, "first").await;
        assert!(ended.try_recv().is_err());
        drop(socket);
        tokio::time::timeout(WAIT, ended.recv()).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn stalled_client_gets_a_truncated_page() {
        const MOST: usize = 256 << 20;
        let (sender, mut said) = tokio::sync::mpsc::channel(1);
        let server = told([300, 60_000], move |telling| {
            let sender = sender.clone();
            async move {
                let mut said = 0;
                while said < MOST && telling.send("x".repeat(64 << 10)).await.is_ok() {
                    said += 64 << 10;
                }
                sender.send(said).await.unwrap();
                Err(Disconnected)
            }
        })
        .await;
        let mut socket = ask(&server, "1.1").await;
        // Only the data that fits into the buffers of the two sockets is accepted.
        let said = tokio::time::timeout(WAIT, said.recv()).await.unwrap().unwrap();
        assert!(said < MOST);
        let mut answer = Vec::new();
        // A reset of the connection also shows that the page is incomplete.
        let _ = socket.read_to_end(&mut answer).await;
        assert!(answer.starts_with(b"HTTP/1.1 200") && !answer.ends_with(b"\r\n0\r\n\r\n"));
    }

    #[tokio::test]
    async fn late_pages_get_503_and_failed_pages_500() {
        let late = told([100, 60_000], |telling| async move {
            std::future::pending::<()>().await;
            telling.send("late".to_owned()).await
        });
        read_until(&mut ask(&late.await, "1.0").await, " 503 ").await;
        let broken = told([20_000, 60_000], |_| async { Err(Disconnected) });
        read_until(&mut ask(&broken.await, "1.0").await, " 500 ").await;
        let empty = told([20_000, 60_000], |_| async { Ok(()) });
        read_until(&mut ask(&empty.await, "1.0").await, " 200 ").await;
    }
}
