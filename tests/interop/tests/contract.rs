//! Apache Hadoop's own tests of file system behaviour, through Apache's client: every test that passes on Apache's
//! servers must pass on Hearth's.
//!
//! `tests/interop/contract/apache.tsv` contains the results of Apache's servers, recorded by this program:
//! `HEARTH_CONTRACT_RECORD=1 cargo test -p hearth-interop --test contract` runs them and rewrites the file.
//! `not-yet.tsv` beside it lists the tests that do not pass here yet, with reasons. A listed test that passes is a
//! failure, so that the list only shrinks. A run of everything writes docs/contract.md. Filters (`-- Append Quota`)
//! select classes.
//!
//! Classes also run with Hearth's jar: `contract::blocks::...` with the blocks that it gives Apache's client,
//! `contract::files::...` with its file system. `cargo xtask test --cluster` runs all classes in both ways. Other runs
//! choose those that take a path of the jar's own. The log of the tests' JVM must show that the jar was used.

#![expect(clippy::disallowed_methods, reason = "it waits for other processes, in real time")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hearth_interop::slow;
use hearth_testkit::{Cluster, ClusterSpec, Implementation, JavaPath, Missing, skip_or_fail, workspace_root};

/// Apache's test classes that run on HDFS, and classes of this project for abstract ones that Apache does not run
/// there.
///
/// Left out: Etag, GetEnclosingRoot and StreamIOStatistics, which Apache's HDFS does not pass either.
const CLASSES: &[&str] = &[
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractAppend",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractBulkDelete",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractConcat",
    "hearth.contract.ContentSummary",
    "hearth.contract.CopyFromLocal",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractCreate",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractDelete",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractGetFileStatus",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractLeaseRecovery",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractMkdir",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractMultipartUploader",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractOpen",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractPathHandle",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractRename",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractRootDirectory",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractSafeMode",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractSeek",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractSetTimes",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractUnbuffer",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractVectoredRead",
    "org.apache.hadoop.fs.contract.hdfs.TestDFSWrappedIO",
    "org.apache.hadoop.fs.TestFcHdfsCreateMkdir",
    "org.apache.hadoop.fs.TestFcHdfsPermission",
    "org.apache.hadoop.fs.TestFcHdfsSetUMask",
    "org.apache.hadoop.fs.TestHDFSFileContextMainOperations",
    "org.apache.hadoop.hdfs.TestHDFSFileSystemContract",
    "hearth.contract.FileContextUri",
    "hearth.contract.FsMainOperations",
    // Beyond the contract: other Apache tests of HDFS that need little of the servers' internals.
    "org.apache.hadoop.cli.TestAclCLIWithPosixAclInheritance",
    "org.apache.hadoop.cli.TestXAttrCLI",
    "org.apache.hadoop.cli.TestDeleteCLI",
    "org.apache.hadoop.hdfs.server.namenode.TestNameNodeXAttr",
    "org.apache.hadoop.hdfs.TestExtendedAcls",
    "org.apache.hadoop.fs.TestGlobPaths",
    "org.apache.hadoop.hdfs.TestBatchedListDirectories",
    "org.apache.hadoop.hdfs.TestHdfsAdmin",
    "org.apache.hadoop.hdfs.TestFileStatus",
    "org.apache.hadoop.hdfs.TestLocalDFS",
    "org.apache.hadoop.hdfs.TestQuota",
    "org.apache.hadoop.fs.permission.TestStickyBit",
    "org.apache.hadoop.hdfs.TestHDFSTrash",
    "org.apache.hadoop.hdfs.TestFsShellPermission",
    "org.apache.hadoop.hdfs.TestDFSMkdirs",
    "org.apache.hadoop.hdfs.TestListFilesInDFS",
    "org.apache.hadoop.hdfs.server.namenode.snapshot.TestSnapshotNameWithInvalidCharacters",
    "org.apache.hadoop.hdfs.server.namenode.snapshot.TestFileContextSnapshot",
    "org.apache.hadoop.hdfs.server.namenode.snapshot.TestXAttrWithSnapshot",
    "org.apache.hadoop.hdfs.server.namenode.snapshot.TestAclWithSnapshot",
    "org.apache.hadoop.hdfs.server.namenode.snapshot.TestSnapshotListing",
    "org.apache.hadoop.hdfs.server.namenode.TestFileContextXAttr",
    "org.apache.hadoop.cli.TestCacheAdminCLI",
];

