//! Locations of results.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns the record file that new lines are added to: the project's, or one in the current directory if the project
/// is not found.
pub fn record() -> PathBuf {
    let folder = hearth_testkit::workspace_root().join("bench");
    if folder.is_dir() { folder.join("record.jsonl") } else { "hearth-bench.jsonl".into() }
}

/// Returns the directory of the charts, which is made if it does not exist.
pub fn charts() -> Result<PathBuf> {
    let docs = hearth_testkit::workspace_root().join("docs");
    let folder = if docs.is_dir() { docs.join("benchmarks") } else { Path::new(".").to_owned() };
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}
