//! A test harness whose tests share a cluster, because starting one costs seconds of CPU.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use hearth_testkit::{Cluster, ClusterSpec, Driver, Missing, ToolOutput, skip_or_fail};
use serde_json::{Value, json};

/// Number of warnings of each server that are shown with a failed check.
const WARNINGS: usize = 6;

/// Number of places at which two answers differ that are shown.
const DIFFERENCES: usize = 6;

/// A named check on a running cluster.
pub type Check = (&'static str, fn(&mut Session) -> Result<()>);

/// Checks that run, in order, on one cluster of each kind.
pub struct Suite {
    pub name: &'static str,
    pub clusters: Vec<ClusterSpec>,
    pub checks: &'static [Check],
}

/// Context of a check: the cluster, and one client of each kind, which is started on first use.
pub struct Session<'a> {
    pub cluster: Cluster,
    java: Option<Driver>,
    python: Option<Driver>,
    /// State that checks pass to later checks of the suite, e.g. an engine that runs on the cluster.
    pub kept: Option<Box<dyn Any>>,
    /// Answers of earlier clusters of this suite.
    observed: &'a mut BTreeMap<String, (String, Value)>,
    cluster_name: String,
}

impl Session<'_> {
    /// Returns a JVM with Apache's FileSystem, shared by all checks.
    pub fn java(&mut self) -> Result<&mut Driver> {
        if self.java.is_none() {
            self.java = Some(Driver::java(self.cluster.apache()?, self.cluster.conf())?);
        }
        Ok(self.java.as_mut().expect("made above"))
    }

    /// Starts another JVM, e.g. to be killed.
    pub fn another_java(&self) -> Result<Driver> {
        Driver::java(self.cluster.apache()?, self.cluster.conf())
    }

    /// Kills the shared JVM. The next check starts another one.
    pub fn end_java(&mut self) {
        if let Some(java) = self.java.take() {
            java.kill();
        }
    }

    /// Returns Python with hdfs-native, shared by all checks.
    pub fn python(&mut self) -> Result<&mut Driver> {
        if self.python.is_none() {
            self.python = Some(Driver::python(self.cluster.conf())?);
        }
        Ok(self.python.as_mut().expect("made above"))
    }

    /// Runs `hdfs dfs ARGUMENTS`, which must succeed. Returns its standard output.
    pub fn dfs(&self, arguments: &[&str]) -> Result<String> {
        let output = self.cluster.apache()?.fs(self.cluster.conf(), arguments)?;
        output.success().with_context(|| format!("hdfs dfs {}", arguments.join(" ")))
    }

    /// Runs one of Apache's command-line tools in the shared JVM. A JVM of its own would take a second of CPU time.
    ///
    /// `arguments`: without generic options such as `-D`. Those are parsed outside of the tool's class, and a shared JVM
    /// would ignore most of them, because it reuses its file systems.
    pub fn tool<A: AsRef<str>>(&mut self, class: &str, arguments: &[A]) -> Result<ToolOutput> {
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let answer = self.java()?.call("tool", json!({"class": class, "arguments": arguments}))?;
        let text = |part: &str| answer[part].as_str().unwrap_or_default().to_owned();
        // The exit code of a process has eight bits: Java's -1 is 255.
        let code = answer["code"].as_i64().with_context(|| format!("no exit code: {answer}"))? & 0xff;
        Ok(ToolOutput { code: i32::try_from(code)?, stdout: text("out"), stderr: text("err") })
    }

    /// Returns a local directory for this cluster's checks.
    pub fn local(&self, name: &str) -> Result<PathBuf> {
        let directory = self.cluster.directory().join("local").join(name);
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(directory)
    }

    /// Returns whether all servers are Apache's, which show that the test is right.
    pub fn is_oracle(&self) -> bool {
        self.cluster.is_apache()
    }

    /// Compares an answer with the one of the suite's first cluster under the same name.
    pub fn same_as_oracle(&mut self, name: &str, answer: Value) -> Result<()> {
        match self.observed.get(name) {
            None => {
                self.observed.insert(name.to_owned(), (self.cluster_name.clone(), answer));
            }
            Some((oracle, expected)) if *expected != answer => {
                bail!("{name}: {}", difference(&answer, oracle, expected))
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Returns the answer of the suite's first cluster under this name.
    pub fn oracle(&self, name: &str) -> Option<Value> {
        self.observed.get(name).map(|(_, answer)| answer.clone())
    }

    /// Like [`Session::same_as_oracle`], for distinct lines: the error lists lines of the oracle only with `-`, and
    /// lines of this cluster only with `+`.
    pub fn same_lines_as_oracle(&mut self, name: &str, lines: &[String]) -> Result<()> {
        let Some((oracle, expected)) = self.observed.get(name) else {
            self.observed.insert(name.to_owned(), (self.cluster_name.clone(), Value::from(lines)));
            return Ok(());
        };
        let expected: Vec<&str> = expected.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let found: Vec<&str> = lines.iter().map(String::as_str).collect();
        let gone = expected.iter().filter(|line| !found.contains(line)).map(|line| format!("\n  - {line}"));
        let new = found.iter().filter(|line| !expected.contains(line)).map(|line| format!("\n  + {line}"));
        let differing: String = gone.chain(new).collect();
        ensure!(differing.is_empty(), "{name}: not as {oracle}{differing}");
        Ok(())
    }
}

/// Says where two answers differ. Of two lists only the places that differ: a long line is cut by who shows it.
fn difference(answer: &Value, oracle: &str, expected: &Value) -> String {
    let (Some(found), Some(wanted)) = (answer.as_array(), expected.as_array()) else {
        return format!("{answer}, but {oracle} says {expected}");
    };
    let differs = |i: &usize| found.get(*i) != wanted.get(*i);
    let at = |list: &[Value], i: usize| list.get(i).map_or_else(|| "nothing".to_owned(), Value::to_string);
    let places = (0..found.len().max(wanted.len())).filter(differs).take(DIFFERENCES);
    let lines = places.map(|i| format!("\n  {i}: {}\n    but {oracle} says {}", at(found, i), at(wanted, i)));
    format!("{} values against {}{}", found.len(), wanted.len(), lines.collect::<String>())
}

/// Returns whether checks that take minutes are requested: `cargo xtask test --cluster`.
pub fn slow() -> bool {
    std::env::var("HEARTH_TEST_CLUSTER").is_ok_and(|value| value == "1")
}

/// Returns whether the engines that store data on HDFS are requested: `cargo xtask test --ecosystem`.
pub fn ecosystem() -> bool {
    std::env::var("HEARTH_TEST_ECOSYSTEM").is_ok_and(|value| value == "1")
}

/// Prints a failure between two marker lines, which `cargo xtask test` extracts and repeats at its end.
fn say_failed(name: &str, error: &str) {
    println!("---- {name} ----\n{error}\ntest {name} ... FAILED");
}

/// Runs the suites with libtest's output and arguments (a filter; others are accepted and ignored).
pub fn run(suites: &[Suite]) -> ExitCode {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let wanted = |name: &str| filter.as_deref().is_none_or(|filter| name.contains(filter));
    let (mut passed, mut failed, mut filtered) = (0, 0, 0);
    for suite in suites {
        let mut observed = BTreeMap::new();
        for spec in &suite.clusters {
            let cluster_name = spec.name();
            let full_name = |check: &str| format!("{}::{cluster_name}::{check}", suite.name);
            let checks: Vec<&Check> = suite.checks.iter().filter(|(name, _)| wanted(&full_name(name))).collect();
            filtered += suite.checks.len() - checks.len();
            if checks.is_empty() {
                continue;
            }
            let cluster = match spec.clone().start() {
                Ok(cluster) => cluster,
                Err(error) if error.is::<Missing>() => {
                    skip_or_fail(&full_name("*"), &error);
                    continue;
                }
                Err(error) => {
                    let error = format!("{cluster_name} does not start: {error:#}");
                    for (name, _) in checks {
                        say_failed(&full_name(name), &error);
                        failed += 1;
                    }
                    continue;
                }
            };
            let mut session = Session {
                cluster,
                java: None,
                python: None,
                kept: None,
                observed: &mut observed,
                cluster_name: cluster_name.clone(),
            };
            for (name, check) in checks {
                let name = full_name(name);
                let started = Instant::now();
                let outcome = catch_unwind(AssertUnwindSafe(|| check(&mut session)));
                let seconds = started.elapsed().as_secs_f64();
                let error = match outcome {
                    Ok(Ok(())) => {
                        println!("test {name} ... ok");
                        eprintln!("  {seconds:.1} s");
                        passed += 1;
                        continue;
                    }
                    Ok(Err(error)) => format!("{error:#}"),
                    // The panic's own message was already printed.
                    Err(_) => "panicked".to_owned(),
                };
                // The error is printed last, because only the end of a long report may be visible.
                println!("{}", session.cluster.log_tails());
                let warnings = session.cluster.last_warnings(WARNINGS).join("\n");
                say_failed(&name, &format!("{error}\n{warnings}"));
                failed += 1;
                // The shared client may be in the middle of an operation.
                session.java = None;
                session.python = None;
            }
        }
    }
    let outcome = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {outcome}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {filtered} filtered out"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
