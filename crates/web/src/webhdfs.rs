//! The part of WebHDFS that both servers share: parsing of requests under `/webhdfs/v1`, and the form of refusals. A
//! [`Service`] produces the answers.
//!
//! Source: Hadoop's "WebHDFS REST API", `ParamFilter`, `ExceptionHandler`, `JsonUtil`.

mod parameters;

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::StreamExt;
use serde_json::Value;

pub use parameters::{Parameters, USER_NAME, checked_user, needed, not_of, refused};

use crate::InFlight;
use crate::site::REQUEST_TIMEOUT;
use crate::text_stream::{Disconnected, TextSender, body_stream};

/// Prefix of a file's path in the path of a URL.
pub const PREFIX: &str = "/webhdfs/v1";

/// Longest URL. It holds a path and parameters, including ACLs and values of extended attributes.
const URI_BYTES_MAX: usize = 60 * 1024;

/// Maximum bytes read of an unwanted body, and the time-out for reading them. A client that sends more finds the
/// connection reset, possibly before it has read the refusal.
const DRAIN_BYTES_MAX: usize = 4 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Service that answers WebHDFS requests. It must limit its own use of memory and time. The number of connections and
/// their idle time are limited for it.
pub trait Service: Send + Sync + 'static {
    fn answer(self: Arc<Self>, request: Request) -> Pin<Box<dyn Future<Output = Response> + Send>>;
}

/// A client's request. The service reads the body or ignores it; an unread rest ends the connection.
#[derive(Debug)]
pub struct Request {
    pub method: Method,
    /// Absolute, decoded path of the file or directory.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Body,
    pub peer: IpAddr,
    /// Tracker of long work. A connection without traffic is closed unless the work runs within [`InFlight::track`].
    pub work: InFlight,
    pub parameters: Parameters,
}

impl Request {
    /// Parses a request.
    ///
    /// Errors: an [`Exception`] to answer with, if the URL is too long or badly encoded.
    pub fn parse(request: axum::extract::Request, peer: IpAddr) -> Result<Self, Exception> {
        let (head, body) = request.into_parts();
        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or(""));
        if path.len() + query.len() > URI_BYTES_MAX {
            return Err(Exception::illegal_argument(format!("the URL is longer than {URI_BYTES_MAX} bytes")));
        }
        let path = path.strip_prefix(PREFIX).unwrap_or(path);
        let path =
            decode(path, false).ok_or_else(|| Exception::illegal_argument("the path is not encoded as UTF-8"))?;
        let mut parameters = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let malformed = || Exception::illegal_argument(format!("{part} is not encoded as UTF-8"));
            let (name, value) = (decode(name, true).ok_or_else(malformed)?, decode(value, true).ok_or_else(malformed)?);
            parameters.push((name, value));
        }
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let parameters = Parameters::new(parameters);
        let work = head.extensions.get::<InFlight>().cloned().unwrap_or_default();
        Ok(Self { method: head.method, path, headers: head.headers, body, peer, work, parameters })
    }
}

/// Exception in the answer to a refused request. Java's clients throw it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{class}: {message}")]
pub struct Exception {
    /// Java's class name, with its package.
    pub class: String,
    pub message: String,
}

impl Exception {
    pub fn new(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self { class: class.into(), message: message.into() }
    }

