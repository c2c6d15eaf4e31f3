//! Socket addresses in C representation, and this machine's own addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::sys::{SOCKADDR_BYTES, sockaddr, sockaddr_storage};

const FAMILY_IPV4: u16 = 2;
const FAMILY_IPV6: u16 = 10;

impl sockaddr_storage {
    pub fn new(address: SocketAddr) -> Self {
        let mut bytes = [0; SOCKADDR_BYTES];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(address) => {
                bytes[..2].copy_from_slice(&FAMILY_IPV4.to_ne_bytes());
                bytes[4..8].copy_from_slice(&address.ip().octets());
            }
            SocketAddr::V6(address) => {
                bytes[..2].copy_from_slice(&FAMILY_IPV6.to_ne_bytes());
                bytes[8..24].copy_from_slice(&address.ip().octets());
                bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
            }
        }
        Self(bytes)
    }

    /// Returns `None` if it is empty or of another address family.
    pub fn address(&self) -> Option<SocketAddr> {
        let bytes = &self.0;
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        match u16::from_ne_bytes([bytes[0], bytes[1]]) {
            FAMILY_IPV4 => {
                let ip = <[u8; 4]>::try_from(&bytes[4..8]).expect("four bytes");
                Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port))
            }
            FAMILY_IPV6 => {
                let ip = <[u8; 16]>::try_from(&bytes[8..24]).expect("sixteen bytes");
                let scope = u32::from_ne_bytes(bytes[24..28].try_into().expect("four bytes"));
                Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
            }
            _ => None,
        }
    }

    pub fn as_ptr(&self) -> *const sockaddr {
        std::ptr::from_ref(self).cast()
    }
}

/// Returns the addresses of this machine's network devices, except the loopback's, because rdma_cm finds no route over
/// it.
pub fn local_addresses() -> std::io::Result<Vec<IpAddr>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the function fills in the pointer to a list that it allocates.
    super::check(unsafe { libc::getifaddrs(&mut first) })?;
    let mut addresses = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: an entry of the list, which is freed only below.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        if entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: every address begins with its family.
        let family = i32::from(unsafe { (*entry.ifa_addr).sa_family });
        let length = match family {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
            _ => continue,
        };
        let mut storage = sockaddr_storage([0; SOCKADDR_BYTES]);
        // SAFETY: an address of that family is that long, and shorter than the storage.
        unsafe { std::ptr::copy_nonoverlapping(entry.ifa_addr.cast::<u8>(), storage.0.as_mut_ptr(), length) };
        addresses.extend(storage.address().map(|address| address.ip()).filter(|ip| !ip.is_loopback()));
    }
    // SAFETY: the list from above; nothing points into it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in ["10.8.0.1:0", "192.168.255.3:65535", "[::1]:80", "[fe80::1%3]:9866"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(sockaddr_storage::new(address).address(), Some(address));
        }
        assert_eq!(sockaddr_storage([0; SOCKADDR_BYTES]).address(), None);
    }

    #[test]
    fn local_addresses_exclude_loopback() {
        assert!(local_addresses().unwrap().iter().all(|ip| !ip.is_loopback()));
    }
}
