//! The suites that run over RDMA: built here, run in the virtual machine, counted like all others.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use super::{Devices, Machine, VmArguments};
use crate::run;
use crate::test::{Tally, begin, end};

/// One boot of the machine and the tests that run in it.
struct Suite {
    package: &'static str,
    /// The test program: `lib` for the library's own tests, else one of its `tests/`.
    target: &'static str,
    /// Only tests whose name begins so.
    tests: &'static str,
    devices: Devices,
    /// Network namespaces; 0: one host.
    hosts: u8,
}

const SUITES: &[Suite] = &[
    Suite { package: "hearth-fabric", target: "rdma", tests: "", devices: Devices::Siw, hosts: 0 },
    Suite { package: "hearth-fabric", target: "rdma", tests: "", devices: Devices::Rxe, hosts: 0 },
    Suite { package: "hearth-client", target: "rdma", tests: "", devices: Devices::Siw, hosts: 4 },
];

/// Runs all of [`SUITES`].
pub fn suite(tally: &mut Tally, kernel: &Path, filter: &[&str]) -> Result<()> {
    for suite in SUITES {
        let name = format!("{} {} over {}", suite.package, suite.target, suite.devices.kinds());
        let mut build = run::cargo();
        build.args(["test", "--no-run", "--message-format=json", "--package", suite.package]);
        match suite.target {
            "lib" => build.arg("--lib"),
            target => build.args(["--test", target]),
        };
        let started = begin(&name, &build);
        if suite.hosts > 0 {
            // Daemons run on the hosts; inside nothing is built.
            let built = run::cargo().args(["build", "--package", "hearth"]).status();
            if !built.is_ok_and(|status| status.success()) {
                tally.fail(format!("{name}: hearth could not be built"));
                end(&name, started);
                continue;
            }
        }
        match program(&mut build) {
            Ok(program) => run_in(tally, &name, kernel, suite, program, filter)?,
            Err(error) => tally.fail(format!("{name}: {error:#}")),
        }
        end(&name, started);
    }
    Ok(())
}

fn run_in(
    tally: &mut Tally,
    name: &str,
    kernel: &Path,
    suite: &Suite,
    program: PathBuf,
    filter: &[&str],
) -> Result<()> {
    let mut command: Vec<OsString> = vec![program.into(), "--test-threads=1".into()];
    // libtest joins its filters by `or`.
    match filter {
        [] if suite.tests.is_empty() => {}
        [] => command.push(suite.tests.into()),
        filter => command.extend(filter.iter().map(OsString::from)),
    }
    let mut arguments = VmArguments::new(suite.devices, command);
    arguments.hosts = suite.hosts;
    let failed_before = tally.failed();
    let mut counting = Counting { tally, name, line: Vec::new() };
    let status = Machine::start(kernel, &arguments, Stdio::null()).and_then(|machine| machine.stream(&mut counting));
    match status {
        Ok(0) => {}
        Ok(_) if tally.failed() > failed_before => {}
        Ok(status) => tally.fail(format!("{name}: ended with {status}")),
        Err(error) => tally.fail(format!("{name}: {error:#}")),
    }
    Ok(())
}

/// Builds a test program and says where it lies.
fn program(build: &mut std::process::Command) -> Result<PathBuf> {
    let output =
        build.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {}", run::spelled(build)))?;
    if !output.status.success() {
        bail!("{} ended with {}", run::spelled(build), output.status);
    }
    let program = String::from_utf8_lossy(&output.stdout).lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_test = message["profile"]["test"].as_bool()?;
        is_test.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    });
    program.with_context(|| format!("{} built no test program", run::spelled(build)))
}

/// Hands lines on to our standard output, and counts them.
struct Counting<'a> {
    tally: &'a mut Tally,
    name: &'a str,
    line: Vec<u8>,
}

impl Write for Counting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            if *byte == b'\n' {
                self.tally.line(self.name, &String::from_utf8_lossy(&self.line));
                self.line.clear();
            } else {
                self.line.push(*byte);
            }
        }
        io::stdout().write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}
