//! Traces over client, NameNode and DataNodes, as an OpenTelemetry collector gets them. Run by `cargo xtask tracing`,
//! because it needs a build with the feature `opentelemetry`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hearth_testkit::{Cluster, ClusterSpec, Implementation, free_port, use_program, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hearth");
const LONG: Duration = Duration::from_secs(60);

/// A field of a protobuf message. Source: <https://protobuf.dev/programming-guides/encoding/>.
#[derive(Clone, Copy, Debug)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Decodes a message. The decoder of the test is its own, so that it does not repeat an error of the encoder.
fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, Field<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            1 => Field::Number(u64::from_le_bytes(take(&mut bytes, 8)?.try_into()?)),
            2 => {
                let length = varint(&mut bytes)?;
                Field::Bytes(take(&mut bytes, usize::try_from(length)?)?)
            }
            5 => Field::Number(u64::from(u32::from_le_bytes(take(&mut bytes, 4)?.try_into()?))),
            kind => bail!("unknown wire type {kind}"),
        };
        fields.push((key >> 3, field));
    }
    Ok(fields)
}

fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut number = 0;
    for place in 0..10 {
        let byte = take(bytes, 1)?[0];
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    bail!("a varint of more than ten bytes")
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count).context("the message is cut")?;
    *bytes = rest;
    Ok(taken)
}

/// Returns the messages of a repeated field, or the only one of an optional field.
fn messages<'a>(fields: &[(u64, Field<'a>)], number: u64) -> Vec<&'a [u8]> {
    let found = fields.iter().filter_map(move |(found, field)| match field {
        Field::Bytes(bytes) if *found == number => Some(*bytes),
        _ => None,
    });
    found.collect()
}

fn text(fields: &[(u64, Field<'_>)], number: u64) -> String {
    messages(fields, number).first().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}

fn number(fields: &[(u64, Field<'_>)], number: u64) -> u64 {
    let found = fields.iter().find_map(|(found, field)| match field {
        Field::Number(value) if *found == number => Some(*value),
        _ => None,
    });
    found.unwrap_or_default()
}

/// Decodes attributes (`KeyValue` with an `AnyValue`).
fn attributes(encoded: &[&[u8]]) -> Result<BTreeMap<String, String>> {
    let decoded = encoded.iter().map(|bytes| {
        let pair = fields(bytes)?;
        let value = fields(messages(&pair, 2).first().context("an attribute has a value")?)?;
        // string_value is 1, int_value is 3.
        let value = match value.first() {
            Some((1, Field::Bytes(text))) => String::from_utf8_lossy(text).into_owned(),
            Some((3, Field::Number(number))) => number.to_string(),
            other => bail!("unknown kind of value: {other:?}"),
        };
        Ok((text(&pair, 1), value))
    });
    decoded.collect()
}

/// A span, with the attributes of its process.
#[derive(Clone, Debug)]
struct Span {
    trace: Vec<u8>,
    id: Vec<u8>,
    /// Empty for a root.
    parent: Vec<u8>,
    name: String,
    /// 1 internal, 2 server, 3 client.
    kind: u64,
    start: u64,
    end: u64,
    attributes: BTreeMap<String, String>,
    service: String,
    process: String,
}

/// Decodes an `ExportTraceServiceRequest`.
fn spans(request: &[u8]) -> Result<Vec<Span>> {
    let mut spans = Vec::new();
    for of_resource in messages(&fields(request)?, 1) {
        let of_resource = fields(of_resource)?;
        let resource = fields(messages(&of_resource, 1).first().context("a resource")?)?;
        let resource = attributes(&messages(&resource, 1))?;
        let attribute = |name: &str| resource.get(name).cloned().with_context(|| format!("no {name}: {resource:?}"));
        for of_scope in messages(&of_resource, 2) {
            for span in messages(&fields(of_scope)?, 2) {
                let span = fields(span)?;
                let bytes = |number| messages(&span, number).first().map(|bytes| bytes.to_vec()).unwrap_or_default();
                spans.push(Span {
                    trace: bytes(1),
                    id: bytes(2),
                    parent: bytes(4),
                    name: text(&span, 5),
                    kind: number(&span, 6),
                    start: number(&span, 7),
                    end: number(&span, 8),
                    attributes: attributes(&messages(&span, 9))?,
                    service: attribute("service.name")?,
                    process: attribute("process.pid")?,
                });
            }
        }
    }
    Ok(spans)
}

/// An HTTP server that keeps the spans that it is sent, as an OpenTelemetry collector receives them.
struct Collector {
    port: u16,
    received: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = received.clone();
        // Ends with the test program.
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let kept = kept.clone();
                std::thread::spawn(move || match receive(connection) {
                    Ok(spans) => kept.lock().unwrap().extend(spans),
                    Err(error) => eprintln!("the collector: {error:#}"),
                });
            }
        });
        Ok(Self { port, received })
    }

    /// Returns all spans of the first trace whose root has this name.
    fn trace(&self, root: &str) -> Vec<Span> {
        let received = self.received.lock().unwrap();
        let Some(root) = received.iter().find(|span| span.parent.is_empty() && span.name == root) else {
            return Vec::new();
        };
        received.iter().filter(|span| span.trace == root.trace).cloned().collect()
    }
}

