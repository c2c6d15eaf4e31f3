//! Bytes ⇄ types, both ways, for every protocol of Hadoop that Hearth speaks. No sockets, no async.
//!
//! - [`proto`]: the protobuf messages;
//! - [`convert`]: protobuf messages ⇄ `hearth_types`;
//! - [`rpc`]: frames of Hadoop RPC;
//! - `data_transfer`: operations, packets and acknowledgements of DataTransferProtocol.

pub mod convert;
pub mod delimited;
pub mod proto;
pub mod rpc;
