//! `cargo xtask stress`: readers on every path while files change under them, for a long time. Runs on this machine, or
//! over RDMA in the virtual machine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{root, run, target, vm};

#[derive(Args)]
pub struct StressArguments {
    #[arg(long, default_value_t = 15)]
    minutes: u64,
    /// Seed for the choice of operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these paths, separated by commas: local, one-sided, packets
    #[arg(long)]
    paths: Option<String>,
    /// Run in the virtual machine, where the one-sided path is RDMA
    #[arg(long)]
    vm: bool,
}

/// Time for the start of the daemons and for the final check that all resources were returned.
const BEFORE_AND_AFTER_S: u64 = 600;

pub fn run(arguments: &StressArguments) -> Result<ExitCode> {
    run::run_or_fail(run::cargo().args(["build", "--release", "--package", "hearth"]))?;
    let program = program()?;
    let mut settings = vec![
        ("HEARTH_PROGRAM", target().join("release/hearth").into_os_string()),
        ("HEARTH_STRESS_SECONDS", (arguments.minutes * 60).to_string().into()),
        ("HEARTH_STRESS_SEED", arguments.seed.to_string().into()),
    ];
    settings.extend(arguments.paths.as_ref().map(|paths| ("HEARTH_STRESS_PATHS", paths.into())));
    if !arguments.vm {
        run::run_or_fail(Command::new(program).envs(settings).current_dir(root()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut command: Vec<OsString> = vec!["env".into()];
    for (name, value) in settings {
        let mut setting = OsString::from(format!("{name}="));
        setting.push(value);
        command.push(setting);
    }
    command.push(program.into());
    let machine = vm::VmArguments::long(command, arguments.minutes * 60 + BEFORE_AND_AFTER_S);
    let kernel = vm::prepare()?;
    let status = vm::Machine::start(&kernel, &machine, Stdio::null())?.stream(&mut std::io::stdout())?;
    Ok(ExitCode::from(status))
}

/// Builds the suite. Returns the path of its program.
fn program() -> Result<PathBuf> {
    let mut build = run::cargo();
    build.args(["build", "--release", "--package", "hearth-interop", "--test", "stress"]);
    build.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let output = build.output().with_context(|| format!("cannot start {}", run::spelled(&build)))?;
    ensure!(output.status.success(), "{} ended with {}", run::spelled(&build), output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let of_suite = |message: &serde_json::Value| message["target"]["name"] == "stress";
    let found = messages.filter(of_suite).find_map(|message| message["executable"].as_str().map(PathBuf::from));
    found.context("cargo named no program")
}
