//! States that need an operator, as the pages show them. Each is made by the cluster's own processes and files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_client::os_user_name;
use hearth_interop::Session;
use hearth_testkit::{files_below, get_text, hearth_program, wait_until};
use serde_json::{Value, json};

use crate::devtools::Browser;
use crate::levels::{disabled, open_levels};
use crate::pages::audit;
use crate::{page, picture, webhdfs, with_browser};

pub const COMBINED_HOSTS: &str = "org.apache.hadoop.hdfs.server.blockmanagement.CombinedHostFileManager";
/// File of `dfs.hosts`. Empty at the start: it admits all DataNodes.
pub const HOSTS: &str = "hosts.json";
/// Timeout for a state of the servers. It takes seconds; this is for a busy machine.
const SETTLES_WITHIN: Duration = Duration::from_secs(120);
/// Bytes of a file: one block, too long for a slab.
const FILE_BYTES: usize = 1 << 20;

pub fn leaving_and_maintenance(session: &mut Session) -> Result<()> {
    const LEAVING: usize = 0;
    const RESTING: usize = 1;
    with_browser(session, |session, browser| {
        admit(session, &[(RESTING, "IN_MAINTENANCE")])?;
        wait_for_state(session, RESTING, "In Maintenance")?;
        // Its only replica goes to the other DataNode, which then cannot hand it on.
        put(session, "/states/leaving")?;
        admit(session, &[(RESTING, "IN_MAINTENANCE"), (LEAVING, "DECOMMISSIONED")])?;
        wait_for_state(session, LEAVING, "Decommission In Progress")?;
        for (part, index, state, name) in [
            ("decommissioning", LEAVING, "Decommission In Progress", "namenode-leaving"),
            ("maintenance", RESTING, "In Maintenance", "namenode-maintenance"),
        ] {
            let address = address(session, index)?.to_owned();
            browser.open(&page(session, &format!("#datanodes/{part}")))?;
            browser.wait(state, &row("1 DataNode", &[&address, state]))?;
            record(browser, name)?;
        }
        browser.open(&page(session, "#overview"))?;
        browser.wait_for_text("0 dead, 0 silent, 1 leaving, 1 in maintenance")?;
        record(browser, "namenode-leaving-overview")?;

        admit(session, &[])?;
        for index in [LEAVING, RESTING] {
            wait_for_state(session, index, "In Service")?;
        }
        browser.open(&page(session, "#datanodes/decommissioning"))?;
        browser.wait_for_text("No DataNode is in this state.")?;
        webhdfs(session, "DELETE", "/states/leaving", "DELETE")
    })
}

pub fn failed_volume(session: &mut Session) -> Result<()> {
    const FAILING: usize = 0;
    with_browser(session, |session, browser| {
        // A path below a plain file cannot be a directory.
        let plain = session.local("failed-volume")?.join("plain");
        std::fs::write(&plain, "no directory")?;
        let failing = plain.join("disk").display().to_string();
        let datanode = &session.cluster.datanodes[FAILING];
        let good = datanode.setting("dfs.datanode.data.dir").context("a directory")?.to_owned();
        restart(session, FAILING, &format!("{good},file://{failing}"), "1")?;
        wait_until("the failed volume to be reported", SETTLES_WITHIN, || {
            Ok((told(session, "/ui/datanodes?state=failed-volumes")?["total"] == 1).then_some(()))
        })?;

        let address = address(session, FAILING)?.to_owned();
        browser.open(&page(session, "#datanodes/failed-volumes"))?;
        browser.wait("the DataNode with a failed volume", &row("1 DataNode", &[&address]))?;
        let failed = "document.querySelector('td[data-label=\"Volumes\"]')?.innerText.includes('1 failed')";
        browser.wait("the number of failed volumes", failed)?;
        record(browser, "namenode-failed-volumes")?;
        browser.open(&page(session, "#overview"))?;
        browser.wait("their number in the overview", "/Failed volumes\\s+1\\b/.test(document.body.innerText)")?;

        let port = session.cluster.datanodes[FAILING].port("dfs.datanode.http.address")?;
        for (part, words, name) in [
            ("overview", "Failed storage directories: ", "datanode-failed-volume-overview"),
            ("volumes", "Failed: ", "datanode-failed-volume"),
        ] {
            browser.open(&format!("http://127.0.0.1:{port}/#{part}"))?;
            browser.wait_for_text(&format!("{words}{failing}"))?;
            record(browser, name)?;
        }
        // Its own page would ask it during the restart.
        browser.open(&page(session, "#overview"))?;
        restart(session, FAILING, &good, "0")
    })
}

