//! Scratch: fill DIR FILES KIND; start DIR.
use std::sync::Arc;
use std::time::{Duration, Instant};

use hearth_config::Configuration;
use hearth_namenode::namespace::{BlockRecord, BlockState, Caller, NewFile, Writer};
use hearth_namenode::{FormatPolicy, Namenode, NamenodeOptions};
use hearth_types::{Block, FsPermission, SystemClock};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn status(what: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = |name: &str| {
        text.lines()
            .find(|l| l.starts_with(name))
            .map(|l| l.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap())
            .unwrap_or(0)
    };
    println!("{what}: VmRSS {} kB, HWM {} kB", line("VmRSS:"), line("VmHWM:"));
    line("VmRSS:") * 1024
}

unsafe extern "C" {
    fn mi_collect(force: bool);
}

fn main() {
    hearth_namenode::memory::release_with(|| unsafe { mi_collect(true) });
    let args: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let options = NamenodeOptions {
        configuration: Configuration::empty().with("fs.defaultFS", "hdfs://127.0.0.1:0"),
        user: "root".into(),
        host_name: "namenode".into(),
        clock: Arc::new(SystemClock::new()),
        format: FormatPolicy::IfEmpty,
        directory: Some(args[2].clone().into()),
        rpc_address: Some("127.0.0.1:0".into()),
        http_address: Some("127.0.0.1:0".into()),
    };
    let began = Instant::now();
    let handle = runtime.block_on(Namenode::start(options)).unwrap();
    println!("started in {:?}", began.elapsed());
    let n = handle.namenode().read().namespace.inode_count();
    let rss = status("start");
    if n > 1000 {
        println!("{} inodes: {:.1} bytes each at once", n, rss as f64 / n as f64);
    }
    std::thread::sleep(Duration::from_secs(4));
    let settled = status("start settled");
    if args[1] == "start" {
        println!("{} inodes: {:.1} bytes each settled", n, settled as f64 / n as f64);
        if args.len() > 3 {
            unsafe { libc::_exit(0) }
        }
        return;
    }
    let files: usize = args[3].parse().unwrap();
    let kind = args[4].as_str();
    let blocks: usize = match kind {
        "open" | "empty" => 0,
        k => k.parse().unwrap(),
    };
    let caller = Caller { user: "root".into(), groups: [].into(), superuser: true, machine: "127.0.0.1".into() };
    let before = settled;
    let began = Instant::now();
    let batch = 200;
    for first in (0..files).step_by(batch) {
        let nn = handle.namenode();
        runtime
            .block_on(nn.change(|state, now| {
                for n in first..files.min(first + batch) {
                    // 20 bytes
                    let path = format!("/{kind}/dir{:05}/ThroughputB{n:09}", n / 1000);
                    let trail = state.namespace.check_create(&caller, &path, true, false, true)?;
                    let writer = Writer {
                        client: format!("NNThroughputBenchmark-client-{}", n % 3),
                        machine: "127.0.0.1".into(),
                        truncation: None,
                    };
                    let client = writer.client.clone();
                    let file = NewFile {
                        modes: FsPermission(0o644).into(),
                        replication: 3,
                        block_size: 128 << 20,
                        storage_policy: 0,
                        writer,
                        caller: &caller,
                    };
                    let slot = state.namespace.create_file(&trail, file, now.wall_ms)?;
                    let id = state.namespace.inode(slot).id();
                    state.leases.add(&client, id, now.monotonic);
                    for _ in 0..blocks {
                        let block = Block {
                            id: state.namespace.next_block_id(),
                            stamp: state.namespace.next_stamp(),
                            length: 1 << 20,
                        };
                        state.namespace.push_block(slot, BlockRecord::new(block, BlockState::Complete));
                        state.blocks.restore(block, id.0, 3, 0, true);
                    }
                    if kind != "open" {
                        state.close_file(slot, now);
                    }
                }
                Ok(())
            }))
            .unwrap();
    }
    println!("filled in {:?}", began.elapsed());
    let rss = status("filled");
    println!("{:.1} bytes a file at once", (rss - before) as f64 / files as f64);
    for i in 0..3 {
        std::thread::sleep(Duration::from_secs(3));
        let _ = runtime.block_on(handle.namenode().change(|_, _| Ok(())));
        let rss = status("settled");
        println!("{i} {:.1} bytes a file", (rss - before) as f64 / files as f64);
    }
    if args.len() > 5 {
        // As when killed.
        unsafe { libc::_exit(0) }
    }
    drop(handle);
}
