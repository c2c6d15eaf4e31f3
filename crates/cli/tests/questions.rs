//! The ten questions of `docs/operations.md`, asked of real servers in the state that each is about. The answers come
//! from the data of the pages that the table names, and from the commands.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_client::os_user_name;
use hearth_testkit::{
    Cluster, ClusterSpec, HttpBody, HttpRequest, Implementation, get_text, use_program, wait_until, workspace_root,
};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_hearth");
const LONG: Duration = Duration::from_secs(120);

/// Servers with two DataNodes, of which one has a failed directory and the other one dies.
struct Situation {
    cluster: Cluster,
    /// Index of the DataNode that dies: the one with the only replica of `/only`.
    dying: usize,
    /// A client that has `/open` open for writing.
    writer: Child,
}

impl Drop for Situation {
    fn drop(&mut self) {
        let _ = self.writer.kill();
        let _ = self.writer.wait();
    }
}

/// Asks one question. `Ok(None)`: the servers do not know the answer yet.
type Ask = fn(&Situation) -> Result<Option<()>>;

/// The questions before a DataNode dies, and those after that. The first words of each are those of the table.
const BEFORE: [(&str, Ask); 7] = [
    ("What fills the memory", what_fills_memory),
    ("Is the DataNode's memory pinned or evictable", pinned_or_evictable),
    ("Which client holds this file open", who_holds_it_open),
    ("Is the journal's disk slow", journal_is_slow),
    ("Which volume failed", failed_volume),
    ("Which user makes the most calls", busiest_user),
    ("Why is this read slow", why_is_it_slow),
];
const AFTER: [(&str, Ask); 3] = [
    ("Which node is dead, and since when", dead_node),
    ("Which file has no replica left", lost_file),
    ("How much is under-replicated, and how long will it take", under_replicated),
];

impl Situation {
    fn start() -> Result<Self> {
        use_program(PROGRAM.into());
        let mut cluster = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
            .datanodes(2)
            .set("dfs.datanode.failed.volumes.tolerated", 1)
            .set("hearth.memory.limit", "64m")
            .set("hearth.memory.flush.delay", 1)
            .start()?;
        let file = cluster.directory().join("file");
        std::fs::write(&file, vec![7; 300_000])?;
        let file = file.to_str().context("a path in UTF-8")?.to_owned();
        hearth_fs(&cluster, &["-put", &file, "/only"])?;
        hearth_fs(&cluster, &["-D", "dfs.replication=2", "-put", &file, "/both"])?;
        let dying = datanode_with(&cluster, "/only")?;
        // A path below a plain file cannot be a directory.
        let good = 1 - dying;
        let directory = cluster.datanodes[good].setting("dfs.datanode.data.dir").context("a directory")?.to_owned();
        let directories = format!("{directory},file://{file}/disk");
        cluster.datanodes[good].stop(LONG)?;
        cluster.datanodes[good].change(&[("dfs.datanode.data.dir", directories.as_str())])?;
        cluster.start_datanode(good)?;
        cluster.wait_ready()?;
        let mut command = Command::new(PROGRAM);
        command.args(["fs", "-put", "-", "/open"]).env("HADOOP_CONF_DIR", cluster.conf()).stdin(Stdio::piped());
        let mut writer = command.spawn().context("cannot start hearth")?;
        writer.stdin.as_mut().context("its input")?.write_all(b"not the end")?;
        Ok(Self { cluster, dying, writer })
    }

    /// Returns the data of a page of the NameNode, as a superuser sees it.
    fn namenode(&self, path: &str) -> Result<Value> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let target = format!("{path}{mark}user.name={}", os_user_name());
        Ok(serde_json::from_str(&get_text(self.cluster.namenode_http_port(), &target)?)?)
    }

    /// Returns the status of a DataNode, which its overview shows.
    fn status(&self, index: usize) -> Result<Value> {
        let port = self.cluster.datanodes[index].port("dfs.datanode.http.address")?;
        Ok(serde_json::from_str(&get_text(port, "/ui/status")?)?)
    }

    /// Returns the address of a DataNode's transfer port.
    fn address(&self, index: usize) -> Result<&str> {
        self.cluster.datanodes[index].setting("dfs.datanode.address").context("an address")
    }
}

fn hearth_fs(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(PROGRAM);
    command.arg("fs").args(arguments).env("HADOOP_CONF_DIR", cluster.conf()).stdin(Stdio::null());
    let output = command.output().context("cannot start hearth")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "hearth fs {arguments:?} ended with {}: {said}", output.status);
    Ok(said)
}

/// Returns the index of the DataNode that has the only replica of a file.
fn datanode_with(cluster: &Cluster, path: &str) -> Result<usize> {
    let target = format!("/webhdfs/v1{path}?op=GETFILEBLOCKLOCATIONS&user.name={}", os_user_name());
    let request = HttpRequest { method: "GET", target: &target, body: HttpBody::Absent, expect_continue: false };
    let answer = request.send(cluster.namenode_http_port())?;
    let text = String::from_utf8(answer.body)?;
    let has_it = |address: &str| text.contains(&format!("\"{address}\""));
    let found = cluster.datanodes.iter().position(|node| node.setting("dfs.datanode.address").is_some_and(has_it));
    found.with_context(|| format!("no DataNode in {text}"))
}