/// Restarts a DataNode with these storage directories. `tolerated`: the number of them that may fail.
fn restart(session: &mut Session, index: usize, directories: &str, tolerated: &str) -> Result<()> {
    let datanode = &mut session.cluster.datanodes[index];
    datanode.stop(SETTLES_WITHIN)?;
    datanode.change(&[("dfs.datanode.data.dir", directories), ("dfs.datanode.failed.volumes.tolerated", tolerated)])?;
    session.cluster.start_datanode(index)?;
    session.cluster.wait_ready()
}

pub fn corrupt_block(session: &mut Session) -> Result<()> {
    const PATH: &str = "/states/corrupt";
    with_browser(session, |session, browser| {
        put(session, PATH)?;
        // A file can be renamed between its finding and its opening: the next search finds it again.
        let files: Vec<File> = wait_until("the replica to be on a disk", SETTLES_WITHIN, || {
            let (index, files) = replica(session, PATH)?;
            let data = session.cluster.datanodes[index].data_directory().context("a DataNode has a disk")?;
            let is_there = files.iter().any(|file| file.starts_with(&data) && is_finalized(file));
            let open = |file: &PathBuf| File::options().read(true).write(true).open(file);
            let opened = files.iter().map(open).collect::<std::io::Result<Vec<File>>>()?;
            Ok(is_there.then_some(opened))
        })?;
        // One byte, in memory and on disk.
        for file in &files {
            let mut byte = [0];
            file.read_exact_at(&mut byte, 100_000)?;
            file.write_all_at(&[byte[0] ^ 1], 100_000)?;
        }
        let mut is_read = false;
        wait_until("a reader to report the replica", SETTLES_WITHIN, || {
            let read = hearth(session, &["fs", "-D", "dfs.client.max.block.acquire.failures=0", "-cat", PATH])?;
            is_read |= read.status.success();
            Ok((is_read || told(session, "/ui/problems")?["corrupt"]["count"] == 1).then_some(()))
        })?;
        ensure!(!is_read, "wrong bytes were read");

        browser.open(&page(session, "#problems"))?;
        browser.wait("the corrupt block", &row("Blocks with corrupt replicas: 1", &[PATH, "blk_", "0 of 1"]))?;
        browser.wait("the block without a good replica", &row("Blocks without a replica: 1", &[PATH]))?;
        record(browser, "namenode-corrupt-block")?;
        browser.open(&page(session, "#overview"))?;
        browser.wait_for_text("1 block without a replica.")?;
        browser.wait_for_text("1 missing, 1 with corrupt replicas")?;

        webhdfs(session, "DELETE", PATH, "DELETE")?;
        browser.open(&page(session, "#problems"))?;
        browser.wait_for_text("Blocks with corrupt replicas: 0")
    })
}

