//! Where results go.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The record that new lines are added to: the project's, or one in the current folder when the project is not here.
pub fn record() -> PathBuf {
    let folder = hearth_testkit::workspace_root().join("bench");
    if folder.is_dir() { folder.join("record.jsonl") } else { "hearth-bench.jsonl".into() }
}

/// The folder of the charts, made when it is not there.
pub fn charts() -> Result<PathBuf> {
    let docs = hearth_testkit::workspace_root().join("docs");
    let folder = if docs.is_dir() { docs.join("benchmarks") } else { Path::new(".").to_owned() };
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}
