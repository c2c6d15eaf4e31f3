//! Apache's own jobs with input and output on Hearth's DataNodes, under Apache's NameNode and under Hearth's: the same
//! output as on Apache's servers, by Hadoop's client alone and with Hearth's jar. A job over the jar's `InputFormat` for
//! small files. Slow: `cargo xtask test --cluster`.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite, run, slow};
use hearth_testkit::{
    ClusterSpec, Content, Implementation, JavaPath, ToolOutput, hearth_jar, packet_bytes, sha256_hex, skip_or_fail,
};
use serde_json::json;

const EXAMPLES: &str = "org.apache.hadoop.examples.ExampleDriver";
const DFS_IO: &str = "org.apache.hadoop.fs.TestDFSIO";
const STREAMING: &str = "org.apache.hadoop.streaming.HadoopStreaming";
/// `tests/interop/java/jobs/SmallFiles.java`
const SMALL_FILES: &str = "SmallFiles";

/// Number of small files, and of bytes of each.
const SMALL_COUNT: u64 = 300;
const SMALL_BYTES: u64 = 3001;
/// Bytes of a file of several blocks among them.
const LARGE_BYTES: u64 = (2 << 20) + 5;

const CHECKS: &[Check] = &[
    ("word_count", word_count),
    ("streaming", streaming),
    ("pi", pi),
    ("tera_sort", tera_sort),
    ("random_writer_and_sort", random_sort),
    ("dfs_io", dfs_io),
    ("small_files_input_format", small_files),
];

fn main() -> ExitCode {
    use Implementation::{Apache, Hearth};
    let kinds = [
        (Apache, Apache, JavaPath::Stock),
        (Apache, Hearth, JavaPath::Stock),
        (Hearth, Hearth, JavaPath::Stock),
        (Hearth, Hearth, JavaPath::Blocks),
        (Hearth, Hearth, JavaPath::Files),
        (Apache, Hearth, JavaPath::Files),
        (Apache, Apache, JavaPath::Files),
    ];
    if !slow() {
        let count = kinds.len() * CHECKS.len();
        println!("takes minutes: cargo xtask test --cluster\n\ntest result: ok. 0 passed; 0 failed; {count} ignored");
        return ExitCode::SUCCESS;
    }
    let clusters = kinds.map(|(namenode, datanodes, path)| {
        let spec = ClusterSpec::new(namenode, datanodes)
            .datanodes(2)
            .java_path(path)
            .set("dfs.replication", 2)
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
            .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
            .set("hearth.memory.limit", "512m")
            // The default of 1 GiB is too much for a test.
            .set("mapreduce.randomwriter.mapsperhost", 1)
            .set("mapreduce.randomwriter.bytespermap", 4 << 20);
        if path == JavaPath::Stock { spec } else { spec.labelled(path.name()) }
    });
    run(&[Suite { name: "jobs", clusters: clusters.to_vec(), checks: CHECKS }])
}

fn job(session: &Session, main: &str, arguments: &[&str]) -> Result<String> {
    let output = session.cluster.apache()?.job(session.cluster.conf(), main, arguments)?;
    output.success().with_context(|| format!("{main} {}", arguments.join(" ")))
}

/// Runs a job that reads `input`, a directory of which it needs every byte. Checks which path the bytes take. `start`
/// returns the job's output.
fn reading(session: &mut Session, input: &str, start: impl FnOnce(&Session) -> Result<ToolOutput>) -> Result<String> {
    let is_hearth = session.cluster.all_datanodes_are_hearth();
    let length = session.java()?.call("summary", json!({"path": input}))?["length"].as_u64().context("a length")?;
    let before = if is_hearth { packet_bytes(&session.cluster)? } else { 0 };
    let output = start(session)?;
    let after = if is_hearth { packet_bytes(&session.cluster)? } else { 0 };
    let path = JavaPath::of(&session.cluster);
    let errors = output.stderr.clone();
    let said = output.success()?;
    path.check_log(&session.cluster, &errors)?;
    if is_hearth {
        let sent = after - before;
        let is_expected = if path == JavaPath::Stock { sent >= length } else { sent < length / 4 };
        ensure!(is_expected, "the DataNodes sent {sent} bytes in packets to a job that reads {length} by {path:?}");
    }
    Ok(said)
}

