//! HTTP client of tests: a simple GET for /jmx, and single requests with every part under the caller's control, for
//! WebHDFS.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Maximum answer size, larger than any answer in the tests.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Maximum length of a line of an answer's head.
const LINE_BYTES_MAX: u64 = 64 << 10;
const HEADERS_MAX: usize = 100;
/// Timeout for a server that sends or receives nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// One request, on its own connection.
#[derive(Clone, Copy, Debug)]
pub struct HttpRequest<'a> {
    pub method: &'a str,
    /// Encoded path and query.
    pub target: &'a str,
    pub body: HttpBody<'a>,
    /// Send the body only after the server has asked for it (`Expect: 100-continue`).
    pub expect_continue: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum HttpBody<'a> {
    /// No body, and no header about its length.
    Absent,
    /// With `Content-Length`.
    Whole(&'a [u8]),
    /// In chunks of this size.
    Chunked(&'a [u8], usize),
}

#[derive(Clone, Debug)]
pub struct HttpAnswer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// `100 Continue` came before this answer.
    pub continued: bool,
}

impl HttpAnswer {
    /// Returns the first header of this name, which must be in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

impl HttpRequest<'_> {
    /// Sends the request to 127.0.0.1. Any status is a valid answer; a redirect is not followed.
    pub fn send(&self, port: u16) -> Result<HttpAnswer> {
        self.exchange(port).with_context(|| format!("{} http://127.0.0.1:{port}{}", self.method, self.target))
    }

    fn exchange(&self, port: u16) -> Result<HttpAnswer> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, SILENCE_MAX)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        stream.set_nodelay(true)?;
        let (mut reader, mut writer) = (BufReader::new(&stream), &stream);

        let framing = match self.body {
            HttpBody::Absent => String::new(),
            HttpBody::Whole(bytes) => format!("Content-Length: {}\r\n", bytes.len()),
            HttpBody::Chunked(..) => "Transfer-Encoding: chunked\r\n".to_owned(),
        };
        let expects = if self.expect_continue { "Expect: 100-continue\r\n" } else { "" };
        let (method, target) = (self.method, self.target);
        let head =
            format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{framing}{expects}\r\n");
        writer.write_all(head.as_bytes())?;

        let mut first = None;
        if self.expect_continue {
            first = Some(read_head(&mut reader)?);
        }
        if first.as_ref().is_none_or(|(status, _)| *status == 100) {
            // A server that refuses may close the connection before it has read everything. Its answer counts.
            let _ = self.body.write_to(&mut writer);
        }
        let mut continued = false;
        let (status, headers) = loop {
            let (status, headers) = match first.take() {
                Some(head) => head,
                None => read_head(&mut reader)?,
            };
            match status {
                100..=199 => continued |= status == 100,
                _ => break (status, headers),
            }
        };
        let body = if self.method == "HEAD" || status == 204 || status == 304 {
            Vec::new()
        } else {
            read_body(&mut reader, &headers)?
        };
        Ok(HttpAnswer { status, headers, body, continued })
    }
}

impl HttpBody<'_> {
    fn write_to(self, out: &mut impl Write) -> std::io::Result<()> {
        match self {
            Self::Absent => Ok(()),
            Self::Whole(bytes) => out.write_all(bytes),
            Self::Chunked(bytes, size) => {
                for chunk in bytes.chunks(size) {
                    write!(out, "{:x}\r\n", chunk.len())?;
                    out.write_all(chunk)?;
                    out.write_all(b"\r\n")?;
                }
                out.write_all(b"0\r\n\r\n")
            }
        }
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
}

/// Reads status and headers.
fn read_head(reader: &mut impl BufRead) -> Result<(u16, Vec<(String, String)>)> {
    let first = read_line(reader)?;
    let status: Option<u16> = first.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.with_context(|| format!("no HTTP answer: {first:?}"))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Ok((status, headers));
        }
        let (name, value) = line.split_once(':').with_context(|| format!("no header: {line:?}"))?;
        headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        ensure!(headers.len() <= HEADERS_MAX, "more than {HEADERS_MAX} headers");
    }
}

/// Reads the body, whose end is determined by the headers.
fn read_body(reader: &mut impl BufRead, headers: &[(String, String)]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    let mut more = |reader: &mut dyn Read, length: u64| -> Result<()> {
        ensure!(body.len() as u64 + length <= ANSWER_BYTES_MAX, "the answer is longer than {ANSWER_BYTES_MAX} bytes");
        let read = reader.take(length).read_to_end(&mut body)?;
        ensure!(read as u64 == length, "{read} of {length} bytes arrived");
        Ok(())
    };
    if header(headers, "transfer-encoding").is_some_and(|how| how.eq_ignore_ascii_case("chunked")) {
        loop {
            let line = read_line(reader)?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(size, 16).with_context(|| format!("invalid chunk length: {line:?}"))?;
            if size == 0 {
                break;
            }
            more(reader, size)?;
            ensure!(read_line(reader)?.is_empty(), "a chunk is longer than {size} bytes");
        }
        while !read_line(reader)?.is_empty() {}
    } else if let Some(length) = header(headers, "content-length") {
        more(reader, length.parse().with_context(|| format!("invalid length: {length:?}"))?)?;
    } else {
        reader.take(ANSWER_BYTES_MAX).read_to_end(&mut body)?;
    }
    Ok(body)
}

