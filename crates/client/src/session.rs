//! State of one client.

use std::sync::Arc;

use hearth_types::ServerDefaults;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::datanode::{Datanodes, FailedPaths};
use crate::lease::Leases;
use crate::multiplexed::Multiplexed;
use crate::namenode::Namenode;
use crate::one_sided::OneSided;
use crate::options::ClientOptions;
use crate::short_circuit::ShortCircuit;
use crate::statistics::Counters;

/// Number of ranges that all calls of a client read individually at the same time.
const INDIVIDUAL_READS_MAX: usize = 128;

/// State that a [`crate::FileSystem`], its clones, and everything that they open share.
#[derive(Debug)]
pub(crate) struct Session {
    pub options: ClientOptions,
    pub namenode: Arc<Namenode>,
    pub datanodes: Arc<Datanodes>,
    pub user: Arc<str>,
    pub leases: Leases,
    pub failed_write_paths: FailedPaths,
    pub counters: Counters,
    pub short_circuit: Arc<ShortCircuit>,
    pub one_sided: OneSided,
    pub multiplexed: Multiplexed,
    /// Permits for reads that a call for many ranges makes individually, each over a connection of its own. All calls
    /// share them, as too many connections at once fail and are tried again.
    pub individual_reads: Semaphore,
    /// `hdfs://` and the authority given to `connect`.
    pub uri: String,
    /// Directory that relative paths start at.
    pub home: String,
    /// Cached defaults of the namenode, with their time.
    pub server_defaults: Mutex<Option<(ServerDefaults, Instant)>>,
}

/// Returns the permits of [`Session::individual_reads`].
pub(crate) fn individual_reads() -> Semaphore {
    Semaphore::new(INDIVIDUAL_READS_MAX)
}

impl Session {
    /// Returns the holder of this client's leases.
    pub(crate) fn client_name(&self) -> &str {
        &self.datanodes.client_name
    }
}