    pub fn illegal_argument(message: impl Into<String>) -> Self {
        Self::new("java.lang.IllegalArgumentException", message)
    }

    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new("java.lang.UnsupportedOperationException", message)
    }

    pub fn io(message: impl Into<String>) -> Self {
        Self::new("java.io.IOException", message)
    }

    /// Returns the class name without its package.
    pub fn simple_name(&self) -> &str {
        self.class.rsplit(['.', '$']).next().unwrap_or(&self.class)
    }

    /// Returns the HTTP status for this class. Source: `ExceptionHandler.toResponse`.
    pub fn status(&self) -> StatusCode {
        match self.simple_name() {
            "SecurityException" => StatusCode::FORBIDDEN,
            "FileNotFoundException" => StatusCode::NOT_FOUND,
            "IllegalArgumentException" | "UnsupportedOperationException" => StatusCode::BAD_REQUEST,
            // These extend IllegalArgumentException.
            "HadoopIllegalArgumentException" | "InvalidPathException" | "NumberFormatException" => {
                StatusCode::BAD_REQUEST
            }
            _ if self.is_io() => StatusCode::FORBIDDEN,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns true if the class extends `IOException`. All exceptions of Hadoop's servers do, except those from other
    /// packages of Java.
    fn is_io(&self) -> bool {
        !self.class.starts_with("java.") || self.class.starts_with("java.io.") || self.class.starts_with("java.net.")
    }
}

impl IntoResponse for Exception {
    fn into_response(self) -> Response {
        let refusal = serde_json::json!({ "RemoteException": {
            "exception": self.simple_name(),
            "javaClassName": self.class,
            "message": self.message,
        }});
        json(self.status(), &refusal)
    }
}

/// Returns an answer in JSON.
pub fn json(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Returns an answer in JSON whose length is not known beforehand. `tell` produces the text, which is streamed to the
/// client. If `tell` fails, the connection ends.
pub fn stream_json<A>(tell: impl FnOnce(TextSender) -> A) -> Response
where
    A: Future<Output = Result<(), Disconnected>> + Send + 'static,
{
    let (telling, listening) = TextSender::new(REQUEST_TIMEOUT);
    let made = tell(telling.clone());
    tokio::spawn(async move {
        if made.await.is_ok() {
            // A client that has disconnected needs no end marker.
            let _ = telling.end().await;
        }
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(body_stream(listening))).into_response()
}

/// Returns an answer without content. `location`: the path of a created file, or the target of a redirection.
pub fn empty(status: StatusCode, location: Option<&str>) -> Response {
    let mut response = bare(status, location);
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Like [`empty`], but without a content type.
pub fn bare(status: StatusCode, location: Option<&str>) -> Response {
    let mut response = status.into_response();
    // The caller has encoded the location, so it is valid; an invalid one is omitted.
    if let Some(location) = location.and_then(|location| HeaderValue::from_str(location).ok()) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Returns true if the client waits for `100 Continue` before it sends the body. Reading the body sends that. If the
/// request is refused first, the body never arrives.
pub fn waits_to_send(headers: &HeaderMap) -> bool {
    headers.contains_key(header::EXPECT)
}

/// Reads a limited part of an unwanted body. Closing a connection with unread data resets it, and a client that is
/// still writing might miss the answer.
pub async fn drain(body: &mut BodyDataStream) {
    let hearing = async {
        let mut left = DRAIN_BYTES_MAX;
        while let Some(Ok(bytes)) = body.next().await {
            match left.checked_sub(bytes.len()) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    // At a limit or at the end of the body: in both cases the answer is sent now.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, hearing).await;
}

/// Decodes `%XX` and, in parameters, `+`. Returns `None` for an invalid escape or text that is not UTF-8.
pub(crate) fn decode(text: &str, is_parameter: bool) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            b'+' if is_parameter => b' ',
            byte => byte,
        });
    }
    String::from_utf8(out).ok()
}

/// Encodes text for a path (`/` is kept) or a parameter.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            byte if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) => out.push(byte.into()),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Request, Exception> {
        let request = axum::extract::Request::builder().uri(url).body(Body::empty()).unwrap();
        Request::parse(request, [127, 0, 0, 1].into())
    }

    #[test]
    fn paths_and_parameters_are_decoded() {
        let request = parse("/webhdfs/v1/a%20b+c/%C3%BC?OP=open&Length=12&x=a+b%2B&x=2&empty=&gone=null").unwrap();
        assert_eq!(request.path, "/a b+c/ü");
        assert_eq!(request.parameters.text("op"), Some("open"));
        assert_eq!(request.parameters.long("length", 0), Ok(Some(12)));
        assert_eq!(request.parameters.all("x").collect::<Vec<_>>(), ["a b+", "2"]);
        assert_eq!((request.parameters.text("empty"), request.parameters.given("empty")), (None, Some("")));
        for root in ["/webhdfs/v1", "/webhdfs/v1/", "/webhdfs/v1?op=LISTSTATUS"] {
            assert_eq!(parse(root).unwrap().path, "/");
        }
        assert_eq!(encode("/a b+c/ü&?"), "/a%20b%2Bc/%C3%BC%26%3F");
    }

    #[test]
    fn invalid_urls_are_refused() {
        for url in ["/webhdfs/v1/a%zz", "/webhdfs/v1/a%2", "/webhdfs/v1/%ff", "/webhdfs/v1/?a=%e"] {
            assert_eq!(parse(url).unwrap_err().status(), StatusCode::BAD_REQUEST, "{url}");
        }
        assert!(parse(&format!("/webhdfs/v1/?a={}", "b".repeat(URI_BYTES_MAX))).is_err());
    }

    #[test]
    fn answers_without_content_have_a_location() {
        let sent_on = empty(StatusCode::TEMPORARY_REDIRECT, Some("http://dn1:1/webhdfs/v1/a"));
        assert_eq!(sent_on.headers()[header::LOCATION], "http://dn1:1/webhdfs/v1/a");
        assert_eq!(sent_on.headers()[header::CONTENT_TYPE], "application/octet-stream");
        let made = bare(StatusCode::CREATED, Some("hdfs://nn/a"));
        assert_eq!(made.status(), StatusCode::CREATED);
        assert_eq!(made.headers()[header::LOCATION], "hdfs://nn/a");
        assert!(!made.headers().contains_key(header::CONTENT_TYPE));
        // A location that is not valid in a header is omitted.
        assert!(!bare(StatusCode::CREATED, Some("hdfs://nn/a\r\nx: y")).headers().contains_key(header::LOCATION));
    }

    #[tokio::test]
    async fn unwanted_body_is_drained_within_limits() {
        use std::future::pending;
        use std::io;

        use axum::body::Bytes;
        use futures_util::stream::{iter, once, repeat};

        let piece = Bytes::from(vec![0; 64 << 10]);
        let mut endless = Body::from_stream(repeat(piece.clone()).map(io::Result::Ok)).into_data_stream();
        drain(&mut endless).await;
        let silent = iter([io::Result::Ok(piece)]).chain(once(pending()));
        drain(&mut Body::from_stream(silent).into_data_stream()).await;
        drain(&mut Body::empty().into_data_stream()).await;
    }

    #[test]
    fn refusals_have_the_status_of_their_class() {
        for (class, status) in [
            ("java.io.FileNotFoundException", 404),
            ("java.lang.IllegalArgumentException", 400),
            ("java.lang.SecurityException", 403),
            ("org.apache.hadoop.HadoopIllegalArgumentException", 400),
            ("org.apache.hadoop.fs.InvalidPathException", 400),
            ("java.lang.NumberFormatException", 400),
            ("java.io.IOException", 403),
            ("org.apache.hadoop.security.AccessControlException", 403),
            ("org.apache.hadoop.hdfs.server.namenode.SafeModeException", 403),
            ("java.lang.NullPointerException", 500),
        ] {
            assert_eq!(Exception::new(class, "").status().as_u16(), status, "{class}");
        }
    }
}
