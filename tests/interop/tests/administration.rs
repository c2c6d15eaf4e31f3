//! Command lines of an administrator's day, by Apache's tools and by `hearth`, on the same servers: the same output,
//! error output and exit codes. `docs/compatibility/administration.md` has a row for each line.

#[path = "administration/lines.rs"]
mod lines;
#[path = "administration/table.rs"]
mod table;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hearth_interop::{Check, Session, Suite, program_said, run, tool_said};
use hearth_testkit::{
    ClusterSpec, Implementation, hearth_program, reconfigurable_rows, unread_reconfigurable_keys, wait_until,
};
use serde_json::{Value, json};

use lines::{DAY, LAST, Line, OWN_WORDS};

const CHECKS: &[Check] = &[
    ("day_of_an_administrator_matches_apaches", day),
    ("generic_options_work_everywhere", generic_options),
    ("unreachable_servers_are_named", unreachable),
    ("keys_that_change_are_documented", keys_that_change),
    ("metasave_files_match_apaches", metasave),
    ("datanodes_are_shut_down_as_by_apaches", shut_down),
    ("table_names_every_line", table::names_every_line),
];

/// Longest time for a copy to another DataNode, for deletions, and for the ends of DataNodes.
const SETTLES_WITHIN: Duration = Duration::from_secs(120);

/// Words of a date as Java prints it.
const DATE_WORDS: usize = 6;

fn main() -> ExitCode {
    let spec = |make: Implementation| {
        ClusterSpec::new(make, make).datanodes(2).set("dfs.replication", 1).set("dfs.blocksize", 1 << 20)
    };
    run(&[Suite {
        name: "administration",
        clusters: vec![spec(Implementation::Apache), spec(Implementation::Hearth)],
        checks: CHECKS,
    }])
}

/// The two programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tool {
    Apache,
    Hearth,
}

impl Tool {
    /// Word that replaces `NAME`: lines that change something have their own files and pools.
    fn name(self) -> &'static str {
        match self {
            Self::Apache => "onlyapaches",
            Self::Hearth => "onlyhearths",
        }
    }
}

/// Class of Apache's tool for a subcommand of `hdfs`.
fn class_of(subcommand: &str) -> Result<&'static str> {
    Ok(match subcommand {
        "dfs" => "org.apache.hadoop.fs.FsShell",
        "dfsadmin" => "org.apache.hadoop.hdfs.tools.DFSAdmin",
        "fsck" => "org.apache.hadoop.hdfs.tools.DFSck",
        "storagepolicies" => "org.apache.hadoop.hdfs.tools.StoragePolicyAdmin",
        "cacheadmin" => "org.apache.hadoop.hdfs.tools.CacheAdmin",
        "haadmin" => "org.apache.hadoop.hdfs.tools.DFSHAAdmin",
        "getconf" => "org.apache.hadoop.hdfs.tools.GetConf",
        "groups" => "org.apache.hadoop.hdfs.tools.GetGroups",
        "debug" => "org.apache.hadoop.hdfs.tools.DebugAdmin",
        "lsSnapshottableDir" => "org.apache.hadoop.hdfs.tools.snapshot.LsSnapshottableDir",
        "lsSnapshot" => "org.apache.hadoop.hdfs.tools.snapshot.LsSnapshot",
        "snapshotDiff" => "org.apache.hadoop.hdfs.tools.snapshot.SnapshotDiff",
        other => bail!("{other} is not a subcommand of hdfs"),
    })
}

/// Values of the placeholders in lines.
struct Places {
    local: String,
    namenode: String,
    datanode: String,
    /// Number of the last cache directive that each program added.
    directives: [String; 2],
}

impl Places {
    fn of(session: &Session, tool_datanode: usize) -> Result<Self> {
        let local = session.local("administration")?;
        Ok(Self {
            local: local.to_str().context("a path of text")?.to_owned(),
            namenode: format!("127.0.0.1:{}", session.cluster.namenode_rpc_port()),
            datanode: format!(
                "127.0.0.1:{}",
                session.cluster.datanodes[tool_datanode].port("dfs.datanode.ipc.address")?
            ),
            directives: ["0", "0"].map(str::to_owned),
        })
    }

