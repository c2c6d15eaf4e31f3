//! `cargo xtask test`: formatting, lints, every test, then real clients; ends with one line `N passed, N failed`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::{TestArguments, apache, python, run};

/// The suites that start real clusters, Apache's and ours, have a package of their own: they are slow and share the
/// machine, so they run last and one at a time.
const INTEROP: &str = "hearth-interop";

#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    /// What was left out, and why.
    skipped: Vec<String>,
    failures: Vec<String>,
}

pub fn run(arguments: &TestArguments) -> Result<ExitCode> {
    let must_be_whole = std::env::var("CI").is_ok_and(|value| value == "true");
    let mut tally = Tally::default();
    let filter: Vec<&str> = arguments.filter.as_deref().into_iter().collect();
    // Before any test: some rooms have tests of their own with Apache's servers.
    if !arguments.unit {
        fetch(&mut tally, must_be_whole);
    }
    if !arguments.interop {
        if filter.is_empty() {
            check(&mut tally, "formatting", run::cargo().args(["fmt", "--all", "--check"]));
            let lints = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
            check(&mut tally, "lints", run::cargo().args(lints));
        }
        let tests = ["test", "--workspace", "--exclude", INTEROP, "--no-fail-fast", "--"];
        suite(&mut tally, "tests", run::cargo().args(tests).args(&filter))?;
    }
    if !arguments.unit {
        interop(&mut tally, &filter)?;
    }
    for failure in &tally.failures {
        println!("failed: {failure}");
    }
    for skipped in &tally.skipped {
        println!("skipped: {skipped}");
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the suites with real clients and servers need; what cannot be had is a failure in CI and said aloud elsewhere.
fn fetch(tally: &mut Tally, must_be_whole: bool) {
    for (what, outcome) in [("Apache Hadoop", apache::fetch()), ("hdfs-native", python::environment())] {
        if let Err(error) = outcome {
            let line = format!("interop with {what}: {error:#}");
            if must_be_whole {
                tally.failed += 1;
                tally.failures.push(line);
            } else {
                tally.skipped.push(line);
            }
        }
    }
}

/// Real clients and servers.
fn interop(tally: &mut Tally, filter: &[&str]) -> Result<()> {
    let failed_before = tally.failed;
    check(tally, "the hearth program", run::cargo().args(["build", "--package", "hearth"]));
    if tally.failed > failed_before {
        return Ok(());
    }
    let tests = ["test", "--package", INTEROP, "--no-fail-fast", "--", "--test-threads=1"];
    suite(tally, "interop", run::cargo().args(tests).args(filter))
}

/// One command that passes or fails as a whole.
fn check(tally: &mut Tally, name: &str, command: &mut Command) {
    let started = begin(name, command);
    match run::loud(command) {
        Ok(()) => tally.passed += 1,
        Err(error) => {
            tally.failed += 1;
            tally.failures.push(format!("{name}: {error:#}"));
        }
    }
    end(name, started);
}

/// A `cargo test` whose tests are counted one by one.
fn suite(tally: &mut Tally, name: &str, command: &mut Command) -> Result<()> {
    let started = begin(name, command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {name}"))?;
    let output = child.stdout.take().expect("piped above");
    let mut stdout = std::io::stdout();
    let failed_before = tally.failed;
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("reading the tests' output")?;
        stdout.write_all(&line).and_then(|()| stdout.write_all(b"\n")).context("writing the tests' output")?;
        let text = String::from_utf8_lossy(&line);
        if let Some((passed, failed)) = counts(&text) {
            tally.passed += passed;
            tally.failed += failed;
        } else if let Some(test) = text.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            tally.failures.push(format!("{name}: {test}"));
        } else if let Some(reason) = text.strip_prefix("SKIPPED ") {
            tally.skipped.push(reason.to_owned());
        }
    }
    let status = child.wait().with_context(|| format!("waiting for {name}"))?;
    // A test that does not compile, or a crash, reports no counts.
    if !status.success() && tally.failed == failed_before {
        tally.failed += 1;
        tally.failures.push(format!("{name}: {} ended with {status}", run::spelled(command)));
    }
    end(name, started);
    Ok(())
}

/// `(passed, failed)` of libtest's closing line.
fn counts(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result: ")?;
    let rest = rest.strip_prefix("ok. ").or_else(|| rest.strip_prefix("FAILED. "))?;
    let mut parts = rest.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some((passed, failed))
}

fn begin(name: &str, command: &Command) -> Instant {
    println!("\n=== {name}: {}", run::spelled(command));
    Instant::now()
}

fn end(name: &str, started: Instant) {
    println!("=== {name}: {:.0} s", started.elapsed().as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::counts;

    #[test]
    fn libtest_closing_lines_are_counted() {
        let ok = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s";
        assert_eq!(counts(ok), Some((12, 0)));
        let bad = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.10s";
        assert_eq!(counts(bad), Some((3, 2)));
        assert_eq!(counts("test counts ... ok"), None);
    }
}
