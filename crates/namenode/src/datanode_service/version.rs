use hearth_wire::convert::storage_info;
use hearth_wire::proto::hdfs::nnha_status_heartbeat_proto::State;
use hearth_wire::proto::hdfs::{NamespaceInfoProto, VersionResponseProto};

use super::{DatanodeService, LAYOUT_VERSION, SOFTWARE_VERSION};

/// Capability: block reports may use the buffer format.
const BUFFERED_BLOCK_REPORTS: u64 = 1;

impl DatanodeService {
    /// Returns the identity of this namespace: the first call of a datanode.
    pub(super) fn version(&self) -> VersionResponseProto {
        let identity = &self.namenode.identity;
        VersionResponseProto {
            info: NamespaceInfoProto {
                build_version: concat!("hearth-", env!("CARGO_PKG_VERSION")).to_owned(),
                unused: 0,
                block_pool_id: identity.pool.as_str().to_owned(),
                storage_info: storage_info(identity, LAYOUT_VERSION),
                software_version: SOFTWARE_VERSION.to_owned(),
                capabilities: Some(BUFFERED_BLOCK_REPORTS),
                state: Some(State::Active as i32),
            },
        }
    }
}
