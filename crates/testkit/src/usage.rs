//! Resource usage of processes, from /proc.

use std::fs;

use anyhow::{Context, Result};

/// The unit of CPU times in /proc: 100 on every Linux, whatever the kernel's own tick (USER_HZ, proc(5)).
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time and memory of one process, all its threads together.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    /// Seconds in user mode since its start.
    pub user: f64,
    /// Seconds in kernel mode since its start.
    pub system: f64,
    /// Resident bytes, shared memory included.
    pub resident: u64,
    /// Largest `resident` since its start.
    pub resident_max: u64,
    /// Part of `resident` that is tmpfs and shared memory.
    pub shared_memory: u64,
    pub threads: u64,
}

impl Usage {
    /// Returns the CPU seconds, user and system.
    pub fn cpu(&self) -> f64 {
        self.user + self.system
    }
}

pub fn usage(process: u32) -> Result<Usage> {
    let (user, system) = times(&format!("/proc/{process}/stat"))?;
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let bytes = |key: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|rest| rest.trim().strip_suffix(" kB")).and_then(|kb| kb.trim().parse().ok()).unwrap_or(0) * 1024
    };
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse().ok()).unwrap_or(0);
    let (resident, resident_max, shared_memory) = (bytes("VmRSS:"), bytes("VmHWM:"), bytes("RssShmem:"));
    Ok(Usage { user, system, resident, resident_max, shared_memory, threads })
}

/// Returns the CPU seconds of a process's living threads whose names start with `prefix` (the kernel keeps 15 bytes of
/// a name).
pub fn threads_cpu(process: u32, prefix: &str) -> Result<f64> {
    let directory = format!("/proc/{process}/task");
    let mut sum = 0.0;
    for task in fs::read_dir(&directory).with_context(|| format!("cannot read {directory}"))? {
        let path = task.with_context(|| format!("cannot read {directory}"))?.path();
        // A thread may end between the listing and the reading.
        let Ok(name) = fs::read_to_string(path.join("comm")) else { continue };
        if name.starts_with(prefix)
            && let Ok((user, system)) = times(&path.join("stat").to_string_lossy())
        {
            sum += user + system;
        }
    }
    Ok(sum)
}

/// Returns the seconds in user mode and in kernel mode from a `stat` file.
fn times(path: &str) -> Result<(f64, f64)> {
    let stat = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    // The name, in parentheses, may contain any characters. utime and stime are the 12th and 13th fields after it.
    let behind = stat.rsplit_once(')').map(|(_, behind)| behind).unwrap_or_default();
    let mut fields = behind.split_whitespace().skip(11);
    let mut seconds = || -> Result<f64> {
        let ticks: f64 = fields.next().with_context(|| format!("{path} is short"))?.parse()?;
        Ok(ticks / TICKS_PER_SECOND)
    };
    Ok((seconds()?, seconds()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_this_process_is_measured() {
        let before = usage(std::process::id()).unwrap();
        assert!(before.resident > 0 && before.threads > 0);
        let started = std::time::Instant::now();
        let mut sum = 0u64;
        while usage(std::process::id()).unwrap().cpu() <= before.cpu() {
            assert!(started.elapsed().as_secs() < 60, "no time was used in a minute");
            for _ in 0..1_000_000 {
                sum = std::hint::black_box(sum.wrapping_add(1));
            }
        }
    }
}