fn what_fills_memory(situation: &Situation) -> Result<Option<()>> {
    let status = situation.status(situation.dying)?;
    let memory = &status["memory"];
    let figure = |name: &str| memory[name].as_u64().with_context(|| format!("no {name} in {memory}"));
    ensure!(figure("limit")? == 64 << 20, "{memory}");
    // Both files have a replica there.
    Ok((figure("used")? >= 600_000 && figure("replicas")? >= 2).then_some(()))
}

fn pinned_or_evictable(situation: &Situation) -> Result<Option<()>> {
    let status = situation.status(situation.dying)?;
    let memory = &status["memory"];
    ensure!(memory["pinnedBytes"].is_u64() && memory["dirtyBytes"].is_u64(), "{memory}");
    // The flusher writes both files to disk within a second. No reader holds them.
    Ok((memory["evictableBytes"].as_u64() >= Some(600_000)).then_some(()))
}

fn who_holds_it_open(situation: &Situation) -> Result<Option<()>> {
    let open = situation.namenode("/ui/open-files")?;
    let files = open["files"].as_array().context("files")?;
    let is_it = |file: &&Value| file["path"].as_str().is_some_and(|path| path.starts_with("/open"));
    let Some(file) = files.iter().find(is_it) else { return Ok(None) };
    ensure!(file["machine"] == "127.0.0.1", "{file}");
    ensure!(file["holder"].as_str().is_some_and(|holder| !holder.is_empty()), "{file}");
    Ok(Some(()))
}

fn journal_is_slow(situation: &Situation) -> Result<Option<()>> {
    let metrics = get_text(situation.cluster.namenode_http_port(), "/metrics")?;
    let count = "hearth_namenode_journal_sync_time_seconds_count ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(count)).context("syncs are counted")?;
    ensure!(count.parse::<f64>()? > 0.0, "{count} syncs");
    // The chart has a value from the second sample on.
    let history = situation.namenode("/ui/history")?;
    let nanos = history["series"]["journalSyncNanos"].as_array().context("a series")?;
    Ok(nanos.iter().any(Value::is_number).then_some(()))
}

fn failed_volume(situation: &Situation) -> Result<Option<()>> {
    let good = 1 - situation.dying;
    let nodes = situation.namenode("/ui/datanodes?state=failed-volumes")?;
    let nodes = nodes["datanodes"].as_array().context("DataNodes")?;
    let Some(node) = nodes.first() else { return Ok(None) };
    ensure!(nodes.len() == 1 && node["address"] == situation.address(good)?, "{nodes:?}");
    // That node's page names the directory.
    let status = situation.status(good)?;
    let failed = status["failedVolumes"].as_array().context("directories")?;
    ensure!(failed.len() == 1 && failed[0].as_str().is_some_and(|name| name.ends_with("/file/disk")), "{failed:?}");
    Ok(Some(()))
}

fn busiest_user(situation: &Situation) -> Result<Option<()>> {
    let users = situation.namenode("/ui/users")?;
    let window = users["windows"].as_array().and_then(|windows| windows.last()).context("a window")?;
    let all = &window["ops"][0];
    ensure!(all["opType"] == "*", "{window}");
    ensure!(all["topUsers"][0]["user"] == os_user_name().as_str(), "{all}");
    Ok(Some(()))
}

fn why_is_it_slow(situation: &Situation) -> Result<Option<()>> {
    // The path, and whether the replica is in memory.
    let mut command = Command::new(PROGRAM);
    command.args(["fs", "-cat", "-v", "/only"]).env("HADOOP_CONF_DIR", situation.cluster.conf());
    let output = command.output().context("cannot start hearth")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.contains("packets 300000"), "{said}");
    let text = get_text(situation.cluster.namenode_http_port(), "/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo")?;
    let info: Value = serde_json::from_str(&text)?;
    let pool = info["beans"][0]["BlockPoolId"].as_str().context("a pool")?;
    let fsck = format!("/fsck?ugi={}&path=/only&files=1&blocks=1", os_user_name());
    let report = get_text(situation.cluster.namenode_http_port(), &fsck)?;
    let id = report.split("blk_").nth(1).and_then(|rest| rest.split('_').next()).context("a block")?;
    let port = situation.cluster.datanodes[situation.dying].port("dfs.datanode.http.address")?;
    let replicas: Value = serde_json::from_str(&get_text(port, &format!("/ui/replicas?pool={pool}&blocks={id}"))?)?;
    ensure!(replicas["replicas"][id]["inMemory"] == true, "{replicas}");
    Ok(Some(()))
}

