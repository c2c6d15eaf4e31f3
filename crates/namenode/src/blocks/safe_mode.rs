//! Safe mode: after a start, nothing is changed and nothing is deleted until enough blocks have been reported.

use std::ops::RangeInclusive;
use std::time::Duration;

use hearth_types::{Block, GenerationStamp};

use super::block_info::BlockRef;
use super::redundancy::Redundancy;
use super::{BlockMap, Now};

pub(super) enum SafeMode {
    /// The store is being read.
    Loading,
    /// Waiting for blocks and datanodes.
    Pending,
    /// Enough blocks since `since`; waits some time for the rest.
    Extension {
        since: Duration,
    },
    Off,
}

/// State of safe mode, and its causes.
pub(super) struct SafeModeState {
    pub mode: SafeMode,
    /// Turned on by an administrator: never ends by itself.
    pub manual: bool,
    /// Turned on for lack of disk space: only an administrator can end it.
    pub low_resources: bool,
    /// Bytes of reported replicas with stamps newer than any that this namespace issued, or with `lost_stamps`: it is
    /// probably the wrong namespace, or lacks its newest changes.
    pub bytes_in_future: u64,
    /// Stamps that lost ends of the journal may have issued.
    pub lost_stamps: Vec<RangeInclusive<GenerationStamp>>,
    /// `lost_stamps` were given up, which is not stored yet.
    pub lost_stamps_given_up: bool,
    /// An administrator forced the exit (forceExit): such replicas are deleted like any other stray or corrupt replica.
    pub future_given_up: bool,
    /// Time that the safe mode of the start lasted, once it has ended.
    pub lasted: Option<Duration>,
}

/// Progress of the safe mode of the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartupSafeMode {
    /// Complete blocks with enough reported replicas.
    pub safe_blocks: u64,
    /// The number of them at which it may end.
    pub wanted_blocks: u64,
    /// Time since it began, or that it lasted.
    pub lasted: Duration,
    pub is_over: bool,
}

impl Default for SafeModeState {
    fn default() -> Self {
        Self {
            mode: SafeMode::Loading,
            manual: false,
            low_resources: false,
            bytes_in_future: 0,
            lost_stamps: Vec::new(),
            lost_stamps_given_up: false,
            future_given_up: false,
            lasted: None,
        }
    }
}

impl BlockMap {
    /// Every block of the store has been restored: startup safe mode begins, or ends at once for an empty namespace.
    pub fn restored(&mut self, now: Now) {
        assert!(matches!(self.safe_mode.mode, SafeMode::Loading), "a namespace is restored only once");
        self.restored = now.monotonic;
        if self.thresholds_met() {
            self.end_startup(now);
        } else {
            self.safe_mode.mode = SafeMode::Pending;
        }
    }

    /// Returns true if namespace changes, replication and deletion are off.
    pub fn in_safe_mode(&self) -> bool {
        self.in_startup_safe_mode() || self.safe_mode.manual || self.safe_mode.low_resources
    }

    pub fn in_startup_safe_mode(&self) -> bool {
        !matches!(self.safe_mode.mode, SafeMode::Off)
    }

    /// `dfsadmin -safemode enter`.
    pub fn enter_safe_mode(&mut self) {
        self.safe_mode.manual = true;
    }

    /// Enters safe mode because less than `dfs.namenode.resource.du.reserved` is free on the store's disk.
    pub fn enter_low_resource_safe_mode(&mut self) {
        self.safe_mode.low_resources = true;
    }

