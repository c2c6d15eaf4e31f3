//! Apache's balancer, run to its end.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::Session;

const BALANCER: &str = "org.apache.hadoop.hdfs.server.balancer.Balancer";
/// Longest row of runs.
const RUNS_MAX: u32 = 8;

/// Runs the balancer with `arguments` until it says that the cluster is balanced; how many runs that took.
///
/// 3.4.2 ends with an exception of its metrics when a second iteration is wanted; then it is run again.
pub fn balance(session: &Session, conf: &Path, arguments: &[&str]) -> Result<u32> {
    let mut runs = 0;
    loop {
        runs += 1;
        let run = session.cluster.apache()?.run(conf, BALANCER, arguments)?;
        if run.code == 0 {
            return Ok(runs);
        }
        let known = run.stdout.contains("Metrics source Balancer") || run.stderr.contains("Metrics source Balancer");
        ensure!(known && runs < RUNS_MAX, "run {runs} of the balancer: {}\n{}", run.stdout, run.stderr);
        std::thread::sleep(Duration::from_secs(2));
    }
}
