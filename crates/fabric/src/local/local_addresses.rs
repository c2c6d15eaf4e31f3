//! Detects addresses of this machine. A peer at such an address may also have a Unix socket here.

use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lifetime of a cached answer: addresses come and go with network interfaces.
const CACHE_TTL: Duration = Duration::from_secs(60);

/// Maximum number of cached answers.
const ENTRIES_MAX: usize = 4096;

/// Cached set of this machine's own addresses.
#[derive(Debug, Default)]
pub struct LocalAddresses {
    known: Mutex<HashMap<IpAddr, (bool, Instant)>>,
}

impl LocalAddresses {
    /// Returns true if `address` is one of this machine's; false if it cannot be parsed.
    pub fn contains(&self, address: &str) -> bool {
        let Ok(ip) = address.parse::<IpAddr>() else { return false };
        let mut known = self.known.lock();
        match known.get(&ip) {
            Some((here, at)) if at.elapsed() < CACHE_TTL => return *here,
            _ => {}
        }
        // Only the machine's own addresses can be bound. No packet is sent.
        let here = UdpSocket::bind((ip, 0)).is_ok();
        if known.len() >= ENTRIES_MAX {
            known.clear();
        }
        known.insert(ip, (here, Instant::now()));
        here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_addresses_are_local() {
        let here = LocalAddresses::default();
        for _ in 0..2 {
            assert!(here.contains("127.0.0.1"));
            // Reserved for documentation (RFC 5737), so it belongs to no machine.
            assert!(!here.contains("192.0.2.1"));
            assert!(!here.contains("localhost"));
        }
    }
}
