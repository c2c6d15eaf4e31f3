//! Where the replicas are: datanodes, storages, block locations, placement, replication, recovery.

/// The block map; being built.
#[derive(Default)]
pub struct BlockMap {}
