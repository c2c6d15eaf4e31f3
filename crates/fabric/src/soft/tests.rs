use std::net::{IpAddr, Ipv4Addr};

use super::TcpTransport;
use crate::conformance;

#[tokio::test]
async fn over_tcp_it_does_what_every_transport_must() {
    conformance::all(&TcpTransport, IpAddr::V4(Ipv4Addr::LOCALHOST), |case| println!("{case}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_it_does_on_several_threads() {
    conformance::all(&TcpTransport, IpAddr::V4(Ipv4Addr::LOCALHOST), |case| println!("{case}")).await;
}
