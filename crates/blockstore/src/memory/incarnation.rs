//! Pairing of memory and disk. Both carry the same id, which is renewed at every start. Memory that belongs to an
//! earlier incarnation of its disk is stale, even if its CRCs match.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::sys;

pub const IN_MEMORY: &str = "INCARNATION";
pub const ON_DISK: &str = "hearth.incarnation";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incarnation(u128);

impl Incarnation {
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self(u128::from_le_bytes(bytes)))
    }
}

/// Returns whether the content of `memory_dir` belongs to the pool in `pool_dir`, whose `VERSION` file is `version`.
///
/// An empty memory directory matches: `Ok(true)`.
pub fn matches(memory_dir: &Path, pool_dir: &Path, version: &Path) -> io::Result<bool> {
    // Also after a kill in the middle of the very first renewal.
    if has_no_replicas(memory_dir)? {
        return Ok(true);
    }
    let accepted = read_accepted(memory_dir)?;
    let Some((id, version_time)) = read_disk(pool_dir)? else { return Ok(false) };
    // Java's DataNode rewrites VERSION at each start: it has used the directory since.
    Ok(accepted.contains(&id) && version_time == modified_ns(version)?)
}

/// Gives memory and disk a new common id. A kill at any moment leaves a match, and so does a disk that cannot be
/// written, no matter how often this is retried.
pub fn renew(memory_dir: &Path, pool_dir: &Path, version: &Path, new: Incarnation) -> io::Result<()> {
    let on_disk = read_disk(pool_dir)?.map(|(id, _)| id);
    let mut accepted = read_accepted(memory_dir)?;
    // At most one of the ids of earlier attempts has reached the disk.
    accepted.retain(|id| Some(*id) == on_disk);
    accepted.push(new);
    write_accepted(memory_dir, &accepted)?;
    let text = format!("id={:032x}\nversion_mtime_ns={}\n", new.0, modified_ns(version)?);
    write(pool_dir, ON_DISK, &text)?;
    write_accepted(memory_dir, &[new])
}

fn has_no_replicas(memory_dir: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(memory_dir)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("blk_") || name.starts_with("slab_") {
            return Ok(false);
        }
    }
    Ok(true)
}

fn read_accepted(memory_dir: &Path) -> io::Result<Vec<Incarnation>> {
    let Some(text) = read_if_there(&memory_dir.join(IN_MEMORY))? else { return Ok(Vec::new()) };
    let list = text.lines().find_map(|line| line.strip_prefix("accept=")).unwrap_or_default();
    Ok(list.split(',').filter_map(|id| u128::from_str_radix(id, 16).ok()).map(Incarnation).collect())
}

fn write_accepted(memory_dir: &Path, accepted: &[Incarnation]) -> io::Result<()> {
    let list: Vec<String> = accepted.iter().map(|id| format!("{:032x}", id.0)).collect();
    write(memory_dir, IN_MEMORY, &format!("accept={}\n", list.join(",")))
}

fn read_disk(pool_dir: &Path) -> io::Result<Option<(Incarnation, u128)>> {
    let Some(text) = read_if_there(&pool_dir.join(ON_DISK))? else { return Ok(None) };
    let value = |key| text.lines().find_map(|line| line.strip_prefix(key));
    let id = value("id=").and_then(|id| u128::from_str_radix(id, 16).ok());
    let time = value("version_mtime_ns=").and_then(|time| time.parse().ok());
    Ok(id.map(Incarnation).zip(time))
}

fn modified_ns(path: &Path) -> io::Result<u128> {
    Ok(fs::metadata(path)?.modified()?.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos()))
}

fn read_if_there(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the content of `dir/name` by `text`. If there is no room for another file, the file is overwritten.
fn write(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    match replace(dir, name, text) {
        Err(error) if sys::is_out_of_space(&error) => overwrite(dir, name, text),
        other => other,
    }
}

/// Overwrites `dir/name`, whose block is already allocated. On a disk or in memory without room for another file, a
/// DataNode must still start, or its replicas in memory are unreachable. A kill leaves the old or the new text, since a
/// single write of so few bytes is not interrupted. The outcome of a power failure does not matter, since no memory
/// outlives it.
fn overwrite(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let _ = fs::remove_file(dir.join(format!("{name}.new")));
    let mut file = fs::File::options().write(true).open(dir.join(name))?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)?;
    file.sync_all()
}

/// Replaces `dir/name` by a file with `text`, atomically and durably.
pub fn replace(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let scratch = dir.join(format!("{name}.new"));
    let mut file = fs::File::create(&scratch)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&scratch, dir.join(name))?;
    sys::sync_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwriting_leaves_only_the_new_text() {
        let disk = tempfile::tempdir().unwrap();
        assert!(overwrite(disk.path(), ON_DISK, "new").is_err(), "there is nothing to write over");
        fs::write(disk.path().join(ON_DISK), "longer than before").unwrap();
        overwrite(disk.path(), ON_DISK, "new").unwrap();
        assert_eq!(fs::read(disk.path().join(ON_DISK)).unwrap(), b"new");
        assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 1);
    }

    #[test]
    fn memory_of_another_incarnation_does_not_match() {
        let memory = tempfile::tempdir().unwrap();
        let disk = tempfile::tempdir().unwrap();
        let version = disk.path().join("VERSION");
        fs::write(&version, "x").unwrap();
        let check = || matches(memory.path(), disk.path(), &version).unwrap();
        let renew = || renew(memory.path(), disk.path(), &version, Incarnation::random().unwrap()).unwrap();
        assert!(check(), "nothing there yet");
        renew();
        fs::write(memory.path().join("blk_1_2.data"), "x").unwrap();
        assert!(check());
        // Killed between the steps of a renewal: memory accepts both.
        let mut accepted = read_accepted(memory.path()).unwrap();
        accepted.push(Incarnation(99));
        write_accepted(memory.path(), &accepted).unwrap();
        assert!(check());
        renew();
        assert_eq!(read_accepted(memory.path()).unwrap().len(), 1);
        assert!(check());
        // Java has used the directory in between. The pause is longer than a tick of the clock for file timestamps.
        std::thread::sleep(std::time::Duration::from_millis(100));
        fs::write(&version, "x").unwrap();
        assert!(!check());
        renew();
        fs::remove_file(memory.path().join(IN_MEMORY)).unwrap();
        assert!(!check(), "replicas without an incarnation");
    }
}