    /// `dfsadmin -safemode leave`, or `forceExit`. Returns false if safe mode stays on, because replicas from the
    /// future would be deleted.
    pub fn leave_safe_mode(&mut self, force: bool, now: Now) -> bool {
        if self.safe_mode.bytes_in_future > 0 && !force && self.in_startup_safe_mode() {
            tracing::warn!(
                bytes = self.safe_mode.bytes_in_future,
                "not leaving safe mode: replicas with stamps that this namespace does not know would be deleted; forceExit leaves it"
            );
            return false;
        }
        self.safe_mode.manual = false;
        self.safe_mode.low_resources = false;
        self.safe_mode.future_given_up |= force;
        if force && !std::mem::take(&mut self.safe_mode.lost_stamps).is_empty() {
            self.safe_mode.lost_stamps_given_up = true;
        }
        self.safe_mode.bytes_in_future = 0;
        if force {
            // Corrupt replicas that were protected may be deleted now.
            let Redundancy { corrupt, postponed, .. } = &mut self.redundancy;
            postponed.extend(corrupt.iter().copied());
        }
        if self.in_startup_safe_mode() {
            self.end_startup(now);
        }
        true
    }

    /// Protects replicas with these stamps like those from the future: recoveries have skipped the stamps, because lost
    /// ends of the journal may have issued them. Call it before datanodes report.
    pub fn protect_stamps(&mut self, lost: Vec<RangeInclusive<GenerationStamp>>) {
        self.safe_mode.lost_stamps = lost;
    }

    /// Returns true, once, if an administrator has given up the protected stamps: to be stored with the next change.
    pub fn take_lost_stamps_given_up(&mut self) -> bool {
        std::mem::take(&mut self.safe_mode.lost_stamps_given_up)
    }

    /// Returns true if a replica with a stamp that the namespace does not know must not be deleted: the namespace that
    /// knows it may come back.
    pub(super) fn is_protected(&self, stamp: GenerationStamp) -> bool {
        let is_lost = self.safe_mode.lost_stamps.iter().any(|lost| lost.contains(&stamp));
        (stamp > self.newest_stamp || is_lost) && !self.safe_mode.future_given_up
    }

    /// Returns true if a corrupt replica of this block must not be deleted: its stamp is protected, so it may have
    /// acknowledged bytes of an append that this namespace has lost.
    pub(super) fn is_of_lost_change(&self, block: BlockRef<'_>, stamp: GenerationStamp) -> bool {
        stamp != block.stamp() && self.is_protected(stamp)
    }

    /// Counts a reported replica that is protected: it keeps the safe mode of the start on.
    pub(super) fn note_protected(&mut self, replica: Block) {
        if self.in_startup_safe_mode() {
            self.safe_mode.bytes_in_future = self.safe_mode.bytes_in_future.saturating_add(replica.length);
        }
    }

    /// Bytes of replicas with stamps from the future, or with protected ones.
    pub fn bytes_in_future(&self) -> u64 {
        self.safe_mode.bytes_in_future
    }

    /// Enters the next stage if it is due. Called after reports and with every tick.
    pub(super) fn check_safe_mode(&mut self, now: Now) {
        match self.safe_mode.mode {
            SafeMode::Loading | SafeMode::Off => {}
            SafeMode::Pending if !self.thresholds_met() => {}
            SafeMode::Pending => {
                if self.complete_blocks() == 0 || self.settings.safe_extension.is_zero() {
                    self.try_end_startup(now);
                } else {
                    self.safe_mode.mode = SafeMode::Extension { since: now.monotonic };
                    tracing::info!(seconds = self.settings.safe_extension.as_secs(), "safe mode extension entered");
                }
            }
            SafeMode::Extension { since } => {
                if now.monotonic.saturating_sub(since) >= self.settings.safe_extension && self.thresholds_met() {
                    self.try_end_startup(now);
                }
            }
        }
    }

    fn try_end_startup(&mut self, now: Now) {
        if self.safe_mode.bytes_in_future == 0 {
            self.end_startup(now);
        }
    }

    fn end_startup(&mut self, now: Now) {
        self.safe_mode.mode = SafeMode::Off;
        self.safe_mode.lasted.get_or_insert(now.monotonic.saturating_sub(self.restored));
        tracing::info!(blocks = self.complete_blocks(), reported = self.redundancy.safe, "safe mode is off");
        self.start_repairs(now);
    }