    /// Returns the words of a line for one program.
    fn words(&self, line: &str, tool: Tool) -> Vec<String> {
        let replaced = |word: &str| {
            word.replace("NAME", tool.name())
                .replace("LOCAL", &self.local)
                .replace("NN:PORT", &self.namenode)
                .replace("DN:PORT", &self.datanode)
                .replace("DIRECTIVE", &self.directives[tool as usize])
        };
        line.split(' ').map(replaced).collect()
    }

    /// Returns an answer with the names of one program replaced, and its exit code as the shell shows it.
    fn masked(&self, answer: &Value, line: &Line, tool: Tool) -> Result<Value> {
        let code = answer[0].as_i64().context("an exit code")? & 255;
        let out: Vec<&str> = answer[1].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let text = |text: &str| {
            let mut text = text.replace(tool.name(), "NAME");
            if line.shows_both {
                text = text.replace(Tool::Apache.name(), "NAME").replace(Tool::Hearth.name(), "NAME");
            }
            if line.has_numbers { without_numbers(&text) } else { text }
        };
        let mut out: Vec<String> = out.iter().map(|line| text(line)).collect();
        if line.is_unsorted {
            out.sort();
        }
        // Apache's server ends its messages with a stack trace. Where Java puts a full stop behind it, the stop is in a
        // line that is left out.
        let err = text(answer[2].as_str().unwrap_or_default()).trim_end_matches('.').to_owned();
        Ok(json!([code, out, err]))
    }
}

/// Replaces runs of digits and points.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        let is_number = c.is_ascii_digit() || (c == '.' && out.ends_with('#'));
        if !is_number {
            out.push(c);
        } else if !out.ends_with('#') {
            out.push('#');
        }
    }
    out
}

/// Runs `hearth ARGUMENTS`.
fn hearth(conf: &Path, arguments: &[String]) -> Result<Output> {
    let mut command = Command::new(hearth_program()?);
    command.args(arguments).env("HADOOP_CONF_DIR", conf).output().context("hearth")
}

/// Runs a line with one program.
fn said(session: &mut Session, places: &Places, line: &Line, tool: Tool) -> Result<Value> {
    let words = places.words(line.text, tool);
    match tool {
        Tool::Apache => {
            let class = class_of(&words[0])?;
            tool_said(session.java()?, class, &words[1..], &places.local)
        }
        Tool::Hearth => {
            let output = hearth(session.cluster.conf(), &words)?;
            Ok(program_said(&output, &places.local))
        }
    }
}

/// Compares both programs on each line.
fn said_alike(session: &mut Session, places: &mut Places, lines: &[Line]) -> Result<()> {
    let mut differing = Vec::new();
    for line in lines {
        let mut answers = Vec::new();
        for tool in [Tool::Apache, Tool::Hearth] {
            let answer = match said(session, places, line, tool) {
                Ok(answer) => answer,
                Err(error) => {
                    differing.push(format!("{}\n  {tool:?} fails: {error:#}", line.text));
                    break;
                }
            };
            if let Some(id) = answer[1][0].as_str().and_then(|line| line.strip_prefix("Added cache directive ")) {
                places.directives[tool as usize] = id.to_owned();
            }
            answers.push(places.masked(&answer, line, tool)?);
        }
        if answers.len() < 2 {
            continue;
        }
        table::note(line, session.is_oracle(), &answers[1]);
        let expected = match OWN_WORDS.iter().find(|(text, _)| *text == line.text) {
            // The exit code is Apache's even where the words are not.
            Some(_) => answers.iter().map(|answer| json!(answer[0])).collect(),
            None => answers,
        };
        if expected[0] != expected[1] {
            differing.push(format!("{}\n  Apache: {}\n  Hearth: {}", line.text, expected[0], expected[1]));
        }
    }
    ensure!(differing.is_empty(), "{} of {} lines differ:\n{}", differing.len(), lines.len(), differing.join("\n"));
    Ok(())
}

fn day(session: &mut Session) -> Result<()> {
    let mut places = Places::of(session, 0)?;
    let local = Path::new(&places.local).to_owned();
    std::fs::write(local.join("large"), (0..2_600_000_u32).map(|at| (at >> 6) as u8).collect::<Vec<_>>())?;
    std::fs::write(local.join("small"), "bytes")?;
    let java = session.java()?;
    // A file that stays open.
    java.call("create", json!({"path": "/open/file", "handle": "open"}))?;
    said_alike(session, &mut places, DAY)
}