/// Reads a line without its line end.
fn read_line(reader: &mut impl BufRead) -> Result<String> {
    let mut line = Vec::new();
    reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    ensure!(line.ends_with(b"\n"), "the answer ends within {:?}", String::from_utf8_lossy(&line));
    Ok(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned())
}

/// Returns the body of `http://127.0.0.1:PORT/PATH`. Error for any status but 200.
pub fn get_text(port: u16, path: &str) -> Result<String> {
    get_text_at(Ipv4Addr::LOCALHOST, port, path)
}

/// Like [`get_text`], for a server on another host.
pub fn get_text_at(host: Ipv4Addr, port: u16, path: &str) -> Result<String> {
    let address = SocketAddr::from((host, port));
    let asked = || format!("GET http://{address}{path}");
    let mut stream = TcpStream::connect_timeout(&address, SILENCE_MAX).with_context(asked)?;
    stream.set_read_timeout(Some(SILENCE_MAX)).with_context(asked)?;
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

/// Returns one bean of a Hadoop daemon's /jmx, e.g. `Hadoop:service=NameNode,name=FSNamesystemState`.
pub fn jmx_bean(port: u16, name: &str) -> Result<serde_json::Value> {
    let text = get_text(port, &format!("/jmx?qry={name}"))?;
    let mut answer: serde_json::Value = serde_json::from_str(&text).with_context(|| format!("/jmx of port {port}"))?;
    match answer["beans"].get_mut(0) {
        Some(bean) => Ok(bean.take()),
        None => bail!("/jmx of port {port} has no bean {name}"),
    }
}

/// Returns the live DataNodes that a NameNode lists: the entry of each, by its name.
pub(crate) fn live_datanodes(port: u16) -> Result<BTreeMap<String, serde_json::Value>> {
    let info = jmx_bean(port, "Hadoop:service=NameNode,name=NameNodeInfo")?;
    Ok(serde_json::from_str(info["LiveNodes"].as_str().context("a text with the live nodes")?)?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use super::*;

    /// Server of one connection: when the received data ends with the first element of a pair, it sends the second. At
    /// its end it returns the received data.
    fn server(says: &'static [(&'static str, &'static str)]) -> (u16, JoinHandle<String>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = String::new();
            for (end, answer) in says {
                while !heard.ends_with(*end) {
                    let mut piece = [0; 512];
                    let length = stream.read(&mut piece).unwrap();
                    assert!(length > 0, "the client ends after {heard:?}");
                    heard.push_str(std::str::from_utf8(&piece[..length]).unwrap());
                }
                stream.write_all(answer.as_bytes()).unwrap();
            }
            heard
        });
        (port, heard)
    }

    #[test]
    fn body_waits_for_continue_and_chunks_are_joined() {
        let (port, heard) = server(&[
            ("\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n"),
            (
                "0\r\n\r\n",
                "HTTP/1.1 201 Created\r\nLocation: there\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n",
            ),
        ]);
        let request = HttpRequest {
            method: "PUT",
            target: "/x?op=CREATE",
            body: HttpBody::Chunked(b"12345", 4),
            expect_continue: true,
        };
        let answer = request.send(port).unwrap();
        assert_eq!((answer.status, answer.header("location"), answer.continued), (201, Some("there"), true));
        assert_eq!(answer.body, b"abcde");
        let heard = heard.join().unwrap();
        assert!(heard.starts_with("PUT /x?op=CREATE HTTP/1.1\r\n"), "{heard}");
        assert!(heard.ends_with("\r\n\r\n4\r\n1234\r\n1\r\n5\r\n0\r\n\r\n"), "{heard}");
    }

    #[test]
    fn unwanted_body_is_not_sent() {
        let (port, heard) = server(&[("\r\n\r\n", "HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 2\r\n\r\nhi")]);
        let request =
            HttpRequest { method: "PUT", target: "/", body: HttpBody::Whole(b"unwanted"), expect_continue: true };
        let answer = request.send(port).unwrap();
        assert_eq!((answer.status, answer.continued, answer.body.as_slice()), (307, false, b"hi".as_slice()));
        assert!(!heard.join().unwrap().contains("unwanted"));
    }

    #[test]
    fn truncated_answer_is_an_error() {
        let (port, heard) = server(&[("\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi")]);
        let request = HttpRequest { method: "GET", target: "/", body: HttpBody::Absent, expect_continue: false };
        let error = format!("{:#}", request.send(port).unwrap_err());
        assert!(error.contains("2 of 5 bytes arrived"), "{error}");
        heard.join().unwrap();
    }
}
