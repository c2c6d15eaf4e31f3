use std::sync::Arc;
use std::time::Duration;

use crate::Namenode;
use crate::blocks::Now;

/// How often the block map is told that time has passed.
const TICK: Duration = Duration::from_secs(1);

/// Repairs, dead nodes, the end of safe mode: for as long as the namenode runs. Drop the future to stop it.
pub async fn run_block_monitor(namenode: Arc<Namenode>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = Now::of(&*namenode.clock);
        namenode.state.write().blocks.tick(now);
    }
}
