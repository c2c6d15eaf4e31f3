//! Requests and responses over HTTP/1.1, each on a connection of its own.

use std::time::Duration;

use bytes::Bytes;
use hearth_config::HostPort;
use http_body_util::channel::{Channel, Sender};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, LOCATION};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::Error;
use crate::error::Failure;
use crate::namenode::Exception;

/// Maximum bytes of a JSON response. A page of a listing has a thousand entries.
const JSON_BYTES_MAX: usize = 64 << 20;

/// Maximum number of pieces of a request body that wait to be sent.
const PIECES_MAX: usize = 4;

/// Characters that are not percent-encoded, in a path and in a value.
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const UNRESERVED_IN_PATH: AsciiSet = UNRESERVED.remove(b'/');

/// Returns a WebHDFS URL.
pub fn url(at: &HostPort, path: &str, query: &[(&str, &str)]) -> String {
    let value = |text: &str| utf8_percent_encode(text, &UNRESERVED).to_string();
    let query: Vec<String> = query.iter().map(|(name, text)| format!("{name}={}", value(text))).collect();
    format!("http://{at}/webhdfs/v1{}?{}", utf8_percent_encode(path, &UNRESERVED_IN_PATH), query.join("&"))
}

/// Body of a request.
pub struct RequestBody(BoxBody<Bytes, std::io::Error>);

impl RequestBody {
    pub fn empty() -> Self {
        Self(Empty::new().map_err(|never| match never {}).boxed())
    }

    /// Creates a body that is sent piece by piece.
    pub fn pieces() -> (Sender<Bytes, std::io::Error>, Self) {
        let (sender, body) = Channel::new(PIECES_MAX);
        (sender, Self(body.boxed()))
    }
}

/// Opener of connections, with their time-outs.
#[derive(Clone, Debug)]
pub struct Connector {
    pub connect: Duration,
    /// Time-out for a response, and for the next bytes of one.
    pub wait: Duration,
}

/// A successful or redirecting response.
#[derive(Debug)]
pub struct HttpResponse {
    /// Target of a redirection.
    pub redirect: Option<String>,
    response: Response<Incoming>,
    address: String,
    wait: Duration,
}

impl Connector {
    /// Sends a request and returns the head of the response.
    ///
    /// Errors: `Refused` with the server's exception, or `Web`.
    pub async fn send(
        &self,
        operation: &'static str,
        method: Method,
        url: &str,
        body: RequestBody,
    ) -> Result<HttpResponse, Error> {
        let failed =
            |sent: bool, why: String| Error::from(Failure::Web { operation, address: url.to_owned(), sent, why });
        let uri: Uri = url.parse().map_err(|error| failed(false, format!("{error}")))?;
        if uri.scheme_str() != Some("http") {
            return Err(failed(false, "only http:// is supported, not HTTPS".to_owned()));
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(80);
        let address = format!("{host}:{port}");
        let failed =
            |sent: bool, why: String| Error::from(Failure::Web { operation, address: address.clone(), sent, why });
        let connected = tokio::time::timeout(self.connect, TcpStream::connect((host.as_str(), port))).await;
        let stream = connected.map_err(|_| failed(false, format!("no connection within {:?}", self.connect)))?;
        let stream = stream.map_err(|error| failed(false, error.to_string()))?;
        let _ = stream.set_nodelay(true);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(false, error.to_string()))?;
        tokio::spawn(connection);
        let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        let request = Request::builder().method(method).uri(target).header(HOST, address.clone());
        let request = request.header(CONTENT_TYPE, "application/octet-stream").body(body.0);
        let request = request.map_err(|error| failed(false, error.to_string()))?;
        let response = sender.send_request(request).await.map_err(|error| failed(true, error.to_string()))?;
        let answer = HttpResponse { redirect: None, response, address, wait: self.wait };
        match answer.response.status() {
            status if status.is_success() => Ok(answer),
            StatusCode::TEMPORARY_REDIRECT | StatusCode::FOUND => {
                let to = answer.response.headers().get(LOCATION).and_then(|to| to.to_str().ok()).map(str::to_owned);
                let none = || Failure::Answer { method: operation, why: "a redirection without a target".to_owned() };
                Ok(HttpResponse { redirect: Some(to.ok_or_else(none)?), ..answer })
            }
            status => Err(answer.refusal(operation, status).await),
        }
    }

    /// Like `send`, but limits the wait for the response.
    pub async fn send_within(
        &self,
        operation: &'static str,
        method: Method,
        url: &str,
        body: RequestBody,
    ) -> Result<HttpResponse, Error> {
        match tokio::time::timeout(self.connect + self.wait, self.send(operation, method, url, body)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let why = format!("no answer within {:?}", self.connect + self.wait);
                Err(Failure::Web { operation, address: url.to_owned(), sent: true, why }.into())
            }
        }
    }
}

impl HttpResponse {
    /// Returns the next bytes, or `None` at the end.
    pub async fn bytes(&mut self, operation: &'static str) -> Result<Option<Bytes>, Error> {
        let failed =
            |why: String| Error::from(Failure::Web { operation, address: self.address.clone(), sent: true, why });
        loop {
            let frame = tokio::time::timeout(self.wait, self.response.body_mut().frame()).await;
            match frame.map_err(|_| failed(format!("received no data for {:?}", self.wait)))? {
                None => return Ok(None),
                Some(Err(error)) => return Err(failed(error.to_string())),
                // Trailers carry no information here.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Returns the whole body as JSON, or null if it is empty.
    pub async fn json(self, operation: &'static str) -> Result<Value, Error> {
        let failed =
            |why: String| Error::from(Failure::Web { operation, address: self.address.clone(), sent: true, why });
        let collected =
            tokio::time::timeout(self.wait, Limited::new(self.response.into_body(), JSON_BYTES_MAX).collect()).await;
        let body = collected.map_err(|_| failed(format!("no complete answer within {:?}", self.wait)))?;
        let body = body.map_err(|error| failed(error.to_string()))?.to_bytes();
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|error| failed(format!("the answer is not valid JSON: {error}")))
    }

    async fn refusal(self, operation: &'static str, status: StatusCode) -> Error {
        let address = self.address.clone();
        let answer = match self.json(operation).await {
            Ok(answer) => answer,
            Err(_) => Value::Null,
        };
        let text = |key: &str| answer["RemoteException"][key].as_str().map(str::to_owned);
        match (text("javaClassName").or_else(|| text("exception")), text("message")) {
            (Some(class), message) => {
                let message = message.unwrap_or_default().lines().next().unwrap_or_default().to_owned();
                Failure::Refused { exception: Exception::from_class(&class), class, message }.into()
            }
            _ => Failure::Web { operation, address, sent: true, why: format!("the server answered {status}") }.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_values_are_percent_encoded() {
        let at = HostPort::parse("h:9870", None).unwrap();
        let made = url(&at, "/a b/c%d+é?", &[("op", "OPEN"), ("user.name", "a&b=c")]);
        assert_eq!(made, "http://h:9870/webhdfs/v1/a%20b/c%25d%2B%C3%A9%3F?op=OPEN&user.name=a%26b%3Dc");
        assert!(made.parse::<Uri>().is_ok());
    }
}
