//! A real process, killed at any moment: nothing that it acknowledged may be lost.

mod common;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use hearth_blockstore::*;
use hearth_testkit::wait_until;
use hearth_types::*;

const DIR: &str = "HEARTH_TEST_KILL_DIR";
const MEMORY: &str = "HEARTH_TEST_KILL_MEMORY";
const FIRST: &str = "HEARTH_TEST_KILL_FIRST";
/// Number of block ids per round.
const ROUND: u64 = 1_000_000;

/// Engines that run one after the other on the same directory, each finding the data of the previous one.
const ENGINES: [Engine; 8] = {
    use Engine::{File, Memory, Mmap};
    [Memory, Mmap, Memory, File, Mmap, Memory, File, Mmap]
};

fn options(disk: &std::path::Path, memory: &std::path::Path, round: u64) -> StoreOptions {
    let volume = VolumeOptions { engine: ENGINES[round as usize], ..VolumeOptions::memory(disk) };
    let mut options = StoreOptions::new(vec![volume], MemoryOptions::new(memory, 12 << 20));
    options.flush_delay = Duration::from_millis(30);
    options.default_block_bytes = 1 << 20;
    options.scrub_bytes_per_second = 0;
    options
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("{line}\n").as_bytes());
    let _ = out.flush();
}

/// Writes, appends and deletes until it is killed. It prints each promise after making it, and before revoking it.
#[test]
#[ignore = "the child of a_killed_store_keeps_its_promises"]
fn child() {
    let dir = std::env::var_os(DIR).expect("only a_killed_store_keeps_its_promises starts this test");
    let memory = std::env::var_os(MEMORY).unwrap();
    let first: i64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let store = Blockstore::open(options(dir.as_ref(), memory.as_ref(), first as u64 / ROUND)).unwrap();
    store.attach_pool(&pool_identity()).unwrap();
    let store = Arc::new(store);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (store, next) = (&store, &next);
            scope.spawn(move || {
                let mut random = bytes(first as u64 * 10 + thread, 1 << 20).into_iter();
                loop {
                    let id = first + next.fetch_add(1, Ordering::Relaxed) as i64;
                    let dice = random.next().unwrap();
                    let size = match dice % 4 {
                        0 => 100 + usize::from(dice),
                        1 => 3000 * (1 + usize::from(dice) % 20),
                        2 => 60_000 + 100 * usize::from(dice),
                        _ => 4000 * usize::from(dice),
                    };
                    let data = bytes(id as u64, size * 2);
                    let mut writer = create(store, id, 1);
                    // Half of them in lent memory, whose borrower continues to write after the end.
                    let lent = random.next().unwrap().is_multiple_of(2);
                    let borrowed = if lent { fill(&mut writer, id, &data[..size]) } else { None };
                    write(&mut writer, id, &data[..size]);
                    if dice % 16 == 3 {
                        continue;
                    }
                    writer
                        .finalize(if dice.is_multiple_of(8) { Durability::Disk } else { Durability::Memory })
                        .unwrap();
                    say(&format!("finalized {id} 1 {size}"));
                    if let Some(file) = borrowed {
                        scribble(&file);
                    }
                    if dice.is_multiple_of(3) {
                        say(&format!("changing {id}"));
                        let mut writer = store.append(&block(id, 1, 0), GenerationStamp(2), size as u64).unwrap();
                        say(&format!("acked {id} 2 {size}"));
                        write(&mut writer, id, &data);
                        if dice.is_multiple_of(2) {
                            writer.finalize(Durability::Memory).unwrap();
                            say(&format!("finalized {id} 2 {}", data.len()));
                        }
                    } else if dice.is_multiple_of(5) {
                        say(&format!("deleting {id}"));
                        store.invalidate(&pool_identity().pool, &[block(id, 1, 0).block]);
                    } else if dice.is_multiple_of(7) {
                        assert!(get(store, id, 1) == data[..size]);
                    }
                }
            });
        }
    });
}

/// Sends the bytes of `data` after the writer's end, from the chunk boundary, and prints what is acknowledged.
fn write(writer: &mut ReplicaWriter, id: i64, data: &[u8]) {
    let stamp = writer.block().stamp();
    let mut sent = writer.received() as usize;
    while sent < data.len() {
        let from = sent / 512 * 512;
        let end = (sent + 10_007).min(data.len());
        let packet = &data[from..end];
        writer.write(from as u64, packet, Checksums::Given(&crcs(ChecksumSpec::DEFAULT, packet))).unwrap();
        writer.acker().set(end as u64).unwrap();
        say(&format!("acked {id} {stamp} {end}"));
        sent = end;
    }
}

