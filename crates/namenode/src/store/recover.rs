//! Recovery of a damaged directory: `hearth namenode -recover`.
//!
//! The tables must be readable. Journal groups that follow them without a gap are kept. Recovery then skips numbers of
//! inodes, blocks and stamps, because DataNodes may hold blocks with the lost ones. The skipped stamps are remembered:
//! unknown blocks with them, and such replicas of known blocks, which a lost append leaves, are not deleted as stray or
//! corrupt until an administrator forces it. The deletion of a file deletes them, and lease recovery of an open file
//! may shorten them.

use std::fs;
use std::path::{Path, PathBuf};

use super::committer::{catch_panics, marks};
use super::directory::{LAYOUT, begin_journal};
use super::journal::{self, FILES, Salvaged};
use super::tables::Tables;
use super::{Directory, StoreError, Version, io, journal_progress};
use crate::namespace::Limits;

/// Numbers to skip: more than the changes that fit in any journal, and more than the changes of an hour that an
/// outdated copy lacks.
const SKIPPED: u32 = 1 << 24;

/// Result of examining or recovering a directory.
#[derive(Debug)]
pub struct RecoveryReport {
    pub identity: Version,
    /// Problems of the directory, one sentence each. Empty if it starts as it is.
    pub problems: Vec<String>,
    /// Number of the last group that can be recovered. Changes are numbered in groups.
    pub kept: u64,
    /// Number of the last group that is known to have existed. There may have been later ones.
    pub known: u64,
    /// Paths of the copies of the replaced files; empty if nothing was changed.
    pub copies: Vec<PathBuf>,
}

/// Examines a directory. With `force`, also changes it so that it starts with the recoverable changes.
///
/// Errors: the tables cannot be read, or a system error. Then nothing can be recovered, and the journal's files are
/// unchanged.
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
                    "VERSION says cluster {}, pool {}; namespace.redb says cluster {}, pool {}, which takes precedence",
                    version.cluster_id, version.pool, known.cluster_id, known.pool
                ));
            }
            known
        }
        (Some(known), Err(_)) => {
            problems.push("VERSION is missing or damaged: namespace.redb has the same information".to_owned());
            known
        }
        (None, Ok((version, _))) => version,
        // Nothing else identifies the namespace.
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
        recovery.problems.push(format!("the journal ends with group {kept}, but group {known} was acknowledged"));
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

/// Copies the files that recovery replaces to `NAME.before-recovery`, with a numeric suffix if such a copy exists.
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
