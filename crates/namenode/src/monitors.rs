//! Periodic work of the NameNode: ending the leases of silent writers, and entering safe mode before the disk is full.

use std::sync::Arc;

use crate::ops::lease::RECOVERING_HOLDER;
use crate::round_robin;
use crate::start::{DISK_INTERVAL, free_bytes};
use crate::state::Namenode;

/// Limit of files examined per round, so that the lock is held for a moment only.
const FILES_PER_ROUND: usize = 200;

/// Closes the files of silent writers, and those whose recovery has finished, and drives the recovery of unfinished
/// blocks in snapshots. Runs for as long as the NameNode runs.
pub async fn run_lease_monitor(namenode: Arc<Namenode>) {
    let mut ticks = tokio::time::interval(namenode.settings.lease_recheck.max(std::time::Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // Positions of the last round.
    let (mut closing_cursor, mut unfinished_cursor) = (None, None);
    loop {
        ticks.tick().await;
        let done = namenode
            .change(|state, now| {
                state.blocks.forget_silent_storages(now);
                if state.blocks.in_safe_mode() {
                    return Ok(());
                }
                for id in round_robin::next_batch(&state.closing, &mut closing_cursor, FILES_PER_ROUND) {
                    let open = state
                        .namespace
                        .slot(id)
                        .filter(|slot| state.namespace.inode(*slot).as_file().is_some_and(|file| file.is_open()));
                    let closed = match open {
                        None => true,
                        Some(slot) if state.is_recovery_running(slot, now) => false,
                        Some(slot) => {
                            state.release(&namenode, slot, Some(RECOVERING_HOLDER), now).unwrap_or_else(|error| {
                                tracing::warn!(path = state.namespace.path_of(slot), %error, "cannot close a file");
                                false
                            })
                        }
                    };
                    if closed {
                        state.closing.remove(&id);
                    }
                }
                for id in round_robin::next_batch(&state.unfinished, &mut unfinished_cursor, FILES_PER_ROUND) {
                    if state.recover_kept(id, now) {
                        state.unfinished.remove(&id);
                    }
                }
                state.release_expired(&namenode, now, FILES_PER_ROUND);
                Ok(())
            })
            .await;
        if let Err(error) = done {
            tracing::warn!(%error, "the lease monitor has stopped");
            return;
        }
    }
}

/// Enters safe mode if too little room is left for the store; an administrator must leave it.
pub async fn run_disk_monitor(namenode: Arc<Namenode>) {
    let directory = namenode.store.directory().path().to_owned();
    let reserved = namenode.settings.disk_reserved;
    let mut ticks = tokio::time::interval(DISK_INTERVAL);
    loop {
        ticks.tick().await;
        match free_bytes(&directory) {
            Ok(free) if free < reserved => {
                let mut state = namenode.state.write();
                if !state.blocks.in_safe_mode() {
                    tracing::error!(directory = %directory.display(), free, reserved, "the namespace's disk is almost full: entering safe mode");
                }
                state.blocks.enter_low_resource_safe_mode();
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(directory = %directory.display(), %error, "cannot determine free disk space"),
        }
    }
}
