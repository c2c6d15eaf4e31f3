//! Model of advertise, read, withdraw and free, run in every possible order.
//!
//! Each call of the lease table is one step, since it has one lock; so are each load of a reader and each change of the
//! store. All interleavings of a few actors' steps are run, each from the beginning. The invariants are checked at
//! every read and at the end. The rules are also broken one by one, to show that the model detects each violation.

use std::cell::RefCell;
use std::rc::Rc;

use super::{AdvertisedMemory, Bounds, Claim, ClaimResult, LeaseTable, WithdrawOutcome};

/// Content of memory that was reused for something else.
const REUSED: u64 = 999;

const LEASE: u64 = 10;

/// A rule that is violated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Broken {
    Nothing,
    /// The store changes a replica before it withdraws it.
    WithdrawnAfterTheChange,
    /// Memory is freed on withdrawal, regardless of leases.
    NoLeases,
    /// A replica that was opened before a withdrawal is shown after it.
    ShownUnasked,
    /// A replica that was opened during a change counts as opened after it.
    OpenedMidChange,
    /// Readers do not check the record.
    RecordNotRead,
}

/// The memory of one copy.
#[derive(Default)]
struct Cell {
    content: u64,
    record: Option<u64>,
    guards: usize,
    unlinked: bool,
}

impl Cell {
    fn settle(&mut self) {
        if self.guards == 0 && self.unlinked {
            self.content = REUSED;
        }
    }
}

type Cells = Rc<RefCell<Vec<Cell>>>;

struct Guard {
    cells: Cells,
    cell: usize,
    version: u64,
}

impl Guard {
    fn new(cells: &Cells, cell: usize) -> Self {
        let mut all = cells.borrow_mut();
        all[cell].guards += 1;
        let version = all[cell].content;
        assert_ne!(version, REUSED, "the store opened memory that it does not own");
        Self { cells: cells.clone(), cell, version }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut all = self.cells.borrow_mut();
        all[self.cell].guards -= 1;
        all[self.cell].settle();
    }
}

impl AdvertisedMemory for Guard {
    fn bytes(&self) -> u64 {
        1
    }
    fn write_record(&self) {
        self.cells.borrow_mut()[self.cell].record = Some(self.version);
    }
    fn clear_record(&self) {
        self.cells.borrow_mut()[self.cell].record = None;
    }
}

/// The store's side: one replica, whose version rises with every change.
struct World {
    broken: Broken,
    table: LeaseTable<u8, Guard>,
    cells: Cells,
    current: usize,
    withdrawals: u32,
    changing: bool,
    now: u64,
    reading: usize,
}

impl World {
    fn withdraw(&mut self) {
        self.withdrawals += 1;
        match self.table.withdraw(&0, self.now, self.broken == Broken::NoLeases) {
            WithdrawOutcome::Over(guard) => drop(guard),
            WithdrawOutcome::Nothing | WithdrawOutcome::Leased => {}
        }
    }
}

/// Steps of one actor. False: the actor has to wait for another one.
#[derive(Default)]
enum Actor {
    #[default]
    Done,
    Advertise(AdvertiseStep),
    Read(ReadStep),
    Change(u8),
    Time(u8),
}

#[derive(Default)]
enum AdvertiseStep {
    #[default]
    Begin,
    Claimed(Claim<u8>),
    Opened(Claim<u8>, Guard, u32),
    Agreed(Claim<u8>, Guard),
}

#[derive(Default)]
enum ReadStep {
    #[default]
    Begin,
    Told {
        cell: usize,
        version: u64,
        until: u64,
    },
    Posted {
        cell: usize,
        version: u64,
    },
    Data {
        cell: usize,
        version: u64,
        data: u64,
    },
}

impl Actor {
    /// Returns the maximum number of its steps.
    fn steps(&self) -> usize {
        match self {
            Self::Done => 0,
            Self::Advertise(_) | Self::Read(_) => 4,
            Self::Change(_) => 3,
            Self::Time(_) => 2,
        }
    }

