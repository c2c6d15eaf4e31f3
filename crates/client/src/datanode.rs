//! Connections to datanodes: how they are opened and reused, and which datanodes are known to be unreachable.

mod datanodes;
mod failed_paths;
mod offers;
mod peer;
mod peer_cache;
mod recent_paths;
mod unreachable;
mod visible_length;
mod warning_limit;

pub(crate) use datanodes::Datanodes;
pub(crate) use failed_paths::FailedPaths;
pub(crate) use peer::Peer;
pub(crate) use peer_cache::PeerCache;
pub(crate) use visible_length::VisibleLength;