/// Options that Apache's scripts and `GenericOptionsParser` understand, before and behind the subcommand. They need no
/// oracle: the line without them is compared elsewhere.
fn generic_options(session: &mut Session) -> Result<()> {
    let conf = session.cluster.conf().display().to_string();
    let uri = session.cluster.uri().to_owned();
    let empty = session.local("empty-conf")?;
    let safe = |options: &str, environment: &Path| -> Result<()> {
        let words: Vec<String> =
            options.replace("CONF", &conf).replace("URI", &uri).split(' ').map(str::to_owned).collect();
        let output = hearth(environment, &words)?;
        let out = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success() && out.trim() == "Safe mode is OFF", "{options}: {output:?}");
        Ok(())
    };
    for options in [
        "--config CONF dfsadmin -safemode get",
        "dfsadmin --config CONF -safemode get",
        "admin --config CONF --loglevel ERROR -safemode get",
        "--loglevel WARN --config CONF dfsadmin -safemode get",
        "dfsadmin -fs URI -safemode get",
        "dfsadmin -D fs.defaultFS=URI -safemode get",
        "dfsadmin -Dfs.defaultFS=URI -safemode get",
        "dfsadmin -conf CONF/core-site.xml -safemode get",
    ] {
        safe(options, &empty)?;
    }
    for words in [
        "--config CONF dfs -ls /",
        "dfs --config CONF -ls /",
        "fsck --config CONF /open -openforwrite",
        "getconf --config CONF -namenodes",
        "groups --config CONF nobody",
        "storagepolicies --config CONF -listPolicies",
        "cacheadmin --config CONF -listPools",
        "lsSnapshottableDir --config CONF",
        "debug --config CONF help",
    ] {
        let arguments: Vec<String> = words.replace("CONF", &conf).split(' ').map(str::to_owned).collect();
        let output = hearth(&empty, &arguments)?;
        ensure!(output.status.success(), "{words}: {output:?}");
    }
    // More messages on standard error, the same output.
    let debug = hearth(Path::new(&conf), &["--loglevel", "DEBUG", "groups", "nobody"].map(str::to_owned))?;
    ensure!(debug.status.success(), "{debug:?}");
    let refused = hearth(Path::new(&conf), &["--loglevel", "LOUD", "groups"].map(str::to_owned))?;
    ensure!(!refused.status.success(), "{refused:?}");
    Ok(())
}

/// A server that does not answer is named in the error, and the exit code is Apache's.
fn unreachable(session: &mut Session) -> Result<()> {
    let conf = session.cluster.conf().to_owned();
    for (words, code) in [
        ("dfsadmin -getDatanodeInfo 127.0.0.1:1", 255),
        ("dfsadmin -evictWriters 127.0.0.1:1", 255),
        ("dfsadmin -getVolumeReport 127.0.0.1:1", 255),
        ("dfsadmin -triggerBlockReport 127.0.0.1:1", 1),
        ("dfsadmin -reconfig datanode 127.0.0.1:1 status", 1),
        ("dfsadmin -refresh 127.0.0.1:1 key", 255),
        ("dfsadmin -D ipc.client.connect.max.retries=0 -fs hdfs://127.0.0.1:1 -refreshNodes", 255),
    ] {
        let output = hearth(&conf, &words.split(' ').map(str::to_owned).collect::<Vec<_>>())?;
        let err = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(code) && err.contains("127.0.0.1:1"), "{words}: {output:?}");
    }
    Ok(())
}

