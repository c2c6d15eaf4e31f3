//! Going on with what is left of a directory that does not start: `hearth namenode -recover`.
//!
//! The tables have to be readable. Journal groups that follow them without a gap are kept. Recovery then skips numbers of inodes, blocks and
//! stamps, because DataNodes may hold blocks with the lost ones.

use std::fs;
use std::path::{Path, PathBuf};

use super::committer::{catch_panics, marks};
use super::directory::{LAYOUT, begin_journal};
use super::journal::{self, FILES, Salvaged};
use super::tables::Tables;
use super::{Directory, StoreError, Version, io, journal_progress};
use crate::namespace::Limits;

/// More than changes that any journal had room for, and any hour of changes of an older copy.
const SKIPPED: u32 = 1 << 24;

/// What there is of a namespace, and what there is not.
#[derive(Debug)]
pub struct RecoveryReport {
    pub identity: Version,
    /// What is wrong with the directory, a sentence each. Empty: it starts as it is.
    pub problems: Vec<String>,
    /// Changes are numbered in groups. The last group that is there.
    pub kept: u64,
    /// The last group that is known to have been; further ones may have been.
    pub known: u64,
    /// Where the files of before were copied to; empty when nothing was changed.
    pub copies: Vec<PathBuf>,
}

/// Looks through a directory and, with `force`, makes it one that starts with what is left.
///
/// Errors: the tables cannot be read, or the system refuses. Nothing can be recovered then; the journal's files are as they were.
pub fn recover(directory: &Directory, limits: Limits, force: bool) -> Result<RecoveryReport, StoreError> {
    catch_panics(directory, || run(directory, limits, force))
}

fn run(directory: &Directory, limits: Limits, force: bool) -> Result<RecoveryReport, StoreError> {
    if !directory.is_formatted() {
        return Err(StoreError::NotFormatted { path: directory.path().to_owned() });
    }
    let mut problems = Vec::new();
    let stored = match directory.stored_version() {
        Ok(stored) => Ok(stored),
        Err(error @ (StoreError::Missing { .. } | StoreError::BadVersion { .. })) => Err(error),
        Err(error) => return Err(error),
    };
    let mut tables = Tables::open(&directory.database())?;
    let layout = stored.as_ref().map_or(LAYOUT, |(_, layout)| *layout);
    let identity = match (tables.identity()?, stored) {
        (Some(known), Ok((version, _))) => {
            if known != version {
                problems.push(format!(
                    "VERSION says cluster {}, pool {}; namespace.redb says cluster {}, pool {}, which counts",
                    version.cluster_id, version.pool, known.cluster_id, known.pool
                ));
            }
            known
        }
        (Some(known), Err(_)) => {
            problems.push("VERSION is missing or damaged: namespace.redb has all that it said".to_owned());
            known
        }
        (None, Ok((version, _))) => version,
        // Nothing else says whose it is.
        (None, Err(error)) => return Err(error),
    };
    let rows = tables.journal_rows()?;
    let salvaged = journal::salvage(&directory.current(), &marks(&rows, layout), tables.applied()?)?;
    let Salvaged { unapplied, known, problems: of_the_journal } = salvaged;
    let is_less = known > unapplied.number || !of_the_journal.is_empty();
    problems.extend(of_the_journal);
    let (kept, copies) = (unapplied.number, Vec::new());
    let mut recovery = RecoveryReport { identity, problems, kept, known, copies };
    if is_less && recovery.problems.is_empty() {
        recovery.problems.push(format!("the journal ends with group {kept}, and group {known} was acknowledged"));
    }
    if !force || recovery.problems.is_empty() {
        return Ok(recovery);
    }
    recovery.copies = copy_aside(&directory.current())?;
    if !unapplied.run.is_empty() {
        tables.apply(&unapplied.run, unapplied.number)?;
    }
    if is_less {
        tables.skip_numbers(SKIPPED)?;
    }
    drop(tables.load(limits)?);
    directory.replace_version(&recovery.identity)?;
    journal::create_files(&directory.current())?;
    drop(begin_journal(&directory.current(), &mut tables, &recovery.identity, kept, 0)?);
    Ok(recovery)
}

/// Copies the files that recovery replaces to `NAME.before-recovery`, with a number where such a copy exists.
fn copy_aside(current: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut copies = Vec::new();
    for name in ["VERSION", FILES[0], FILES[1], journal_progress::FILE] {
        let path = current.join(name);
        if !path.is_file() {
            continue;
        }
        let names = (0u32..).map(|number| match number {
            0 => format!("{name}.before-recovery"),
            number => format!("{name}.before-recovery.{number}"),
        });
        let copy = names.map(|name| current.join(name)).find(|copy| !copy.exists());
        let copy = copy.expect("there are fewer copies than numbers");
        fs::copy(&path, &copy).map_err(io("copying", &path))?;
        copies.push(copy);
    }
    Ok(copies)
}
