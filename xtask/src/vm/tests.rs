//! The suites that run over RDMA: built on this machine, run in the virtual machine, counted like all others.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Instant;

use anyhow::{Context, Result};

use super::{Devices, Machine, VmArguments};
use crate::test::{self, Tally, programs};

/// One boot of the virtual machine and the tests that run in it.
struct Suite {
    package: &'static str,
    /// Name of the test program, one of its `tests/`.
    target: &'static str,
    /// Only tests with this prefix in their name.
    tests: &'static str,
    devices: Devices,
    /// Number of network namespaces; 0: one host.
    hosts: u8,
}

/// Timeout of one suite on a busy machine. On an idle machine the longest takes five minutes.
const TIME_LIMIT_S: u64 = 1800;

const SUITES: &[Suite] = &[
    Suite { package: "hearth-fabric", target: "rdma", tests: "", devices: Devices::Siw, hosts: 0 },
    Suite { package: "hearth-fabric", target: "rdma", tests: "", devices: Devices::Rxe, hosts: 0 },
    Suite { package: "hearth-datanode", target: "server", tests: "one_sided_", devices: Devices::Siw, hosts: 0 },
    Suite { package: "hearth-interop", target: "paths", tests: "", devices: Devices::Siw, hosts: 0 },
    Suite { package: "hearth-interop", target: "stress", tests: "", devices: Devices::Siw, hosts: 0 },
    Suite { package: "hearth-client", target: "rdma", tests: "", devices: Devices::Siw, hosts: 4 },
];

/// What the suites need. It is made once, beside the lints, the compilation and other suites, which rarely keep every processor busy.
static KERNEL: LazyLock<Result<PathBuf>> = LazyLock::new(|| super::headers().and_then(|()| super::prepare()));

/// Begins to make what the suites need.
pub fn prepare_behind() {
    std::thread::spawn(|| LazyLock::force(&KERNEL));
}

/// Returns what runs each of [`SUITES`]. The first waits for the machine's kernel and says what is missing.
/// `slow`: with the checks that take minutes.
pub fn suites<'a>(must_be_whole: bool, filter: &'a [&'a str], slow: bool) -> Result<Vec<test::Suite<'a>>> {
    let mut suites: Vec<test::Suite> = Vec::new();
    let prepared = move |tally: &mut Tally, _: &str| {
        if let Err(error) = &*KERNEL {
            tally.missing(must_be_whole, format!("everything over RDMA: {error:#}"));
        }
        Ok(())
    };
    suites.push(("the virtual machine".to_owned(), Box::new(prepared)));
    for suite in SUITES {
        let name = format!("{} {} over {}", suite.package, suite.target, suite.devices.kinds());
        let program = program(suite)?;
        let run = move |tally: &mut Tally, name: &str| match &*KERNEL {
            Ok(kernel) => run_in(tally, name, kernel, suite, program, filter, slow),
            Err(_) => Ok(()),
        };
        suites.push((name, Box::new(run)));
    }
    Ok(suites)
}

fn run_in(
    tally: &mut Tally,
    name: &str,
    kernel: &Path,
    suite: &Suite,
    program: PathBuf,
    filter: &[&str],
    slow: bool,
) -> Result<()> {
    let mut command: Vec<OsString> = Vec::new();
    if slow {
        command.extend(["env".to_owned(), format!("{}=1", test::SLOW_VARIABLE)].map(OsString::from));
    }
    command.push(program.into());
    command.push("--test-threads=1".into());
    // libtest joins its filters by `or`.
    match filter {
        [] if suite.tests.is_empty() => {}
        [] => command.push(suite.tests.into()),
        filter => command.extend(filter.iter().map(OsString::from)),
    }
    let mut arguments = VmArguments::new(suite.devices, command);
    arguments.hosts = suite.hosts;
    arguments.time_limit = TIME_LIMIT_S;
    let started = Instant::now();
    println!("\n=== {name}: in the virtual machine");
    let failed_before = tally.failed();
    let mut run = || {
        let mut counting = Counting { tally: &mut *tally, name, line: Vec::new() };
        Machine::start(kernel, &arguments, Stdio::null()).and_then(|machine| machine.stream(&mut counting))
    };
    let mut status = run();
    // The virtual machine has failed, not the suite: a program cannot panic a working kernel. Nothing was counted yet,
    // because a suite prints its figures last.
    if let Err(error) = &status
        && let Some(panic) = error.to_string().lines().find(|line| line.contains("Kernel panic"))
    {
        let said = format!("{name}: the virtual machine's kernel panicked and the suite was run again: {panic}");
        status = run();
        tally.note(said);
    }
    match status {
        Ok(0) => {}
        Ok(_) if tally.failed() > failed_before => {}
        Ok(status) => tally.fail(format!("{name}: ended with {status}")),
        Err(error) => tally.fail(format!("{name}: {error:#}")),
    }
    test::end(name, started);
    Ok(())
}

/// Returns the path of the test program. The daemons that it starts are built with it, because nothing is built in the
/// virtual machine.
fn program(suite: &Suite) -> Result<PathBuf> {
    let mut programs = programs()?.iter();
    let built = programs.find(|program| program.package == suite.package && program.target == suite.target);
    let built = built.with_context(|| format!("{} has no test program {}", suite.package, suite.target))?;
    Ok(built.path.clone())
}

/// Cuts the output into lines, which are shown and counted.
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
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
