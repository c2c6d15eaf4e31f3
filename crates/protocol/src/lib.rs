//! Protocol state machines: Hadoop RPC client and server, block tokens, the sending and receiving halves of packets,
//! both ends of replica streams, the writer's end of one-sided writes, and traces of requests.

pub mod block_token;
pub mod data_transfer;
pub mod one_sided_write;
pub mod replica_stream;
pub mod rpc;
pub mod trace;