fn dead_node(situation: &Situation) -> Result<Option<()>> {
    let nodes = situation.namenode("/ui/datanodes?state=dead")?;
    let nodes = nodes["datanodes"].as_array().context("DataNodes")?;
    let Some(node) = nodes.first() else { return Ok(None) };
    ensure!(nodes.len() == 1 && node["address"] == situation.address(situation.dying)?, "{nodes:?}");
    ensure!(node["lastContactSeconds"].as_u64().is_some_and(|seconds| seconds > 0), "{node}");
    Ok(Some(()))
}

fn lost_file(situation: &Situation) -> Result<Option<()>> {
    let problems = situation.namenode("/ui/problems")?;
    let lost = problems["missing"]["blocks"].as_array().context("blocks")?;
    Ok(lost.iter().any(|block| block["path"] == "/only" && block["live"] == 0).then_some(()))
}

fn under_replicated(situation: &Situation) -> Result<Option<()>> {
    let problems = situation.namenode("/ui/problems")?;
    let low = problems["lowRedundancy"]["blocks"].as_array().context("blocks")?;
    let Some(block) = low.iter().find(|block| block["path"] == "/both") else { return Ok(None) };
    ensure!(block["live"] == 1 && block["replication"] == 2, "{block}");
    // The page estimates the time from the chart.
    let history = situation.namenode("/ui/history")?;
    let counts = history["series"]["lowRedundancy"].as_array().context("a series")?;
    Ok(counts.last().is_some_and(|count| count.as_f64() >= Some(1.0)).then_some(()))
}

#[test]
fn every_question_of_the_guide_has_an_answer() {
    let guide = std::fs::read_to_string(workspace_root().join("docs/operations.md")).unwrap();
    let (_, section) = guide.split_once("### Ten questions\n").unwrap();
    let rows = section.split("\n###").next().unwrap().lines().filter(|line| line.starts_with("| ")).skip(1);
    let asked: Vec<&str> = rows.map(|row| row.split('|').nth(1).unwrap().trim()).collect();
    let mut known: Vec<&str> = BEFORE.iter().chain(&AFTER).map(|(question, _)| *question).collect();
    known.sort_unstable();
    let mut sorted = asked.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, known, "the table of docs/operations.md and this test differ");

    let mut situation = Situation::start().unwrap();
    for (question, ask) in BEFORE {
        wait_until(question, LONG, || ask(&situation)).unwrap();
    }
    let dying = situation.dying;
    situation.cluster.datanodes[dying].kill();
    for (question, ask) in AFTER {
        wait_until(question, LONG, || ask(&situation)).unwrap();
    }
}

/// One of four DataNodes stops for a moment again and again, while files are written.
#[test]
fn slow_datanode_is_named_by_the_others() {
    use_program(PROGRAM.into());
    let cluster = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .datanodes(4)
        .set("dfs.replication", 2)
        .set("hearth.memory.limit", "64m")
        .set("dfs.datanode.peer.stats.enabled", true)
        .set("dfs.datanode.outliers.report.interval", "1s")
        .set("dfs.datanode.min.outlier.detection.nodes", 3)
        .set("dfs.datanode.peer.metrics.min.outlier.detection.samples", 1)
        .start()
        .unwrap();
    // A write lasts longer than the slow DataNode runs between two pauses. So a pause delays packets of the write.
    let file = cluster.directory().join("file");
    std::fs::write(&file, vec![7; 8 << 20]).unwrap();
    let slow = &cluster.datanodes[3];
    let address = slow.setting("dfs.datanode.http.address").unwrap();
    let (conf, finished) = (cluster.conf().to_owned(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                if finished.load(Ordering::Relaxed) {
                    return;
                }
                let mut command = Command::new(PROGRAM);
                let target = format!("/file-{}", number % 4);
                command.args(["fs", "-put", "-f"]).arg(&file).arg(target).env("HADOOP_CONF_DIR", &conf);
                assert!(command.status().unwrap().success(), "file {number}");
            }
        });
        scope.spawn(|| {
            // The pace of the slow DataNode.
            let (paused, running) = (Duration::from_millis(300), Duration::from_millis(50));
            let process = slow.process().unwrap();
            while !finished.load(Ordering::Relaxed) {
                process.pause().unwrap();
                std::thread::sleep(paused);
                process.resume().unwrap();
                std::thread::sleep(running);
            }
        });
        let found = wait_until("the slow DataNode", LONG, || {
            let problems: Value = serde_json::from_str(&get_text(cluster.namenode_http_port(), "/ui/problems")?)?;
            let reported = problems["slow"]["datanodes"].as_array().context("DataNodes are measured")?;
            if !reported.iter().any(|node| node["SlowNode"] == address) {
                return Ok(None);
            }
            // While the others still report it: a report is valid for three seconds.
            let status = "/jmx?qry=Hadoop:service=NameNode,name=NameNodeStatus";
            let text = get_text(cluster.namenode_http_port(), status)?;
            ensure!(text.contains("SlowPeerLatencyWithReportingNodes") && text.contains(address), "{text}");
            Ok(Some(()))
        });
        finished.store(true, Ordering::Relaxed);
        found.unwrap();
    });
}
