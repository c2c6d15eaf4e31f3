//! WebHDFS: what is asked over HTTP becomes calls of ClientProtocol, which go the way of those that come over RPC, and their answers
//! become JSON. Bytes of files are the DataNodes': clients are sent on to them ([`redirect`]). Bodies of requests say nothing here.
//!
//! A client is who it says it is, as over RPC, and may act for another user (`doas`) where a rule allows it. Source: `NamenodeWebHdfsMethods` and `JsonUtil` of Hadoop 3.4.

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
use hearth_protocol::rpc::{Call, Caller, RemoteError};
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

/// How the audit log says that a call came.
const OVER_HTTP: &str = "webhdfs";
/// The number of a call that is in no retry cache. Source: `RpcConstants.INVALID_CALL_ID`.
const NO_CALL_ID: i32 = -2;
/// Changes carried out at a time, as many as there are connections: those whose client has gone count, too, and the next ones wait.
const CHANGES_MAX: usize = 256;
/// What may be asked, for whom asks something else.
const METHODS: &str = "GET, HEAD, PUT, POST, DELETE";
/// Where a web proxy says whom it speaks for.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// A list of so many entries is made as a whole.
const SHORT: usize = 256;
/// Of a longer one, so many bytes before some of it goes to the client.
const PART_BYTES: usize = 64 << 10;

/// What an operation answers.
type Answer = Result<Response, Exception>;

/// Answers WebHDFS for the NameNode.
pub struct Webhdfs {
    service: Arc<NamenodeService>,
    /// `host:port`: where DataNodes are to carry on.
    rpc_address: String,
    /// `dfs.user.home.dir.prefix`.
    homes: String,
    changes: Arc<Semaphore>,
}

impl Webhdfs {
    /// `rpc_address`: `host:port`, as clients find it.
    pub fn new(service: Arc<NamenodeService>, rpc_address: String, conf: &Configuration) -> Result<Self, ConfigError> {
        let homes = conf.get(keys::DFS_USER_HOME_DIR_PREFIX)?;
        Ok(Self { service, rpc_address, homes, changes: Arc::new(Semaphore::new(CHANGES_MAX)) })
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
            // A body is nothing to the NameNode. Who sends it nevertheless, as curl does that follows redirects, is to find the answer.
            if !waits_to_send {
                drain(&mut body).await;
            }
            answered.unwrap_or_else(IntoResponse::into_response)
        })
    }
}

/// What somebody asks.
#[derive(Clone)]
struct Operation {
    webhdfs: Arc<Webhdfs>,
    caller: Arc<Caller>,
    method: Method,
    /// Absolute, as it was given.
    path: String,
    parameters: Parameters,
}

impl Operation {
    fn new(webhdfs: Arc<Webhdfs>, request: &Request) -> Result<Self, Exception> {
        let parameters = request.parameters.clone();
        let user = parameters.user()?.unwrap_or(&webhdfs.namenode().settings.http_user);
        // A `doas` that names the caller itself is none. Source: `JspHelper.getUGI`.
        let other = parameters.text("doas").filter(|other| *other != user);
        let forwarded = request.headers.get(FORWARDED_FOR).and_then(|value| value.to_str().ok());
        let peer = webhdfs.namenode().impersonation.rules().web_client(request.peer, forwarded);
        let caller = Arc::new(Caller {
            user: other.unwrap_or(user).into(),
            real_user: other.map(|_| user.to_owned()),
            address: SocketAddr::new(peer, 0),
            machine: peer.to_string().into(),
        });
        let (method, path) = (request.method.clone(), request.path.clone());
        Ok(Self { webhdfs, caller, method, path, parameters })
    }

    fn is_question(&self) -> bool {
        self.method == Method::GET || self.method == Method::HEAD
    }

    /// A question ends with its client. A change is a task of its own: one that was begun is put into the audit log also when its client
    /// goes.
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
        // In letters of any case.
        let given = self.parameters.text("op").unwrap_or("NULL");
        let operation = given.to_uppercase();
        self.check_values()?;
        if operation == "NULL" {
            return Err(Exception::unsupported("NULL is not supported"));
        }
        let answered = match self.method.as_str() {
            // HTTP leaves the content out for the latter.
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

    /// Has a method of ClientProtocol carried out, as if the call had come over RPC, from somebody who does not repeat it.
    async fn call<A: Message + Default>(&self, method: &str, request: &impl Message) -> Result<A, Exception> {
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
        };
        // In a box: each operation has few of them, and all that a call may become is large.
        let answer = Box::pin(self.webhdfs.service.client_call(&call, OVER_HTTP)).await.map_err(refusal)?;
        A::decode(answer).map_err(|error| Exception::io(format!("the answer of {method} cannot be read: {error}")))
    }

    /// As [`Operation::call`], where the answer says nothing but that it is done.
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

/// What is said of something that is not there.
fn missing(message: String) -> Exception {
    Exception::new(exceptions::FILE_NOT_FOUND, message)
}

fn answer(value: &Value) -> Response {
    json(StatusCode::OK, value)
}

fn done() -> Response {
    empty(StatusCode::OK, None)
}

/// The same of the operations for which Apache's NameNode names no type of its own: its default has a charset.
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

/// An answer in JSON that is written already.
fn text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// An answer with a list, which goes to the client a part at a time where it is long. `before`, `after`: what stands around its entries.
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

/// A path or name as text, whatever its bytes are.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use hearth_web::axum::body::to_bytes;

    use super::*;

    #[tokio::test]
    async fn a_list_comes_whole_however_long_it_is() {
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
