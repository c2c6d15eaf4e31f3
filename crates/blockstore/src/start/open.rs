//! First step of a start: checks the options, locks the directories, reads their owners, and determines the memory
//! limit.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hearth_types::{DatanodeUuid, StorageId};

use crate::blockstore::{Blockstore, State};
use crate::disk::lock::DirLock;
use crate::disk::version::VolumeVersion;
use crate::error::{Result, StoreError};
use crate::memory::budget::Budget;
use crate::options::{Engine, VolumeOptions};
use crate::volume::Volume;
use crate::{MemoryOptions, StoreEvent, StoreOptions, sys};

/// Smallest usable memory tier: a slab per class and a slice.
const LIMIT_MIN: u64 = 1 << 20;

impl Blockstore {
    /// Locks the directories and reads which DataNode and cluster they belong to. Replicas appear with `attach_pool`.
    /// Up to `StoreOptions::failed_volumes_tolerated` volumes may be out of use; each is reported as an event.
    ///
    /// Errors: `InUse` (another process, ours or Java's, uses a directory), `BadDirectory`, `Foreign` (two volumes of
    /// different DataNodes or clusters), `BadOptions`, `Io`.
    pub fn open(options: StoreOptions) -> Result<Self> {
        check(&options)?;
        let mut warnings = Vec::new();
        make_private(&options.memory.dir)?;
        let mut seen: Vec<(&VolumeOptions, DirLock, Option<VolumeVersion>)> = Vec::new();
        let tolerated = options.failed_volumes_tolerated.min(options.volumes.len() - 1);
        let mut failed = Vec::new();
        for volume in &options.volumes {
            match look_at(volume) {
                Ok((lock, version)) => seen.push((volume, lock, version)),
                Err(error) => match error.volume_failure() {
                    Some(reason) if failed.len() < tolerated => failed.push((volume.dir.clone(), reason)),
                    _ => return Err(error),
                },
            }
        }
        let uuid = common_uuid(&seen, &options)?;
        let uses_memory = options.volumes.iter().any(|volume| volume.engine == Engine::Memory);
        let limit = match uses_memory {
            true => memory_limit(&options.memory, &mut warnings)?,
            false => Ok(0),
        };
        if let Err(too_small) = &limit {
            warnings.push(format!(
                "{too_small}: storage directories of the engine memory are used with the engine mmap instead. Mount a larger tmpfs and \
                 name it in hearth.memory.dir"
            ));
        }
        let engine_of = |volume: &VolumeOptions| match volume.engine {
            Engine::Memory if limit.is_err() => Engine::Mmap,
            engine => engine,
        };
        let mut volumes = Vec::new();
        for (index, (volume, lock, version)) in seen.into_iter().enumerate() {
            let id = match &version {
                Some(version) => version.storage_id.clone(),
                None => format!("DS-{}", random_uuid()?),
            };
            if volumes.iter().any(|other: &Arc<Volume>| *other.id.0 == *id) {
                let reason = format!("has the storage id {id} of another volume; remove it if it is a copy");
                return Err(StoreError::BadDirectory { path: volume.dir.clone(), reason });
            }
            let memory_dir = options.memory.dir.join(&id);
            make_private(&memory_dir)?;
            let memory_lock = DirLock::take(&memory_dir)?;
            volumes.push(Arc::new(Volume::new(
                index,
                StorageId(id.into()),
                volume.storage_type,
                engine_of(volume),
                volume.dir.clone(),
                memory_dir,
                volume.reserved,
                version,
                vec![lock, memory_lock],
            )));
        }
        for volume in volumes.iter().filter(|volume| volume.engine == Engine::Mmap) {
            if sys::space(&volume.dir).is_ok_and(|space| space.in_memory) {
                warnings.push(format!(
                    "{} is on a tmpfs, and its engine is mmap: replicas survive restarts of the process, not of the machine",
                    volume.dir.display()
                ));
            }
        }
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        let mut nonce = [0; 8];
        random(&mut nonce)?;
        let budget = Budget::new(limit.unwrap_or(0));
        let mut store = Self::new(State::new(options, uuid, volumes, warnings, budget, u64::from_le_bytes(nonce)));
        for (dir, reason) in failed {
            tracing::error!(dir = %dir.display(), reason, "storage cannot be used");
            store.event(StoreEvent::VolumeFailed { storage: None, dir, reason, capacity_lost: 0 });
        }
        store.start_threads().map_err(|source| StoreError::Io {
            action: "start the threads of",
            path: "the store".into(),
            source,
        })?;
        Ok(store)
    }
}