fn receive(mut connection: TcpStream) -> Result<Vec<Span>> {
    connection.set_read_timeout(Some(LONG))?;
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let (head, body) = loop {
        let count = connection.read(&mut piece)?;
        ensure!(count > 0, "the request is cut");
        bytes.extend_from_slice(&piece[..count]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec())?;
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length.context("a length")?.parse()?;
        if bytes.len() - end - 4 >= length {
            break (head, bytes.split_off(end + 4));
        }
    };
    ensure!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    ensure!(head.contains("\r\nContent-Type: application/x-protobuf\r\n"), "{head}");
    let spans = spans(&body)?;
    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
    Ok(spans)
}

/// A cluster of two DataNodes whose processes send every trace to `port`.
fn cluster(port: u16) -> Result<Cluster> {
    use_program(PROGRAM.into());
    ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .datanodes(2)
        .set("dfs.replication", 2)
        // Over memory on this machine, a reader needs no operation of a DataNode.
        .set("hearth.client.paths", "packets")
        .set("hearth.trace.otlp.endpoint", format!("http://127.0.0.1:{port}"))
        .set("hearth.trace.sample.ratio", "1")
        .start()
}

fn hearth_fs(cluster: &Cluster, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new(PROGRAM);
    command.arg("fs").args(arguments).env("HADOOP_CONF_DIR", cluster.conf()).stdin(Stdio::null());
    let output = command.output().context("cannot start hearth")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "hearth fs {arguments:?} ended with {}: {said}", output.status);
    Ok(output.stdout)
}

fn find<'a>(spans: &'a [Span], service: &str, name: &str) -> Result<&'a Span> {
    let found = spans.iter().find(|span| span.service == service && span.name == name);
    found.with_context(|| {
        let all: Vec<String> = spans.iter().map(|span| format!("{} {}", span.service, span.name)).collect();
        format!("no span {name} of {service} among {all:?}")
    })
}

/// Checks that each span but the root is a part of another one, and that times are sensible.
fn check_tree(spans: &[Span]) -> Result<()> {
    let ids: BTreeSet<&[u8]> = spans.iter().map(|span| span.id.as_slice()).collect();
    ensure!(ids.len() == spans.len(), "an id occurs twice");
    for span in spans {
        ensure!(span.trace.len() == 16 && span.id.len() == 8, "{span:?}");
        ensure!(span.parent.is_empty() || ids.contains(span.parent.as_slice()), "{} has no parent", span.name);
        ensure!(span.start > 1_600_000_000_000_000_000 && span.start <= span.end, "{span:?}");
    }
    ensure!(spans.iter().filter(|span| span.parent.is_empty()).count() == 1, "more than one root");
    Ok(())
}

