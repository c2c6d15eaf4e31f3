//! Bytes ⇄ types, both ways, for every Hadoop protocol that Hearth speaks. No sockets, no async.
//!
//! - [`proto`]: the protobuf messages;
//! - [`convert`]: protobuf messages ⇄ `hearth_types`;
//! - [`rpc`]: frames of Hadoop RPC;
//! - [`data_transfer`]: operations, packets and acknowledgements of DataTransferProtocol;
//! - [`block_report`]: the replicas in a full block report;
//! - [`block_token`]: the identifier in a block token;
//! - [`rdma_control`]: control messages of one-sided connections;
//! - [`offer`]: additional features of Hearth's DataNodes;
//! - [`announcement`]: readable memory that they announce to Hearth's NameNode;
//! - [`trace`]: contexts of traces, which calls and operations carry;
//! - [`delimited`]: messages with a length prefix.

pub mod announcement;
pub mod block_report;
pub mod block_token;
pub mod convert;
pub mod data_transfer;
pub mod delegation_token;
pub mod delimited;
pub mod offer;
pub mod open_many;
pub mod proto;
pub mod rdma_control;
pub mod rpc;
pub mod trace;
