//! Clusters of one implementation on this machine, whose DataNodes serve local readers.

use std::path::Path;

use anyhow::{Context, Result};
use hearth_testkit::{Cluster, ClusterSpec, Implementation, unshared_directory};

use crate::memory;

/// Starts a cluster. `settings` adds the settings of a workload. Also returns the directory of the DataNodes' sockets,
/// which is removed when it is dropped. Only root and this user can write to its ancestors.
pub fn start(
    make: Implementation,
    settings: impl FnOnce(ClusterSpec) -> ClusterSpec,
) -> Result<(Cluster, tempfile::TempDir)> {
    let sockets = tempfile::Builder::new()
        .prefix("hearth-bench-")
        .tempdir_in(unshared_directory())
        .context("cannot make a directory for sockets")?;
    let spec = ClusterSpec::new(make, make)
        .set("dfs.domain.socket.path", sockets.path().join("dn_PORT").display())
        .short_circuit()
        .set("dfs.heartbeat.interval", 3)
        .set("dfs.namenode.heartbeat.recheck-interval", 300_000);
    let mut spec = settings(spec).for_measuring();
    if make == Implementation::Apache {
        spec = spec.within(Path::new(memory::TMPFS));
    }
    Ok((spec.start()?, sockets))
}

/// Returns the name of an implementation in the figures.
pub fn name(make: Implementation) -> &'static str {
    if make == Implementation::Apache { "Apache" } else { "Hearth" }
}
