//! Suites that hold Hearth against real Apache Hadoop and hdfs-native, as processes on this machine.
//!
//! Run by `cargo xtask test --interop`, which fetches what they need first. A suite is a list of checks carried out on
//! one cluster after the other: Apache's alone first (of some with `--cluster` only), as the oracle that shows the checks themselves to be right, then
//! the combinations with ours. Each check of each cluster counts as one test.

mod alike;
mod balancer;
mod suite;

pub use alike::{program_said, tool_said};
pub use balancer::balance;
pub use suite::{Check, Session, Suite, ecosystem, run, slow};
