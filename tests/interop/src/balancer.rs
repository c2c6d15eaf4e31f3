//! Apache's balancer, run to its end.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::Session;

const BALANCER: &str = "org.apache.hadoop.hdfs.server.balancer.Balancer";
/// Maximum number of consecutive runs.
const RUNS_MAX: u32 = 8;

/// Runs the balancer with `arguments` until it reports that the cluster is balanced. Returns the number of runs.
///
/// Version 3.4.2 fails with an exception of its metrics if a second iteration is needed; it is then run again.
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
        // Time for the DataNodes to finish what the failed run began.
        std::thread::sleep(Duration::from_secs(2));
    }
}
