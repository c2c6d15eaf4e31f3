//! State of one client.

use std::sync::Arc;

use hearth_types::ServerDefaults;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::datanode::{Datanodes, FailedPaths};
use crate::lease::Leases;
use crate::multiplexed::Multiplexed;
use crate::namenode::Namenode;
use crate::one_sided::OneSided;
use crate::options::ClientOptions;
use crate::short_circuit::ShortCircuit;
use crate::statistics::Counters;

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
    /// `hdfs://` and the authority given to `connect`.
    pub uri: String,
    /// Directory that relative paths start at.
    pub home: String,
    /// Cached defaults of the namenode, with their time.
    pub server_defaults: Mutex<Option<(ServerDefaults, Instant)>>,
}

impl Session {
    /// Returns the holder of this client's leases.
    pub(crate) fn client_name(&self) -> &str {
        &self.datanodes.client_name
    }
}
