//! Conversations: Hadoop RPC client and server, block tokens, and the sending and receiving halves of packets.

pub mod block_token;
pub mod data_transfer;
pub mod rpc;
