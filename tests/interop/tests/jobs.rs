//! Apache's own jobs with input and output on Hearth's DataNodes, under Apache's NameNode and under Hearth's: the same
//! output as on Apache's servers. Slow: `cargo xtask test --cluster`.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite, run, slow};
use hearth_testkit::{ClusterSpec, Implementation, sha256_hex};
use serde_json::json;

const EXAMPLES: &str = "org.apache.hadoop.examples.ExampleDriver";
const DFS_IO: &str = "org.apache.hadoop.fs.TestDFSIO";
const STREAMING: &str = "org.apache.hadoop.streaming.HadoopStreaming";

const CHECKS: &[Check] = &[
    ("word_count", word_count),
    ("streaming", streaming),
    ("pi", pi),
    ("tera_sort", tera_sort),
    ("random_writer_and_sort", random_sort),
    ("dfs_io", dfs_io),
];

fn main() -> ExitCode {
    if !slow() {
        println!("takes minutes: cargo xtask test --cluster\n\ntest result: ok. 0 passed; 0 failed; 18 ignored");
        return ExitCode::SUCCESS;
    }
    let makes = [
        (Implementation::Apache, Implementation::Apache),
        (Implementation::Apache, Implementation::Hearth),
        (Implementation::Hearth, Implementation::Hearth),
    ];
    let clusters = makes.map(|(namenode, datanodes)| {
        ClusterSpec::new(namenode, datanodes)
            .datanodes(2)
            .set("dfs.replication", 2)
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
            .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
            .set("hearth.memory.limit", "512m")
            // The default of 1 GiB is too much for a test.
            .set("mapreduce.randomwriter.mapsperhost", 1)
            .set("mapreduce.randomwriter.bytespermap", 4 << 20)
    });
    run(&[Suite { name: "jobs", clusters: clusters.to_vec(), checks: CHECKS }])
}

fn job(session: &Session, main: &str, arguments: &[&str]) -> Result<String> {
    let output = session.cluster.apache()?.job(session.cluster.conf(), main, arguments)?;
    output.success().with_context(|| format!("{main} {}", arguments.join(" ")))
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
    job(session, EXAMPLES, &["wordcount", "/texts", "/counted"])?;
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
