//! Names of addresses, as Java looks them up for its output.

use std::net::{IpAddr, ToSocketAddrs};

/// Returns the host name of `ip` or `ip:port`, as this machine resolves it, or else the address.
pub fn host_name_of(name: &str) -> String {
    // An IPv6 address has several colons.
    let ip = match name.parse::<IpAddr>() {
        Ok(_) => name,
        Err(_) => name.rsplit_once(':').map_or(name, |(ip, _)| ip),
    };
    let found = ip.parse::<IpAddr>().ok().and_then(|address| Some((address, reverse(address)?)));
    match found {
        // A name that does not lead back to the address is not used, as in Java.
        Some((address, host)) if leads_to(&host, address) => host,
        _ => ip.to_owned(),
    }
}

fn leads_to(host: &str, address: IpAddr) -> bool {
    (host, 0).to_socket_addrs().is_ok_and(|mut found| found.any(|found| found.ip() == address))
}

/// Looks up the name of an address.
fn reverse(address: IpAddr) -> Option<String> {
    match address {
        IpAddr::V4(ip) => {
            // SAFETY: `sockaddr_in` is plain data for which zeros are valid.
            let mut socket: libc::sockaddr_in = unsafe { std::mem::zeroed() };
            socket.sin_family = libc::AF_INET as libc::sa_family_t;
            socket.sin_addr.s_addr = u32::from_ne_bytes(ip.octets());
            name_of(&socket)
        }
        IpAddr::V6(ip) => {
            // SAFETY: the same.
            let mut socket: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
            socket.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            socket.sin6_addr.s6_addr = ip.octets();
            name_of(&socket)
        }
    }
}

/// Looks up the name of `socket`, which is one of libc's socket addresses.
fn name_of<T>(socket: &T) -> Option<String> {
    let mut host = [0 as libc::c_char; libc::NI_MAXHOST as usize];
    // SAFETY: the first pointer is to a live value of the given length, whose family says how to read it; the second is
    // to a live buffer of the given length. The function keeps neither. The name of the port is not requested.
    let failed = unsafe {
        libc::getnameinfo(
            std::ptr::from_ref(socket).cast(),
            size_of::<T>() as libc::socklen_t,
            host.as_mut_ptr(),
            host.len() as libc::socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    if failed != 0 {
        return None;
    }
    let bytes: Vec<u8> = host.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_a_name_stay() {
        assert_eq!(host_name_of("192.0.2.1:9866"), "192.0.2.1");
        assert_eq!(host_name_of("no-address"), "no-address");
        assert!(leads_to("127.0.0.1", "127.0.0.1".parse().unwrap()));
    }
}