/// Like `write`, into granted memory, as far as there is any.
fn fill(writer: &mut ReplicaWriter, id: i64, data: &[u8]) -> Option<std::fs::File> {
    let mut file = None;
    let mut filled = 0;
    while filled < data.len() {
        let end = (filled + 10_240).min(data.len());
        if writer.grant(end as u64).unwrap() < end as u64 {
            break;
        }
        let file = file.get_or_insert_with(|| std::fs::File::from(writer.lend(false).unwrap()));
        let piece = &data[filled..end];
        std::os::unix::fs::FileExt::write_all_at(file, piece, filled as u64).unwrap();
        writer.commit(filled as u64, piece.len() as u64, &crcs(ChecksumSpec::DEFAULT, piece)).unwrap();
        writer.acker().set(end as u64).unwrap();
        say(&format!("acked {id} {} {end}", writer.block().stamp()));
        filled = end;
    }
    file
}

#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    stamp: u64,
    length: u64,
    finalized: bool,
    changing: bool,
    may_be_gone: bool,
}

#[test]
fn a_killed_store_keeps_its_promises() {
    let (disk, memory) = (tempfile::tempdir().unwrap(), on_tmpfs());
    let mut promises: HashMap<i64, Promise> = HashMap::new();
    let mut torn = 0;
    for round in 0..ENGINES.len() as u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"])
            .env(DIR, disk.path())
            .env(MEMORY, memory.path())
            .env(FIRST, (round * ROUND).to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        let heard = Arc::new(AtomicU64::new(0));
        let reader = std::thread::spawn({
            let heard = heard.clone();
            move || {
                let (mut said, mut piece) = (Vec::new(), [0; 4096]);
                while let bytes @ 1.. = out.read(&mut piece).unwrap() {
                    said.extend_from_slice(&piece[..bytes]);
                    heard.store(said.len() as u64, Ordering::Relaxed);
                }
                String::from_utf8(said).unwrap()
            }
        });
        // Varies the moment of the kill in the child's work.
        std::thread::sleep(Duration::from_millis(60 + round * 37));
        // On a busy machine the child takes longer.
        let has_worked = || Ok((heard.load(Ordering::Relaxed) >= 10_000).then_some(()));
        wait_until("the child to work", Duration::from_secs(120), has_worked).unwrap();
        child.kill().unwrap();
        let ended = child.wait_with_output().unwrap();
        let complaints = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!complaints.contains("panicked"), "{complaints}");
        let said = reader.join().unwrap();
        // A line that the kill cut off does not count.
        let (whole, _cut) = said.rsplit_once('\n').unwrap_or_default();
        for line in whole.lines() {
            note(&mut promises, line);
        }
        if round % 4 == 3 {
            let done = Blockstore::flush_offline(options(disk.path(), memory.path(), round), &mut |_| true).unwrap();
            assert_eq!((done.replicas_left, done.failures), (0, 0));
        }
        let store = Blockstore::open(options(disk.path(), memory.path(), round)).unwrap();
        let summary = store.attach_pool(&pool_identity()).unwrap();
        assert!(!summary.quarantined);
        torn += check(&store, &promises);
    }
    assert!(promises.len() > 100, "only {} replicas in all rounds", promises.len());
    eprintln!("{} replicas, {torn} of them caught being written", promises.len());
}

fn note(promises: &mut HashMap<i64, Promise>, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let (Some(what), Some(id)) = (words.first(), number(1)) else { return };
    // Ignore the output of the test harness.
    if !matches!(*what, "acked" | "finalized" | "changing" | "deleting") {
        return;
    }
    let promise = promises.entry(id as i64).or_default();
    match (*what, number(2), number(3)) {
        ("acked" | "finalized", Some(stamp), Some(length)) => {
            *promise = Promise { stamp, length, finalized: *what == "finalized", ..*promise };
            promise.changing = false;
        }
        ("changing", ..) => promise.changing = true,
        ("deleting", ..) => promise.may_be_gone = true,
        _ => {}
    }
}

/// Returns the number of replicas that were caught being written. They are recovered to all their bytes.
fn check(store: &Blockstore, promises: &HashMap<i64, Promise>) -> u64 {
    let mut torn = 0;
    for (id, promise) in promises {
        let Some(found) = store.replica(&pool_identity().pool, BlockId(*id)) else {
            assert!(promise.may_be_gone, "{id} is gone: {promise:?}");
            continue;
        };
        assert!(found.block.stamp.0 >= promise.stamp, "{id}: {found:?} {promise:?}");
        assert!(found.block.length >= promise.length, "{id}: {found:?} {promise:?}");
        if found.state == ReplicaState::WaitingToBeRecovered {
            assert!(!promise.finalized || promise.changing, "{id}: {found:?} {promise:?}");
            torn += 1;
            let named = block(*id, found.block.stamp.0, found.block.length);
            let recovery = GenerationStamp(found.block.stamp.0 + 100);
            store.initiate_recovery(&named, recovery).unwrap().unwrap();
            store.update_under_recovery(&named, recovery, found.block.length, None).unwrap();
        }
        let data = get(store, *id, 0);
        assert!(data == bytes(*id as u64, data.len()), "{id}: wrong bytes");
        if promise.finalized && !promise.changing {
            assert!(data.len() as u64 >= promise.length);
        }
    }
    torn
}
