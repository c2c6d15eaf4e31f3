//! What a figure was measured on and with.

use std::fs;
use std::process::Command;
use std::sync::OnceLock;

/// Processor, cores, memory, kernel and its TCP's congestion control in one line, from /proc.
pub fn description() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, key: &str| -> Option<String> {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let processor = value(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = value(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.strip_suffix(" kB")?.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib.div_ceil(1 << 20));
    let kernel = read("/proc/sys/kernel/osrelease");
    // Decides much: BBR paces what is sent, within the machine too.
    let congestion = read("/proc/sys/net/ipv4/tcp_congestion_control");
    format!("{processor}, {cores} cores, {memory} GiB, Linux {}, TCP {}", kernel.trim(), congestion.trim())
}

/// Set by `mission` for its workloads: in an hour others may have committed something that is not what was built.
pub const COMMIT: &str = "HEARTH_BENCH_COMMIT";

/// The commit that is measured, with `+` behind it when the work tree differs from it: as it was when this was asked for first, before
/// anything was measured.
pub fn commit() -> String {
    static AT_THE_BEGINNING: OnceLock<String> = OnceLock::new();
    AT_THE_BEGINNING.get_or_init(|| std::env::var(COMMIT).unwrap_or_else(|_| checked_out())).clone()
}

fn checked_out() -> String {
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git").args(arguments).current_dir(hearth_testkit::workspace_root()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    // The record itself changes with every run.
    let changes = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/record.jsonl", ":!docs"]);
    if changes.is_some_and(|changes| changes.is_empty()) { commit } else { format!("{commit}+") }
}
