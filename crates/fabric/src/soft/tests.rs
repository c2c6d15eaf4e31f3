use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::net::TcpStream;

use super::TcpTransport;
use crate::conformance;
use crate::one_sided::{Limits, Transport};

#[tokio::test]
async fn over_tcp_it_does_what_every_transport_must() {
    conformance::all(&TcpTransport, IpAddr::V4(Ipv4Addr::LOCALHOST), |case| println!("{case}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_it_does_on_several_threads() {
    conformance::all(&TcpTransport, IpAddr::V4(Ipv4Addr::LOCALHOST), |case| println!("{case}")).await;
}

#[tokio::test]
async fn those_who_say_nothing_do_not_keep_others_waiting() {
    const SOON: Duration = Duration::from_secs(2);
    let domain = TcpTransport.domain().unwrap();
    let listener = TcpTransport.listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(listener.address()).await.unwrap());
    }
    let limits = Limits::default();
    let accepting = async { listener.accept().await.unwrap().accept(&domain, b"", limits, SOON).await };
    let connecting = async {
        let connected = TcpTransport.connect(&domain, listener.address(), b"", limits, SOON).await;
        connected.expect("in time")
    };
    let (_connected, accepted) = tokio::join!(connecting, accepting);
    accepted.unwrap();
}
