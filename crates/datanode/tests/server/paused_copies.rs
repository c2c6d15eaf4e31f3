//! Copies next to a client that reads: they pause for it, and still complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hearth_testkit::skip;

use super::client::{block, content, read};
use super::local_copies;
use super::one_sided_writes::{figure, figure_us};
use super::streams::Two;
use super::transfers::transfer;

const MIB: usize = 1 << 20;

/// The minimum share. The copies' threads have the niceness of all others, so that they get more of a busy machine.
const SETTINGS: [(&str, &str); 3] = [
    ("hearth.datanode.stream.cores.share", "0.05"),
    ("hearth.datanode.stream.nice", "0"),
    // All replicas fit.
    ("hearth.memory.limit", "256m"),
];

const UNLIMITED: [(&str, &str); 2] = [("hearth.datanode.stream.cores.share", "1"), SETTINGS[2]];

/// Copies do not pause for a reader that stalls during the whole copy, as may happen on a busy machine.
const ROUNDS: usize = 5;

/// Returns the pause times, in microseconds, of the source and the target of 64 MiB in `replicas` replicas.
async fn copied_beside_a_reader(two: Arc<Two>, replicas: i64) -> [u64; 2] {
    let size = 64 * MIB / replicas as usize;
    let mut copies = Vec::new();
    for id in 1..=replicas {
        copies.push(two.write(id, size).await);
    }
    let done = Arc::new(AtomicBool::new(false));
    // Readers of the source, and of the target, which has a replica of its own.
    two.write_to(1, 999, 100).await;
    let readers = [(0, 1, size), (1, 999, 100)].map(|(node, id, size)| {
        let (two, done) = (two.clone(), done.clone());
        tokio::spawn(async move {
            let whole = content(size, id as u64);
            while !done.load(Ordering::Relaxed) {
                assert!(
                    read(&two.nodes[node], &block(id, 1001, 0), 0, Some(100)).await.unwrap()[..100] == whole[..100]
                );
            }
        })
    });
    two.namenodes[0].told(|told| told.commands.push_back(transfer(&copies, &two.nodes[1])));
    two.check(&copies).await;
    done.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
    let rested = |node: usize| {
        let two = two.clone();
        async move { figure_us(&two.nodes[node], "hearth_copy_pauses_seconds").await }
    };
    [rested(0).await, rested(1).await]
}

/// Returns true, and reports that `test` is skipped, if the minimum share of this machine's cores is more than the few
/// threads of these copies can use.
fn has_too_many_cores(test: &str) -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores > 8 {
        skip(test, format_args!("with {cores} cores these copies need no rest"));
    }
    cores > 8
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_pause_at_both_ends() {
    if has_too_many_cores("streams_pause_at_both_ends") {
        return;
    }
    let mut rested = [0; 2];
    for _ in 0..ROUNDS {
        rested = copied_beside_a_reader(Arc::new(Two::start(&SETTINGS).await), 8).await;
        if rested.iter().all(|rested| *rested > 0) {
            return;
        }
    }
    panic!("{rested:?}");
}

/// Each end is tested next to one that does not pause: while a source pauses, its target has enough time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_into_memory_pause_at_both_ends() {
    if has_too_many_cores("copies_into_memory_pause_at_both_ends") {
        return;
    }
    // More replicas for the target, whose work per replica does not depend on the size.
    for (end, replicas) in [(0, 8), (1, 32)] {
        let mut settings: [&[(&str, &str)]; 2] = [&UNLIMITED; 2];
        settings[end] = &SETTINGS;
        let mut rested = [0; 2];
        for _ in 0..ROUNDS {
            let two = Arc::new(local_copies::two(settings).await);
            rested = copied_beside_a_reader(two.clone(), replicas).await;
            let forwarded = figure(&two.nodes[0], "hearth_locally_forwarded_bytes").await;
            assert_eq!(forwarded, 64 * MIB as u64, "all replicas take that path");
            assert_eq!(rested[1 - end], 0, "of {end}: {rested:?}");
            if rested[end] > 0 {
                break;
            }
        }
        assert!(rested[end] > 0, "of {end}: {rested:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_never_pause_with_all_cores() {
    assert_eq!(copied_beside_a_reader(Arc::new(Two::start(&UNLIMITED).await), 8).await, [0, 0]);
}