    /// Errors: data that a reader accepted although it was wrong.
    fn step(self, world: &mut World) -> Result<Self, String> {
        Ok(match self {
            Self::Done => Self::Done,
            Self::Advertise(AdvertiseStep::Begin) => match world.table.claim(&0) {
                ClaimResult::Claimed(claim) => Self::Advertise(AdvertiseStep::Claimed(claim)),
                ClaimResult::Busy | ClaimResult::Advertised => Self::Done,
            },
            Self::Advertise(AdvertiseStep::Claimed(claim)) => {
                let guard = Guard::new(&world.cells, world.current);
                Self::Advertise(AdvertiseStep::Opened(claim, guard, world.withdrawals))
            }
            Self::Advertise(AdvertiseStep::Opened(claim, guard, withdrawals)) => {
                let agreed = withdrawals == world.withdrawals && !world.changing;
                if agreed || world.broken == Broken::ShownUnasked {
                    Self::Advertise(AdvertiseStep::Agreed(claim, guard))
                } else {
                    world.table.abandon_claim(claim);
                    Self::Done
                }
            }
            Self::Advertise(AdvertiseStep::Agreed(claim, guard)) => {
                if world.broken == Broken::ShownUnasked {
                    let claim = match world.table.claim(&0) {
                        ClaimResult::Claimed(again) => again,
                        ClaimResult::Busy | ClaimResult::Advertised => claim,
                    };
                    drop(world.table.show(claim, guard));
                } else {
                    drop(world.table.show(claim, guard));
                }
                Self::Done
            }
            Self::Read(ReadStep::Begin) => {
                let until = world.now + LEASE;
                let told = world.table.lease(&0, until, |guard| (guard.cell, guard.version));
                match told {
                    Some((cell, version)) => Self::Read(ReadStep::Told { cell, version, until }),
                    None => Self::Done,
                }
            }
            // No read is posted when the lease is nearly over.
            Self::Read(ReadStep::Told { until, .. }) if world.now + LEASE / 2 > until => Self::Done,
            Self::Read(ReadStep::Told { cell, version, .. }) => {
                world.reading += 1;
                Self::Read(ReadStep::Posted { cell, version })
            }
            Self::Read(ReadStep::Posted { cell, version }) => {
                let data = world.cells.borrow()[cell].content;
                Self::Read(ReadStep::Data { cell, version, data })
            }
            Self::Read(ReadStep::Data { cell, version, data }) => {
                world.reading -= 1;
                let record = world.cells.borrow()[cell].record;
                let believed = record == Some(version) || world.broken == Broken::RecordNotRead;
                if data == REUSED {
                    return Err("memory was used again under a lease".to_owned());
                }
                if believed && data != version {
                    return Err(format!("{data} was taken for {version}"));
                }
                if record == Some(version) && world.current != cell && !world.changing {
                    return Err(format!("{version} was shown after it had changed"));
                }
                if world.broken == Broken::RecordNotRead && world.current != cell {
                    return Err(format!("{version} was believed after it had changed"));
                }
                Self::Done
            }
            // Only one change of a replica at a time.
            Self::Change(0) if world.changing => Self::Change(0),
            Self::Change(0) => {
                world.changing = true;
                if world.broken != Broken::WithdrawnAfterTheChange {
                    world.withdraw();
                }
                Self::Change(1)
            }
            Self::Change(1) => {
                let old = world.current;
                let mut cells = world.cells.borrow_mut();
                let version = cells[old].content + 1;
                cells[old].unlinked = true;
                cells[old].settle();
                cells.push(Cell { content: version, ..Cell::default() });
                world.current = cells.len() - 1;
                drop(cells);
                world.changing = false;
                if world.broken != Broken::OpenedMidChange {
                    world.withdrawals += 1;
                }
                Self::Change(2)
            }
            Self::Change(_) => {
                if world.broken == Broken::WithdrawnAfterTheChange {
                    world.withdraw();
                }
                Self::Done
            }
            // A batch of reads has a time-out shorter than its lease: time does not pass the end of a lease that is
            // being read under.
            Self::Time(0) if world.reading > 0 => Self::Time(0),
            Self::Time(0) => {
                world.now += 2 * LEASE;
                Self::Time(1)
            }
            Self::Time(_) => {
                drop(world.table.sweep(world.now));
                Self::Done
            }
        })
    }
}