/// Classes of file systems that open no file and are not about writing: they only make the files that they need. Hearth's
/// file system, a subclass of Apache's, changes only how files are read and written, so they would repeat what they do with
/// Apache's.
///
/// Classes of file contexts are not among them: Hearth's file system for those is a wrapper, not a subclass.
const WITHOUT_DATA: &[&str] = &[
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractBulkDelete",
    "hearth.contract.ContentSummary",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractDelete",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractGetFileStatus",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractMkdir",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractRootDirectory",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractSafeMode",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractSetTimes",
];

/// Classes that read back content of closed files. If one of them has run, the log must name the path of its reads.
const READERS: &[&str] = &[
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractAppend",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractConcat",
    "hearth.contract.CopyFromLocal",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractCreate",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractMultipartUploader",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractOpen",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractPathHandle",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractRename",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractSeek",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractUnbuffer",
    "org.apache.hadoop.fs.contract.hdfs.TestHDFSContractVectoredRead",
    "org.apache.hadoop.fs.contract.hdfs.TestDFSWrappedIO",
    "org.apache.hadoop.fs.TestHDFSFileContextMainOperations",
    "org.apache.hadoop.hdfs.TestHDFSFileSystemContract",
    "hearth.contract.FsMainOperations",
    "org.apache.hadoop.hdfs.TestLocalDFS",
];

/// Clients of the tests' JVM, in the order of their runs and of the page's columns.
const CLIENTS: &[JavaPath] = &[JavaPath::Stock, JavaPath::Blocks, JavaPath::Files];

/// Log of the tests' JVM, in the cluster's directory.
const LOG: &str = "contract.log";

/// No test is silent for longer than its own timeout of three minutes.
const SILENCE_MAX: Duration = Duration::from_secs(240);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Pass,
    Skip,
    Fail,
}

impl Outcome {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "pass" => Self::Pass,
            "skip" => Self::Skip,
            "fail" => Self::Fail,
            other => bail!("no outcome: {other:?}"),
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Skip => "skip",
            Self::Fail => "fail",
        }
    }
}

/// Result of one test.
struct Seen {
    outcome: Outcome,
    milliseconds: u64,
    why: String,
}

/// Class and test.
type Key = (String, String);

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) if error.is::<Missing>() => {
            skip_or_fail("contract::*", &error);
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("test contract ... FAILED\n\n---- contract ----\n{error:#}\n");
            println!("test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out");
            ExitCode::FAILURE
        }
    }
}

/// Returns the name of a class in the results.
fn name_of(client: JavaPath, class: &str) -> String {
    match client {
        JavaPath::Stock => format!("contract::{}", short(class)),
        JavaPath::Blocks | JavaPath::Files => format!("contract::{}::{}", client.name(), short(class)),
    }
}

/// Returns whether the class runs with this client.
fn runs(client: JavaPath, class: &str) -> bool {
    let contracts = ["ontract", "FileContext", "TestFc", "FSMain", "FsMain", "WrappedIO"];
    let takes_own_path = match client {
        JavaPath::Stock => true,
        // Only reads differ from Apache's client alone.
        JavaPath::Blocks => READERS.contains(&class),
        JavaPath::Files => contracts.iter().any(|part| class.contains(part)) && !WITHOUT_DATA.contains(&class),
    };
    takes_own_path || slow()
}

