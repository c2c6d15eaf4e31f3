//! Engines that store their data on HDFS, run as their users run them: Apache HBase, Apache Spark and PyTorch. Slow:
//! `cargo xtask test --ecosystem`.

mod hbase;
mod pytorch;
mod spark;

use std::process::ExitCode;

use hearth_interop::{ecosystem, run};
use hearth_testkit::{Engine, python_with_torch, skip_or_fail};

fn main() -> ExitCode {
    if !ecosystem() {
        println!("takes minutes: cargo xtask test --ecosystem\n\ntest result: ok. 0 passed; 0 failed; 31 ignored");
        return ExitCode::SUCCESS;
    }
    let mut suites = Vec::new();
    for (engine, suite) in [
        (Engine::hbase().map(drop), hbase::suite()),
        (Engine::spark().map(drop), spark::suite()),
        (python_with_torch().map(drop), pytorch::suite()),
    ] {
        match engine {
            Ok(()) => suites.push(suite),
            Err(error) => skip_or_fail(suite.name, &error),
        }
    }
    run(&suites)
}
