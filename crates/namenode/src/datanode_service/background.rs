use std::sync::Arc;
use std::time::Duration;

use crate::Namenode;
use crate::block_tokens::BlockTokens;
use crate::blocks::Now;

/// Interval at which the block map's periodic work runs.
const TICK: Duration = Duration::from_secs(1);

/// Runs repairs, the detection of dead nodes, the end of safe mode, and block key rolls for as long as the namenode
/// runs. Drop the future to stop it.
pub async fn run_block_monitor(namenode: Arc<Namenode>, tokens: Arc<BlockTokens>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = Now::of(&*namenode.clock);
        let rolled = tokens.roll(now.wall_ms);
        let mut state = namenode.state.write();
        if rolled {
            state.blocks.announce_keys();
        }
        state.blocks.tick(now);
        let caching = &namenode.settings.caching;
        if caching.enabled && !state.blocks.in_safe_mode() && state.caching.is_due(caching.refresh, now) {
            state.scan_cache(now);
        }
    }
}
