//! Apache Hadoop's own tests of file system behaviour, through Apache's client: every test that passes on Apache's
//! servers must pass on Hearth's.
//!
//! `tests/interop/contract/apache.tsv` contains the results of Apache's servers, recorded by this program:
//! `HEARTH_CONTRACT_RECORD=1 cargo test -p hearth-interop --test contract` runs them and rewrites the file.
//! `not-yet.tsv` beside it lists the tests that do not pass here yet, with reasons. A listed test that passes is a
//! failure, so that the list only shrinks. A run of everything writes docs/contract.md. Filters (`-- Append Quota`)
//! select classes.
//!
//! The classes that read or write files run a second time (`contract::files::...`), with the file system of Hearth's jar, by
//! which they read and write. `cargo xtask test --cluster` also runs the classes of file systems there whose subject is
//! neither.

#![expect(clippy::disallowed_methods, reason = "it waits for other processes, in real time")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hearth_interop::slow;
use hearth_testkit::{Cluster, ClusterSpec, Implementation, Missing, skip_or_fail, workspace_root};

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

/// File system of the tests' JVM.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    Apache,
    /// That of Hearth's Java binding, which reads and writes files by Hearth's client.
    Hearth,
}

impl Client {
    /// Returns the name of a class in the results.
    fn name_of(self, class: &str) -> String {
        match self {
            Self::Apache => format!("contract::{}", short(class)),
            Self::Hearth => format!("contract::files::{}", short(class)),
        }
    }

    /// Returns whether the class runs with this client. Hearth's reads and writes files; everything else stays Apache's.
    fn runs(self, class: &str) -> bool {
        let contracts = ["ontract", "FileContext", "TestFc", "FSMain", "FsMain", "WrappedIO"];
        let is_contract = contracts.iter().any(|part| class.contains(part));
        self == Self::Apache || is_contract && (slow() || !WITHOUT_DATA.contains(&class))
    }
}

fn run() -> Result<ExitCode> {
    let filters: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let recording = std::env::var("HEARTH_CONTRACT_RECORD").is_ok_and(|value| value == "1");
    let clients: &[Client] = if recording { &[Client::Apache] } else { &[Client::Apache, Client::Hearth] };
    let (mut failed, mut passed, mut filtered) = (0, 0, 0);
    for client in clients {
        let of_client: Vec<&str> = CLASSES.iter().copied().filter(|class| client.runs(class)).collect();
        let wanted = |class: &str| {
            let (long, named) = (format!("contract::{class}"), client.name_of(class));
            // The class's full name selects it for Apache's client only.
            let matches =
                |filter: &String| named.contains(filter) || *client == Client::Apache && long.contains(filter);
            filters.is_empty() || filters.iter().any(matches)
        };
        let classes: Vec<&str> = of_client.iter().copied().filter(|class| wanted(class)).collect();
        filtered += of_client.len() - classes.len();
        if classes.is_empty() {
            continue;
        }
        let failures = match run_with(*client, &classes, recording, filters.is_empty()) {
            Err(error) if *client == Client::Hearth && error.is::<Missing>() => {
                skip_or_fail("contract::files::*", &error);
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
fn run_with(client: Client, classes: &[&str], recording: bool, all: bool) -> Result<usize> {
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
        println!("---- {} ----\n{}\n", client.name_of(class), why.join("\n"));
    }
    if !failures.is_empty() {
        println!("{}", cluster.log_tails());
    }
    for class in classes {
        let outcome = if failures.contains_key(short(class)) { "FAILED" } else { "ok" };
        println!("test {} ... {outcome}", client.name_of(class));
    }
    if !all {
        classes.iter().for_each(|class| print!("{}", row(named(class), &figures(short(class), &seen, &apache))));
    } else if client == Client::Apache {
        write_if_changed(&workspace_root().join("docs/contract.md"), &page(&seen, &apache, &not_yet))?;
    }
    Ok(failures.len())
}

/// Starts a cluster with replication 2, like that of Apache's own contract tests. The third DataNode is for tests that
/// need three replicas.
fn cluster(make: Implementation, client: Client) -> Result<Cluster> {
    let spec = ClusterSpec::new(make, make);
    let spec = if client == Client::Hearth { spec.hearth_file_system() } else { spec };
    spec.datanodes(3)
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
    let log = cluster.directory().join("contract.log");
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

/// Returns the content of docs/contract.md.
fn page(seen: &BTreeMap<Key, Seen>, apache: &BTreeMap<Key, Outcome>, not_yet: &BTreeMap<Key, String>) -> String {
    let mut text = String::from(
        "# Apache's contract tests\n\n\
         Apache Hadoop 3.4.2 defines by JUnit classes what a file system must do. They run with the options of Apache's own HDFS contract, through Apache's own client.\n\
         `tests/interop/tests/contract.rs` (part of `cargo xtask test`) runs them against Hearth's NameNode with three of its DataNodes.\n\
         It compares each result with that of Apache's servers (`tests/interop/contract/apache.tsv`), and writes this page.\n\
         Every test that passes on Apache's servers passes here, except for the list at the end.\n\
         Tests that fail on both inspect servers outside their process, or need links or encryption.\n\n\
         | class | Apache: run | pass | skip | fail | Hearth: run | pass | skip | fail |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    let mut total = [0; 8];
    for class in CLASSES {
        let figures = figures(short(class), seen, apache);
        (0..8).for_each(|i| total[i] += figures[i]);
        text.push_str(&row(named(class), &figures));
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

/// Returns the page's name of a class.
fn named(class: &str) -> &str {
    short(class).trim_start_matches("TestHDFSContract").trim_start_matches("Test")
}

/// Returns the numbers of run, passed, skipped and failed tests: Apache's, and Hearth's.
fn figures(class: &str, seen: &BTreeMap<Key, Seen>, apache: &BTreeMap<Key, Outcome>) -> [usize; 8] {
    let theirs: Vec<Outcome> = apache.iter().filter(|((of, _), _)| of == class).map(|(_, outcome)| *outcome).collect();
    let ours: Vec<Outcome> = seen.iter().filter(|((of, _), _)| of == class).map(|(_, seen)| seen.outcome).collect();
    let mut figures = [0; 8];
    for (at, outcomes) in [theirs, ours].into_iter().enumerate() {
        figures[at * 4] = outcomes.len();
        for (offset, kind) in [Outcome::Pass, Outcome::Skip, Outcome::Fail].into_iter().enumerate() {
            figures[at * 4 + 1 + offset] = outcomes.iter().filter(|outcome| **outcome == kind).count();
        }
    }
    figures
}

fn row(name: &str, figures: &[usize; 8]) -> String {
    let figures: Vec<String> = figures.iter().map(usize::to_string).collect();
    format!("| {name} | {} |\n", figures.join(" | "))
}

fn write_if_changed(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
