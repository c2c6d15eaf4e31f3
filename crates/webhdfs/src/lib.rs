//! The DataNodes' half of WebHDFS: file contents over HTTP. A NameNode, Apache's or Hearth's, redirects its clients
//! here. The parameter `namenoderpcaddress` names the NameNode of the file.
//!
//! A [`WebHdfs`] is an ordinary client of HDFS that acts as the user named in the request. The DataNode's own memory is
//! local to it, and the client detects that by itself.
//!
//! ```text
//! GET OPEN                  open.rs     the client's Reader → pieces in reused buffers → the connection
//! PUT CREATE, POST APPEND   upload.rs   the connection → the client's Writer, in a task that outlives the connection
//! GET GETFILECHECKSUM       here
//! ```
//!
//! Source: Hadoop's `WebHdfsHandler`, `ParameterParser`, `HdfsWriter`, `ExceptionHandler`.

mod exceptions;
mod file_systems;
mod open;
mod parameters;
mod served_namenodes;
mod upload;

use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hearth_client::FileSystem;
use hearth_config::{ConfigError, Configuration, keys};
use hearth_web::axum::http::{HeaderValue, Method, StatusCode, header};
use hearth_web::axum::response::{IntoResponse, Response};
use hearth_web::webhdfs::{self, Exception, Request, Service, bare, drain};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use exceptions::{INVALID_PATH, exception_for};
use file_systems::{FileSystems, User};
use parameters::RequestedOperation;
use served_namenodes::ServedNamenodes;
use upload::{Upload, UploadKind};

/// Maximum number of concurrent operations. Further ones wait. A writer holds up to 8 MiB, a reader less than 1 MiB.
const OPERATIONS_MAX: usize = 64;

/// Maximum wait for a permit. After it, the client is asked to retry later.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which a browser may cache the answer to a preflight request. Source: `WebHdfsHandler.allowCORSOnCreate`.
const PREFLIGHT_SECONDS: u32 = 1_728_000;

/// Initial size of Java's `DataOutputBuffer`. Source: Hadoop's `JsonUtil.toJsonString(MD5MD5CRC32FileChecksum)`.
const JAVA_BUFFER_BYTES: usize = 32;

/// The WebHDFS service of a DataNode.
pub struct WebHdfs {
    file_systems: Arc<FileSystems>,
    served: ServedNamenodes,
    permits: Arc<Semaphore>,
    permit_timeout: Duration,
    /// User of requests that name none.
    default_user: String,
}

/// The NameNode that an operation calls, and the users on whose behalf it does.
struct Caller {
    namenode: String,
    user: String,
    /// The user who makes the calls on behalf of `user` (`doas`).
    acted_for_by: Option<String>,
}

impl WebHdfs {
    /// Creates the service. `configuration`: the DataNode's. It defines the nameservices and the defaults of omitted
    /// parameters.
    pub fn new(configuration: &Configuration) -> Result<Self, ConfigError> {
        Ok(Self {
            file_systems: Arc::new(FileSystems::new(configuration)),
            served: ServedNamenodes::new(configuration)?,
            permits: Arc::new(Semaphore::new(OPERATIONS_MAX)),
            permit_timeout: PERMIT_TIMEOUT,
            default_user: configuration.get(keys::HADOOP_HTTP_STATICUSER_USER)?,
        })
    }

    async fn respond(&self, mut request: Request) -> Response {
        let operation = request.parameters.text("op").unwrap_or_default();
        if request.method == Method::OPTIONS && operation.eq_ignore_ascii_case("CREATE") {
            return preflight();
        }
        let mut body = std::mem::take(&mut request.body).into_data_stream();
        let waits_to_send = webhdfs::waits_to_send(&request.headers);
        let asked = match self.parse(&request) {
            Ok((asked, caller)) => self.file_system(&caller).await.map(|file_system| (asked, file_system)),
            Err(refused) => Err(refused),
        };
        let (asked, file_system) = match asked {
            Ok(asked) => asked,
            Err(refused) => {
                if !waits_to_send {
                    drain(&mut body).await;
                }
                return refused.into_response();
            }
        };
        let Some(permit) = self.permit().await else {
            if !waits_to_send {
                drain(&mut body).await;
            }
            return busy();
        };
        let (path, work) = (request.path, request.work);
        let (kind, answer) = match asked {
            RequestedOperation::Open(range) => {
                return open::open(&file_system, path, range, work, permit)
                    .await
                    .unwrap_or_else(Exception::into_response);
            }
            RequestedOperation::Checksum => {
                let checksum = work.track(checksum(&file_system, &path)).await;
                return checksum.unwrap_or_else(Exception::into_response);
            }
            RequestedOperation::Create(creation) => {
                let location = format!("{}{}", file_system.uri(), webhdfs::encode(&path));
                (UploadKind::Create(creation), created(&location))
            }
            RequestedOperation::Append => (UploadKind::Append, bare(StatusCode::OK, None)),
        };
        let file_systems = Arc::clone(&self.file_systems);
        let upload = Upload { file_systems, file_system, path, kind, body, waits_to_send, work, permit };
        match upload.run().await {
            Ok(()) => answer,
            Err(refused) => refused.into_response(),
        }
    }

