//! Runs RDMA through the suite that all transports must pass, and checks the network properties that the design relies
//! on.
//!
//! Needs an RDMA device: `cargo xtask test` runs this in its virtual machine, over SoftiWARP and over Soft-RoCE.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hearth_fabric::one_sided::{Access, Connection, Domain, Error, Limits, Region, Transfer, Transport};
use hearth_fabric::rdma::{Rdma, Settings};
use hearth_fabric::{Memory, conformance};
use hearth_testkit::{in_virtual_machine, left_to_virtual_machine};

/// Far longer than any step here takes: a wait that reaches this limit would hang.
const LONG: Duration = Duration::from_secs(60);

/// Opens RDMA on this machine. Without a device it leaves the test to the virtual machine, which has one.
fn rdma(test: &str) -> Option<Rdma> {
    match Rdma::open(Settings::default()) {
        Ok(rdma) => Some(rdma),
        Err(Error::Unavailable { why, .. }) if !in_virtual_machine() => {
            left_to_virtual_machine(test, why);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

struct Pair {
    near: Arc<dyn Connection>,
    far: Arc<dyn Connection>,
    near_domain: Arc<dyn Domain>,
    far_domain: Arc<dyn Domain>,
}

async fn pair(rdma: &Rdma, near: Limits, far: Limits) -> Pair {
    let listener = rdma.listen(SocketAddr::new(rdma.address(), 0)).await.unwrap();
    let (near_domain, far_domain) = (rdma.domain().unwrap(), rdma.domain().unwrap());
    let accepting = async { listener.accept().await.unwrap().accept(&far_domain, b"", far, LONG).await.unwrap() };
    let connecting = rdma.connect(&near_domain, listener.address(), b"", near, LONG);
    let (near, far) = tokio::join!(connecting, accepting);
    Pair { near: near.unwrap(), far, near_domain, far_domain }
}

fn region(domain: &Arc<dyn Domain>, bytes: u64, access: Access) -> Arc<dyn Region> {
    let memory = Arc::new(Memory::fresh(bytes).unwrap());
    domain.register(&memory, 0..bytes, access).unwrap()
}

fn whole(local: &Arc<dyn Region>, remote: &Arc<dyn Region>) -> Transfer {
    Transfer { local: local.clone(), offset: 0, remote: remote.remote() }
}

fn content(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.length() as usize];
    memory.read(0, &mut bytes);
    bytes
}

/// Cases that SoftiWARP violates: see [`softiwarp_allows_reads_of_any_region`].
const NOT_OVER_SOFTIWARP: &[&str] = &["reads_without_permission_fail"];

async fn conforms(rdma: &Rdma) {
    let but = if rdma.is_softiwarp() { NOT_OVER_SOFTIWARP } else { &[] };
    conformance::all_but(rdma, rdma.address(), but, |case| println!("{case}")).await;
}

#[tokio::test]
async fn passes_conformance_suite() {
    let Some(rdma) = rdma("conformance") else { return };
    conforms(&rdma).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passes_conformance_on_several_threads() {
    let Some(rdma) = rdma("conformance on several threads") else { return };
    conforms(&rdma).await;
}

#[tokio::test]
async fn passes_conformance_without_polling() {
    if rdma("conformance without polling").is_none() {
        return;
    }
    let rdma = Rdma::open(Settings { busy_poll: Duration::ZERO, ..Settings::default() }).unwrap();
    conforms(&rdma).await;
}

/// Rule 1 relies on this: deregistration does not wait for a READ in flight. Memory that is not modified afterwards is
/// read as it was, or not at all; a later READ is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_across_deregistration_returns_old_bytes() {
    const BYTES: u64 = 64 << 20;
    let Some(rdma) = rdma("a READ across deregistration") else { return };
    let mut finished = 0;
    for round in 0..8 {
        let pair = pair(&rdma, Limits::default(), Limits::default()).await;
        let source = region(&pair.far_domain, BYTES, Access::RemoteRead);
        source.memory().write(0, &vec![b'A'; BYTES as usize]);
        let local = region(&pair.near_domain, BYTES, Access::Local);
        let reading = pair.near.read(vec![whole(&local, &source)], LONG);
        let (memory, remote) = (source.memory().clone(), source.remote());
        // Somewhere within the region.
        let mut place = [0];
        for _ in 0..10_000 {
            local.memory().read(BYTES / 16 * round, &mut place);
            if place == *b"A" {
                break;
            }
            // The card writes there: a condition without an event.
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        drop(source);
        let read = reading.await;
        let bytes = content(local.memory());
        assert!(bytes.iter().all(|byte| [b'A', 0].contains(byte)), "round {round}: unexpected bytes");
        match read {
            Ok(()) => {
                finished += 1;
                assert!(bytes.iter().all(|byte| *byte == b'A'), "round {round}: a successful READ lacks bytes");
            }
            Err(error) => assert!(matches!(error, Error::Closed { .. }), "{error}"),
        }
        let late = pair.near.read(vec![Transfer { local: local.clone(), offset: 0, remote }], LONG).await;
        assert!(matches!(late, Err(Error::Closed { .. })), "{late:?}");
        drop(memory);
    }
    println!("{finished} of 8 READs succeeded although their region was deregistered");
}

/// Shows why a write's own completion proves nothing, and why every wait has a timeout.
#[tokio::test]
async fn forbidden_write_ends_the_connection() {
    let Some(rdma) = rdma("a forbidden WRITE") else { return };
    let pair = pair(&rdma, Limits::default(), Limits::default()).await;
    let target = region(&pair.far_domain, 4096, Access::RemoteRead);
    let local = region(&pair.near_domain, 4096, Access::Local);
    let written = pair.near.write(vec![whole(&local, &target)], None, LONG);
    let read = pair.near.read(vec![whole(&local, &target)], Duration::from_secs(5));
    let written = written.await;
    if rdma.is_iwarp() {
        println!("the forbidden write's own completion: {written:?}");
    } else {
        assert!(matches!(written, Err(Error::Closed { .. })), "{written:?}");
    }
    let read = read.await;
    assert!(matches!(read, Err(Error::Closed { .. } | Error::TimedOut { .. })), "{read:?}");
    pair.near.closed().await;
    drop((local, pair.near));
    assert_eq!(pair.near_domain.registered_bytes(), 0);
    assert_eq!(content(target.memory()), [0; 4096]);
}

/// Linux 7.2 checks a READ's key and bounds over SoftiWARP, but not that the region was registered for remote reads
/// (`siw_qp_sq_proc_tx` checks no access rights). When this test fails, remove the exception above, and update
/// docs/operations.md.
#[tokio::test]
async fn softiwarp_allows_reads_of_any_region() {
    let Some(rdma) = rdma("SoftiWARP's rights").filter(Rdma::is_softiwarp) else { return };
    for access in [Access::RemoteWrite, Access::Local] {
        let pair = pair(&rdma, Limits::default(), Limits::default()).await;
        let source = region(&pair.far_domain, 4096, access);
        source.memory().write(0, &[5; 4096]);
        let local = region(&pair.near_domain, 4096, Access::Local);
        pair.near.read(vec![whole(&local, &source)], LONG).await.unwrap();
        assert_eq!(content(local.memory()), [5; 4096]);
    }
}

/// Registers a tmpfs file, a memfd and a read-only mapping; data that a peer writes is immediately visible in the file.
#[tokio::test]
async fn remote_writes_reach_files() {
    let Some(rdma) = rdma("files") else { return };
    let pair = pair(&rdma, Limits::default(), Limits::default()).await;
    let path = format!("/dev/shm/hearth-rdma-test-{}", std::process::id());
    let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(10_000).unwrap();
    file.write_all_at(&[1; 10_000], 0).unwrap();

    let writable = Arc::new(Memory::map(file.try_clone().unwrap().into(), 0, 10_000, true).unwrap());
    let target = pair.far_domain.register(&writable, 0..10_000, Access::RemoteWrite).unwrap();
    let local = region(&pair.near_domain, 10_000, Access::Local);
    local.memory().write(0, &[2; 10_000]);
    pair.near.write(vec![whole(&local, &target)], Some(Bytes::from_static(b"there")), LONG).await.unwrap();
    pair.far.receive(LONG).await.unwrap();
    let mut bytes = [0; 10_000];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [2; 10_000]);

    let reading = Arc::new(Memory::map(file.into(), 0, 10_000, false).unwrap());
    let source = pair.far_domain.register(&reading, 0..10_000, Access::RemoteRead).unwrap();
    local.memory().write(0, &[0; 10_000]);
    pair.near.read(vec![whole(&local, &source)], LONG).await.unwrap();
    assert_eq!(content(local.memory()), [2; 10_000]);
}

/// Two sides that support different numbers of concurrent reads agree on a number, whichever side connects.
#[tokio::test]
async fn read_depth_is_negotiated() {
    let Some(rdma) = rdma("read depth") else { return };
    for (ours, theirs) in [(1, 64), (64, 1), (3, 5), (255, 255)] {
        let limits = |reads_in_flight| Limits { reads_in_flight, ..Limits::default() };
        let pair = pair(&rdma, limits(ours), limits(theirs)).await;
        for end in [&pair.near, &pair.far] {
            let agreed = end.limits().reads_in_flight;
            assert!((1..=ours.min(theirs)).contains(&agreed), "{ours} and {theirs}: {agreed}");
        }
        let source = region(&pair.near_domain, 64 * 4096, Access::RemoteRead);
        source.memory().write(0, &vec![7; 64 * 4096]);
        let local = region(&pair.far_domain, 64 * 4096, Access::Local);
        let reads = (0..64).map(|at| Transfer {
            local: local.clone(),
            offset: at * 4096,
            remote: source.remote().part(at * 4096, 4096).unwrap(),
        });
        pair.far.read(reads.collect(), LONG).await.unwrap();
        assert!(content(local.memory()).iter().all(|byte| *byte == 7), "{ours} and {theirs}");
    }
}

/// The connection manager chooses among its own ports. Over iWARP a TCP socket may have the chosen port: connections and
/// listeners then take another one.
#[tokio::test]
async fn ports_of_tcp_sockets_are_avoided() {
    const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
    let Some(rdma) = rdma("ports in use").filter(|rdma| in_virtual_machine() && rdma.is_iwarp()) else { return };
    let usual = std::fs::read_to_string(RANGE).unwrap();
    std::fs::write(RANGE, "50000 50255").unwrap();
    // Each choice is random: one of eight is in use.
    let in_use: Vec<TcpListener> =
        (50_000..50_256).step_by(8).map(|port| TcpListener::bind((rdma.address(), port)).unwrap()).collect();
    for _ in 0..24 {
        let pair = pair(&rdma, Limits::default(), Limits::default()).await;
        drop((pair.near, pair.far));
    }
    drop(in_use);
    std::fs::write(RANGE, usual).unwrap();
}

/// Runs the remote end as a separate process. Prints its address, accepts one connection, sends the location of its
/// memory, and waits.
#[tokio::test]
#[ignore = "started by the test below"]
async fn far_end() {
    let rdma = Rdma::open(Settings::default()).unwrap();
    let listener = rdma.listen(SocketAddr::new(rdma.address(), 0)).await.unwrap();
    println!("\nlistening on {}", listener.address());
    std::io::stdout().flush().unwrap();
    let domain = rdma.domain().unwrap();
    let connection = listener.accept().await.unwrap().accept(&domain, b"", Limits::default(), LONG).await.unwrap();
    connection.closed().await;
}

#[tokio::test]
async fn killed_process_is_noticed() {
    let Some(rdma) = rdma("a killed process") else { return };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "far_end", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| line.unwrap().strip_prefix("listening on ").map(str::to_owned)).unwrap();
    let domain = rdma.domain().unwrap();
    let connection = rdma.connect(&domain, address.parse().unwrap(), b"", Limits::default(), LONG).await.unwrap();
    let receiving = connection.receive(LONG);
    let killing = async {
        // Time for this process to wait in `receive`, which nothing shows.
        tokio::time::sleep(Duration::from_millis(50)).await;
        child.kill().unwrap();
        child.wait().unwrap();
    };
    let (received, ()) = tokio::join!(receiving, killing);
    assert!(matches!(received, Err(Error::Closed { .. })), "{received:?}");
    connection.closed().await;
}
