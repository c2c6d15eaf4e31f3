use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A name server that does not answer must not delay a registration longer than this.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns true if the resolver has a name for this address.
pub(super) async fn has_name(ip: IpAddr) -> bool {
    let lookup = tokio::task::spawn_blocking(move || name_of(ip));
    matches!(tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await, Ok(Ok(Some(_))))
}

/// The standard library has no reverse lookup.
fn name_of(ip: IpAddr) -> Option<String> {
    let mut name = [0u8; 1025];
    let status = match SocketAddr::new(ip, 0) {
        SocketAddr::V4(address) => {
            // SAFETY: all-zero bytes are a valid sockaddr_in.
            let mut raw: libc::sockaddr_in = unsafe { std::mem::zeroed() };
            raw.sin_family = libc::AF_INET as libc::sa_family_t;
            raw.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
            lookup(&raw, &mut name)
        }
        SocketAddr::V6(address) => {
            // SAFETY: all-zero bytes are a valid sockaddr_in6.
            let mut raw: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
            raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            raw.sin6_addr.s6_addr = address.ip().octets();
            lookup(&raw, &mut name)
        }
    };
    if status != 0 {
        return None;
    }
    let end = name.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&name[..end]).ok().map(str::to_owned)
}

/// `T`: sockaddr_in or sockaddr_in6.
fn lookup<T>(address: &T, name: &mut [u8]) -> i32 {
    // SAFETY: `address` is a whole socket address of its family, and `name` a buffer of the length given; both outlive the call.
    unsafe {
        libc::getnameinfo(
            std::ptr::from_ref(address).cast(),
            size_of::<T>() as libc::socklen_t,
            name.as_mut_ptr().cast(),
            name.len() as libc::socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn loopback_has_a_name_test_net_has_none() {
        assert!(super::name_of("127.0.0.1".parse().unwrap()).is_some());
        // TEST-NET-1, RFC 5737.
        assert!(super::name_of("192.0.2.77".parse().unwrap()).is_none());
    }
}
