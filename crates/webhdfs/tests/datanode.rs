//! Tests of a DataNode's web port, used as by WebHDFS clients that the NameNode has redirected.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_client::{ErrorKind, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{Cluster, ClusterSpec, Content, Implementation, eventually, wait_until};
use hearth_types::FsPermission;

const BLOCK: usize = 1 << 20;
/// Length of a file of several blocks, the last one short.
const LENGTH: usize = 3 * BLOCK + 777;
const CONTENT: Content = Content { seed: 31 };

struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn read(stream: &mut TcpStream) -> Result<Self> {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").context("no head of an answer")?;
        let body = bytes.split_off(end + 4);
        Ok(Self { head: String::from_utf8(bytes)?.to_ascii_lowercase(), body })
    }

    fn status(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// Returns the name of the exception in the answer.
    fn exception(&self) -> Result<String> {
        let body: serde_json::Value = serde_json::from_slice(&self.body)?;
        Ok(body["RemoteException"]["exception"].as_str().context("no exception")?.to_owned())
    }
}

/// The web port of the only DataNode.
struct Web {
    port: u16,
    namenode: String,
    user: String,
}

impl Web {
    /// Sends the head of a request. `asked`: method, path, and operation with its parameters.
    fn begin(&self, asked: (&str, &str, &str), headers: &str) -> Result<TcpStream> {
        let (method, path, query) = asked;
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let (namenode, user) = (&self.namenode, &self.user);
        write!(
            stream,
            "{method} /webhdfs/v1{path}?op={query}&namenoderpcaddress={namenode}&user.name={user} HTTP/1.1\r\n\
             Host: x\r\nConnection: close\r\n{headers}\r\n"
        )?;
        Ok(stream)
    }

    fn ask(&self, method: &str, path: &str, query: &str, body: &[u8]) -> Result<Answer> {
        let headers = match method {
            "GET" => String::new(),
            _ => format!("Content-Length: {}\r\n", body.len()),
        };
        let mut stream = self.begin((method, path, query), &headers)?;
        stream.write_all(body)?;
        Answer::read(&mut stream)
    }
}

fn check_reads(web: &Web, path: &str, length: usize) -> Result<()> {
    // The whole file, a long part, short parts across a block boundary and at the end, and an empty part at the end.
    for (offset, wanted) in
        [(0, None), (5, Some(2 * BLOCK)), (BLOCK - 3, Some(7)), (length - 9, Some(100)), (length, None)]
    {
        let part = wanted.map(|length| format!("&length={length}")).unwrap_or_default();
        let answer = web.ask("GET", path, &format!("OPEN&offset={offset}{part}"), &[])?;
        let count = wanted.unwrap_or(usize::MAX).min(length - offset);
        ensure!(answer.status() == "200", "{}", answer.head);
        ensure!(answer.head.contains(&format!("content-length: {count}\r\n")), "{}", answer.head);
        ensure!(answer.head.contains("access-control-allow-origin: *"), "{}", answer.head);
        ensure!(answer.body == CONTENT.bytes(offset as u64, count), "{count} bytes at {offset} of {path} differ");
    }
    let beyond = web.ask("GET", path, &format!("OPEN&offset={}", length + 1), &[])?;
    ensure!((beyond.status(), &*beyond.exception()?) == ("403", "EOFException"), "{}", beyond.head);
    Ok(())
}

/// A creation with `Expect: 100-continue` gets the continuation, or a refusal before the body is sent.
fn check_continue(web: &Web) -> Result<()> {
    for (path, query, first) in
        [("/asked", "CREATE", "HTTP/1.1 100 "), ("/dir/file", "CREATE&overwrite=false", "HTTP/1.1 403 ")]
    {
        let mut stream = web.begin(("PUT", path, query), "Expect: 100-continue\r\nContent-Length: 5\r\n")?;
        let mut line = vec![0; first.len()];
        stream.read_exact(&mut line)?;
        ensure!(line == first.as_bytes(), "{path}: {}", String::from_utf8_lossy(&line));
        if first.contains("100") {
            stream.write_all(b"asked")?;
            let mut rest = String::new();
            stream.read_to_string(&mut rest)?;
            ensure!(rest.contains("HTTP/1.1 201 "), "{rest}");
        }
    }
    Ok(())
}

/// Two uploads to the same path: the second replaces the file of the first. The failure of the first must not end the
/// second, although the NameNode sees both as one client with one lease.
fn check_replaced(web: &Web) -> Result<()> {
    let bytes = CONTENT.bytes(0, LENGTH);
    let begun = BLOCK / 2;
    let length = format!("Content-Length: {LENGTH}\r\n");
    let mut first = web.begin(("PUT", "/replaced", "CREATE"), &length)?;
    first.write_all(&bytes[..begun])?;
    wait_until("the file", Duration::from_secs(60), || {
        Ok((web.ask("GET", "/replaced", "OPEN", &[])?.status() == "200").then_some(()))
    })?;
    let mut second = web.begin(("PUT", "/replaced", "CREATE&overwrite=true"), &length)?;
    second.write_all(&bytes[..begun])?;
    // Time for the other process to replace the file, which nothing shows.
    std::thread::sleep(Duration::from_millis(500));
    // The server may close the connection when it refuses the upload before the whole body has arrived.
    let is_made = first.write_all(&bytes[begun..]).is_ok()
        && Answer::read(&mut first).is_ok_and(|answer| answer.status() == "201");
    ensure!(!is_made, "the replaced file was acknowledged");
    // The clean-up of the first upload's file also takes time.
    std::thread::sleep(Duration::from_millis(500));
    second.write_all(&bytes[begun..])?;
    let made = Answer::read(&mut second)?;
    ensure!(made.status() == "201", "{} {}", made.head, String::from_utf8_lossy(&made.body));
    check_reads(web, "/replaced", LENGTH)
}

