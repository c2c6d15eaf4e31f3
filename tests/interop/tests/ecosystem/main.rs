//! Engines that store their data on HDFS, run as their users run them: Apache HBase and Apache Spark. Slow: `cargo
//! xtask test --ecosystem`.

mod hbase;
mod spark;

use std::process::ExitCode;

use hearth_interop::{ecosystem, run};
use hearth_testkit::{Engine, skip_or_fail};

fn main() -> ExitCode {
    if !ecosystem() {
        println!("takes minutes: cargo xtask test --ecosystem\n\ntest result: ok. 0 passed; 0 failed; 5 ignored");
        return ExitCode::SUCCESS;
    }
    let mut suites = Vec::new();
    for (engine, suite) in [(Engine::hbase(), hbase::suite()), (Engine::spark(), spark::suite())] {
        match engine {
            Ok(_) => suites.push(suite),
            Err(error) => skip_or_fail(suite.name, &error),
        }
    }
    run(&suites)
}
