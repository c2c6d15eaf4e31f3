//! Requests to WebHDFS and their answers, recorded as lines that are equal exactly if the answers are equivalent.
//!
//! A request is a line, `PUT /a/b?op=MKDIRS&permission=700`, sent as the superuser. A user's name before the method
//! selects another user, and `-` no user. The request must succeed. With `!` it must be refused, with `?` it may do
//! either, and with `!~` it must be refused with a message in the server's own words. In any case the result must be
//! that of the oracle.
//!
//! Not compared: times, ids, sizes of storages, host names (a port identifies the listener), the order of JSON fields
//! and of URL parameters, the encoding of URLs, charsets of JSON, and all lines of a message after the first (where
//! exceptions come by RPC, Java's stack trace follows).

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hearth_client::os_user_name;
use hearth_interop::Session;
use hearth_testkit::{Cluster, HttpAnswer, HttpBody, HttpRequest, sha256_hex, wait_until};
use serde_json::{Value, json};

const PREFIX: &str = "/webhdfs/v1";

/// Start of the message for an invalid parameter value. The reason follows in the server's own words.
const INVALID: &str = "Invalid value for webhdfs parameter \"";

/// Fields that differ between any two clusters.
const LEFT_OUT: &[&str] = &[
    // Ids.
    "blockId",
    "blockPoolId",
    "dirId",
    "fileId",
    "generationStamp",
    "snapshotID",
    "storageID",
    // Fields of DataNodes and their storages.
    "blockPoolUsed",
    "cacheCapacity",
    "cacheUsed",
    "capacity",
    "dfsUsed",
    "lastBlockReportMonotonic",
    "lastBlockReportTime",
    "lastUpdate",
    "lastUpdateMonotonic",
    "remaining",
    "used",
    "xceiverCount",
];

const TIMES: &[&str] = &["accessTime", "modificationTime"];
/// Times up to here (September 2001), in ms, were set by a test.
const SET_TIMES_MAX: u64 = 1_000_000_000_000;

const PORTS: &[&str] = &["infoPort", "infoSecurePort", "ipcPort", "xferPort"];

/// Host names before a port.
const HOSTS: [&str; 2] = ["127.0.0.1:", "localhost:"];

/// Required result of a request, independent of the oracle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    Refused,
    Either,
}

/// A request, parsed from its line.
struct Line<'a> {
    end: End,
    says_why: bool,
    method: &'a str,
    target: String,
}

struct Step {
    name: String,
    /// Number of earlier requests with the same name.
    again: usize,
    answer: Vec<String>,
}

pub struct Transcript {
    user: String,
    namenode: u16,
    namenode_rpc: u16,
    datanode: u16,
    datanode_data: u16,
    ports: Vec<(u16, &'static str)>,
    steps: Vec<Step>,
    /// Errors that need no comparison with the oracle.
    unexpected: Vec<String>,
}

impl Transcript {
    /// Runs the requests of `scenario` and compares every answer with the oracle's.
    pub fn compared(
        session: &mut Session,
        name: &str,
        scenario: impl FnOnce(&mut Transcript) -> Result<()>,
    ) -> Result<()> {
        let mut transcript = Self::of(&session.cluster)?;
        let outcome = scenario(&mut transcript);
        let Self { steps, unexpected: mut wrong, .. } = transcript;
        for step in &steps {
            let nth = if step.again == 0 { String::new() } else { format!(" ({})", step.again + 1) };
            let full_name = format!("{name}: {}{nth}", step.name);
            if let Err(error) = session.same_lines_as_oracle(&full_name, &step.answer) {
                wrong.push(format!("{error:#}"));
            }
        }
        if let Err(error) = outcome {
            wrong.push(format!("ended early: {error:#}"));
        }
        ensure!(wrong.is_empty(), "{} differences in {} answers:\n{}", wrong.len(), steps.len(), wrong.join("\n"));
        Ok(())
    }

