//! A GET over HTTP, enough for /jmx.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// More than any answer that tests ask for.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// The body of `http://127.0.0.1:PORT/PATH`; an error for any status but 200.
pub fn get_text(port: u16, path: &str) -> Result<String> {
    get_text_at(Ipv4Addr::LOCALHOST, port, path)
}

/// As [`get_text`], of a server elsewhere.
pub fn get_text_at(host: Ipv4Addr, port: u16, path: &str) -> Result<String> {
    let address = SocketAddr::from((host, port));
    let asked = || format!("GET http://{address}{path}");
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).with_context(asked)?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).with_context(asked)?;
    // HTTP/1.0, so that the body ends with the connection and is not chunked.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").with_context(asked)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).with_context(asked)?;
    let answer = String::from_utf8_lossy(&answer);
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { bail!("{}: no HTTP answer", asked()) };
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        bail!("{}: {status}", asked());
    }
    Ok(body.to_owned())
}

/// One bean of a Hadoop daemon's /jmx, e.g. `Hadoop:service=NameNode,name=FSNamesystemState`.
pub fn jmx_bean(port: u16, name: &str) -> Result<serde_json::Value> {
    let text = get_text(port, &format!("/jmx?qry={name}"))?;
    let mut answer: serde_json::Value = serde_json::from_str(&text).with_context(|| format!("/jmx of port {port}"))?;
    match answer["beans"].get_mut(0) {
        Some(bean) => Ok(bean.take()),
        None => bail!("/jmx of port {port} has no bean {name}"),
    }
}
