use std::sync::Arc;
use std::time::Duration;

use crate::Namenode;
use crate::block_tokens::BlockTokens;
use crate::blocks::Now;

/// Interval at which the block map's periodic work runs.
const TICK: Duration = Duration::from_secs(1);
/// Rounds of a check of all blocks after each tick, and the pause between them, in which other calls get the lock. A
/// round takes a few milliseconds, so the next tick is hardly late, and 400,000 blocks are checked per tick.
const CHECK_ROUNDS: usize = 200;
const CHECK_PAUSE: Duration = Duration::from_millis(1);

/// Runs repairs, the detection of dead nodes, the end of safe mode, and block key rolls for as long as the namenode
/// runs. Drop the future to stop it.
pub async fn run_block_monitor(namenode: Arc<Namenode>, tokens: Arc<BlockTokens>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = Now::of(&*namenode.clock);
        let rolled = tokens.roll(now.wall_ms);
        {
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
        for _ in 0..CHECK_ROUNDS {
            let is_left = namenode.state.write().blocks.continue_check(now);
            if !is_left {
                break;
            }
            tokio::time::sleep(CHECK_PAUSE).await;
        }
    }
}