fn run() -> Result<ExitCode> {
    for class in READERS.iter().chain(WITHOUT_DATA) {
        ensure!(CLASSES.contains(class), "{class} is not among the classes");
    }
    let filters: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let recording = std::env::var("HEARTH_CONTRACT_RECORD").is_ok_and(|value| value == "1");
    let clients = if recording { &CLIENTS[..1] } else { CLIENTS };
    let (mut failed, mut passed, mut filtered) = (0, 0, 0);
    for client in clients.iter().copied() {
        let of_client: Vec<&str> = CLASSES.iter().copied().filter(|class| runs(client, class)).collect();
        let wanted = |class: &str| {
            let (long, named) = (format!("contract::{class}"), name_of(client, class));
            // The class's full name selects it for Apache's client only.
            let matches =
                |filter: &String| named.contains(filter) || client == JavaPath::Stock && long.contains(filter);
            filters.is_empty() || filters.iter().any(matches)
        };
        let classes: Vec<&str> = of_client.iter().copied().filter(|class| wanted(class)).collect();
        filtered += of_client.len() - classes.len();
        if classes.is_empty() {
            continue;
        }
        let failures = match run_with(client, &classes, recording, filters.is_empty()) {
            Err(error) if client != JavaPath::Stock && error.is::<Missing>() => {
                skip_or_fail(&name_of(client, "*"), &error);
                continue;
            }
            failures => failures?,
        };
        failed += failures;
        passed += classes.len() - failures;
    }
    let outcome = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {outcome}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {filtered} filtered out"
    );
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the classes with a client, on a cluster of its own. Returns the number of failures. `all`: these are all of the
/// client's classes.
fn run_with(client: JavaPath, classes: &[&str], recording: bool, all: bool) -> Result<usize> {
    let make = if recording { Implementation::Apache } else { Implementation::Hearth };
    let mut cluster = cluster(make, client)?;
    let started = Instant::now();
    let seen = run_classes(&mut cluster, classes)?;
    eprintln!("  {} tests in {:.0} s", seen.len(), started.elapsed().as_secs_f64());
    if recording {
        return record(classes, seen).map(|()| 0);
    }
    let apache = recorded(&place("apache.tsv"))?;
    let not_yet = not_yet()?;
    let failures = compare(classes, &seen, &apache, &not_yet);
    for (class, why) in &failures {
        println!("---- {} ----\n{}\n", name_of(client, class), why.join("\n"));
    }
    if !failures.is_empty() {
        println!("{}", cluster.log_tails());
    }
    for class in classes {
        let outcome = if failures.contains_key(short(class)) { "FAILED" } else { "ok" };
        println!("test {} ... {outcome}", name_of(client, class));
    }
    if all {
        let path = workspace_root().join("docs/contract.md");
        let old = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let results = Results { client, classes, seen: &seen };
        write_if_changed(&path, &page(&old, &results, &apache, &not_yet))?;
    } else {
        for class in classes {
            let figures = [Some(theirs(short(class), &apache)), Some(ours(short(class), &seen))];
            print!("{}", row(named(class), &figures));
        }
    }
    let log = fs::read(cluster.directory().join(LOG)).with_context(|| format!("cannot read {LOG}"))?;
    check_path(client, &cluster, classes, &String::from_utf8_lossy(&log))?;
    Ok(failures.len())
}

/// Checks by the log of the tests' JVM that the jar was used as `client` says. The jar logs each path once for the JVM, so
/// `hearth.java.required` must find single files that take another one.
fn check_path(client: JavaPath, cluster: &Cluster, classes: &[&str], log: &str) -> Result<()> {
    let said: Vec<&str> = log.lines().filter(|line| line.contains("hearth.hdfs")).collect();
    let said = said.join("\n");
    ensure!(!said.contains("not used"), "contract::{}: the jar was not used: {said}", client.name());
    if classes.iter().any(|class| READERS.contains(class)) {
        client.check_log(cluster, &said).with_context(|| format!("contract::{}", client.name()))?;
        let writes = said.contains("Hearth's client writes the files of hdfs://");
        ensure!(writes == (client == JavaPath::Files), "contract::{}: writes by the jar: {writes}", client.name());
    }
    Ok(())
}

