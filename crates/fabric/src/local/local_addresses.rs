//! Which addresses are this machine's: whoever can be reached at one of them may have a socket here, too.

use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long an answer is believed: addresses come and go with network interfaces.
const CACHE_TTL: Duration = Duration::from_secs(60);

/// Answers beyond this are not kept.
const ENTRIES_MAX: usize = 4096;

/// Which addresses are this machine's own.
#[derive(Debug, Default)]
pub struct LocalAddresses {
    known: Mutex<HashMap<IpAddr, (bool, Instant)>>,
}

impl LocalAddresses {
    /// Whether `address` is one of this machine's. An unreadable one is not.
    pub fn contains(&self, address: &str) -> bool {
        let Ok(ip) = address.parse::<IpAddr>() else { return false };
        let mut known = self.known.lock();
        match known.get(&ip) {
            Some((here, at)) if at.elapsed() < CACHE_TTL => return *here,
            _ => {}
        }
        // Only a machine's own addresses can be bound. Nothing is sent.
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
    fn only_this_machines_addresses_are_here() {
        let here = LocalAddresses::default();
        for _ in 0..2 {
            assert!(here.contains("127.0.0.1"));
            // Reserved for documentation (RFC 5737): nobody's.
            assert!(!here.contains("192.0.2.1"));
            assert!(!here.contains("localhost"));
        }
    }
}