    /// Returns the file system of a NameNode that this DataNode serves.
    async fn file_system(&self, caller: &Caller) -> Result<FileSystem, Exception> {
        let user = User { name: &caller.user, acted_for_by: caller.acted_for_by.as_deref() };
        self.file_systems.get(&self.served.authority(&caller.namenode).await?, user)
    }

    /// Parses the operation, its NameNode and its user. Sends nothing yet.
    fn parse(&self, request: &Request) -> Result<(RequestedOperation, Caller), Exception> {
        let asked = RequestedOperation::parse(request)?;
        // The client would resolve `.` and `..`, and so access a different file. NameNodes have no such names.
        if request.path.split('/').any(|name| matches!(name, "." | "..")) {
            return Err(Exception::new(INVALID_PATH, format!("Invalid path name {}", request.path)));
        }
        let parameters = &request.parameters;
        let user = parameters.user()?.unwrap_or(&self.default_user);
        // The NameNode decides if that user may act for another one.
        let other = parameters.text("doas").filter(|other| *other != user);
        let namenode = parameters.needed("namenoderpcaddress", parameters.text("op").unwrap_or_default())?;
        let caller = Caller {
            namenode: namenode.to_owned(),
            user: other.unwrap_or(user).to_owned(),
            acted_for_by: other.map(|_| user.to_owned()),
        };
        Ok((asked, caller))
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(self.permit_timeout, Arc::clone(&self.permits).acquire_owned()).await.ok()?.ok()
    }
}

impl Service for WebHdfs {
    fn answer(self: Arc<Self>, request: Request) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        Box::pin(async move { with_readable_refusal(self.respond(request).await) })
    }
}

/// Lets pages of other servers, such as the NameNode's, read why a request was refused.
fn with_readable_refusal(mut response: Response) -> Response {
    if response.status().is_client_error() || response.status().is_server_error() {
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    }
    response
}

/// Returns the answer to a request that got no permit. Some Hadoop clients retry after this exception
/// (`dfs.http.client.retry.policy.enabled`).
fn busy() -> Response {
    let busy =
        Exception::new("org.apache.hadoop.ipc.RetriableException", "too many WebHDFS operations are running here");
    let mut response = busy.into_response();
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

/// Returns the answer to a browser's preflight request, which precedes the creation of a file by a page of another
/// site.
fn preflight() -> Response {
    let mut response = bare(StatusCode::OK, None);
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("accept"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("PUT"));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from(PREFLIGHT_SECONDS));
    response
}

