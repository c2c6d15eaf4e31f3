//! Startup scan of the disk, which also repairs the effects of a power failure between two renames.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hearth_types::{BlockId, ChecksumSpec, GenerationStamp};

use super::files::DiskCopy;
use super::layout::{BlockFile, PoolDirs, ReplicaDir};
use crate::sys;

/// One replica found on disk.
#[derive(Clone, Copy, Debug)]
pub struct FoundCopy {
    pub id: BlockId,
    pub copy: DiskCopy,
}

#[derive(Default)]
struct FoundFiles {
    data: Option<(PathBuf, u64)>,
    metas: Vec<(GenerationStamp, PathBuf, u64)>,
}

type Found = HashMap<BlockId, FoundFiles>;

/// Empties `tmp`, repairs `rbw` and `finalized`, and lists the replicas of both.
pub fn scan(dirs: &PoolDirs) -> io::Result<Vec<FoundCopy>> {
    empty(&dirs.temporary)?;
    let mut finalized = Found::new();
    collect(&dirs.finalized, 2, &mut finalized)?;
    let mut being_written = Found::new();
    collect(&dirs.being_written, 0, &mut being_written)?;
    reunite_halves(dirs, &mut finalized, &mut being_written)?;
    let mut copies = Vec::with_capacity(finalized.len() + being_written.len());
    for (id, files) in finalized {
        copies.extend(settle(dirs, ReplicaDir::Finalized, id, files)?);
    }
    for (id, files) in being_written {
        copies.extend(settle(dirs, ReplicaDir::BeingWritten, id, files)?);
    }
    Ok(copies)
}

fn empty(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn collect(dir: &Path, depth: u32, found: &mut Found) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if depth > 0 && name.starts_with("subdir") && entry.file_type()?.is_dir() {
            collect(&entry.path(), depth - 1, found)?;
            continue;
        }
        let Some(file) = BlockFile::parse(name) else { continue };
        let about = entry.metadata()?;
        if !about.is_file() {
            continue;
        }
        match file {
            BlockFile::Data(id) => found.entry(id).or_default().data = Some((entry.path(), about.len())),
            BlockFile::Meta(id, stamp) => found.entry(id).or_default().metas.push((stamp, entry.path(), about.len())),
        }
    }
    Ok(())
}

/// Reunites data and meta files. Moves between the two directories rename the data first, so data without a meta file
/// is moved to its meta file.
fn reunite_halves(dirs: &PoolDirs, finalized: &mut Found, being_written: &mut Found) -> io::Result<()> {
    for place in [ReplicaDir::BeingWritten, ReplicaDir::Finalized] {
        let (from, to) = match place {
            ReplicaDir::BeingWritten => (&mut *finalized, &mut *being_written),
            ReplicaDir::Finalized | ReplicaDir::Temporary => (&mut *being_written, &mut *finalized),
        };
        for (id, files) in from.iter_mut() {
            if !files.metas.is_empty() {
                continue;
            }
            let Some(other) = to.get_mut(id).filter(|other| other.data.is_none() && !other.metas.is_empty()) else {
                continue;
            };
            let Some((path, length)) = files.data.take() else { continue };
            dirs.make_dir(place, *id)?;
            let target = dirs.data(place, *id);
            fs::rename(&path, &target)?;
            sys::sync_dir(&dirs.dir(place, *id))?;
            other.data = Some((target, length));
        }
    }
    Ok(())
}

/// Returns the copy that the files of one block form, if any; leftovers are removed.
fn settle(dirs: &PoolDirs, place: ReplicaDir, id: BlockId, mut files: FoundFiles) -> io::Result<Option<FoundCopy>> {
    let Some((data, length)) = files.data else {
        // A meta file alone: its data was never renamed.
        for (_, path, _) in files.metas {
            fs::remove_file(path)?;
        }
        return Ok(None);
    };
    files.metas.sort_by_key(|(stamp, ..)| std::cmp::Reverse(*stamp));
    let mut chosen = None;
    for (index, (_, path, bytes)) in files.metas.iter().enumerate() {
        let fits = files.metas.len() == 1 || place == ReplicaDir::BeingWritten || fits(path, *bytes, &data, length)?;
        if fits {
            chosen = Some(index);
            break;
        }
    }
    let Some(chosen) = chosen else {
        // Nothing identifies these bytes or shows that they are right. Kept for the operator, never served.
        tracing::warn!(path = %data.display(), "block file without a matching meta file is ignored");
        return Ok(None);
    };
    let (stamp, meta, meta_bytes) = files.metas.swap_remove(chosen);
    for (_, path, _) in files.metas {
        fs::remove_file(path)?;
    }
    // Found in the wrong directory for its id: moved to the right one, since all other code computes the place.
    if data != dirs.data(place, id) {
        dirs.make_dir(place, id)?;
        fs::rename(&data, dirs.data(place, id))?;
    }
    if meta != dirs.meta(place, id, stamp) {
        fs::rename(&meta, dirs.meta(place, id, stamp))?;
    }
    let length = match place {
        ReplicaDir::BeingWritten => {
            whole_length(&dirs.data(place, id), &dirs.meta(place, id, stamp), length, meta_bytes)?
        }
        ReplicaDir::Finalized | ReplicaDir::Temporary => length,
    };
    Ok(Some(FoundCopy { id, copy: DiskCopy { place, stamp, length } }))
}

