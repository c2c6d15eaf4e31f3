//! The same replicas copied between two complete DataNodes of one machine, ordered by a NameNode. They go from memory
//! to memory (`docs/design/0008-memory-between-datanodes.md`). The replicas are new ones in new memory, and verified,
//! while the other carriers overwrite files.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hearth_client::{CreateOptions, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{Content, Implementation, get_text};

use super::{Carrier, GB, PIECE, Payload};
use crate::amounts::bar;
use crate::bench_client::System;
use crate::measure::ServerClock;
use crate::memory;
use crate::record::Figures;

/// Maximum bytes of all replicas before they are copied.
const BYTES_MAX: u64 = 2 << 30;

/// Divisor of the space that the other carriers' files leave on the tmpfs. There are two copies, and a DataNode that
/// finds it full writes to the disk.
const SHARE_OF_FREE: u64 = 4;

const PATIENCE: Duration = Duration::from_secs(120);

/// Interval between checks of the progress.
const LOOK: Duration = Duration::from_millis(20);

/// Copies fewer replicas if all are too large for the machine's memory: the cost per GB is the same.
pub fn measure(payload: Payload, figures: &mut Figures) -> Result<()> {
    let most = BYTES_MAX.min(memory::tmpfs_free()? / SHARE_OF_FREE);
    let replicas = payload.streams.min((most / payload.bytes).max(1));
    let block_bytes = payload.bytes.next_multiple_of(1 << 20);
    let system = System::start(Implementation::Hearth, 2, block_bytes)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let configuration = Configuration::load_dir(system.cluster.conf(), Environment::empty())?;
    let fs = {
        let _within = runtime.enter();
        FileSystem::connect(&configuration, None, &hearth_client::os_user_name())?
    };
    let (total, system_name) = (replicas * payload.bytes, Carrier::Memory.system());
    memory::touch(2 * total)?;
    runtime.block_on(async {
        for replica in 0..replicas {
            store(&fs, replica, payload.bytes).await?;
        }
        anyhow::Ok(())
    })?;
    // Each copy allocates the space of its whole replica at its start: some time from now, when the DataNodes have
    // received the commands.
    memory::touch_for_burst(total)?;
    let began = Instant::now();
    let ends = system.datanodes()?.into_iter().map(ServerClock::start).collect::<Result<Vec<_>>>()?;
    let bar = bar(system_name, total);
    let copied = runtime.block_on(async {
        for replica in 0..replicas {
            ensure!(fs.set_replication(&path(replica), 2).await?, "{} is not a file", path(replica));
        }
        loop {
            let copied = copied(&fs, replicas, payload.bytes).await?;
            bar.set_position(copied);
            if copied == total {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "{copied} bytes of {total} were copied");
            tokio::time::sleep(LOOK).await;
        }
    });
    let (wall, gigabytes) = (began.elapsed().as_secs_f64(), total as f64 / GB);
    let (mut used, mut flushers) = (0.0, 0.0);
    for end in &ends {
        let (cpu, flusher) = end.elapsed()?;
        (used, flushers) = (used + cpu, flushers + flusher);
    }
    bar.finish_and_clear();
    copied?;
    let located = runtime.block_on(fs.locations(&path(0), 0, payload.bytes))?;
    let nodes = located.blocks.first().map_or(&[][..], |block| &block.locations);
    let through_memory = nodes.iter().map(|node| forwarded(node.id.info_port)).sum::<Result<u64>>()?;
    ensure!(through_memory >= total, "{through_memory} bytes of {total} went through memory");
    let mut add = |what: &str, unit, value| figures.add("stream", system_name, "", what, unit, value);
    add("throughput", "MB/s", total as f64 / 1e6 / wall);
    add("both ends' CPU", "s/GB", used / gigabytes);
    add("meanwhile their flushers' CPU", "s", flushers);
    Ok(())
}

fn path(replica: u64) -> String {
    format!("/replica-{replica}")
}

async fn store(fs: &FileSystem, replica: u64, length: u64) -> Result<()> {
    let options = CreateOptions { replication: Some(1), ..CreateOptions::default() };
    let mut writer = fs.create(&path(replica), options).await?;
    let (content, mut at) = (Content::new(replica), 0);
    while at < length {
        let bytes = content.bytes(at, (PIECE as u64).min(length - at) as usize);
        writer.write(&bytes).await?;
        at += bytes.len() as u64;
    }
    writer.close().await?;
    Ok(())
}

/// Returns the bytes of the replicas that both DataNodes have.
async fn copied(fs: &FileSystem, replicas: u64, bytes: u64) -> Result<u64> {
    let mut copied = 0;
    for replica in 0..replicas {
        let located = fs.locations(&path(replica), 0, bytes).await?;
        copied += if located.blocks.iter().all(|block| block.locations.len() == 2) { bytes } else { 0 };
    }
    Ok(copied)
}

/// Returns the bytes that a DataNode has written to another one's memory.
fn forwarded(http_port: u16) -> Result<u64> {
    let page = get_text(http_port, "/metrics")?;
    let bytes = page.lines().find_map(|line| line.strip_prefix("hearth_locally_forwarded_bytes_total "));
    bytes.context("a DataNode does not report the bytes forwarded through memory")?.parse().context("a number")
}
