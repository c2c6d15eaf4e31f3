use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::net::TcpStream;

use super::TcpTransport;
use crate::conformance;
use crate::one_sided::{Error, Limits, Transport};

#[tokio::test]
async fn tcp_passes_conformance_suite() {
    conformance::all(&TcpTransport, IpAddr::V4(Ipv4Addr::LOCALHOST), |case| println!("{case}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_passes_conformance_on_several_threads() {
    conformance::all(&TcpTransport, IpAddr::V4(Ipv4Addr::LOCALHOST), |case| println!("{case}")).await;
}

#[tokio::test]
async fn silent_connections_do_not_block_others() {
    // A suspended machine may be too slow in a single try.
    let mut tries = (0..20).map(|_| connect_behind_silent_clients());
    while let Some(outcome) = tries.next() {
        match outcome.await {
            Err(error) if tries.len() == 0 => panic!("{error:?}"),
            Err(_) => {}
            Ok(()) => return,
        }
    }
}

/// Errors: that of a client that had to wait behind the silent connections.
async fn connect_behind_silent_clients() -> Result<(), Error> {
    const SOON: Duration = Duration::from_secs(2);
    let domain = TcpTransport.domain().unwrap();
    let listener = TcpTransport.listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(listener.address()).await.unwrap());
    }
    let limits = Limits::default();
    let accepting = async {
        let accepting = tokio::time::timeout(2 * SOON, listener.accept()).await;
        let late = |_| Error::TimedOut { peer: listener.address(), action: "a connection", after: 2 * SOON };
        accepting.map_err(late)??.accept(&domain, b"", limits, SOON).await
    };
    let connecting = TcpTransport.connect(&domain, listener.address(), b"", limits, SOON);
    let (connected, accepted) = tokio::join!(connecting, accepting);
    connected.and(accepted).map(|_| ())
}