    fn of(cluster: &Cluster) -> Result<Self> {
        let datanode = cluster.datanodes.first().context("a cluster with a DataNode")?;
        let data = datanode.port("dfs.datanode.address")?;
        let web = datanode.port("dfs.datanode.http.address")?;
        let ipc = datanode.port("dfs.datanode.ipc.address")?;
        let (namenode, namenode_rpc) = (cluster.namenode_http_port(), cluster.namenode_rpc_port());
        let ports = vec![
            (namenode, "<namenode's web port>"),
            (namenode_rpc, "<namenode's RPC port>"),
            (data, "<datanode's data port>"),
            (web, "<datanode's web port>"),
            (ipc, "<datanode's RPC port>"),
        ];
        Ok(Self {
            user: os_user_name(),
            namenode,
            namenode_rpc,
            datanode: web,
            datanode_data: data,
            ports,
            steps: Vec::new(),
            unexpected: Vec::new(),
        })
    }

    /// Sends a request to the NameNode, and follows no redirect.
    pub fn ask(&mut self, line: &str) -> Result<HttpAnswer> {
        let parsed = self.parse(line)?;
        let answer = send(self.namenode, &parsed, empty(parsed.method), false)?;
        self.put_down(line.to_owned(), &parsed, &answer, false, true);
        Ok(answer)
    }

    pub fn ask_all(&mut self, lines: &[&str]) -> Result<()> {
        lines.iter().try_for_each(|line| self.ask(line).map(drop))
    }

    /// Sends a request to the NameNode, then, with `body`, to the server in its redirect. The oracle also determines
    /// which of the two refuses.
    pub fn ask_both(&mut self, line: &str, body: HttpBody<'_>, expect_continue: bool) -> Result<HttpAnswer> {
        let parsed = self.parse(line)?;
        // With `Expect: 100-continue`, the body is announced to the NameNode, too, as curl does.
        let first = if expect_continue { body } else { empty(parsed.method) };
        let answer = send(self.namenode, &parsed, first, expect_continue)?;
        let location = location(&answer)?;
        self.put_down(line.to_owned(), &parsed, &answer, expect_continue, location.is_none());
        let Some((port, target)) = location else {
            if answer.status < 400 {
                self.unexpected.push(format!("{line}: {} without a redirect", answer.status));
            }
            return Ok(answer);
        };
        let second = HttpRequest { method: parsed.method, target: &target, body, expect_continue };
        let answer = second.send(port)?;
        self.put_down(format!("{line}, second step"), &parsed, &answer, expect_continue, true);
        Ok(answer)
    }

    /// Sends a request directly to the DataNode. `=NAMENODE` stands for the NameNode's RPC address.
    pub fn ask_datanode(&mut self, line: &str) -> Result<HttpAnswer> {
        let parsed = self.parse(line)?;
        let answer = send(self.datanode, &parsed, empty(parsed.method), false)?;
        self.put_down(format!("{line}, of the datanode"), &parsed, &answer, false, true);
        Ok(answer)
    }

    /// Requests a page of the NameNode that is not part of WebHDFS. `target`: the complete target.
    pub fn ask_outside(&mut self, method: &str, target: &str) -> Result<()> {
        let parsed = Line { end: End::Refused, says_why: false, method, target: target.to_owned() };
        let answer = send(self.namenode, &parsed, empty(method), false)?;
        self.put_down(format!("{method} {target}, outside"), &parsed, &answer, false, true);
        Ok(())
    }

    /// Creates a file, in two steps.
    pub fn create(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.ask_both(&format!("PUT {path}?op=CREATE"), HttpBody::Whole(content), false).map(drop)
    }

    /// Reads data in two steps, which must be `expected`. The line ends with `op=OPEN` and its parameters.
    pub fn read(&mut self, line: &str, expected: &[u8]) -> Result<()> {
        let answer = self.ask_both(line, HttpBody::Absent, false)?;
        if answer.body != expected {
            self.unexpected.push(format!("{line}: {} other bytes than the {}", answer.body.len(), expected.len()));
        }
        Ok(())
    }

    /// Waits until the recovery after a truncation is over. These requests are not recorded, because their number
    /// varies.
    pub fn wait_closed(&self, path: &str) -> Result<()> {
        let line = self.parse(&format!("GET {path}?op=GET_BLOCK_LOCATIONS"))?.target;
        wait_until(&format!("{path} to be closed"), Duration::from_secs(180), || {
            let request = HttpRequest { method: "GET", target: &line, body: HttpBody::Absent, expect_continue: false };
            let told: Value = serde_json::from_slice(&request.send(self.namenode)?.body)?;
            Ok((told["LocatedBlocks"]["isUnderConstruction"] == json!(false)).then_some(()))
        })
    }