fn run(broken: Broken, make: fn() -> Vec<Actor>, schedule: &[usize]) -> Result<(), String> {
    let cells: Cells = Rc::new(RefCell::new(vec![Cell { content: 1, ..Cell::default() }]));
    let table = LeaseTable::new(Bounds { bytes: 10, replicas: 10 });
    let mut world = World { broken, table, cells, current: 0, withdrawals: 0, changing: false, now: 0, reading: 0 };
    let mut actors = make();
    for actor in schedule {
        actors[*actor] = std::mem::take(&mut actors[*actor]).step(&mut world)?;
    }
    // Time may have had to wait: every actor is run to its end, one after the other.
    for actor in &mut actors {
        for _ in 0..5 {
            *actor = std::mem::take(actor).step(&mut world)?;
        }
    }
    drop(actors);
    world.now += 100 * LEASE;
    drop(world.table.sweep(world.now));
    let figures = world.table.metrics();
    let guards: usize = world.cells.borrow().iter().map(|cell| cell.guards).sum();
    if figures.leaving != 0 || guards as u64 != figures.advertised || figures.bytes != figures.advertised {
        return Err(format!("{figures:?} with {guards} guards at the end"));
    }
    if world.cells.borrow().iter().any(|cell| cell.unlinked && cell.content != REUSED) {
        return Err("memory was never given back".to_owned());
    }
    Ok(())
}

/// Runs all schedules. Returns their number, and the first one that fails.
fn explore(broken: Broken, make: fn() -> Vec<Actor>) -> (usize, Option<(Vec<usize>, String)>) {
    let mut left: Vec<usize> = make().iter().map(Actor::steps).collect();
    let total = left.iter().sum();
    let mut schedule = Vec::with_capacity(total);
    let (mut runs, mut wrong) = (0, None);
    fn visit(
        left: &mut [usize],
        schedule: &mut Vec<usize>,
        total: usize,
        leaf: &mut dyn FnMut(&[usize]) -> bool,
    ) -> bool {
        if schedule.len() == total {
            return leaf(schedule);
        }
        for actor in 0..left.len() {
            if left[actor] == 0 {
                continue;
            }
            left[actor] -= 1;
            schedule.push(actor);
            let go_on = visit(left, schedule, total, leaf);
            schedule.pop();
            left[actor] += 1;
            if !go_on {
                return false;
            }
        }
        true
    }
    visit(&mut left, &mut schedule, total, &mut |schedule| {
        runs += 1;
        if let Err(why) = run(broken, make, schedule) {
            wrong = Some((schedule.to_vec(), why));
        }
        wrong.is_none()
    });
    (runs, wrong)
}

fn advertise() -> Actor {
    Actor::Advertise(AdvertiseStep::Begin)
}

fn read() -> Actor {
    Actor::Read(ReadStep::Begin)
}

/// One actor of each kind.
fn one_of_each() -> Vec<Actor> {
    vec![advertise(), read(), Actor::Change(0), Actor::Time(0)]
}

/// Two actors that show the replica, and one that changes it.
fn two_who_show() -> Vec<Actor> {
    vec![advertise(), advertise(), Actor::Change(0)]
}

/// A replica that changes twice.
fn two_changes() -> Vec<Actor> {
    vec![advertise(), Actor::Change(0), Actor::Change(0), Actor::Time(0)]
}

#[test]
fn readers_trust_only_valid_data_in_every_order() {
    for make in [one_of_each, two_who_show, two_changes] {
        let (runs, wrong) = explore(Broken::Nothing, make);
        assert_eq!(wrong, None, "after {runs} schedules");
        assert!(runs > 10_000, "{runs}");
    }
}

#[test]
fn every_broken_rule_is_detected() {
    for broken in [
        Broken::WithdrawnAfterTheChange,
        Broken::NoLeases,
        Broken::ShownUnasked,
        Broken::OpenedMidChange,
        Broken::RecordNotRead,
    ] {
        let found = [one_of_each, two_who_show].into_iter().any(|make| explore(broken, make).1.is_some());
        assert!(found, "{broken:?} is not detected");
    }
}