/// Starts a cluster with replication 2, like that of Apache's own contract tests. The third DataNode is for tests that
/// need three replicas.
fn cluster(make: Implementation, client: JavaPath) -> Result<Cluster> {
    ClusterSpec::new(make, make)
        .java_path(client)
        // Without effect on Apache's client alone. With the jar, a test fails rather than take another path.
        .set("hearth.java.required", true)
        .datanodes(3)
        .set("dfs.replication", 2)
        .set("hearth.memory.limit", "256m")
        // The limits of TestNameNodeXAttr.
        .set("dfs.namenode.fs-limits.max-xattrs-per-inode", 3)
        .set("dfs.namenode.fs-limits.max-xattr-size", 37)
        // Apache's client otherwise sleeps for 400 ms before a file is closed, which is irrelevant here.
        .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
        .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
        .start()
}

/// Returns the last part of a class's name.
fn short(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}

/// Runs the classes in one JVM.
fn run_classes(cluster: &mut Cluster, classes: &[&str]) -> Result<BTreeMap<Key, Seen>> {
    let mut command = cluster.apache()?.contract(cluster.conf(), "hearth.contract.Contract")?;
    let log = cluster.directory().join(LOG);
    let errors = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    // Some write into their working directory.
    let directory = cluster.directory().join("contract");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    command.args(classes).current_dir(&directory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    let mut child = command.spawn().context("cannot start java")?;
    let output = BufReader::new(child.stdout.take().expect("piped above"));
    let (sender, lines) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        output.lines().map_while(Result::ok).take_while(|line| sender.send(line.clone()).is_ok()).count()
    });
    let mut seen = BTreeMap::new();
    let silent = loop {
        match lines.recv_timeout(SILENCE_MAX) {
            Ok(line) => {
                if let Some((key, result)) = parse(&line)? {
                    seen.insert(key, result);
                }
            }
            Err(error) => break error == std::sync::mpsc::RecvTimeoutError::Timeout,
        }
    };
    if silent {
        let _ = child.kill();
    }
    let status = child.wait().context("waiting for java")?;
    let _ = reader.join();
    if let Ok(kept) = std::env::var("HEARTH_CONTRACT_LOG") {
        fs::copy(&log, &kept).with_context(|| format!("cannot copy to {kept}"))?;
    }
    if !status.success() {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let tail: Vec<&str> = said.lines().rev().take(40).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        bail!("the tests' JVM ended with {status}{}\n{}", if silent { ", silent" } else { "" }, tail.join("\n"));
    }
    Ok(seen)
}

/// Parses one line of `Contract.java`.
fn parse(line: &str) -> Result<Option<(Key, Seen)>> {
    let Some(rest) = line.strip_prefix("RESULT\t") else { return Ok(None) };
    let mut parts = rest.splitn(5, '\t');
    let mut next = || parts.next().with_context(|| format!("a short line: {line:?}"));
    let key = (next()?.to_owned(), next()?.to_owned());
    let outcome = Outcome::parse(next()?)?;
    let milliseconds = next()?.parse().with_context(|| format!("no time: {line:?}"))?;
    Ok(Some((key, Seen { outcome, milliseconds, why: next()?.to_owned() })))
}

fn place(name: &str) -> PathBuf {
    workspace_root().join("tests/interop/contract").join(name)
}

/// Records results. Those of other classes are kept.
fn record(classes: &[&str], seen: BTreeMap<Key, Seen>) -> Result<()> {
    let ran = |class: &str| classes.iter().any(|wanted| short(wanted) == class);
    let known = |class: &str| CLASSES.iter().any(|wanted| short(wanted) == class);
    let mut outcomes = recorded(&place("apache.tsv"))?;
    outcomes.retain(|(class, _), _| known(class) && !ran(class));
    let mut text = String::from(
        "# What Apache Hadoop 3.4.2's own servers do: class, test, outcome. Written by tests/contract.rs.\n",
    );
    for ((class, test), result) in &seen {
        if result.outcome != Outcome::Pass {
            println!("{class} {test}: {} after {} ms: {}", result.outcome.name(), result.milliseconds, result.why);
        }
    }
    println!("{} tests recorded", seen.len());
    outcomes.extend(seen.into_iter().map(|(key, seen)| (key, seen.outcome)));
    for ((class, test), outcome) in outcomes {
        writeln!(text, "{class}\t{test}\t{}", outcome.name())?;
    }
    fs::write(place("apache.tsv"), text).context("cannot write apache.tsv")
}

