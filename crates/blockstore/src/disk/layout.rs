//! Paths and file names of Apache HDFS's directory layout (version -57).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hearth_types::{BlockId, GenerationStamp};

use crate::sys;

/// Directory of a pool that a copy is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaDir {
    Finalized,
    /// `rbw`: being written.
    BeingWritten,
    /// `tmp`: deleted at the next start.
    Temporary,
}

/// The directories of one pool on one volume.
#[derive(Clone, Debug)]
pub struct PoolDirs {
    /// `VOLUME/current/BP-...`
    pub root: PathBuf,
    /// `VOLUME/current/BP-.../current`
    pub current: PathBuf,
    pub finalized: PathBuf,
    pub being_written: PathBuf,
    pub temporary: PathBuf,
}

/// `blk_<id>` or `blk_<id>_<stamp>.meta`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockFile {
    Data(BlockId),
    Meta(BlockId, GenerationStamp),
}

impl BlockFile {
    pub fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("blk_")?;
        let Some(rest) = rest.strip_suffix(".meta") else { return Some(Self::Data(BlockId(rest.parse().ok()?))) };
        let (id, stamp) = rest.split_once('_')?;
        Some(Self::Meta(BlockId(id.parse().ok()?), GenerationStamp(stamp.parse().ok()?)))
    }
}

impl PoolDirs {
    pub fn new(volume: &Path, pool: &str) -> Self {
        let root = volume.join("current").join(pool);
        let current = root.join("current");
        Self {
            finalized: current.join("finalized"),
            being_written: current.join("rbw"),
            temporary: root.join("tmp"),
            root,
            current,
        }
    }

    /// Creates missing directories, durably.
    pub fn create(&self) -> io::Result<()> {
        for dir in [&self.finalized, &self.being_written, &self.temporary] {
            fs::create_dir_all(dir)?;
        }
        for dir in [&self.current, &self.root] {
            sys::sync_dir(dir)?;
        }
        match self.root.parent() {
            Some(parent) => sys::sync_dir(parent),
            None => Ok(()),
        }
    }

    pub fn dir(&self, place: ReplicaDir, id: BlockId) -> PathBuf {
        match place {
            ReplicaDir::BeingWritten => self.being_written.clone(),
            ReplicaDir::Temporary => self.temporary.clone(),
            ReplicaDir::Finalized => {
                let (first, second) = ((id.0 >> 16) & 31, (id.0 >> 8) & 31);
                self.finalized.join(format!("subdir{first}")).join(format!("subdir{second}"))
            }
        }
    }

    pub fn data(&self, place: ReplicaDir, id: BlockId) -> PathBuf {
        self.dir(place, id).join(id.to_string())
    }

    pub fn meta(&self, place: ReplicaDir, id: BlockId, stamp: GenerationStamp) -> PathBuf {
        self.dir(place, id).join(format!("{id}_{stamp}.meta"))
    }

    /// Creates the directory for `id` in `place` if it is missing; durable with its parents.
    pub fn make_dir(&self, place: ReplicaDir, id: BlockId) -> io::Result<PathBuf> {
        let dir = self.dir(place, id);
        if place == ReplicaDir::Finalized && !dir.is_dir() {
            if let Some(parent) = dir.parent() {
                make_one(parent)?;
                make_one(&dir)?;
                sys::sync_dir(parent)?;
            }
            sys::sync_dir(&self.finalized)?;
        }
        Ok(dir)
    }
}

/// Creates a directory but not its parents: if the whole volume is gone, it must not be created on the disk below its
/// mount point.
fn make_one(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_apaches_layout() {
        let dirs = PoolDirs::new(Path::new("/v"), "BP-1");
        let id = BlockId(1073741825 + (5 << 16) + (7 << 8));
        let dir = "/v/current/BP-1/current/finalized/subdir5/subdir7";
        assert_eq!(dirs.data(ReplicaDir::Finalized, id), Path::new(&format!("{dir}/blk_{}", id.0)));
        assert_eq!(
            dirs.meta(ReplicaDir::Finalized, id, GenerationStamp(1001)),
            Path::new(&format!("{dir}/blk_{}_1001.meta", id.0))
        );
        assert_eq!(dirs.data(ReplicaDir::Temporary, BlockId(-5)), Path::new("/v/current/BP-1/tmp/blk_-5"));
        // Striped blocks have negative ids.
        assert!(dirs.dir(ReplicaDir::Finalized, BlockId(i64::MIN + 16)).ends_with("subdir0/subdir0"));
    }

    #[test]
    fn file_names_are_parsed() {
        assert_eq!(BlockFile::parse("blk_-5"), Some(BlockFile::Data(BlockId(-5))));
        assert_eq!(BlockFile::parse("blk_5_1001.meta"), Some(BlockFile::Meta(BlockId(5), GenerationStamp(1001))));
        for other in ["blk_", "blk_5.tmp", "blk_5_x.meta", "scanner.cursor", "blk_5_.meta"] {
            assert_eq!(BlockFile::parse(other), None);
        }
    }
}
