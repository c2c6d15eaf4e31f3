//! Writes Hearth's packages: `hearth-packaging order.json`. `cargo xtask dist` builds the program, writes the order and calls this.
//!
//! The same order gives the same bytes: paths are sorted, owners and modes are fixed, and all times are that of the commit.

mod archive;
mod deb;
mod image;
mod layout;
mod rpm_package;
mod tree;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

/// What to package, and where the packages go.
#[derive(Deserialize)]
pub struct Order {
    pub version: String,
    /// Commit of the sources.
    pub commit: String,
    /// Time of the commit, in seconds since 1970.
    pub time: u64,
    pub machine: Machine,
    /// The program `hearth`, without debug symbols.
    pub program: PathBuf,
    /// Directory with `man/` and `completions/`, which the program has written.
    pub documents: PathBuf,
    /// Root of the repository.
    pub root: PathBuf,
    /// Directory of the packages.
    pub out: PathBuf,
    /// Debian packages that the image consists of besides Hearth. Empty: no image is made.
    pub image_packages: Vec<PathBuf>,
}

/// Processor architecture.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Machine {
    X86_64,
    Aarch64,
}

impl Machine {
    /// The name that RPM and the kernel use.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The name that Debian and OCI images use.
    pub fn debian_name(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The dynamic loader that programs for this machine name. Source: the ABI of each architecture.
    pub fn loader(self) -> &'static str {
        match self {
            Self::X86_64 => "/lib64/ld-linux-x86-64.so.2",
            Self::Aarch64 => "/lib/ld-linux-aarch64.so.1",
        }
    }
}

pub const SUMMARY: &str = "In-memory, RDMA-enabled HDFS that every HDFS client can use unchanged";
pub const DESCRIPTION: &str = "Hearth is an HDFS whose blocks live in memory. This package has the NameNode, the DataNode\n\
    and the command line in one program, units for systemd, and examples of configurations.";
/// The oldest glibc that the program runs with. `cargo xtask dist` checks it.
pub const GLIBC: &str = "2.28";

fn main() -> Result<()> {
    let path = std::env::args_os().nth(1).context("usage: hearth-packaging order.json")?;
    let text = std::fs::read(&path).with_context(|| format!("cannot read {}", Path::new(&path).display()))?;
    let order: Order = serde_json::from_slice(&text).context("the order is not of the expected form")?;
    std::fs::create_dir_all(&order.out).with_context(|| format!("cannot make {}", order.out.display()))?;
    archive::write(&order)?;
    deb::write(&order)?;
    rpm_package::write(&order)?;
    if !order.image_packages.is_empty() {
        image::write(&order)?;
    }
    Ok(())
}

/// Writes one package and prints its name.
fn write_package(order: &Order, name: &str, bytes: &[u8]) -> Result<()> {
    let path = order.out.join(name);
    std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{} {:.1} MiB", path.display(), bytes.len() as f64 / f64::from(1 << 20));
    Ok(())
}
