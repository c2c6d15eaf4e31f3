//! Samples for the charts of the last hour.

use std::sync::{Arc, Weak};
use std::time::Duration;

use hearth_web::{History, Series, SeriesKind};
use tokio::time::MissedTickBehavior;

use crate::datanode::Datanode;

const fn level(name: &'static str) -> Series {
    Series { name, kind: SeriesKind::Level }
}

const fn total(name: &'static str) -> Series {
    Series { name, kind: SeriesKind::Total }
}

const SERIES: &[Series] = &[
    total("reads"),
    total("readBytes"),
    total("writes"),
    total("writtenBytes"),
    level("memoryUsed"),
    level("dirtyBytes"),
    total("evictions"),
    total("readBacks"),
    level("connections"),
    level("operations"),
    total("readNanos"),
    total("writeNanos"),
];

/// Returns an empty history.
pub fn history() -> Arc<History> {
    Arc::new(History::new(SERIES))
}

/// Takes samples until the DataNode is gone. It must not be kept by this.
pub async fn run(datanode: Weak<Datanode>, history: Arc<History>) {
    let mut ticks = tokio::time::interval(History::INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(datanode) = datanode.upgrade() else { return };
        sample(&datanode, &history);
    }
}

fn sample(datanode: &Datanode, history: &History) {
    let clock = &datanode.options.clock;
    let counters = &datanode.replicas.metrics;
    let metrics = datanode.replicas.store.quick_metrics();
    let totals = counters.totals();
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let values = [
        totals.reads,
        totals.read_bytes,
        totals.writes,
        totals.written_bytes,
        metrics.memory_used,
        metrics.dirty_bytes,
        metrics.evictions,
        metrics.read_backs,
        counters.connections() as u64,
        counters.xceivers() as u64,
        nanos(totals.read_time),
        nanos(totals.write_time),
    ];
    history.record(clock.wall_ms(), clock.monotonic(), values.into_iter().map(Some).collect());
}
