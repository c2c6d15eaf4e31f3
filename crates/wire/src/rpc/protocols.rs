//! Names of Hadoop's protocols in request headers. The version on the wire is 1 for all of them.

/// Version in request headers, for every protocol.
pub const VERSION: u64 = 1;

pub const CLIENT: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";
pub const DATANODE: &str = "org.apache.hadoop.hdfs.server.protocol.DatanodeProtocol";
pub const DATANODE_LIFELINE: &str = "org.apache.hadoop.hdfs.server.protocol.DatanodeLifelineProtocol";
pub const NAMENODE: &str = "org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol";
pub const CLIENT_DATANODE: &str = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol";
pub const INTER_DATANODE: &str = "org.apache.hadoop.hdfs.server.protocol.InterDatanodeProtocol";
pub const RECONFIGURATION: &str = "org.apache.hadoop.hdfs.protocol.ReconfigurationProtocol";
pub const HA_SERVICE: &str = "org.apache.hadoop.ha.HAServiceProtocol";
pub const PROTOCOL_INFO: &str = "org.apache.hadoop.ipc.ProtocolMetaInfoPB";
pub const REFRESH_AUTHORIZATION_POLICY: &str =
    "org.apache.hadoop.security.authorize.RefreshAuthorizationPolicyProtocol";
pub const REFRESH_USER_MAPPINGS: &str = "org.apache.hadoop.security.RefreshUserMappingsProtocol";
pub const REFRESH_CALL_QUEUE: &str = "org.apache.hadoop.ipc.RefreshCallQueueProtocol";
pub const GENERIC_REFRESH: &str = "org.apache.hadoop.ipc.GenericRefreshProtocol";
pub const GET_USER_MAPPINGS: &str = "org.apache.hadoop.tools.GetUserMappingsProtocol";
