//! Regular backups: a directory for each, named by the time, of which the newest are kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hearth_config::{ConfigError, Configuration, keys};
use hearth_types::Calendar;
use tokio::time::{Instant, sleep_until};

use super::{ImageError, io};
use crate::state::Namenode;

/// Shortest interval between backups.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// First characters of the names of backups.
const PREFIX: &str = "backup-";
/// Form of the time in their names; `0` stands for any digit.
const FORM: &str = "00000000-000000.000";
/// Ending of the name of an unfinished one.
const PART: &str = ".part";

/// Settings of regular backups.
#[derive(Clone, Debug)]
pub struct BackupSettings {
    /// `hearth.namenode.backup.dir`.
    pub directory: PathBuf,
    /// `hearth.namenode.backup.interval`.
    pub interval: Duration,
    /// `hearth.namenode.backup.keep`.
    pub keep: usize,
}

impl BackupSettings {
    /// `None` if no backups are configured.
    ///
    /// Errors give key, value and file.
    pub fn read(conf: &Configuration) -> Result<Option<Self>, ConfigError> {
        let Some(directory) = conf.get(keys::HEARTH_NAMENODE_BACKUP_DIR)? else { return Ok(None) };
        let interval = conf.get(keys::HEARTH_NAMENODE_BACKUP_INTERVAL)?.max(INTERVAL_MIN);
        let keep = conf.get(keys::HEARTH_NAMENODE_BACKUP_KEEP)?.max(1) as usize;
        Ok(Some(Self { directory, interval, keep }))
    }
}

/// Writes a backup at each interval, for as long as the NameNode runs. A failure is logged, and the next interval tries
/// again. Changed settings apply at once: the next backup is due one new interval after the last one.
pub async fn run(namenode: Arc<Namenode>) {
    let mut settings = namenode.backups.subscribe();
    let mut last = Instant::now();
    loop {
        let current = settings.borrow_and_update().clone();
        let Some(current) = current else {
            if settings.changed().await.is_err() {
                return;
            }
            last = Instant::now();
            continue;
        };
        tokio::select! {
            () = sleep_until(last + current.interval) => {}
            changed = settings.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            }
        }
        let began = Instant::now();
        last = began;
        match back_up(&namenode, &current).await {
            Ok(path) => tracing::info!(path = %path.display(), took = ?began.elapsed(), "namespace backed up"),
            Err(error) => tracing::error!(%error, "cannot back up the namespace"),
        }
    }
}

/// Writes one backup, then removes those that are too many. Returns its directory.
pub(super) async fn back_up(namenode: &Namenode, settings: &BackupSettings) -> Result<PathBuf, ImageError> {
    let directory = &settings.directory;
    std::fs::create_dir_all(directory).map_err(io("creating", directory))?;
    let root = directory.join(name(namenode.clock.wall_ms()));
    namenode.images.directory(namenode, &root).await?;
    remove_old(directory, settings.keep, &root)?;
    Ok(root)
}

/// Returns the name of a backup: its time in UTC, so that names sort by age.
fn name(wall_ms: u64) -> String {
    let Calendar { year, month, day, hour, minute, second } = Calendar::utc(wall_ms);
    format!("{PREFIX}{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}.{:03}", wall_ms % 1000)
}

/// Returns whether a name has exactly the form that [`name`] returns.
fn is_name(name: &str) -> bool {
    let Some(time) = name.strip_prefix(PREFIX) else { return false };
    let is_valid = |(byte, form): (u8, u8)| if form == b'0' { byte.is_ascii_digit() } else { byte == form };
    time.len() == FORM.len() && time.bytes().zip(FORM.bytes()).all(is_valid)
}

/// Removes all backups but the `keep` newest, and the rest of unfinished ones. `made` is the backup just made: it
/// counts as the newest, even if the clock was set back. Other directories and files stay.
fn remove_old(directory: &Path, keep: usize, made: &Path) -> Result<(), ImageError> {
    let (mut backups, mut unfinished) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(directory).map_err(io("reading", directory))? {
        let entry = entry.map_err(io("reading", directory))?;
        let (path, name) = (entry.path(), entry.file_name());
        let is_directory = entry.file_type().map_err(io("looking at", &path))?.is_dir();
        let Some(name) = name.to_str().filter(|_| is_directory && path != made) else { continue };
        if is_name(name) {
            backups.push(path);
        } else if name.strip_suffix(PART).is_some_and(is_name) {
            unfinished.push(path);
        }
    }
    backups.sort();
    let too_many = (backups.len() + 1).saturating_sub(keep.max(1));
    for path in backups.drain(..too_many).chain(unfinished) {
        std::fs::remove_dir_all(&path).map_err(io("removing", &path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_backups_are_kept() {
        let place = tempfile::tempdir().unwrap();
        let names = [1_000, 2_000_000, 90_000_000, 1_795_245_564_051].map(name);
        assert!(names.is_sorted());
        assert_eq!(names[3], "backup-20261121-071924.051");
        let unfinished = format!("{}{PART}", names[0]);
        let foreign = ["other", "backup-x.part", "backup-20261121", "backup-20261121-071924.051.old"];
        for name in names.iter().chain([&unfinished]).map(String::as_str).chain(foreign) {
            std::fs::create_dir_all(place.path().join(name).join("current")).unwrap();
        }
        std::fs::write(place.path().join("backup-note"), b"stays").unwrap();
        remove_old(place.path(), 2, &place.path().join(&names[3])).unwrap();
        let left = |name: &str| place.path().join(name).exists();
        assert_eq!(names.each_ref().map(|name| left(name)), [false, false, true, true]);
        assert!(foreign.iter().all(|name| left(name)) && left("backup-note") && !left(&unfinished));
    }

    #[test]
    fn backup_just_made_stays_after_the_clock_was_set_back() {
        let place = tempfile::tempdir().unwrap();
        let paths = [1_000, 2_000_000, 90_000_000].map(|time| place.path().join(name(time)));
        paths.iter().for_each(|path| std::fs::create_dir(path).unwrap());
        remove_old(place.path(), 2, &paths[0]).unwrap();
        assert_eq!(paths.each_ref().map(|path| path.exists()), [true, false, true]);
    }
}
