//! One-sided reads of replicas in the memory of remote datanodes, without running the datanode's code.
//!
//! The datanode's offer ([`Datanodes::offer`]) contains the address on which it listens. The addresses of a
//! replica's bytes come with the block's locations ([`piggybacked`]); otherwise the datanode is asked. Either is a
//! lease. From then on a read is a batch of READs: data, CRCs, and the record that identifies the replica in that
//! memory. Connections, registered buffers, leases and CRCs are cached.
//!
//! ```text
//! OneSided       one for a file system and its clones
//!  ├ RdmaContext  the transport, registered memory ([`buffer_pool`]), cached tables of CRCs ([`crc_tables`])
//!  ├ Peers        a connection to each datanode ([`read_connection`])
//!  ├ ReadLeases   of replicas, by block and datanode ([`advertised_replica`])
//!  ├ Refusals     of one-sided reads, by block and datanode
//!  └ PiggybackedAdvertisements  advertisements from the namenode, for replicas not read yet
//! ```

mod advertised_replica;
mod buffer_pool;
mod crc_tables;
mod open;
mod peers;
mod piggybacked;
mod rdma_context;
mod read_connection;
mod read_leases;
mod refusals;
mod small_copy;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hearth_types::{DatanodeId, LocatedBlock};
use tokio::time::Instant;

use crate::DatanodeError;
use crate::datanode::Datanodes;
use crate::options::{OneSidedOptions, PacketOptions};
use crate::statistics::AdvertisementCounts;
use advertised_replica::Key;
pub(crate) use advertised_replica::{AdvertisedReplica, CompletedRead, PostedRead, ReadError};
pub(crate) use open::OpenRemoteReplica;
use peers::Peers;
use piggybacked::PiggybackedAdvertisements;
use rdma_context::RdmaContext;
use read_leases::ReadLeases;
use refusals::Refusals;

/// Reason why a datanode cannot be read from, as text for messages.
const NOT_LISTENING: &str = "the datanode does not listen for one-sided reads";

/// State of the one-sided reads of a file system.
#[derive(Debug)]
pub(crate) struct OneSided {
    /// Packets of writers.
    packets: PacketOptions,
    datanodes: Arc<Datanodes>,
    /// `None` if this machine has no such network.
    rdma: Option<RdmaContext>,
    peers: Peers,
    leases: ReadLeases,
    refusals: Refusals,
    piggybacked: PiggybackedAdvertisements,
    /// Number of requests to datanodes for the location of a replica.
    asked: AtomicU64,
}

impl OneSided {
    pub(crate) fn new(options: &OneSidedOptions, packets: PacketOptions, datanodes: Arc<Datanodes>) -> Self {
        Self {
            packets,
            datanodes,
            rdma: RdmaContext::new(options),
            peers: Peers::default(),
            leases: ReadLeases::default(),
            refusals: Refusals::default(),
            piggybacked: PiggybackedAdvertisements::default(),
            asked: AtomicU64::new(0),
        }
    }

    /// Returns true if this machine has such a network.
    pub(crate) fn is_possible(&self) -> bool {
        self.rdma.is_some()
    }

    /// Returns true if this path to the replica recently failed. Does not wait.
    ///
    /// Errors: the reason why it cannot be used, as text.
    pub(crate) fn failed_lately(&self, block: &LocatedBlock, datanode: &DatanodeId) -> Result<bool, &'static str> {
        let Some(rdma) = &self.rdma else {
            return Err("this machine has no one-sided network, or hearth.one-sided.transport disables it");
        };
        if let Some(offer) = self.datanodes.offers.known(&datanode.uuid)
            && !offer.is_some_and(|offer| rdma.can_reach(&offer))
        {
            return Err(NOT_LISTENING);
        }
        if self.peers.failed_lately(&datanode.uuid) {
            return Ok(true);
        }
        if self.refusals.has(&Key::new(block, datanode)) {
            return Err("the datanode recently refused one-sided reads of the replica");
        }
        Ok(false)
    }

    /// Stores the advertisements of a block's replicas from a response of the namenode. `asked`: time of the request.
    pub(crate) fn note(&self, block: &LocatedBlock, asked: Instant) {
        if self.rdma.is_some() {
            self.piggybacked.note(block, asked);
        }
    }

    pub(crate) fn counts(&self) -> AdvertisementCounts {
        let (piggybacked, refused) = self.piggybacked.counts();
        AdvertisementCounts { asked: self.asked.load(Ordering::Relaxed), piggybacked, refused }
    }

    /// Drops the lease.
    pub(crate) fn forget(&self, block: &LocatedBlock, datanode: &DatanodeId, replica: &Arc<AdvertisedReplica>) {
        let key = Key::new(block, datanode);
        // The namenode's advertisement is no newer.
        self.piggybacked.forget(&key);
        self.leases.forget(&key, replica);
    }

    /// Excludes the replica from this path for a while.
    pub(crate) fn note_refusal(&self, block: &LocatedBlock, datanode: &DatanodeId, why: &str) -> DatanodeError {
        self.refusals.note(Key::new(block, datanode));
        not_shown(block, why)
    }
}

fn not_shown(block: &LocatedBlock, why: &str) -> DatanodeError {
    DatanodeError::NotAdvertised { block: Box::new(block.block.clone()), why: why.to_owned() }
}
