//! WebHDFS: translates HTTP requests into calls of ClientProtocol, which are processed like RPC calls, and their
//! answers into JSON. DataNodes serve the bytes of files: clients are redirected to them ([`redirect`]). Request bodies
//! are ignored here.
//!
//! The client's claimed user is accepted, as over RPC, and it may act for another user (`doas`) if a rule allows it.
//! Source: `NamenodeWebHdfsMethods` and `JsonUtil` of Hadoop 3.4.

mod acl;
mod blocks;
mod changes;
mod delegation_tokens;
mod erasure_coding;
mod get;
mod listing;
mod policies;
mod redirect;
mod snapshots;
mod status;
mod summary;
mod syntax;
mod token;
mod trash;
mod xattrs;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use hearth_config::{ConfigError, Configuration, keys};
use hearth_protocol::rpc::{Call, Caller, RemoteError, RpcMetrics};
use hearth_web::axum::http::{HeaderValue, Method, StatusCode, header};
use hearth_web::axum::response::{IntoResponse, Response};
use hearth_web::webhdfs::{
    Exception, Parameters, Request, Service, drain, empty, json, refused, stream_json, waits_to_send,
};
use hearth_wire::rpc::{exceptions, protocols};
use prost::Message;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::NamenodeService;
use crate::state::Namenode;

/// Protocol name in the audit log.
const OVER_HTTP: &str = "webhdfs";
/// Call id of a call that is in no retry cache. Source: `RpcConstants.INVALID_CALL_ID`.
const NO_CALL_ID: i32 = -2;
/// Limit of concurrent changes, equal to that of connections. Changes of disconnected clients count too, and further
/// changes wait.
const CHANGES_MAX: usize = 256;
/// Allowed methods, for the answer to a request with another method.
const METHODS: &str = "GET, HEAD, PUT, POST, DELETE";
/// Header in which a web proxy gives its client's address.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// Longest list, in entries, that is produced as a whole.
const SHORT: usize = 256;
/// Size of a part of a longer list, in bytes.
const PART_BYTES: usize = 64 << 10;

/// Result of an operation.
type Answer = Result<Response, Exception>;

/// WebHDFS service of the NameNode.
pub struct Webhdfs {
    service: Arc<NamenodeService>,
    /// `host:port` of the NameNode for the DataNodes.
    rpc_address: String,
    /// `dfs.user.home.dir.prefix`.
    homes: String,
    changes: Arc<Semaphore>,
    metrics: Arc<RpcMetrics>,
}

impl Webhdfs {
    /// `rpc_address`: `host:port`, as clients find it.
    pub fn new(service: Arc<NamenodeService>, rpc_address: String, conf: &Configuration) -> Result<Self, ConfigError> {
        let homes = conf.get(keys::DFS_USER_HOME_DIR_PREFIX)?;
        let changes = Arc::new(Semaphore::new(CHANGES_MAX));
        Ok(Self { service, rpc_address, homes, changes, metrics: RpcMetrics::new(&[protocols::CLIENT]) })
    }

    /// Returns the counters of the calls that requests make.
    pub fn metrics(&self) -> &Arc<RpcMetrics> {
        &self.metrics
    }
}

impl Service for Webhdfs {
    fn answer(self: Arc<Self>, mut request: Request) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        let asked = Operation::new(self, &request);
        let waits_to_send = waits_to_send(&request.headers);
        let mut body = std::mem::take(&mut request.body).into_data_stream();
        Box::pin(async move {
            let answered = match asked {
                Ok(asked) => asked.carried_out().await,
                Err(refusal) => Err(refusal),
            };
            // The NameNode ignores a body, but reads it. A client that sends one all the same, like curl when it
            // follows redirects, must be able to read the answer.
            if !waits_to_send {
                drain(&mut body).await;
            }
            answered.unwrap_or_else(IntoResponse::into_response)
        })
    }
}

/// A parsed request.
#[derive(Clone)]
struct Operation {
    webhdfs: Arc<Webhdfs>,
    caller: Arc<Caller>,
    method: Method,
    /// Absolute, as received.
    path: String,
    parameters: Parameters,
}

impl Operation {
    fn new(webhdfs: Arc<Webhdfs>, request: &Request) -> Result<Self, Exception> {
        let parameters = request.parameters.clone();
        let user = parameters.user()?.unwrap_or(&webhdfs.namenode().settings.http_user);
        // A `doas` with the caller's own name is ignored. Source: `JspHelper.getUGI`.
        let other = parameters.text("doas").filter(|other| *other != user);
        let forwarded = request.headers.get(FORWARDED_FOR).and_then(|value| value.to_str().ok());
        let peer = webhdfs.namenode().impersonation.rules().web_client(request.peer, forwarded);
        let caller = Arc::new(Caller {
            user: other.unwrap_or(user).into(),
            real_user: other.map(|_| user.to_owned()),
            address: SocketAddr::new(peer, 0),
            machine: peer.to_string().into(),
            connection: 0,
        });
        let (method, path) = (request.method.clone(), request.path.clone());
        Ok(Self { webhdfs, caller, method, path, parameters })
    }

    fn is_question(&self) -> bool {
        self.method == Method::GET || self.method == Method::HEAD
    }

