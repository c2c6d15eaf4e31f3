//! Conversations: Hadoop RPC client and server, block tokens, and the sending and receiving halves of packets.
//!
//! Who writes what at the moment: `rpc` (server, client, retry cache) is being written on branch `lead`;
//! `block_token` and `data_transfer` on branch `wire`.
