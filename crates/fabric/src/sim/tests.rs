use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Fault, FaultAction, Sim, Step};
use crate::Memory;
use crate::conformance;
use crate::one_sided::{Access, Connection, Domain, Error, Limits, Transfer, Transport};

const IP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn passes_conformance_suite() {
    conformance::all(&Sim::new(), IP, |case| println!("{case}")).await;
}

async fn pair(sim: &Sim, limits: Limits) -> (Arc<dyn Domain>, Arc<dyn Connection>, Arc<dyn Connection>) {
    let domain = sim.domain().unwrap();
    let listener = sim.listen(SocketAddr::new(IP, 0)).await.unwrap();
    let accepting = async { listener.accept().await.unwrap().accept(&domain, b"", limits, LONG).await.unwrap() };
    let (near, far) = tokio::join!(sim.connect(&domain, listener.address(), b"", limits, LONG), accepting);
    (domain, near.unwrap(), far)
}

/// Shows why memory must not be reused in place: the key was valid, the region is gone, and the bytes that arrive are
/// the current ones.
#[tokio::test]
async fn read_held_across_deregistration_returns_current_memory() {
    let sim = Sim::new();
    let (domain, near, _far) = pair(&sim, Limits::default()).await;
    let memory = Arc::new(Memory::fresh(4096).unwrap());
    let source = domain.register(&memory, 0..4096, Access::RemoteRead).unwrap();
    let into = Arc::new(Memory::fresh(4096).unwrap());
    let local = domain.register(&into, 0..4096, Access::Local).unwrap();
    sim.fault(Fault { at: Step::Read, nth: 2, then: FaultAction::Hold });
    let transfer = Transfer { local, offset: 0, remote: source.remote() };
    near.read(vec![transfer.clone()], LONG).await.unwrap();
    let read = near.read(vec![transfer.clone()], LONG);
    sim.held().await;
    drop(source);
    memory.write(0, &[7; 4096]);
    sim.release();
    read.await.unwrap();
    let mut bytes = [0; 4096];
    into.read(0, &mut bytes);
    assert_eq!(bytes, [7; 4096]);
    assert!(matches!(near.read(vec![transfer], LONG).await, Err(Error::Closed { .. })));
    assert_eq!(sim.steps(Step::Read), 2);
}

#[tokio::test]
async fn connection_ends_at_the_requested_step() {
    let sim = Sim::new();
    let (_domain, near, far) = pair(&sim, Limits::default()).await;
    sim.fault(Fault { at: Step::Message, nth: 3, then: FaultAction::End });
    for _ in 0..3 {
        near.send(Bytes::from_static(b"message"), LONG).await.unwrap();
    }
    assert!(far.receive(LONG).await.is_ok());
    assert!(far.receive(LONG).await.is_ok());
    assert!(matches!(far.receive(LONG).await, Err(Error::Closed { .. })));
    near.closed().await;
    sim.fault(Fault { at: Step::Connect, nth: 1, then: FaultAction::End });
    let domain = sim.domain().unwrap();
    let listener = sim.listen(SocketAddr::new(IP, 0)).await.unwrap();
    let refused = sim.connect(&domain, listener.address(), b"", Limits::default(), LONG).await;
    assert!(matches!(refused, Err(Error::Connect { .. })));
}

#[tokio::test]
async fn sender_without_credit_times_out() {
    let sim = Sim::new();
    let (_domain, near, far) = pair(&sim, Limits { messages: 2, ..Limits::default() }).await;
    sim.fault(Fault { at: Step::Credit, nth: 1, then: FaultAction::Withhold });
    for _ in 0..2 {
        near.send(Bytes::from_static(b"message"), LONG).await.unwrap();
        far.receive(LONG).await.unwrap();
    }
    let late = near.send(Bytes::from_static(b"message"), Duration::from_millis(20)).await;
    assert!(matches!(late, Err(Error::TimedOut { .. })), "{late:?}");
    far.closed().await;
}

#[tokio::test]
async fn fenced_write_never_arrives() {
    let sim = Sim::new();
    let (domain, near, far) = pair(&sim, Limits::default()).await;
    let memory = Arc::new(Memory::fresh(4096).unwrap());
    let sink = domain.register(&memory, 0..4096, Access::RemoteWrite).unwrap();
    let from = Arc::new(Memory::fresh(4096).unwrap());
    from.write(0, &[5; 4096]);
    let local = domain.register(&from, 0..4096, Access::Local).unwrap();
    sim.fault(Fault { at: Step::Write, nth: 1, then: FaultAction::Hold });
    let write = near.write(vec![Transfer { local, offset: 0, remote: sink.remote() }], None, LONG);
    sim.held().await;
    far.close().await;
    sim.release();
    // Its own completion says nothing about the remote end.
    let _ = write.await;
    near.closed().await;
    let mut bytes = [0; 4096];
    memory.read(0, &mut bytes);
    assert_eq!(bytes, [0; 4096]);
}

#[tokio::test]
async fn write_to_dropped_region_never_arrives() {
    let sim = Sim::new();
    let (domain, near, far) = pair(&sim, Limits::default()).await;
    let memory = Arc::new(Memory::fresh(4096).unwrap());
    let sink = domain.register(&memory, 0..4096, Access::RemoteWrite).unwrap();
    let from = Arc::new(Memory::fresh(4096).unwrap());
    from.write(0, &[5; 4096]);
    let local = domain.register(&from, 0..4096, Access::Local).unwrap();
    sim.fault(Fault { at: Step::Write, nth: 1, then: FaultAction::Hold });
    let write = near.write(vec![Transfer { local, offset: 0, remote: sink.remote() }], None, LONG);
    sim.held().await;
    drop(sink);
    sim.release();
    // Its own completion says nothing about the remote end.
    let _ = write.await;
    tokio::time::timeout(LONG, far.closed()).await.expect("the connection ends");
    let mut bytes = [0; 4096];
    memory.read(0, &mut bytes);
    assert_eq!(bytes, [0; 4096]);
}
