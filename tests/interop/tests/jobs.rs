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
/// Bytes of files of several blocks. They are listed among the small ones.
const LARGE_BYTES: u64 = (2 << 20) + 5;
const LARGE: [&str; 4] = ["file-10-large", "file-20-large", "file-30-large", "large"];
/// Number of empty files in a directory below, more than half as many as a split may have.
const EMPTY_COUNT: u64 = 60;
/// Largest number of files of a split, and of their bytes.
const SPLIT_FILES: usize = 100;
const SPLIT_BYTES: u64 = 100_000;

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
    let (said, log) = read_counted(session, input, start)?;
    JavaPath::of(&session.cluster).check_log(&session.cluster, &log)?;
    Ok(said)
}

/// Starts a job that reads all of `input`, and checks by which path the bytes left Hearth's DataNodes. Returns its output
/// and its log.
fn read_counted(
    session: &mut Session,
    input: &str,
    start: impl FnOnce(&Session) -> Result<ToolOutput>,
) -> Result<(String, String)> {
    let is_hearth = session.cluster.all_datanodes_are_hearth();
    let length = session.java()?.call("summary", json!({"path": input}))?["length"].as_u64().context("a length")?;
    let before = if is_hearth { packet_bytes(&session.cluster)? } else { 0 };
    let output = start(session)?;
    let after = if is_hearth { packet_bytes(&session.cluster)? } else { 0 };
    let path = JavaPath::of(&session.cluster);
    let errors = output.stderr.clone();
    let said = output.success()?;
    if is_hearth {
        let sent = after - before;
        let is_expected = if path == JavaPath::Stock { sent >= length } else { sent < length / 4 };
        ensure!(is_expected, "the DataNodes sent {sent} bytes in packets to a job that reads {length} by {path:?}");
    }
    Ok((said, errors))
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
    for name in LARGE {
        session.java()?.call("store", json!({"path": format!("/small/{name}"), "seed": 7, "length": LARGE_BYTES}))?;
    }
    let none = json!({"dir": "/small/empty", "count": EMPTY_COUNT, "threads": 4, "seed": 8, "length": 0});
    session.java()?.call("storeMany", none)?;
    // Hadoop's `FileInputFormat` leaves these out.
    for hidden in ["_SUCCESS", ".part"] {
        session.java()?.call("store", json!({"path": format!("/small/{hidden}"), "seed": 9, "length": 0}))?;
    }
    let line = |name: String, seed: u64, length: u64| {
        format!("/small/{name}\t{length} {}", sha256_hex(&Content::new(seed).bytes(0, length as usize)))
    };
    let small = (0..SMALL_COUNT).map(|index| line(format!("file-{index}"), 700 + index, SMALL_BYTES));
    let large = LARGE.iter().map(|name| line((*name).to_owned(), 7, LARGE_BYTES));
    let empty = (0..EMPTY_COUNT).map(|index| line(format!("empty/file-{index}"), 8, 0));
    let mut expected: Vec<String> = small.chain(large).chain(empty).collect();
    expected.sort();
    let path = JavaPath::of(&session.cluster);
    for interface in ["mapreduce", "mapred"] {
        let out = format!("/small-{interface}");
        let (said, log) = read_counted(session, "/small", |session| {
            let mut apache = session.cluster.apache()?.clone();
            if path == JavaPath::Stock {
                apache = apache.with_hearth_jar()?;
            }
            let options = [
                format!("-Dhearth.java.split.files={SPLIT_FILES}"),
                format!("-Dmapreduce.input.fileinputformat.split.maxsize={SPLIT_BYTES}"),
                "-Dhearth.java.split.batch.bytes=50000".to_owned(),
                "-Dmapreduce.input.fileinputformat.input.dir.recursive=true".to_owned(),
            ];
            let arguments = [interface, "/small", out.as_str()].map(str::to_owned);
            apache.our_job(session.cluster.conf(), SMALL_FILES, options.iter().chain(&arguments))
        })?;
        // On Apache's DataNodes, the call for many files reads packets, and Hadoop's client reads single files.
        if path != JavaPath::Files || session.cluster.all_datanodes_are_hearth() {
            path.check_log(&session.cluster, &log)?;
        }
        let found = output(session, &out)?;
        ensure!(found.lines().eq(expected.iter().map(String::as_str)), "{interface}: {found}");
        let all = expected.len();
        let counted = |name: &str| -> Result<usize> {
            let line = said.lines().find_map(|line| line.strip_prefix("= ")?.strip_prefix(name)?.strip_prefix(": "));
            Ok(line.with_context(|| format!("{interface}: no {name:?} in {said}"))?.parse()?)
        };
        let (together, alone) = (counted("Files read together")?, counted("Files read one by one")?);
        let is_expected = match path {
            JavaPath::Files => (together, alone) == (all, 0),
            JavaPath::Stock | JavaPath::Blocks => (together, alone) == (0, all),
        };
        ensure!(is_expected, "{interface} by {path:?}: {together} files together, {alone} one by one, of {all}");
        let splits: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("= split: ")).collect();
        if interface == "mapreduce" {
            let files: Vec<usize> = splits.iter().filter_map(|split| split.split(' ').next()?.parse().ok()).collect();
            let is_bounded = files.iter().all(|count| *count <= SPLIT_FILES);
            ensure!(files.iter().sum::<usize>() == all && is_bounded, "{splits:?}");
            // A large file does not end the split of the small ones around it.
            let full = SMALL_COUNT.div_ceil(SPLIT_BYTES / SMALL_BYTES) as usize;
            ensure!(splits.len() == full + LARGE.len(), "{} splits: {splits:?}", splits.len());
            // Spark skips splits without bytes, and with them the records of empty files.
            let is_somewhere = |split: &&str| !split.ends_with(" 0 hosts") && !split.contains(", 0 bytes,");
            ensure!(splits.iter().all(is_somewhere), "a split is nowhere or empty: {splits:?}");
        }
    }
    Ok(())
}