    /// Executes the operation. A query ends when its client disconnects. A change runs in its own task, so that once
    /// begun it completes and is audited even if its client disconnects.
    async fn carried_out(self) -> Answer {
        let impersonation = self.webhdfs.service.check_impersonation(&self.caller).await;
        impersonation.map_err(|message| Exception::new(exceptions::AUTHORIZATION, message))?;
        if self.is_question() {
            return self.answer().await;
        }
        let place = Arc::clone(&self.webhdfs.changes).acquire_owned().await;
        let changing = tokio::spawn(async move {
            let _place = place;
            self.answer().await
        });
        changing.await.unwrap_or_else(|error| Err(Exception::new(exceptions::RUNTIME, error.to_string())))
    }

    async fn answer(&self) -> Answer {
        // Case does not matter.
        let given = self.parameters.text("op").unwrap_or("NULL");
        let operation = given.to_uppercase();
        self.check_values()?;
        if operation == "NULL" {
            return Err(Exception::unsupported("NULL is not supported"));
        }
        let answered = match self.method.as_str() {
            // For HEAD, the HTTP layer leaves the content out.
            "GET" | "HEAD" => self.get(&operation).await,
            "PUT" => self.put(&operation).await,
            "POST" => self.post(&operation).await,
            "DELETE" => self.delete(&operation).await,
            _ => return Ok(not_allowed()),
        };
        let method = if self.is_question() { "GET" } else { self.method.as_str() };
        answered.unwrap_or_else(|| Err(refused("op", &format!("{given} is not a valid {method} operation."))))
    }

    fn namenode(&self) -> &Namenode {
        self.webhdfs.namenode()
    }

    /// Executes a method of ClientProtocol as if the call had come over RPC from a client that does not retry.
    async fn call<A: Message + Default>(&self, method: &str, request: &impl Message) -> Result<A, Exception> {
        let began = tokio::time::Instant::now();
        let call = Call {
            caller: self.caller.clone(),
            protocol: protocols::CLIENT.to_owned(),
            method: method.to_owned(),
            request: request.encode_to_vec().into(),
            client_id: None,
            call_id: NO_CALL_ID,
            retry_count: -1,
            state_id: None,
            caller_context: None,
            caller_signature: Bytes::new(),
            began,
        };
        // Boxed: each operation makes few calls, and the future of a call is large.
        let answer = Box::pin(self.webhdfs.service.client_call(&call, OVER_HTTP)).await;
        self.webhdfs.metrics.record_call(method, began.elapsed(), answer.is_ok());
        let answer = answer.map_err(refusal)?;
        A::decode(answer).map_err(|error| Exception::io(format!("cannot decode the answer of {method}: {error}")))
    }

    /// Like [`Operation::call`], for calls whose answer has no content.
    async fn change<A: Message + Default>(&self, method: &str, request: &impl Message) -> Answer {
        self.call::<A>(method, request).await?;
        Ok(done())
    }
}

impl Webhdfs {
    fn namenode(&self) -> &Namenode {
        &self.service.namenode
    }
}

fn refusal(error: RemoteError) -> Exception {
    Exception::new(error.class, error.message)
}

/// Exception for a path that does not exist.
fn missing(message: String) -> Exception {
    Exception::new(exceptions::FILE_NOT_FOUND, message)
}

fn answer(value: &Value) -> Response {
    json(StatusCode::OK, value)
}

fn done() -> Response {
    empty(StatusCode::OK, None)
}

/// Success answer of the operations for which Apache's NameNode sets no content type: its default has a charset.
fn done_with_charset() -> Response {
    let mut response = done();
    let kind = HeaderValue::from_static("application/octet-stream; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn not_allowed() -> Response {
    let mut response = empty(StatusCode::METHOD_NOT_ALLOWED, None);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(METHODS));
    response
}

fn yes_or_no(result: bool) -> Response {
    answer(&serde_json::json!({ "boolean": result }))
}

/// Answer with a finished JSON text.
fn text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Answer with a list, sent to the client in parts if it is long. `before`, `after`: text around its entries.
fn list<T: Send + Sync + 'static>(before: String, entries: Vec<T>, show: fn(&T) -> Value, after: String) -> Response {
    if entries.len() <= SHORT {
        let shown: Vec<String> = entries.iter().map(|entry| show(entry).to_string()).collect();
        return text(format!("{before}{}{after}", shown.join(",")));
    }
    stream_json(move |telling| async move {
        let mut part = before;
        for (nth, entry) in entries.iter().enumerate() {
            if nth > 0 {
                part.push(',');
            }
            part.push_str(&show(entry).to_string());
            if part.len() >= PART_BYTES {
                telling.send(std::mem::take(&mut part)).await?;
            }
        }
        part.push_str(&after);
        telling.send(part).await
    })
}

/// Converts a path or name to text, whatever its bytes are.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use hearth_web::axum::body::to_bytes;

    use super::*;

    #[tokio::test]
    async fn long_list_is_sent_completely() {
        for count in [0, 1, SHORT, SHORT + 1, 50_000] {
            let entries: Vec<usize> = (0..count).collect();
            let listed = list("{\"L\":[".to_owned(), entries, |entry: &usize| Value::from(*entry), "]}".to_owned());
            let body = to_bytes(listed.into_body(), usize::MAX).await.unwrap();
            let told: Value = serde_json::from_slice(&body).unwrap();
            let told = told["L"].as_array().unwrap();
            assert!(told.len() == count && told.iter().enumerate().all(|(nth, entry)| *entry == nth));
        }
    }
}
