//! Debian's package `prometheus`, unpacked into `.cache/prometheus` without an installation: promtool checks metrics and
//! rules in `crates/cli/tests/monitoring`, and prometheus itself scrapes the servers there.

use std::path::PathBuf;

use anyhow::Result;

use crate::debian;

/// Returns the directory with `usr/bin/promtool` and `usr/bin/prometheus`, which is fetched once.
pub fn fetch() -> Result<PathBuf> {
    let home = crate::root().join(".cache/prometheus");
    debian::unpacked(&["prometheus"], home, &["usr/bin/promtool", "usr/bin/prometheus"])
}
