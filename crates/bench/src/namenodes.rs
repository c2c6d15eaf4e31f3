//! NameNodes that are measured without DataNodes: of which make, and where they have their metadata.

use std::path::PathBuf;

use anyhow::{Context, Result};
use hearth_testkit::Implementation;

#[derive(clap::Args)]
pub struct Namenodes {
    /// Only one of them, "Hearth" or "Apache"
    #[arg(long)]
    only: Option<String>,
    /// Where both have their metadata: a disk [default: target/]
    #[arg(long)]
    disk: Option<PathBuf>,
}

impl Namenodes {
    /// The folder on the disk, made if it is not there.
    pub fn disk(&self) -> Result<PathBuf> {
        let disk = self.disk.clone().unwrap_or_else(|| hearth_testkit::workspace_root().join("target"));
        std::fs::create_dir_all(&disk).with_context(|| format!("cannot make {}", disk.display()))?;
        Ok(disk)
    }

    /// Whether both are measured.
    pub fn are_both(&self) -> bool {
        self.only.is_none()
    }

    /// Those that are wanted, with their names in the record.
    pub fn makes(&self) -> impl Iterator<Item = (&'static str, Implementation)> {
        let wanted = |name: &str| self.only.as_ref().is_none_or(|only| only.eq_ignore_ascii_case(name));
        [("Apache", Implementation::Apache), ("Hearth", Implementation::Hearth)]
            .into_iter()
            .filter(move |(name, _)| wanted(name))
    }
}