fn created(location: &str) -> Response {
    let mut response = bare(StatusCode::CREATED, Some(location));
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

async fn checksum(file_system: &FileSystem, path: &str) -> Result<Response, Exception> {
    let checksum = file_system.checksum(path, None).await.map_err(|error| exception_for(&error))?;
    let bytes = checksum.bytes();
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in &bytes {
        // Writing into a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    // Java's DataNode outputs the whole buffer that holds the checksum, with its unused zeros. Java's clients ignore
    // those.
    digits.extend(std::iter::repeat_n("00", JAVA_BUFFER_BYTES.saturating_sub(bytes.len())));
    let answer = serde_json::json!({ "FileChecksum": {
        "algorithm": checksum.algorithm(),
        "bytes": digits,
        "length": bytes.len(),
    }});
    Ok(webhdfs::json(StatusCode::OK, &answer))
}

#[cfg(test)]
mod tests {
    use hearth_web::axum::body::{Body, to_bytes};

    use super::*;

    fn configuration() -> Configuration {
        Configuration::empty().with("fs.defaultFS", "hdfs://h:1")
    }

    fn request(method: Method, url: &str) -> Request {
        let request = hearth_web::axum::http::Request::builder().method(method).uri(url).body(Body::empty()).unwrap();
        Request::parse(request, [127, 0, 0, 1].into()).unwrap()
    }

    #[tokio::test]
    async fn unsupported_requests_get_hadoops_exceptions() {
        let service = WebHdfs::new(&configuration()).unwrap();
        for (method, url, status, exception) in [
            (Method::GET, "/webhdfs/v1/a?op=LISTSTATUS", 400, "IllegalArgumentException"),
            (Method::POST, "/webhdfs/v1/a?op=OPEN&namenoderpcaddress=h:1", 400, "IllegalArgumentException"),
            (Method::GET, "/webhdfs/v1/a", 400, "IllegalArgumentException"),
            (Method::GET, "/webhdfs/v1/a?op=OPEN", 400, "IllegalArgumentException"),
            (Method::GET, "/webhdfs/v1/a?op=OPEN&namenoderpcaddress=other:2", 403, "AccessControlException"),
            (Method::GET, "/webhdfs/v1/a?op=OPEN&namenoderpcaddress=h/x:1", 400, "IllegalArgumentException"),
            (Method::GET, "/webhdfs/v1/a/%2E./b?op=OPEN&namenoderpcaddress=h:1", 400, "InvalidPathException"),
            (Method::GET, "/webhdfs/v1/a?op=OPEN&namenoderpcaddress=h:1&offset=-1", 400, "IllegalArgumentException"),
            (
                Method::GET,
                "/webhdfs/v1/a?op=OPEN&namenoderpcaddress=h:1&user.name=a/b",
                400,
                "IllegalArgumentException",
            ),
            (
                Method::PUT,
                "/webhdfs/v1/a?op=CREATE&namenoderpcaddress=h:1&ecpolicy=RS-6-3-1024k",
                400,
                "UnsupportedOperationException",
            ),
        ] {
            let response = service.respond(request(method, url)).await;
            assert_eq!(response.status().as_u16(), status, "{url}");
            let body = to_bytes(response.into_body(), 1 << 16).await.unwrap();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["RemoteException"]["exception"], exception, "{url}");
        }
    }

    #[tokio::test]
    async fn pages_can_read_refusals() {
        let service = Arc::new(WebHdfs::new(&configuration()).unwrap());
        let refused = service.clone().answer(request(Method::GET, "/webhdfs/v1/a?op=OPEN")).await;
        assert_eq!(refused.headers()["access-control-allow-origin"], "*");
        let preflight = service.answer(request(Method::OPTIONS, "/webhdfs/v1/a?op=CREATE")).await;
        assert_eq!(preflight.headers().get_all("access-control-allow-origin").iter().count(), 1);
    }

    #[tokio::test]
    async fn preflight_allows_cross_origin_create() {
        let service = WebHdfs::new(&configuration()).unwrap();
        let response = service.respond(request(Method::OPTIONS, "/webhdfs/v1/a?op=CREATE")).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["access-control-allow-methods"], "PUT");
        assert_eq!(response.headers()["access-control-max-age"], "1728000");
        assert!(!response.headers().contains_key(header::CONTENT_TYPE));
    }

    #[test]
    fn created_answer_has_hadoops_headers() {
        let response = created("hdfs://nn/a%20b");
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(response.headers()[header::LOCATION], "hdfs://nn/a%20b");
        assert!(!response.headers().contains_key(header::CONTENT_TYPE));
    }

    #[tokio::test]
    async fn request_without_permit_gets_503() {
        let permit_timeout = Duration::from_millis(20);
        let service = WebHdfs { permit_timeout, ..WebHdfs::new(&configuration()).unwrap() };
        let permits = Arc::clone(&service.permits).acquire_many_owned(OPERATIONS_MAX as u32).await.unwrap();
        let url = "/webhdfs/v1/a?op=OPEN&namenoderpcaddress=h:1&user.name=ann";
        let response = service.respond(request(Method::GET, url)).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(permits);
        assert!(service.permit().await.is_some());
    }
}