fn lines(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect())
}

/// Returns class, test, and the third column.
fn three(line: &str) -> Result<(Key, &str)> {
    let mut parts = line.splitn(3, '\t');
    let (Some(class), Some(test), Some(third)) = (parts.next(), parts.next(), parts.next()) else {
        bail!("not three columns: {line:?}")
    };
    Ok(((class.to_owned(), test.to_owned()), third))
}

fn recorded(path: &Path) -> Result<BTreeMap<Key, Outcome>> {
    lines(path)?.iter().map(|line| three(line).and_then(|(key, outcome)| Ok((key, Outcome::parse(outcome)?)))).collect()
}

fn not_yet() -> Result<BTreeMap<Key, String>> {
    lines(&place("not-yet.tsv"))?.iter().map(|line| three(line).map(|(key, why)| (key, why.to_owned()))).collect()
}

/// Returns the failures, by class.
fn compare(
    classes: &[&str],
    seen: &BTreeMap<Key, Seen>,
    apache: &BTreeMap<Key, Outcome>,
    not_yet: &BTreeMap<Key, String>,
) -> BTreeMap<String, Vec<String>> {
    let mut failures: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let ran = |class: &str| classes.iter().any(|wanted| short(wanted) == class);
    for (key, theirs) in apache.iter().filter(|((class, _), _)| ran(class)) {
        let mut fail = |why: String| failures.entry(key.0.clone()).or_default().push(format!("{}: {why}", key.1));
        let ours = seen.get(key);
        let passes = ours.is_some_and(|ours| ours.outcome == Outcome::Pass);
        match (ours, not_yet.get(key)) {
            (_, Some(_)) if passes => fail("passes: take it off not-yet.tsv".to_owned()),
            (_, Some(_)) => {}
            _ if *theirs != Outcome::Pass || passes => {}
            (Some(ours), None) => {
                fail(format!("{} after {} ms: {}", ours.outcome.name(), ours.milliseconds, ours.why));
            }
            (None, None) => fail("did not run".to_owned()),
        }
    }
    for key in not_yet.keys().filter(|key| !apache.contains_key(key)) {
        failures
            .entry(key.0.clone())
            .or_default()
            .push(format!("{}: not-yet.tsv names it, Apache has no such test", key.1));
    }
    failures
}

/// Numbers of run, passed, skipped and failed tests.
type Figures = [usize; 4];

/// Results of one client.
struct Results<'a> {
    client: JavaPath,
    /// Those that ran.
    classes: &'a [&'a str],
    seen: &'a BTreeMap<Key, Seen>,
}

