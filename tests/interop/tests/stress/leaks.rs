//! Resources that a process still holds although it should have released them.

use std::fs;
use std::net::SocketAddrV4;

use anyhow::{Context, Result};
use hearth_testkit::{NodeProcess, get_text_at};

/// File descriptors and mappings of a process that refer to block memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Held {
    descriptors: usize,
    mappings: usize,
}

/// Returns whether it is a replica's file on the tmpfs, or anonymous memory for one replica or client: copies of bytes
/// or CRCs, slots. `memfd:hearth` does not count: both sides keep these registered buffers for reuse.
fn is_block_memory(target: &str) -> bool {
    target.contains("/blk_") || target.contains("memfd:hearth-")
}

impl Held {
    pub fn of(process: u32) -> Result<Self> {
        let mut held = Self::default();
        let directory = format!("/proc/{process}/fd");
        for entry in fs::read_dir(&directory).with_context(|| directory.clone())? {
            // Closed since the listing began.
            let Ok(target) = fs::read_link(entry?.path()) else { continue };
            held.descriptors += usize::from(is_block_memory(&target.to_string_lossy()));
        }
        let maps = format!("/proc/{process}/maps");
        let text = fs::read_to_string(&maps).with_context(|| maps.clone())?;
        held.mappings = text.lines().filter(|line| is_block_memory(line)).count();
        Ok(held)
    }

    /// Returns a text for each resource held in addition to `before`.
    pub fn beyond(self, before: &Self) -> Vec<String> {
        let mut beyond = Vec::new();
        if self.descriptors > before.descriptors {
            beyond.push(format!("the clients hold {} descriptors of block memory", self.descriptors));
        }
        if self.mappings > before.mappings {
            beyond.push(format!("the clients hold {} mappings of block memory", self.mappings));
        }
        beyond
    }
}

/// Metrics of a DataNode's `/metrics` that are 0 if it has no replicas and no clients.
const GIVEN_AWAY: [&str; 6] = [
    "hearth_replicas",
    "hearth_slab_used_bytes",
    "hearth_shown_replicas",
    "hearth_short_circuit_slots",
    "hearth_pinned_replicas",
    "hearth_registered_bytes",
];

fn metrics(datanode: &NodeProcess) -> Result<String> {
    let address = datanode.setting("dfs.datanode.http.address").context("it has one")?;
    let address: SocketAddrV4 = address.parse().with_context(|| address.to_owned())?;
    get_text_at(*address.ip(), address.port(), "/metrics")
}

/// Returns how many replicas have been evicted from a DataNode's memory since its start.
pub fn evictions(datanode: &NodeProcess) -> Result<u64> {
    let text = metrics(datanode)?;
    let line = text.lines().find_map(|line| line.strip_prefix("hearth_memory_evictions")?.split(' ').nth(1));
    line.context("no figure of evictions")?.parse().context("evictions")
}

/// Returns a text for each resource that a DataNode without replicas and clients still holds.
pub fn of_datanode(datanode: &NodeProcess) -> Result<Vec<String>> {
    let text = metrics(datanode)?;
    let figure = |name: &str| -> Result<i64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.with_context(|| format!("no figure {name}"))?.parse().with_context(|| name.to_owned())
    };
    let mut open = Vec::new();
    let mut note = |name: &str, value: i64| {
        if value != 0 {
            open.push(format!("{}: {name} {value}", datanode.conf().display()));
        }
    };
    for name in GIVEN_AWAY {
        note(name, figure(name)?);
    }
    // An empty slab of each size is kept for the next small replica.
    note("memory used beyond slabs", figure("hearth_memory_used_bytes")? - figure("hearth_slab_bytes")?);
    let held = Held::of(datanode.id()?)?;
    if held != Held::default() {
        open.push(format!("{}: {held:?}", datanode.conf().display()));
    }
    Ok(open)
}
