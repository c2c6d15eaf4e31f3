//! Connections to datanodes: how they are opened and reused, and which datanodes are known to be unreachable.

mod offers;
mod operation;
mod peer_cache;
mod recent_paths;
mod unreachable;
mod visible_length;
mod warning_limit;

pub(crate) use offers::Offers;
pub(crate) use operation::{Peer, request};
pub(crate) use peer_cache::PeerCache;
pub(crate) use recent_paths::RecentPaths;
pub(crate) use unreachable::Unreachable;
pub(crate) use visible_length::{VisibleLength, visible_length};
pub(crate) use warning_limit::WarningLimit;

use std::net::{IpAddr, SocketAddr};

use hearth_types::DatanodeId;

use crate::DatanodeError;
use crate::options::DatanodeOptions;

/// Resolves a host name or IP address and returns the first address.
pub(crate) async fn resolve(host: &str, port: u16) -> Result<SocketAddr, String> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    let found = tokio::net::lookup_host((host, port)).await.map_err(|error| format!("unknown host {host}: {error}"))?;
    // IPv4 first: Hadoop's servers listen there by default.
    let mut addresses: Vec<_> = found.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.first().copied().ok_or_else(|| format!("unknown host {host}"))
}

/// Returns the address of a datanode's transfer or RPC port, from its IP address or its host name as configured.
pub(crate) async fn address_of(
    options: &DatanodeOptions,
    datanode: &DatanodeId,
    port: u16,
) -> Result<SocketAddr, DatanodeError> {
    let host = if options.use_hostname { &datanode.host_name } else { &datanode.ip };
    resolve(host, port).await.map_err(|why| DatanodeError::Address { address: format!("{host}:{port}"), why })
}