async fn is_closed(fs: &FileSystem, path: &str) -> Result<()> {
    eventually(&format!("the end of {path}"), async || match fs.is_file_closed(path).await {
        Ok(true) => Some(Ok(())),
        // Not created yet.
        Ok(false) => None,
        Err(error) if error.exception().is_some() || error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(Err(error.into())),
    })
    .await
}

async fn carry_out(cluster: &Cluster) -> Result<()> {
    let conf = Configuration::load_dir(cluster.conf(), Environment::empty())?;
    // The user that runs the daemons: a superuser.
    let user = hearth_client::os_user_name();
    let fs = FileSystem::connect(&conf, None, &user)?;
    let namenode = cluster.uri().strip_prefix("hdfs://").context("the URI of HDFS")?.to_owned();
    let web = Web { port: cluster.datanodes[0].port("dfs.datanode.http.address")?, namenode, user };

    let bytes = CONTENT.bytes(0, LENGTH);
    let made = web.ask("PUT", "/dir/file", "CREATE&permission=640&unmaskedpermission=666", &bytes)?;
    ensure!(made.status() == "201" && made.body.is_empty(), "{}", made.head);
    ensure!(made.head.contains(&format!("location: {}/dir/file\r\n", cluster.uri())), "{}", made.head);
    let status = fs.status("/dir/file").await?;
    ensure!(status.permission == FsPermission(0o640) && status.length == LENGTH as u64, "{status:?}");
    check_reads(&web, "/dir/file", LENGTH)?;
    let again = web.ask("PUT", "/dir/file", "CREATE&overwrite=false", &bytes)?;
    ensure!((again.status(), &*again.exception()?) == ("403", "FileAlreadyExistsException"), "{}", again.head);
    ensure!(!made.head.contains("\r\ncontent-type:"), "{}", made.head);
    check_continue(&web)?;
    check_replaced(&web)?;

    // In chunks, so that the total length need not be known.
    let more = CONTENT.bytes(LENGTH as u64, BLOCK);
    let mut stream = web.begin(("POST", "/dir/file", "APPEND"), "Transfer-Encoding: chunked\r\n")?;
    for chunk in more.chunks(100_000) {
        write!(stream, "{:x}\r\n", chunk.len())?;
        stream.write_all(chunk)?;
        stream.write_all(b"\r\n")?;
    }
    stream.write_all(b"0\r\n\r\n")?;
    let appended = Answer::read(&mut stream)?;
    ensure!(appended.status() == "200" && appended.body.is_empty(), "{}", appended.head);
    check_reads(&web, "/dir/file", LENGTH + BLOCK)?;

    let answer = web.ask("GET", "/dir/file", "GETFILECHECKSUM", &[])?;
    let answer: serde_json::Value = serde_json::from_slice(&answer.body)?;
    let checksum = &answer["FileChecksum"];
    let told =
        format!("{}:{}", checksum["algorithm"].as_str().unwrap_or("?"), checksum["bytes"].as_str().unwrap_or("?"));
    let known = fs.checksum("/dir/file", None).await?.to_string();
    // The rest of Java's buffer follows the checksum.
    ensure!(told.strip_prefix(&known) == Some("00000000") && checksum["length"] == 28, "{answer}, not {known}");

    let missing = web.ask("GET", "/none", "OPEN", &[])?;
    ensure!((missing.status(), &*missing.exception()?) == ("404", "FileNotFoundException"), "{}", missing.head);

    // A foreign NameNode is not read from, and not even connected to.
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0")?;
    elsewhere.set_nonblocking(true)?;
    let (port, user) = (web.port, web.user.clone());
    let other = Web { port, namenode: elsewhere.local_addr()?.to_string(), user };
    let refused = other.ask("GET", "/dir/file", "OPEN", &[])?;
    ensure!((refused.status(), &*refused.exception()?) == ("403", "AccessControlException"), "{}", refused.head);
    let connected = elsewhere.accept().map(drop).map_err(|error| error.kind());
    ensure!(connected == Err(std::io::ErrorKind::WouldBlock), "{connected:?}");
    // Under another name it is the same NameNode.
    let namenode = web.namenode.replace("127.0.0.1", "localhost");
    let named = Web { port: web.port, namenode, user: web.user.clone() };
    let read = named.ask("GET", "/dir/file", "OPEN", &[])?;
    ensure!(read.status() == "200", "{}", read.head);

    // Aborted half way: the file consists of the bytes received and is closed.
    let sent = BLOCK + 4321;
    let mut stream = web.begin(("PUT", "/broken", "CREATE"), &format!("Content-Length: {LENGTH}\r\n"))?;
    stream.write_all(&bytes[..sent])?;
    drop(stream);
    is_closed(&fs, "/broken").await?;
    let length = fs.status("/broken").await?.length as usize;
    ensure!(length <= sent, "{length} bytes of {sent}");
    let read = web.ask("GET", "/broken", "OPEN", &[])?;
    ensure!(read.status() == "200" && read.body == bytes[..length], "{}", read.head);
    let appended = web.ask("POST", "/broken", "APPEND", &bytes[length..])?;
    ensure!(appended.status() == "200", "{}", appended.head);
    check_reads(&web, "/broken", LENGTH)
}

#[test]
fn files_are_written_read_and_appended_over_http() {
    let cluster = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth).start().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(carry_out(&cluster)).unwrap_or_else(|error| panic!("{error:?}"));
}
