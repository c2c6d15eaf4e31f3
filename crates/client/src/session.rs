//! State of one client.

use std::sync::Arc;
use std::time::Instant;

use hearth_types::{LocatedBlocks, ServerDefaults};
use parking_lot::Mutex;

use crate::datanode::{Datanodes, FailedPaths};
use crate::lease::Leases;
use crate::multiplexed::Multiplexed;
use crate::namenode::Namenode;
use crate::one_sided::OneSided;
use crate::options::ClientOptions;
use crate::short_circuit::ShortCircuit;
use crate::statistics::Counters;
use crate::{DataPath, Error};

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

    /// Locates the blocks of a file for a reader. Memory addresses of replicas that arrive with the answer are
    /// stored for one-sided reads.
    pub(crate) async fn locate(&self, path: &str, offset: u64, length: u64) -> Result<LocatedBlocks, Error> {
        // The lease of a memory address counts from before the request.
        let asked = Instant::now();
        let mut located = self.namenode.block_locations(path, offset, length).await?;
        self.take_piggybacked(&mut located, asked);
        Ok(located)
    }

    /// Stores the memory addresses of replicas that arrived with `located`, for use by one-sided reads. `asked`: the
    /// time at which the request was sent, or earlier.
    pub(crate) fn take_piggybacked(&self, located: &mut LocatedBlocks, asked: Instant) {
        let wanted = self.options.read.paths.iter().any(|path| path == DataPath::OneSided);
        for block in located.blocks.iter_mut().filter(|block| !block.advertisements.is_empty()) {
            if wanted {
                self.one_sided.note(block, asked);
            }
            block.advertisements = Vec::new();
        }
    }
}