/// Returns the content of docs/contract.md. Figures of other clients, and of classes that did not run, are kept from `old`,
/// its content before.
fn page(old: &str, results: &Results<'_>, apache: &BTreeMap<Key, Outcome>, not_yet: &BTreeMap<Key, String>) -> String {
    let mut text = String::from(
        "# Apache's contract tests\n\n\
         Apache Hadoop 3.4.2 defines by JUnit classes what a file system must do. They run with the options of Apache's own HDFS contract.\n\
         `tests/interop/tests/contract.rs` (part of `cargo xtask test`) runs them against Hearth's NameNode with three of its DataNodes.\n\
         It compares each result with that of Apache's servers (`tests/interop/contract/apache.tsv`), and writes this page.\n\
         Every test that passes on Apache's servers passes here, except for the list at the end.\n\
         Tests that fail on both inspect servers outside their process, or need links or encryption.\n\n\
         Each group of columns names the servers and the client:\n\n\
         | group | servers | client |\n\
         |---|---|---|\n\
         | Apache | Apache's | Apache's |\n\
         | Hearth | Hearth's | Apache's |\n\
         | blocks | Hearth's | Apache's, to which [Hearth's jar](using.md#java-spark-hbase-mapreduce-hive) gives the blocks of its machine |\n\
         | files | Hearth's | the file system of Hearth's jar |\n\n\
         `cargo xtask test --cluster` runs all classes with each client. Without `--cluster`, only some run with the jar, and the figures of the others stay.\n\
         \u{2013}: not run yet.\n\n\
         | class | Apache: run | pass | skip | fail | Hearth: run | pass | skip | fail | blocks: run | pass | skip | fail | files: run | pass | skip | fail |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    let kept = figures_of_page(old);
    let mut total: Vec<Option<Figures>> = vec![None; 1 + CLIENTS.len()];
    for class in CLASSES {
        let name = named(class);
        let mut columns = vec![Some(theirs(short(class), apache))];
        for (at, client) in CLIENTS.iter().enumerate() {
            let ran = *client == results.client && results.classes.contains(class);
            columns.push(if ran {
                Some(ours(short(class), results.seen))
            } else {
                kept.get(name).and_then(|figures| *figures.get(at)?)
            });
        }
        for (sum, column) in total.iter_mut().zip(&columns) {
            if let Some(figures) = column {
                let sum = sum.get_or_insert([0; 4]);
                (0..4).for_each(|i| sum[i] += figures[i]);
            }
        }
        text.push_str(&row(name, &columns));
    }
    text.push_str(&row("all", &total));
    if not_yet.is_empty() {
        text.push_str("\nNothing that passes on Apache's servers fails here.\n");
    } else {
        text.push_str("\nNot yet:\n\n| test | why |\n|---|---|\n");
        for ((class, test), why) in not_yet {
            let _ = writeln!(text, "| {class} {test} | {why} |");
        }
    }
    text
}

/// Returns the figures of each class on a page, in the order of [`CLIENTS`]; `None` for one that has not run.
fn figures_of_page(page: &str) -> BTreeMap<&str, Vec<Option<Figures>>> {
    let row = |line: &str| -> Vec<Option<Figures>> {
        let numbers: Vec<Option<usize>> = line.split('|').skip(1).map(|cell| cell.trim().parse().ok()).collect();
        // The first four are those of Apache's servers.
        let groups = numbers.chunks_exact(4).skip(1);
        groups.map(|four| Some([four[0]?, four[1]?, four[2]?, four[3]?])).collect()
    };
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    rows.filter_map(|line| Some((line.split('|').next()?.trim(), row(line)))).collect()
}

/// Returns the page's name of a class.
fn named(class: &str) -> &str {
    short(class).trim_start_matches("TestHDFSContract").trim_start_matches("Test")
}

/// Returns the figures of Apache's servers.
fn theirs(class: &str, apache: &BTreeMap<Key, Outcome>) -> Figures {
    figures(apache.iter().filter(|((of, _), _)| of == class).map(|(_, outcome)| *outcome))
}

/// Returns the figures of this run.
fn ours(class: &str, seen: &BTreeMap<Key, Seen>) -> Figures {
    figures(seen.iter().filter(|((of, _), _)| of == class).map(|(_, seen)| seen.outcome))
}

fn figures(outcomes: impl Iterator<Item = Outcome>) -> Figures {
    let mut figures = [0; 4];
    for outcome in outcomes {
        figures[0] += 1;
        figures[match outcome {
            Outcome::Pass => 1,
            Outcome::Skip => 2,
            Outcome::Fail => 3,
        }] += 1;
    }
    figures
}

fn row(name: &str, columns: &[Option<Figures>]) -> String {
    let cells = columns.iter().copied().flat_map(|figures| match figures {
        Some(figures) => figures.map(|number| number.to_string()),
        None => ["\u{2013}"; 4].map(str::to_owned),
    });
    format!("| {name} | {} |\n", cells.collect::<Vec<String>>().join(" | "))
}

fn write_if_changed(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