/// Each server changes the keys of its column in the documentation.
fn keys_that_change(session: &mut Session) -> Result<()> {
    let conf = session.cluster.conf().to_owned();
    let places = Places::of(session, 0)?;
    for (server, line) in [
        ("NameNode", "dfsadmin -reconfig namenode NN:PORT properties"),
        ("DataNode", "dfsadmin -reconfig datanode DN:PORT properties"),
    ] {
        let output = hearth(&conf, &places.words(line, Tool::Hearth))?;
        ensure!(output.status.success(), "{line}: {output:?}");
        let text = String::from_utf8(output.stdout)?;
        // A key of Apache's has the port in it.
        let port = format!(".{}.", session.cluster.namenode_rpc_port());
        let listed: BTreeSet<String> = text.lines().skip(1).map(|key| key.replace(&port, ".PORT.")).collect();
        let rows = reconfigurable_rows(server)?.into_iter();
        let documented: BTreeSet<String> = if session.is_oracle() {
            let read = rows.filter(|row| row.apache).map(|row| row.key);
            read.chain(unread_reconfigurable_keys(server)?).collect()
        } else {
            rows.filter(|row| row.hearth).map(|row| row.key).collect()
        };
        let different: Vec<&String> = listed.symmetric_difference(&documented).collect();
        ensure!(different.is_empty(), "{server}: listed by either the server or the documentation: {different:?}");
    }
    Ok(())
}

/// The lines of the file that metasave writes have Apache's shape.
fn metasave(session: &mut Session) -> Result<()> {
    let conf = session.cluster.conf().to_owned();
    let local = session.local("metasave")?;
    std::fs::write(local.join("few"), "bytes")?;
    let line = |line: &str| -> Result<()> {
        let words: Vec<String> =
            line.replace("LOCAL", &local.display().to_string()).split(' ').map(Into::into).collect();
        let output = hearth(&conf, &words)?;
        ensure!(output.status.success(), "{line}: {output:?}");
        Ok(())
    };
    // Two DataNodes cannot keep three replicas.
    line("dfs -put LOCAL/few /few")?;
    line("dfs -setrep 3 /few")?;
    let names = session.cluster.namenode.setting("dfs.namenode.name.dir").context("it is set")?;
    let names = names.strip_prefix("file://").unwrap_or(names).to_owned();
    // Apache's NameNode of the tests has no log directory, and takes a path.
    let (name, file) = match session.is_oracle() {
        true => ("LOCAL/work.txt", local.join("work.txt")),
        false => ("work.txt", Path::new(&names).join("metasave/work.txt")),
    };
    let shapes = wait_until("the second replica, and the end of deletions", SETTLES_WITHIN, || {
        line(&format!("dfsadmin -metasave {name}"))?;
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let has = |start: &str, part: &str| text.lines().any(|line| line.starts_with(start) && line.contains(part));
        // The line of a DataNode ends with the work that its next heartbeat will fetch.
        let is_settled = has("/few: ", "live: 2 ")
            && has("Metasave: Blocks being reconstructed: 0", "")
            && has("Metasave: Blocks 0 waiting deletion", "")
            && !text.contains(" blocks to be ");
        Ok(is_settled.then(|| text.lines().map(metasave_shape).collect::<Vec<_>>()))
    })?;
    line("dfs -rm -skipTrash /few")?;
    session.same_as_oracle("metasave", json!(shapes))
}

/// Returns a line of metasave without its numbers. The line of a DataNode loses its date and its units too.
fn metasave_shape(line: &str) -> String {
    let shape = without_numbers(line);
    if !shape.starts_with("#:# IN ") {
        return shape;
    }
    let words: Vec<&str> = shape.split(' ').collect();
    let sizes = &words[..words.len().saturating_sub(DATE_WORDS)];
    let without_unit = |word: &&str| if word.ends_with("B)") { "UNIT)".to_owned() } else { (*word).to_owned() };
    sizes.iter().map(without_unit).collect::<Vec<_>>().join(" ")
}

/// Each program shuts down one DataNode.
fn shut_down(session: &mut Session) -> Result<()> {
    for line in LAST {
        let mut answers = Vec::new();
        for (tool, datanode) in [(Tool::Apache, 0), (Tool::Hearth, 1)] {
            let places = Places::of(session, datanode)?;
            let answer = said(session, &places, line, tool)?;
            answers.push(places.masked(&answer, line, tool)?);
        }
        table::note(line, session.is_oracle(), &answers[1]);
        ensure!(answers[0] == answers[1], "{}: Apache: {}, Hearth: {}", line.text, answers[0], answers[1]);
    }
    session.cluster.wait_live(0, SETTLES_WITHIN)
}
