//! Hardware and software that a figure was measured with.

use std::fs;
use std::process::Command;
use std::sync::OnceLock;

/// Returns processor, cores, memory, kernel and its TCP congestion control in one line, from /proc.
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
    // Congestion control matters a lot: BBR paces the data, within one machine too.
    let congestion = read("/proc/sys/net/ipv4/tcp_congestion_control");
    format!("{processor}, {cores} cores, {memory} GiB, Linux {}, TCP {}", kernel.trim(), congestion.trim())
}

/// Set by `mission` for its workloads. During its hour another commit may be made that is not the one that was built.
pub const COMMIT: &str = "HEARTH_BENCH_COMMIT";

/// Returns the commit that is measured, with a `+` if the work tree has changes. The result of the first call, which is
/// made before any measurement, is kept.
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
    // Excludes the record itself, which changes with every run.
    let changes = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/record.jsonl", ":!docs"]);
    if changes.is_some_and(|changes| changes.is_empty()) { commit } else { format!("{commit}+") }
}
