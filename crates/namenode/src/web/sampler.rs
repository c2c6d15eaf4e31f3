//! Samples for the charts of the last hour.

use std::sync::Arc;

use hearth_types::HistogramSnapshot;
use hearth_web::{History, Series, SeriesKind};
use tokio::time::MissedTickBehavior;

use crate::metrics::CallMetrics;
use crate::state::Namenode;

const fn level(name: &'static str) -> Series {
    Series { name, kind: SeriesKind::Level }
}

const fn total(name: &'static str) -> Series {
    Series { name, kind: SeriesKind::Total }
}

const SERIES: &[Series] = &[
    level("used"),
    level("files"),
    level("blocks"),
    level("lowRedundancy"),
    level("missing"),
    level("openFiles"),
    level("writers"),
    level("load"),
    total("rpcCalls"),
    total("rpcQueueNanos"),
    total("rpcProcessingNanos"),
    total("journalSyncs"),
    total("journalSyncNanos"),
];

/// Returns an empty history.
pub fn history() -> Arc<History> {
    Arc::new(History::new(SERIES))
}

/// Takes samples for as long as the NameNode runs.
pub async fn run(namenode: Arc<Namenode>, calls: CallMetrics, history: Arc<History>) {
    let mut ticks = tokio::time::interval(History::INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        sample(&namenode, &calls, &history);
    }
}

fn sample(namenode: &Namenode, calls: &CallMetrics, history: &History) {
    let now = namenode.now();
    let (queue, processing) = calls.times();
    let journal = namenode.store.journal_figures().syncs;
    let nanos = |times: &HistogramSnapshot| u64::try_from(times.sum().as_nanos()).unwrap_or(u64::MAX);
    let values = {
        let state = namenode.read();
        let figures = state.blocks.cluster_statistics(now);
        [
            figures.used,
            state.namespace.file_count(),
            figures.blocks,
            figures.low_redundancy,
            figures.missing,
            state.leases.file_count() as u64,
            state.leases.holder_count() as u64,
            figures.load,
            processing.count(),
            nanos(&queue),
            nanos(&processing),
            journal.count(),
            nanos(&journal),
        ]
    };
    history.record(now.wall_ms, now.monotonic, values.into_iter().map(Some).collect());
}