/// Returns the output of a job's reducers, as text.
fn output(session: &Session, directory: &str) -> Result<String> {
    session.dfs(&["-cat", &format!("{directory}/part*")])
}

/// Writes words, the same in every run, to several files of several blocks.
fn texts(session: &mut Session) -> Result<()> {
    if session.java()?.call("exists", json!({"path": "/texts"}))? == true {
        return Ok(());
    }
    let local = session.local("texts")?;
    for file in 0..3_u64 {
        let mut text = String::new();
        let mut word = file + 1;
        for number in 0..250_000_u64 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(&format!("w{}", (word >> 33) % 5000));
            text.push(if number % 11 == 10 { '\n' } else { ' ' });
        }
        let path = local.join(format!("text-{file}"));
        std::fs::write(&path, text)?;
        let put = json!({"local": path.to_str().context("text")?, "path": format!("/texts/text-{file}")});
        session.java()?.call("put", put)?;
    }
    Ok(())
}

fn word_count(session: &mut Session) -> Result<()> {
    texts(session)?;
    reading(session, "/texts", |session| {
        session.cluster.apache()?.job(session.cluster.conf(), EXAMPLES, ["wordcount", "/texts", "/counted"])
    })?;
    let counted = output(session, "/counted")?;
    let words: u64 = counted.lines().filter_map(|line| line.split('\t').nth(1)?.parse::<u64>().ok()).sum();
    ensure!(words == 750_000, "{words} words counted");
    session.same_as_oracle("word_count", sha256_hex(counted.as_bytes()).into())
}

fn streaming(session: &mut Session) -> Result<()> {
    texts(session)?;
    let arguments = ["-input", "/texts", "-output", "/streamed", "-mapper", "cat", "-reducer", "wc"];
    job(session, STREAMING, &arguments)?;
    let streamed = output(session, "/streamed")?;
    ensure!(streamed.contains("750000"), "wc printed {streamed}");
    session.same_as_oracle("streaming", streamed.into())
}

fn pi(session: &mut Session) -> Result<()> {
    let said = job(session, EXAMPLES, &["pi", "4", "1000"])?;
    let line = said.lines().find(|line| line.starts_with("Estimated value of Pi is")).context("an estimate")?;
    session.same_as_oracle("pi", line.into())
}

fn tera_sort(session: &mut Session) -> Result<()> {
    job(session, EXAMPLES, &["teragen", "50000", "/tera-in"])?;
    job(session, EXAMPLES, &["terasort", "/tera-in", "/tera-out"])?;
    job(session, EXAMPLES, &["teravalidate", "/tera-out", "/tera-report"])?;
    let report = output(session, "/tera-report")?;
    ensure!(!report.contains("error") && report.contains("checksum"), "{report}");
    let sums: Vec<String> = ["/tera-in/part-m-00000", "/tera-out/part-r-00000"]
        .iter()
        .map(|path| Ok(session.java()?.call("read", json!({"path": path}))?["sha256"].to_string()))
        .collect::<Result<_>>()?;
    session.same_as_oracle("tera_sort", json!([report, sums]))
}

