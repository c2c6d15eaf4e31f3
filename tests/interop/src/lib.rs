//! Suites that compare Hearth with real Apache Hadoop and hdfs-native, as processes on this machine.
//!
//! Run by `cargo xtask test --interop`, which first fetches what they need. A suite is a list of checks that run on
//! several clusters in turn. The first is Apache's alone (in some suites only with `--cluster`): as the oracle, it
//! shows that the checks are right. The combinations with Hearth follow. Each check on each cluster counts as one test.

#![expect(clippy::disallowed_methods, reason = "suites wait for other processes, in real time")]

mod alike;
mod balancer;
mod mount;
pub mod recipes;
mod suite;

pub use alike::{program_said, tool_said};
pub use balancer::balance;
pub use mount::Mount;
pub use suite::{Check, Session, Suite, ecosystem, run, slow};