    fn parse<'a>(&self, line: &'a str) -> Result<Line<'a>> {
        let marks = [("!~ ", End::Refused, false), ("! ", End::Refused, true), ("? ", End::Either, true)];
        let marked = marks.iter().find_map(|(mark, end, says_why)| Some((line.strip_prefix(*mark)?, *end, *says_why)));
        let (request, end, says_why) = marked.unwrap_or((line, End::Done, true));
        let words: Vec<&'a str> = request.split(' ').collect();
        let (user, method, url) = match words[..] {
            [method, url] => (self.user.as_str(), method, url),
            ["-", method, url] => ("", method, url),
            [user, method, url] => (user, method, url),
            _ => bail!("no request: {line:?}"),
        };
        let separator = if url.contains('?') { '&' } else { '?' };
        let by = if user.is_empty() { String::new() } else { format!("{separator}user.name={user}") };
        let target = format!("{PREFIX}{url}{by}")
            .replace("=NAMENODE", &format!("=127.0.0.1:{}", self.namenode_rpc))
            .replace("HTTP-PORT", &self.datanode.to_string())
            .replace("DATA-PORT", &self.datanode_data.to_string());
        Ok(Line { end, says_why, method, target })
    }

    /// Records an answer. `judged`: the line determines how this request must end.
    fn put_down(&mut self, name: String, line: &Line<'_>, answer: &HttpAnswer, asked_first: bool, judged: bool) {
        let is_refused = answer.status >= 400;
        let as_wanted = match line.end {
            End::Done => !is_refused,
            End::Refused => is_refused,
            End::Either => true,
        };
        if judged && !as_wanted {
            let body = String::from_utf8_lossy(&answer.body);
            let body: String = body.chars().take(300).collect();
            self.unexpected.push(format!("{name}: {} {body}", answer.status));
        }
        let mut told = self.told(line, answer);
        // A NameNode need not ask for the body, because it does not use it.
        if asked_first && answer.continued && name.contains("step") {
            told.push("the body was asked for".to_owned());
        }
        let again = self.steps.iter().filter(|step| step.name == name).count();
        self.steps.push(Step { name, again, answer: told });
    }

    fn told(&self, line: &Line<'_>, answer: &HttpAnswer) -> Vec<String> {
        let mut lines = vec![format!("status {}", answer.status)];
        let media = answer.header("content-type").and_then(|value| value.split(';').next());
        let media = media.unwrap_or("none").trim().to_ascii_lowercase();
        let is_json = media == "application/json";
        if answer.status >= 400 && !is_json {
            // Pages of the web servers themselves.
            lines.push("no exception".to_owned());
            return lines;
        }
        lines.push(format!("type {media}"));
        if !is_json {
            // For JSON the charset is optional.
            let charset =
                answer.header("content-type").and_then(|value| value.split_once(';')).map(|(_, rest)| rest.trim());
            lines.extend(charset.map(|charset| format!("with {}", charset.to_ascii_lowercase())));
        }
        if let Some(url) = answer.header("location") {
            let shown: String = url.chars().map(|letter| if letter.is_ascii() { letter } else { '\u{fffd}' }).collect();
            let made =
                decoded(&shown).chars().map(|letter| if letter.is_ascii() { letter } else { '\u{fffd}' }).collect();
            // In the location of a new file, Java's servers encode the name in Latin-1.
            let url = if answer.status == 201 { made } else { url.to_owned() };
            self.tell_url("location", &url, &mut lines);
        }
        if is_json {
            match serde_json::from_slice::<Value>(&answer.body) {
                Ok(value) => self.tell("", "", &value, line.says_why, &mut lines),
                Err(_) => lines.push(format!("no JSON: {:?}", String::from_utf8_lossy(&answer.body))),
            }
        } else if answer.body.is_empty() {
            lines.push("empty".to_owned());
        } else {
            let framing = match answer.header("content-length") {
                Some(length) => format!("length {length}"),
                None => "length unsaid".to_owned(),
            };
            lines.push(format!("{framing}, {} bytes, SHA-256 {}", answer.body.len(), sha256_hex(&answer.body)));
        }
        lines
    }

    /// Records a value. `path`: its path in the whole, `name`: the last field on that path.
    fn tell(&self, path: &str, name: &str, value: &Value, says_why: bool, lines: &mut Vec<String>) {
        let number = value.as_u64();
        let shown = match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (field, inner) in fields {
                    let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
                    self.tell(&path, field, inner, says_why, lines);
                }
                return;
            }
            Value::Array(items) if !items.is_empty() => {
                let mut items: Vec<&Value> = items.iter().collect();
                if name == "XAttrs" {
                    items.sort_by_key(|item| item["name"].to_string());
                }
                for (nth, item) in items.into_iter().enumerate() {
                    self.tell(&format!("{path}[{nth}]"), "", item, says_why, lines);
                }
                return;
            }
            Value::String(url) if name == "Location" => return self.tell_url(path, url, lines),
            Value::String(text) if name == "message" => match says_why {
                true => json!(self.message(text)),
                false => return,
            },
            // An array inside a text.
            Value::String(names) if name == "XAttrNames" => {
                let mut names: Vec<String> = serde_json::from_str(names).unwrap_or_else(|_| vec![names.clone()]);
                names.sort();
                json!(names)
            }
            _ if LEFT_OUT.contains(&name) => json!("left out"),
            _ if TIMES.contains(&name) && number.is_some_and(|time| time > SET_TIMES_MAX) => json!("a time"),
            _ if PORTS.contains(&name) && number.is_some_and(|port| port != 0) => {
                json!(self.listener(number.and_then(|port| u16::try_from(port).ok())))
            }
            Value::String(text) => json!(self.masked(text)),
            other => other.clone(),
        };
        lines.push(format!("{path} = {shown}"));
    }

    fn tell_url(&self, name: &str, url: &str, lines: &mut Vec<String>) {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        lines.push(format!("{name} {}", self.masked(&decoded(place))));
        let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
        lines.extend(parameters.map(|parameter| format!("{name} with {}", self.masked(&decoded(parameter)))));
    }

    fn message(&self, text: &str) -> String {
        let first = text.lines().next().unwrap_or_default();
        match first.strip_prefix(INVALID) {
            Some(rest) => format!("{INVALID}{}\"", rest.split('"').next().unwrap_or_default()),
            None => self.masked(first),
        }
    }

    /// Replaces `127.0.0.1:PORT` by the name of the listener.
    fn masked(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        let next = |rest: &str| HOSTS.iter().filter_map(|host| Some((rest.find(*host)?, *host))).min();
        while let Some((at, host)) = next(rest) {
            out.push_str(&rest[..at]);
            let behind = &rest[at + host.len()..];
            let after = behind.trim_start_matches(|c: char| c.is_ascii_digit());
            let port = &behind[..behind.len() - after.len()];
            out.push_str(if port.is_empty() { host } else { self.listener(port.parse().ok()) });
            rest = after;
        }
        out + rest
    }

    fn listener(&self, port: Option<u16>) -> &'static str {
        self.ports.iter().find(|(known, _)| Some(*known) == port).map_or("<another port>", |(_, listener)| *listener)
    }
}

