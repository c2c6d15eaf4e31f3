use std::net::{IpAddr, SocketAddr};

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