/// Creates a volume's missing directories, locks them, and reads their owner.
fn look_at(volume: &VolumeOptions) -> Result<(DirLock, Option<VolumeVersion>)> {
    let current = volume.dir.join("current");
    make_private(&volume.dir)?;
    let lock = DirLock::take(&volume.dir)?;
    fs::create_dir_all(&current).map_err(StoreError::io("make", &current))?;
    let version = VolumeVersion::read(&current)?;
    Ok((lock, version))
}

fn check(options: &StoreOptions) -> Result<()> {
    let bad = |reason: String| Err(StoreError::BadOptions(reason));
    if options.volumes.is_empty() {
        return bad("no storage directory".to_owned());
    }
    if options.memory.slab_replica_bytes_max > MemoryOptions::SLAB_REPLICA_BYTES_MAX {
        let most = MemoryOptions::SLAB_REPLICA_BYTES_MAX;
        return bad(format!(
            "slabs for replicas of up to {} bytes; the maximum is {most}",
            options.memory.slab_replica_bytes_max
        ));
    }
    for (index, volume) in options.volumes.iter().enumerate() {
        if options.volumes[..index].iter().any(|other| other.dir == volume.dir) {
            return bad(format!("storage directory {} is listed twice", volume.dir.display()));
        }
    }
    Ok(())
}

/// Creates `dir` with mode 0700. An existing one is made private too, since only the store may hand out replicas.
fn make_private(dir: &Path) -> Result<()> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(StoreError::io("make", dir)(io::Error::from_raw_os_error(libc::ENOTDIR)));
        }
        Err(error) => return Err(StoreError::io("make", dir)(error)),
    }
    let about = fs::metadata(dir).map_err(StoreError::io("look at", dir))?;
    // Except a mount point that other users share, such as /dev/shm: it has the sticky bit.
    if about.permissions().mode() & 0o1077 != 0 && about.permissions().mode() & 0o1000 == 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(StoreError::io("make private", dir))?;
    }
    Ok(())
}

fn common_uuid(
    volumes: &[(&VolumeOptions, DirLock, Option<VolumeVersion>)],
    options: &StoreOptions,
) -> Result<DatanodeUuid> {
    let mut known: Option<&VolumeVersion> = None;
    for (volume, _, version) in volumes {
        let Some(version) = version else { continue };
        let Some(first) = known.replace(version) else { continue };
        let foreign = |what, found: &str, wanted: &str| StoreError::Foreign {
            path: volume.dir.clone(),
            what,
            found: found.to_owned(),
            wanted: wanted.to_owned(),
        };
        if first.datanode_uuid != version.datanode_uuid {
            return Err(foreign("datanode", &version.datanode_uuid, &first.datanode_uuid));
        }
        if first.cluster_id != version.cluster_id {
            return Err(foreign("cluster", &version.cluster_id, &first.cluster_id));
        }
    }
    match (known, &options.datanode_uuid) {
        (Some(version), _) => Ok(DatanodeUuid(version.datanode_uuid.as_str().into())),
        (None, Some(uuid)) if !uuid.0.is_empty() => Ok(uuid.clone()),
        _ => Ok(DatanodeUuid(random_uuid()?.into())),
    }
}

fn random(into: &mut [u8]) -> Result<()> {
    getrandom::fill(into).map_err(|error| {
        let source = io::Error::other(error.to_string());
        StoreError::Io { action: "get random bytes from", path: "/dev/urandom".into(), source }
    })
}