/// The NameNode is restarted while the DataNode with the only replica of a file is stopped. Its port takes no changes.
pub fn start_without_a_datanode(session: &mut Session) -> Result<()> {
    const PATH: &str = "/states/only";
    with_browser(session, |session, browser| {
        put(session, PATH)?;
        let (holder, _) = replica(session, PATH)?;
        session.cluster.datanodes[holder].stop(SETTLES_WITHIN)?;
        session.cluster.namenode.stop(SETTLES_WITHIN)?;
        // Safe mode waits for every block.
        let changes = [("hearth.web.read-only", "true"), ("dfs.namenode.safemode.threshold-pct", "1.0")];
        session.cluster.namenode.change(&changes)?;
        session.cluster.start_namenode()?;
        wait_until("safe mode with the other DataNode", SETTLES_WITHIN, || {
            let now = told(session, "/ui/overview")?;
            Ok((now["safeMode"]["on"] == true && now["datanodes"]["live"] == 1).then_some(()))
        })?;

        browser.open(&page(session, "#overview"))?;
        browser.wait_for_text("Safe mode is on. The reported blocks ")?;
        browser.wait_for_text("to reach the threshold 1.0000 of total blocks")?;
        record(browser, "namenode-safe-mode")?;
        browser.open(&page(session, "#startup"))?;
        let waits = "(() => { const found = /awaiting reported blocks: (\\d+) of (\\d+)/.exec(document.body.innerText); \
                     return found !== null && Number(found[1]) < Number(found[2]); })()";
        browser.wait("the blocks that are not reported", waits)?;
        browser.wait("the phase that runs", &row("Phases", &["Safe mode", "running"]))?;
        record(browser, "namenode-startup")?;
        browser.open(&page(session, "#problems"))?;
        browser.wait_for_text("Blocks that DataNodes have not reported yet are listed here when it is off.")?;

        read_only(session, browser)?;

        let left = hearth(session, &["dfsadmin", "-safemode", "leave"])?;
        ensure!(left.status.success(), "{left:?}");
        browser.open(&page(session, "#problems"))?;
        browser.wait("the missing block", &row("Blocks without a replica: ", &[PATH, "blk_", "0 of 1"]))?;
        record(browser, "namenode-missing-block")?;
        browser.open(&page(session, "#overview"))?;
        browser.wait("the missing block", "/\\d+ blocks? without a replica\\./.test(document.body.innerText)")?;

        session.cluster.start_datanode(holder)?;
        session.cluster.wait_ready()?;
        wait_until("the block to be back", SETTLES_WITHIN, || {
            Ok((told(session, "/ui/problems")?["missing"]["count"] == 0).then_some(()))
        })?;
        browser.open(&page(session, "#problems"))?;
        browser.wait_for_text("Blocks without a replica: 0")
    })
}

/// The pages of a port that takes no changes.
fn read_only(session: &Session, browser: &mut Browser) -> Result<()> {
    const OFF: &str = "Changes are off, because hearth.web.read-only is true.";
    let user = format!("Acting as {} (superuser), read only", os_user_name());
    for (part, button, name) in [
        ("files", "New directory", "namenode-read-only-files"),
        ("snapshots", "Allow snapshots of a directory", "namenode-read-only-snapshots"),
        ("log", "Set level", "namenode-read-only-log"),
    ] {
        browser.open(&page(session, &format!("#{part}")))?;
        if part == "log" {
            open_levels(browser)?;
        }
        browser.wait_for_text(OFF)?;
        browser.wait_for_text(&user)?;
        ensure!(browser.value(&disabled(button))? == true, "{button} is not disabled");
        record(browser, name)?;
    }
    // A page that asks all the same is refused.
    for (method, target) in [
        ("PUT", "/webhdfs/v1/states/more?op=MKDIRS"),
        ("PUT", "/ui/log-level?module=hearth_web&level=DEBUG"),
        ("DELETE", "/ui/log-level"),
    ] {
        let mark = if target.contains('?') { '&' } else { '?' };
        let target = format!("{target}{mark}user.name={}", os_user_name());
        let ask = format!(
            "fetch({}, {{ method: '{method}' }}).then(async (answer) => `${{answer.status}} ${{await answer.text()}}`)",
            json!(target)
        );
        let answer = browser.value(&ask)?;
        let text = answer.as_str().unwrap_or_default();
        ensure!(text.starts_with("403 ") && text.contains("hearth.web.read-only"), "{method} {target}: {answer}");
    }
    Ok(())
}

/// Takes pictures of the page as it is shown, wide and narrow, and checks both.
fn record(browser: &mut Browser, name: &str) -> Result<()> {
    for (width, height, colours) in [(1280, 900, "light"), (360, 740, "dark")] {
        browser.show_as(width, height, colours)?;
        browser.take_picture(&picture(&format!("{name}-{width}-{colours}"))?)?;
        let wrong = audit(browser)?;
        ensure!(wrong.is_empty(), "{name} at {width}, {colours}: {}", wrong.join("\n"));
    }
    browser.show_as(1280, 900, "light")
}

