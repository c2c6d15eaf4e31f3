//! Faults: their kinds, and the steps at which they happen.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::one_sided::Access;
use crate::soft::{Gate, Step, Verdict};

/// A fault: at the `nth` step of kind `at` (from 1, counted since the fault was added), `then` happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    pub at: Step,
    pub nth: u64,
    pub then: FaultAction,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultAction {
    /// The connection ends. At `Step::Connect`: it is refused.
    End,
    /// The step waits for `Sim::release`, and so does everything that follows it on the connection.
    Hold,
    /// The step waits this long.
    Delay(Duration),
    /// At `Step::Credit`: credit is not returned, now and from now on.
    Withhold,
}

/// Makes registrations for `access` fail: the next `after` registrations succeed, the `times` after them fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    pub access: Access,
    pub after: u64,
    pub times: u64,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    state: Mutex<FaultState>,
    /// Number of steps currently held, and number of releases so far.
    holding: watch::Sender<(usize, u64)>,
}

#[derive(Debug, Default)]
struct FaultState {
    /// Faults, each with the number of steps that remain.
    faults: Vec<Fault>,
    steps: HashMap<Step, u64>,
    shortages: Vec<Shortage>,
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, FaultState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, fault: Fault) {
        assert!(fault.nth > 0, "steps are counted from 1");
        self.lock().faults.push(fault);
    }

    pub(super) fn add_shortage(&self, shortage: Shortage) {
        self.lock().shortages.push(shortage);
    }

    pub(super) fn steps(&self, step: Step) -> u64 {
        self.lock().steps.get(&step).copied().unwrap_or_default()
    }

    pub(super) async fn held(&self) {
        // The sender lives in self.
        let _ = self.holding.subscribe().wait_for(|(held, _)| *held > 0).await;
    }

    pub(super) fn release(&self) {
        self.holding.send_modify(|(_, releases)| *releases += 1);
    }

    /// Counts a step and returns the fault that happens at it.
    fn count(&self, step: Step) -> Option<FaultAction> {
        let mut state = self.lock();
        *state.steps.entry(step).or_default() += 1;
        let mut then = None;
        state.faults.retain_mut(|fault| {
            if fault.at != step {
                return true;
            }
            fault.nth = fault.nth.saturating_sub(1);
            if fault.nth > 0 {
                return true;
            }
            then.get_or_insert(fault.then);
            fault.then == FaultAction::Withhold
        });
        then
    }

    async fn hold(&self) {
        let mut holding = self.holding.subscribe();
        let before = holding.borrow().1;
        self.holding.send_modify(|(held, _)| *held += 1);
        // Also counts down if the connection ends during the hold, and this future is dropped.
        let _counted = HeldStep(&self.holding);
        let _ = holding.wait_for(|(_, releases)| *releases > before).await;
    }
}

struct HeldStep<'a>(&'a watch::Sender<(usize, u64)>);

impl Drop for HeldStep<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|(held, _)| *held -= 1);
    }
}

impl Gate for Faults {
    fn registers(&self, access: Access) -> bool {
        let mut state = self.lock();
        let mut registers = true;
        for shortage in state.shortages.iter_mut().filter(|shortage| shortage.access == access) {
            if shortage.after > 0 {
                shortage.after -= 1;
            } else if shortage.times > 0 {
                shortage.times -= 1;
                registers = false;
            }
        }
        registers
    }

    fn pass(&self, step: Step) -> BoxFuture<'_, Verdict> {
        Box::pin(async move {
            match self.count(step) {
                None => Verdict::Go,
                Some(FaultAction::End) => Verdict::End,
                Some(FaultAction::Withhold) => Verdict::Withhold,
                Some(FaultAction::Delay(time)) => {
                    tokio::time::sleep(time).await;
                    Verdict::Go
                }
                Some(FaultAction::Hold) => {
                    self.hold().await;
                    Verdict::Go
                }
            }
        })
    }
}