/// The job writes random data: sorted, it has the same records, in order. (Apache's own SortValidator fails in one
/// JVM.)
fn random_sort(session: &mut Session) -> Result<()> {
    job(session, EXAMPLES, &["randomwriter", "/random"])?;
    job(session, EXAMPLES, &["sort", "-r", "1", "/random", "/sorted"])?;
    let records = |session: &Session, path: &str| -> Result<Vec<String>> {
        let text = session.dfs(&["-text", path])?;
        Ok(text.lines().map(str::to_owned).collect())
    };
    let mut written = records(session, "/random/part*")?;
    let sorted = records(session, "/sorted/part*")?;
    ensure!(written.len() > 100, "{} records written", written.len());
    let key = |record: &String| record.split('\t').next().unwrap_or_default().to_owned();
    ensure!(sorted.is_sorted_by_key(key), "the output is not in order");
    written.sort();
    let mut found = sorted;
    found.sort();
    ensure!(written == found, "{} records written, {} sorted, and they differ", written.len(), found.len());
    Ok(())
}

fn dfs_io(session: &mut Session) -> Result<()> {
    let local = session.local("dfsio")?;
    let results = local.join("results");
    let results = results.to_str().context("text")?;
    for operation in ["-write", "-append", "-read", "-truncate"] {
        let arguments = [operation, "-nrFiles", "3", "-size", "4MB", "-resFile", results];
        job(session, DFS_IO, &arguments)?;
    }
    let said = std::fs::read_to_string(results)?;
    let processed = said.lines().filter(|line| line.contains("Total MBytes processed")).count();
    ensure!(processed == 4, "{said}");
    job(session, DFS_IO, &["-clean"])?;
    Ok(())
}

fn small_files(session: &mut Session) -> Result<()> {
    if let Err(missing) = hearth_jar() {
        skip_or_fail("jobs: small_files_input_format", missing);
        return Ok(());
    }
    let many = json!({"dir": "/small", "count": SMALL_COUNT, "threads": 4, "seed": 700, "length": SMALL_BYTES});
    session.java()?.call("storeMany", many)?;
    session.java()?.call("store", json!({"path": "/small/large", "seed": 7, "length": LARGE_BYTES}))?;
    session.java()?.call("store", json!({"path": "/small/empty", "seed": 8, "length": 0}))?;
    let line = |name: String, seed: u64, length: u64| {
        format!("/small/{name}\t{length} {}", sha256_hex(&Content::new(seed).bytes(0, length as usize)))
    };
    let small = (0..SMALL_COUNT).map(|index| line(format!("file-{index}"), 700 + index, SMALL_BYTES));
    let others = [line("large".to_owned(), 7, LARGE_BYTES), line("empty".to_owned(), 8, 0)];
    let mut expected: Vec<String> = small.chain(others).collect();
    expected.sort();
    let path = JavaPath::of(&session.cluster);
    for interface in ["mapreduce", "mapred"] {
        let out = format!("/small-{interface}");
        let said = reading(session, "/small", |session| {
            let mut apache = session.cluster.apache()?.clone();
            if path == JavaPath::Stock {
                apache = apache.with_hearth_jar()?;
            }
            let bounds = ["-Dhearth.java.split.files=100", "-Dhearth.java.split.batch.bytes=100000"];
            apache.our_job(
                session.cluster.conf(),
                SMALL_FILES,
                [bounds[0], bounds[1], interface, "/small", out.as_str()],
            )
        })?;
        let found = output(session, &out)?;
        ensure!(found.lines().eq(expected.iter().map(String::as_str)), "{interface}: {found}");
        let all = expected.len();
        let (together, alone) = if path == JavaPath::Files { (all, 0) } else { (0, all) };
        for counted in [format!("= Files read together: {together}"), format!("= Files read one by one: {alone}")] {
            ensure!(said.lines().any(|line| line == counted), "{interface}: no line {counted:?} in {said}");
        }
        let splits: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("= split: ")).collect();
        if interface == "mapreduce" {
            let files: Vec<usize> = splits.iter().filter_map(|split| split.split(' ').next()?.parse().ok()).collect();
            ensure!(files.iter().sum::<usize>() == all && files.iter().all(|count| *count <= 100), "{splits:?}");
            ensure!(splits.iter().all(|split| !split.ends_with(" 0 hosts")), "a split is nowhere: {splits:?}");
        }
    }
    Ok(())
}
