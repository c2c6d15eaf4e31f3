//! Decommissions a DataNode of each implementation: all its replicas are copied to another DataNode of that
//! implementation.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hearth_testkit::wait_until;
use serde_json::json;

use super::serving::FLUSHED_AFTER;
use super::sides::{BOTH, Side, Sides};
use super::{Arguments, CLIENT, GB};
use crate::record::Figures;

/// Timeout of each of the two steps, generous enough for any machine.
const PATIENCE: Duration = Duration::from_secs(900);

/// Maximum size of one of the files.
const FILE_MIB: u64 = 256;

/// Returns the memory limit of each Hearth DataNode. The data exists twice during re-replication and does not fit in
/// the memory of most machines. Apache's side uses the page cache, which takes all free memory. With a quarter for each
/// of the two DataNodes, half of the memory stays for everything else.
pub fn memory_limit(arguments: &Arguments) -> Result<u64> {
    if let Some(limit) = arguments.memory_limit_mib {
        return Ok(limit << 20);
    }
    let meminfo = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let total =
        meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    let total: u64 = total.context("MemTotal in /proc/meminfo")?;
    // The limit must also hold the data that is being written.
    let wanted = (arguments.rereplicated_mib << 20).max(1 << 30);
    Ok(wanted.min(total * 1024 / 4))
}

pub fn measure(arguments: &Arguments, disk: &Path, limit: u64, figures: &mut Figures) -> Result<()> {
    let mut sides = Sides::start(arguments, 2, disk, disk, Some(limit))?;
    sides.java.set_answer_timeout(PATIENCE);
    let [first, second] = BOTH;
    one(&mut sides, first, arguments, figures)?;
    sides.stop_datanodes(first)?;
    one(&mut sides, second, arguments, figures)?;
    Ok(())
}

fn one(sides: &mut Sides, side: Side, arguments: &Arguments, figures: &mut Figures) -> Result<()> {
    eprintln!("re-replication: {}", side.name());
    let from = sides.start_datanode(side, 0)?;
    let bytes = arguments.rereplicated_mib << 20;
    let path = side.path("rereplicated");
    let files = arguments.rereplicated_mib.div_ceil(FILE_MIB);
    let store = json!({"dir": path, "count": files, "threads": 2, "seed": 7, "length": bytes / files});
    sides.java.call("storeMany", store)?;
    let to = sides.start_datanode(side, 1)?;
    // Pending writes to the disk must not be part of the measurement.
    rustix::fs::sync();
    sides.rest(side, FLUSHED_AFTER, PATIENCE)?;

    let blocks = |sides: &Sides, datanode: &str| -> Result<u64> {
        sides.cluster.live_datanode(datanode)?["numBlocks"].as_u64().context("a number of blocks")
    };
    let all = blocks(sides, &from)?;
    ensure!(all > 0 && blocks(sides, &to)? == 0, "the blocks are not all on one DataNode before the measurement");
    let clock = sides.clock(side)?;
    let started = Instant::now();
    sides.decommission(&from)?;
    wait_until("all blocks to be on the other DataNode", PATIENCE, || Ok((blocks(sides, &to)? >= all).then_some(())))?;
    let wall = started.elapsed().as_secs_f64();
    let (cpu, _) = clock.elapsed()?;
    wait_until("the end of the decommissioning", PATIENCE, || {
        Ok((sides.cluster.live_datanode(&from)?["adminState"] == "Decommissioned").then_some(()))
    })?;
    // Reads once from the copies, which a client now tries first.
    sides.java.call("readMany", json!({"dir": path, "count": 1, "seed": 7, "length": bytes / files}))?;
    sides.rest(side, FLUSHED_AFTER, PATIENCE)?;
    let work = format!("re-replication, {} MiB", arguments.rereplicated_mib);
    let mut add = |what: &str, unit, value| figures.add(&work, side.name(), CLIENT, what, unit, value);
    add("wall", "s", wall);
    add("throughput", "MB/s", bytes as f64 / 1e6 / wall);
    add("CPU of both DataNodes", "s/GB", cpu / (bytes as f64 / GB));
    if side == Side::Hearth {
        add("flusher CPU of both DataNodes", "s/GB", clock.elapsed()?.1 / (bytes as f64 / GB));
    }
    sides.delete(side, &path)
}