fn spec_of(meta: &File) -> io::Result<Option<ChecksumSpec>> {
    let mut header = [0; ChecksumSpec::META_HEADER_BYTES];
    match meta.read_exact_at(&mut header, 0) {
        Ok(()) => Ok(ChecksumSpec::from_meta_header(header)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether the table has as many CRCs as the data has chunks, and the last one matches.
fn fits(meta: &Path, meta_bytes: u64, data: &Path, length: u64) -> io::Result<bool> {
    let Some(spec) = spec_of(&File::open(meta)?)? else { return Ok(false) };
    if meta_bytes != ChecksumSpec::META_HEADER_BYTES as u64 + spec.checksum_bytes(length) {
        return Ok(false);
    }
    Ok(whole_length(data, meta, length, meta_bytes)? == length)
}

/// Returns the number of bytes of a replica being written that have matching CRCs: whole chunks with a CRC, and the
/// longest prefix of the last chunk that its CRC matches. That CRC may be older than the bytes, which are written
/// first.
fn whole_length(data: &Path, meta: &Path, length: u64, meta_bytes: u64) -> io::Result<u64> {
    let meta = File::open(meta)?;
    let Some(spec) = spec_of(&meta)? else { return Ok(0) };
    let size = spec.kind.size() as u64;
    if size == 0 {
        return Ok(length);
    }
    let chunk = u64::from(spec.bytes_per_chunk);
    let crcs = meta_bytes.saturating_sub(ChecksumSpec::META_HEADER_BYTES as u64) / size;
    let Some(last) = crcs.min(length.div_ceil(chunk)).checked_sub(1) else { return Ok(0) };
    let start = last * chunk;
    let mut bytes = vec![0; (length - start).min(chunk) as usize];
    File::open(data)?.read_exact_at(&mut bytes, start)?;
    let mut stored = [0; 4];
    meta.read_exact_at(&mut stored, ChecksumSpec::META_HEADER_BYTES as u64 + last * size)?;
    let stored = u32::from_be_bytes(stored);
    if spec.kind.of(&bytes) == stored {
        return Ok(start + bytes.len() as u64);
    }
    // A chunk has 512 bytes by default. For one of megabytes this quadratic search is not worth it.
    let search = bytes.len().min(64 << 10);
    let prefix = (1..search).rev().find(|end| spec.kind.of(&bytes[..*end]) == stored);
    Ok(start + prefix.unwrap_or(0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestPool {
        _dir: tempfile::TempDir,
        dirs: PoolDirs,
    }

    fn pool() -> TestPool {
        let dir = tempfile::tempdir().unwrap();
        let dirs = PoolDirs::new(dir.path(), "BP-1");
        dirs.create().unwrap();
        TestPool { _dir: dir, dirs }
    }

    fn meta(data: &[u8]) -> Vec<u8> {
        let mut meta = ChecksumSpec::DEFAULT.to_meta_header().to_vec();
        ChecksumSpec::DEFAULT.compute(data, &mut meta);
        meta
    }

    const ID: BlockId = BlockId(77);
    const STAMP: GenerationStamp = GenerationStamp(1001);

    fn put(dirs: &PoolDirs, place: ReplicaDir, data: &[u8], meta: &[u8]) {
        dirs.make_dir(place, ID).unwrap();
        fs::write(dirs.data(place, ID), data).unwrap();
        fs::write(dirs.meta(place, ID, STAMP), meta).unwrap();
    }

    #[test]
    fn rbw_replica_is_truncated_to_its_crcs() {
        let data: Vec<u8> = (0..1300u32).map(|byte| byte as u8).collect();
        for (meta_of, expected) in [(1300, 1300), (1100, 1100), (1024, 1024), (600, 600), (0, 0)] {
            let pool = pool();
            put(&pool.dirs, ReplicaDir::BeingWritten, &data, &meta(&data[..meta_of]));
            let found = scan(&pool.dirs).unwrap();
            assert_eq!(found[0].copy, DiskCopy { place: ReplicaDir::BeingWritten, stamp: STAMP, length: expected });
        }
    }

    #[test]
    fn interrupted_truncation_keeps_the_new_length() {
        let data: Vec<u8> = (0..1300u32).map(|byte| byte as u8).collect();
        for (length, cut) in [(900, 700), (900, 512), (900, 300), (1300, 1100), (1300, 100), (700, 600)] {
            let pool = pool();
            let whole = meta(&data[..length]);
            put(&pool.dirs, ReplicaDir::BeingWritten, &data[..length], &whole);
            let copy = DiskCopy { place: ReplicaDir::BeingWritten, stamp: STAMP, length: length as u64 };
            let writer = crate::disk::copy::DiskWriter::open(&pool.dirs, ID, copy).unwrap();
            let length_now = || scan(&pool.dirs).unwrap()[0].copy.length as usize;
            let snapshot = crate::snapshot::Snapshot::of_disk(writer.files.clone(), length as u64)
                .unwrap()
                .cut(cut as u64)
                .unwrap();
            let meta_path = pool.dirs.meta(ReplicaDir::BeingWritten, ID, STAMP);
            // First, only the whole CRCs are removed.
            let crcs = meta(&data[..cut]).len();
            fs::write(&meta_path, &whole[..crcs]).unwrap();
            assert!(length_now() >= cut, "{length} to {cut}");
            fs::write(&meta_path, &whole).unwrap();
            // A scan may have truncated it, as at a start.
            fs::write(pool.dirs.data(ReplicaDir::BeingWritten, ID), &data[..length]).unwrap();
            writer.cut_crcs(&snapshot).unwrap();
            assert_eq!(fs::metadata(pool.dirs.data(ReplicaDir::BeingWritten, ID)).unwrap().len(), length as u64);
            assert_eq!(length_now(), cut, "{length} to {cut}");
        }
    }

    #[test]
    fn data_is_moved_to_its_meta_file() {
        for (data_in, meta_in) in
            [(ReplicaDir::Finalized, ReplicaDir::BeingWritten), (ReplicaDir::BeingWritten, ReplicaDir::Finalized)]
        {
            let pool = pool();
            put(&pool.dirs, meta_in, b"abc", &meta(b"abc"));
            pool.dirs.make_dir(data_in, ID).unwrap();
            fs::rename(pool.dirs.data(meta_in, ID), pool.dirs.data(data_in, ID)).unwrap();
            let found = scan(&pool.dirs).unwrap();
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].copy, DiskCopy { place: meta_in, stamp: STAMP, length: 3 });
            assert!(pool.dirs.data(meta_in, ID).exists());
        }
    }

    #[test]
    fn newest_matching_meta_file_is_used() {
        let pool = pool();
        put(&pool.dirs, ReplicaDir::Finalized, b"abcdef", &meta(b"abcdef"));
        let newer = pool.dirs.meta(ReplicaDir::Finalized, ID, GenerationStamp(1002));
        // A truncation to 3 bytes: its meta file arrived, its data did not.
        fs::write(&newer, meta(b"abc")).unwrap();
        assert_eq!(scan(&pool.dirs).unwrap()[0].copy.stamp, STAMP);
        assert!(!newer.exists());
        // Now both arrived, and the old meta file was not yet removed.
        fs::write(&newer, meta(b"abc")).unwrap();
        fs::write(pool.dirs.data(ReplicaDir::Finalized, ID), b"abc").unwrap();
        assert_eq!(scan(&pool.dirs).unwrap()[0].copy.stamp, GenerationStamp(1002));
    }

    #[test]
    fn leftover_files_are_removed_at_start() {
        let pool = pool();
        put(&pool.dirs, ReplicaDir::Temporary, b"abc", &meta(b"abc"));
        fs::write(pool.dirs.meta(ReplicaDir::BeingWritten, ID, STAMP), b"x").unwrap();
        assert!(scan(&pool.dirs).unwrap().is_empty());
        assert_eq!(fs::read_dir(&pool.dirs.temporary).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&pool.dirs.being_written).unwrap().count(), 0);
    }
}
