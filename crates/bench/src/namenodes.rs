//! Options for benchmarks of NameNodes without DataNodes: the implementations, and the location of their metadata.

use std::path::PathBuf;

use anyhow::{Context, Result};
use hearth_testkit::Implementation;

#[derive(clap::Args)]
pub struct Namenodes {
    /// Only one of them, "Hearth" or "Apache"
    #[arg(long)]
    only: Option<String>,
    /// Directory for the metadata of both: on a disk [default: target/]
    #[arg(long)]
    disk: Option<PathBuf>,
}

impl Namenodes {
    /// Returns the directory on the disk. It is made if it does not exist.
    pub fn disk(&self) -> Result<PathBuf> {
        let disk = self.disk.clone().unwrap_or_else(|| hearth_testkit::workspace_root().join("target"));
        std::fs::create_dir_all(&disk).with_context(|| format!("cannot make {}", disk.display()))?;
        Ok(disk)
    }

    /// Returns whether both are measured.
    pub fn are_both(&self) -> bool {
        self.only.is_none()
    }

    /// Returns the selected implementations, with their names in the record.
    pub fn makes(&self) -> impl Iterator<Item = (&'static str, Implementation)> {
        let wanted = |name: &str| self.only.as_ref().is_none_or(|only| only.eq_ignore_ascii_case(name));
        [("Apache", Implementation::Apache), ("Hearth", Implementation::Hearth)]
            .into_iter()
            .filter(move |(name, _)| wanted(name))
    }
}