/// Checks the spans of `hearth fs -put` of a file of three blocks.
fn check_write(spans: &[Span]) -> Result<()> {
    check_tree(spans)?;
    let root = find(spans, "hearth-client", "write")?;
    ensure!(root.attributes.get("hdfs.file").is_some_and(|file| file.starts_with("/file")), "{root:?}");
    for method in ["create", "addBlock", "complete"] {
        let name = format!("ClientProtocol/{method}");
        let (call, served) = (find(spans, "hearth-client", &name)?, find(spans, "hearth-namenode", &name)?);
        ensure!(served.parent == call.id && (call.kind, served.kind) == (3, 2), "{call:?}\n{served:?}");
    }
    let blocks = spans.iter().filter(|span| span.name == "write block").collect::<Vec<_>>();
    ensure!(blocks.len() == 3 && blocks.iter().all(|block| block.parent == root.id), "{blocks:?}");
    // The client asks the first DataNode, and that one the second.
    let of_pipeline = |span: &&Span| span.service == "hearth-datanode" && span.name.starts_with("DataTransfer/Write");
    let received: Vec<&Span> = spans.iter().filter(of_pipeline).collect();
    ensure!(received.len() == 6, "{received:?}");
    let set_ups: BTreeSet<&[u8]> =
        spans.iter().filter(|span| span.name == "set up pipeline").map(|span| span.id.as_slice()).collect();
    let (first, second): (Vec<&Span>, Vec<&Span>) =
        received.into_iter().partition(|span| set_ups.contains(span.parent.as_slice()));
    ensure!(first.len() == 3 && second.len() == 3, "{first:?}\n{second:?}");
    for span in second {
        let sender = first.iter().find(|first| first.id == span.parent).context("the first DataNode is the parent")?;
        ensure!(sender.process != span.process, "both are of process {}", span.process);
    }
    Ok(())
}

/// Checks the spans of `hearth fs -cat` of that file.
fn check_read(spans: &[Span]) -> Result<()> {
    check_tree(spans)?;
    let root = find(spans, "hearth-client", "read")?;
    let located = find(spans, "hearth-namenode", "ClientProtocol/getBlockLocations")?;
    let call = spans.iter().find(|span| span.id == located.parent).context("the client's call")?;
    ensure!(call.parent == root.id, "{call:?}");
    ensure!(located.attributes.contains_key("hearth.queue_ns"), "{located:?}");
    let blocks: Vec<&Span> = spans.iter().filter(|span| span.name == "read block").collect();
    ensure!(blocks.len() == 3, "{blocks:?}");
    for block in blocks {
        ensure!(block.attributes.get("hearth.path").is_some_and(|path| path == "packets"), "{block:?}");
        ensure!(block.attributes.contains_key("hdfs.datanode"), "{block:?}");
        let served = spans.iter().find(|span| span.parent == block.id && span.service == "hearth-datanode");
        ensure!(served.is_some_and(|served| served.name == "DataTransfer/ReadBlock"), "{served:?} of {block:?}");
    }
    Ok(())
}

#[test]
fn one_trace_has_spans_of_client_namenode_and_datanodes() {
    let collector = Collector::start().unwrap();
    let cluster = cluster(collector.port).unwrap();
    let file = cluster.directory().join("file");
    std::fs::write(&file, vec![7; 3 << 20]).unwrap();
    hearth_fs(&cluster, &["-put", file.to_str().unwrap(), "/file"]).unwrap();
    // Servers send their spans once a second.
    wait_until("the trace of the write", LONG, || check_write(&collector.trace("write")).map(Some)).unwrap();
    assert_eq!(hearth_fs(&cluster, &["-cat", "/file"]).unwrap().len(), 3 << 20);
    wait_until("the trace of the read", LONG, || check_read(&collector.trace("read")).map(Some)).unwrap();
}

#[test]
fn dead_collector_is_reported_once_and_delays_nothing() {
    let cluster = cluster(free_port()).unwrap();
    let file = cluster.directory().join("file");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    for number in 0..5 {
        let path = format!("/file-{number}");
        hearth_fs(&cluster, &["-put", file.to_str().unwrap(), &path]).unwrap();
        assert_eq!(hearth_fs(&cluster, &["-cat", &path]).unwrap().len(), 1 << 20);
    }
    let log = || cluster.namenode.process().context("the NameNode runs").map(hearth_testkit::Process::log_text);
    let warning = "cannot send traces";
    wait_until("the warning", LONG, || Ok(log()?.contains(warning).then_some(()))).unwrap();
    assert_eq!(log().unwrap().matches(warning).count(), 1);
}