/// Returns the body of a request without data.
fn empty(method: &str) -> HttpBody<'static> {
    if matches!(method, "PUT" | "POST") { HttpBody::Whole(&[]) } else { HttpBody::Absent }
}

fn send(port: u16, line: &Line<'_>, body: HttpBody<'_>, expect_continue: bool) -> Result<HttpAnswer> {
    HttpRequest { method: line.method, target: &line.target, body, expect_continue }.send(port)
}

/// Returns the port and the target of a redirect: in its header, or (`noredirect`) in its JSON.
fn location(answer: &HttpAnswer) -> Result<Option<(u16, String)>> {
    let url = match answer.status {
        307 => answer.header("location").map(str::to_owned),
        200 => {
            let told: Option<Value> = serde_json::from_slice(&answer.body).ok();
            told.and_then(|told| told["Location"].as_str().map(str::to_owned))
        }
        _ => None,
    };
    let Some(url) = url else { return Ok(None) };
    let parts = url.strip_prefix("http://").and_then(|rest| Some(rest.split_at(rest.find('/')?)));
    let (authority, target) = parts.with_context(|| format!("sent on to {url}"))?;
    let port = authority.rsplit(':').next().and_then(|port| port.parse().ok());
    Ok(Some((port.with_context(|| format!("sent on to {url}"))?, target.to_owned())))
}

/// Replaces `%XX` by the byte.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = if *first == b'%' { after.get(..2) } else { None };
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