/// Generates a UUID of version 4 (RFC 9562).
fn random_uuid() -> Result<String> {
    let mut bytes = [0; 16];
    random(&mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

/// Returns the limit that tmpfs and cgroup can hold. An inner `Err` is the reason why a memory tier makes no sense: there
/// is too little memory, and files perform better.
pub(crate) fn memory_limit(
    memory: &MemoryOptions,
    warnings: &mut Vec<String>,
) -> Result<std::result::Result<u64, String>> {
    let dir = memory.dir.display();
    let space = sys::space(&memory.dir).map_err(StoreError::io("get the free space of", &memory.dir))?;
    if !space.in_memory {
        warnings.push(format!("{dir} is not on a tmpfs: replicas in it are only as fast as its disk"));
    }
    let least = u64::from(memory.slice_bytes).max(LIMIT_MIN);
    // A size of 0 means a tmpfs without a limit.
    let room = if space.size > 0 { space.size } else { u64::MAX }.min(cgroup_limit().unwrap_or(u64::MAX) / 16 * 15);
    if room < least {
        return Ok(Err(format!("{dir} has room for {room} bytes, too few for replicas in memory (at least {least})")));
    }
    let mut limit = memory.limit;
    if space.size > 0 && limit > space.size {
        limit = space.size;
        warnings.push(format!(
            "memory limit of {} bytes lowered to {limit}: {dir} has no more (mount it with a larger size=)",
            memory.limit
        ));
    }
    if let Some(most) = cgroup_limit().filter(|most| limit > *most / 16 * 15) {
        limit = most / 16 * 15;
        warnings.push(format!("memory limit lowered to {limit} bytes: the limit of this cgroup is {most}"));
    }
    if limit < LIMIT_MIN {
        warnings.push(format!("memory limit of {limit} bytes is too small: replicas are written to disk at once"));
    }
    Ok(Ok(limit))
}

/// Returns the memory limit of this process: the lowest of its cgroup and of those above it, if any has one.
pub fn cgroup_limit() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_of_cgroups(&own, Path::new("/sys/fs/cgroup"))
}

/// Returns the lowest memory limit of the cgroups in `own`, the text of /proc/self/cgroup, and of those above them. `root`:
/// where cgroups are mounted.
///
/// Version 1 has a directory for the controller of memory. Both versions may be mounted at once. In a container the own
/// cgroup may be the top of what is mounted, although its path is that of the host. Source: cgroups(7).
fn limit_of_cgroups(own: &str, root: &Path) -> Option<u64> {
    let (version_1, version_2) = ((root.join("memory"), "memory.limit_in_bytes"), (root.to_owned(), "memory.max"));
    let mut files: Vec<PathBuf> = [&version_1, &version_2].map(|(top, file)| top.join(file)).into();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (top, file) = match controllers {
            "" => &version_2,
            _ if controllers.split(',').any(|controller| controller == "memory") => &version_1,
            _ => continue,
        };
        let levels = Path::new(path.trim_start_matches('/')).ancestors();
        files.extend(levels.map(|level| top.join(level).join(file)));
    }
    let limits = files.iter().filter_map(|path| fs::read_to_string(path).ok());
    // Version 2 represents "no limit" by the word `max`, version 1 by a number near 2^63.
    limits.filter_map(|text| text.trim().parse::<u64>().ok()).filter(|limit| *limit < 1 << 60).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_version_four() {
        let uuid = random_uuid().unwrap();
        assert_eq!(uuid.len(), 36);
        assert_eq!(&uuid[14..15], "4");
        assert_ne!(uuid, random_uuid().unwrap());
    }

    #[test]
    fn lowest_limit_of_the_cgroup_and_those_above_counts() {
        const UNLIMITED_1: &str = "9223372036854771712\n";
        // The text of /proc/self/cgroup, files below the mount, and the limit.
        /// Lines of `/proc/self/cgroup`, files with their contents, and the limit.
        type Case = (&'static str, &'static [(&'static str, &'static str)], Option<u64>);
        let cases: [Case; 8] = [
            ("0::/\n", &[], None),
            ("0::/a.slice/b.service\n", &[("a.slice/b.service/memory.max", "4096\n")], Some(4096)),
            (
                "0::/a.slice/b.service\n",
                &[("a.slice/b.service/memory.max", "max\n"), ("a.slice/memory.max", "8192\n")],
                Some(8192),
            ),
            ("0::/a/b\n", &[("a/b/memory.max", "4096\n"), ("a/memory.max", "1024\n")], Some(1024)),
            // A container: its own cgroup is mounted, and the path is of the host.
            ("0::/docker/0123\n", &[("memory.max", "2048\n")], Some(2048)),
            ("0::/a\n", &[("a/memory.max", "max\n"), ("memory.max", "max\n")], None),
            (
                "9:cpu,cpuacct:/c\n5:memory:/a/b\n1:name=systemd:/d\n0::/e\n",
                &[
                    ("memory/memory.limit_in_bytes", UNLIMITED_1),
                    ("memory/a/memory.limit_in_bytes", "5000\n"),
                    ("memory/a/b/memory.limit_in_bytes", UNLIMITED_1),
                    ("memory/c/memory.limit_in_bytes", "1\n"),
                ],
                Some(5000),
            ),
            ("", &[("memory/memory.limit_in_bytes", "6000\n")], Some(6000)),
        ];
        for (own, files, limit) in cases {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            assert_eq!(limit_of_cgroups(own, root.path()), limit, "{own:?} {files:?}");
        }
    }
}