    pub fn startup_safe_mode(&self, now: Now) -> StartupSafeMode {
        StartupSafeMode {
            safe_blocks: self.redundancy.safe,
            wanted_blocks: self.safe_threshold_blocks(),
            lasted: self.safe_mode.lasted.unwrap_or_else(|| now.monotonic.saturating_sub(self.restored)),
            is_over: !self.in_startup_safe_mode(),
        }
    }

    fn thresholds_met(&self) -> bool {
        self.redundancy.safe >= self.safe_threshold_blocks()
            && self.live_datanodes() >= self.settings.safe_min_datanodes
    }

    fn safe_threshold_blocks(&self) -> u64 {
        (self.complete_blocks() as f64 * self.settings.safe_threshold) as u64
    }

    /// Reason for safe mode and its expected end: the second line of SafeModeException and of the page of `dfsadmin
    /// -safemode get`. Source of the text: `getSafeModeTip` of FSNamesystem and BlockManagerSafeMode. Empty if safe
    /// mode is off.
    pub fn safe_mode_tip(&self, now: Now) -> String {
        const LEAVE: &str = "Use \"hdfs dfsadmin -safemode leave\" to turn safe mode off.";
        if self.safe_mode.low_resources {
            return format!(
                "Resources are low on NN. Please add or free up more resourcesthen turn off safe mode manually. NOTE:  If you turn off safe mode before adding resources, the NN will immediately return to safe mode. {LEAVE}"
            );
        }
        if self.safe_mode.manual {
            return format!("It was turned on manually. {LEAVE}");
        }
        if !self.in_startup_safe_mode() {
            return String::new();
        }
        let (total, safe, wanted) = (self.complete_blocks(), self.redundancy.safe, self.safe_threshold_blocks());
        let threshold = self.settings.safe_threshold;
        let blocks_met = safe >= wanted;
        let mut tip = if blocks_met {
            format!("The reported blocks {safe} has reached the threshold {threshold:.4} of total blocks {total}. ")
        } else {
            format!(
                "The reported blocks {safe} needs additional {} blocks to reach the threshold {threshold:.4} of total blocks {total}.\n",
                wanted - safe
            )
        };
        let (live, minimum) = (self.live_datanodes(), self.settings.safe_min_datanodes);
        if minimum == 0 {
            tip.push_str("The minimum number of live datanodes is not required. ");
        } else if !blocks_met {
            tip.push_str(
                "The number of live datanodes is not calculated since reported blocks hasn't reached the threshold. ",
            );
        } else if live < minimum {
            tip.push_str(&format!(
                "The number of live datanodes {live} needs an additional {} live datanodes to reach the minimum number {minimum}.\n",
                minimum - live
            ));
        } else {
            tip.push_str(&format!("The number of live datanodes {live} has reached the minimum number {minimum}. "));
        }
        if self.safe_mode.bytes_in_future > 0 {
            tip.push_str(&format!(
                "Name node detected blocks with generation stamps in future. This means that Name node metadata is inconsistent. This can happen if Name node metadata files have been manually replaced. Exiting safe mode will cause loss of {} byte(s). Please restart name node with right metadata or use \"hdfs dfsadmin -safemode forceExit\" if you are certain that the NameNode was started with the correct FsImage and edit logs. If you encountered this during a rollback, it is safe to exit with -safemode forceExit.",
                self.safe_mode.bytes_in_future
            ));
            return tip;
        }
        match self.safe_mode.mode {
            SafeMode::Extension { since } => {
                let left = (since + self.settings.safe_extension).saturating_sub(now.monotonic);
                tip.push_str(&format!(
                    "In safe mode extension. Safe mode will be turned off automatically in {} seconds.",
                    left.as_secs()
                ));
            }
            _ => tip.push_str("Safe mode will be turned off automatically once the thresholds have been reached."),
        }
        tip
    }
}
