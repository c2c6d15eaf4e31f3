//! One GET request to a server's web port. The answer is passed on as it arrives.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{HOST, HeaderMap};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum time to connect to a server, and to wait for its data.
#[derive(Clone, Copy, Debug)]
pub struct HttpTimeouts {
    pub connect: Duration,
    pub read: Duration,
}

/// Requests `target`, a path with its query, from `address` (`host:port`). `each` gets the answer's bytes, in order.
/// Returns the answer's headers.
///
/// Errors: name the address. A status other than 200 is an error, too.
pub async fn get(
    address: &str,
    target: &str,
    patience: HttpTimeouts,
    mut each: impl FnMut(&[u8]),
) -> anyhow::Result<HeaderMap> {
    let silent = |what: &str, patience: Duration| anyhow!("{address} {what} within {} s", patience.as_secs());
    let connected = timeout(patience.connect, TcpStream::connect(address)).await;
    let stream = connected
        .map_err(|_| silent("cannot be reached", patience.connect))?
        .with_context(|| format!("cannot connect to {address}"))?;
    let (mut sender, connection) = handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await?;
    // The task ends with the sender and the answer. Its errors show there.
    let connection = tokio::spawn(connection);
    let request = Request::get(target).header(HOST, address).body(Empty::new())?;
    let silent = || silent("says nothing", patience.read);
    let said = timeout(patience.read, sender.send_request(request)).await.map_err(|_| silent())?;
    let mut response = said.with_context(|| format!("cannot read the answer of {address}"))?;
    if response.status() != StatusCode::OK {
        bail!("{address} answers {}", response.status());
    }
    while let Some(frame) = timeout(patience.read, response.frame()).await.map_err(|_| silent())? {
        let frame = frame.with_context(|| format!("the answer of {address} is cut off"))?;
        if let Some(bytes) = frame.data_ref() {
            each(bytes);
        }
    }
    connection.abort();
    Ok(response.into_parts().0.headers)
}