/// Returns an expression: whether the table whose caption begins with `caption` has a row with all these texts.
fn row(caption: &str, texts: &[&str]) -> String {
    format!(
        "[...document.querySelectorAll('table')].some((table) => table.caption?.innerText.startsWith({}) && \
         [...table.rows].some((row) => {}.every((text) => row.innerText.includes(text))))",
        json!(caption),
        json!(texts)
    )
}

/// Returns the data of a page of the NameNode, as a superuser sees it.
fn told(session: &Session, path: &str) -> Result<Value> {
    let mark = if path.contains('?') { '&' } else { '?' };
    let target = format!("{path}{mark}user.name={}", os_user_name());
    Ok(serde_json::from_str(&get_text(session.cluster.namenode_http_port(), &target)?)?)
}

fn hearth(session: &Session, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(hearth_program()?);
    command.args(arguments).env("HADOOP_CONF_DIR", session.cluster.conf());
    command.output().with_context(|| format!("cannot start hearth {}", arguments.join(" ")))
}

/// Writes a file of one block.
fn put(session: &Session, path: &str) -> Result<()> {
    webhdfs(session, "PUT", "/states", "MKDIRS")?;
    let local = session.local("states")?.join("file");
    std::fs::write(&local, vec![7; FILE_BYTES])?;
    let local = local.to_str().context("a path in UTF-8")?;
    let output = hearth(session, &["fs", "-put", local, path])?;
    ensure!(output.status.success(), "-put {path}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Returns the address of a DataNode's transfer port, which the pages show.
fn address<'a>(session: &'a Session, index: usize) -> Result<&'a str> {
    session.cluster.datanodes[index].setting("dfs.datanode.address").context("an address")
}

/// Writes the file of `dfs.hosts`, and makes the NameNode read it. `states`: DataNodes that are not in service.
fn admit(session: &Session, states: &[(usize, &str)]) -> Result<()> {
    let mut entries = Vec::new();
    for (index, datanode) in session.cluster.datanodes.iter().enumerate() {
        let state = states.iter().find(|(of, _)| *of == index).map_or("NORMAL", |(_, state)| *state);
        let port = datanode.port("dfs.datanode.address")?;
        entries.push(json!({ "hostName": "127.0.0.1", "port": port, "adminState": state }));
    }
    std::fs::write(session.cluster.directory().join(HOSTS), Value::Array(entries).to_string())?;
    let output = hearth(session, &["dfsadmin", "-refreshNodes"])?;
    ensure!(output.status.success(), "-refreshNodes: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn wait_for_state(session: &Session, index: usize, state: &str) -> Result<()> {
    let address = address(session, index)?;
    wait_until(&format!("{address} to be {state}"), SETTLES_WITHIN, || {
        let node = session.cluster.live_datanode(address)?;
        ensure!(node["adminState"] == state, "{node}");
        Ok(Some(()))
    })
}

/// Returns the DataNode that has the only replica of a file of one block, and the files with the replica's data: on
/// disk, in memory, or both.
fn replica(session: &Session, path: &str) -> Result<(usize, Vec<PathBuf>)> {
    let fsck = format!("/fsck?ugi={}&path={path}&files=1&blocks=1", os_user_name());
    let report = get_text(session.cluster.namenode_http_port(), &fsck)?;
    let id = report.split("blk_").nth(1).and_then(|rest| rest.split('_').next()).context("a block")?;
    for (index, datanode) in session.cluster.datanodes.iter().enumerate() {
        let mut files = files_below(&datanode.data_directory().context("a DataNode has a disk")?);
        files.extend(files_below(Path::new(datanode.setting("hearth.memory.dir").context("it is set")?)));
        files.retain(|file| is_data_of(file, id));
        if !files.is_empty() {
            return Ok((index, files));
        }
    }
    anyhow::bail!("no DataNode has blk_{id}: {report}")
}

/// Returns whether a file has the data of a block: `blk_7`, or `blk_7_12.data` in memory.
fn is_data_of(file: &Path, id: &str) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("blk_"));
    name.is_some_and(|name| match name.strip_suffix(".data") {
        Some(name) => name.split('_').next() == Some(id),
        None => name == id,
    })
}

fn is_finalized(file: &Path) -> bool {
    file.components().any(|part| part.as_os_str() == "finalized")
}
