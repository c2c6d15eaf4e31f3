//! Directories with an image, as Apache's NameNode keeps them (`dfs.namenode.name.dir`):
//!
//! ```text
//! DIR/current/VERSION             cluster, namespace, pool and layout
//! DIR/current/seen_txid           number of the last known change
//! DIR/current/fsimage_TXID        image of all changes up to TXID, 19 digits
//! DIR/current/fsimage_TXID.md5    its digest
//! ```
//!
//! Source: NNStorage and MD5FileUtils.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hearth_types::block_file::{parse_properties, print_properties};
use hearth_types::{BlockPoolId, PoolIdentity};

use super::{ImageError, LAYOUT_VERSION, edits, hex, io};

const PREFIX: &str = "fsimage_";
/// Mode of the directories: the image has the names and rights of all users.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Longest VERSION or digest file that is read, in bytes.
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// Returns the name of the image with all changes up to `txid`.
pub fn image_name(txid: u64) -> String {
    format!("{PREFIX}{txid:019}")
}

/// Parses the name of an image.
fn txid_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// A directory with an image that is being written. It appears under its name when it is complete and on disk.
pub struct NewNameDirectory {
    root: PathBuf,
    /// `ROOT.part`, which is renamed at the end.
    part: PathBuf,
}

impl NewNameDirectory {
    /// Begins a directory at `root`, which must not exist, or be empty.
    ///
    /// Errors: `Exists`; `Io`, also if `root` does not end in a name. An unfinished earlier attempt is removed, unless
    /// other files are in its directory.
    pub fn begin(root: &Path) -> Result<Self, ImageError> {
        let Some(name) = root.file_name() else {
            let problem = "the path does not end in a name; give the path of a new directory";
            return Err(io("creating", root)(Error::new(ErrorKind::InvalidInput, problem)));
        };
        match fs::read_dir(root) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(ImageError::Exists { path: root.to_owned() });
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(io("reading", root)(error)),
        }
        let mut name = name.to_owned();
        name.push(".part");
        let part = root.with_file_name(name);
        if fs::symlink_metadata(&part).is_ok() {
            if !is_unfinished(&part)? {
                let problem = "it is not an unfinished backup, or has other files; remove it, or choose another name";
                return Err(io("removing", &part)(Error::new(ErrorKind::AlreadyExists, problem)));
            }
            fs::remove_dir_all(&part).map_err(io("removing", &part))?;
        }
        let current = part.join("current");
        DirBuilder::new().mode(PRIVATE_DIRECTORY).recursive(true).create(&current).map_err(io("creating", &current))?;
        Ok(Self { root: root.to_owned(), part })
    }

    /// Creates the file of the image, under a preliminary name.
    pub fn create_image(&self) -> Result<(File, PathBuf), ImageError> {
        let path = self.part.join("current/fsimage.ckpt");
        Ok((create(&path)?, path))
    }

    /// Names the image, writes the files beside it, and moves the directory to its place. Returns the path of the image.
    pub fn finish(self, identity: &PoolIdentity, txid: u64, md5: [u8; 16]) -> Result<PathBuf, ImageError> {
        let current = self.part.join("current");
        let (unnamed, image) = (current.join("fsimage.ckpt"), current.join(image_name(txid)));
        let file = File::open(&unnamed).map_err(io("opening", &unnamed))?;
        file.sync_all().map_err(io("syncing", &unnamed))?;
        fs::rename(&unnamed, &image).map_err(io("renaming", &unnamed))?;
        let name = image_name(txid);
        write_text(&current.join(format!("{name}.md5")), &format!("{} *{name}\n", hex(&md5)))?;
        write_text(&current.join("seen_txid"), &format!("{txid}\n"))?;
        write_text(&current.join("VERSION"), &version_text(identity))?;
        sync(&current)?;
        sync(&self.part)?;
        fs::rename(&self.part, &self.root).map_err(io("renaming", &self.part))?;
        sync(parent(&self.root))?;
        Ok(self.root.join("current").join(name))
    }

    /// Removes the unfinished directory.
    pub fn abandon(self) {
        if let Err(error) = fs::remove_dir_all(&self.part) {
            tracing::warn!(path = %self.part.display(), %error, "cannot remove an unfinished backup");
        }
    }
}

/// Returns whether a path is a directory with nothing but what [`NewNameDirectory`] writes.
fn is_unfinished(part: &Path) -> Result<bool, ImageError> {
    let is_directory =
        |path: &Path| fs::symlink_metadata(path).map(|about| about.is_dir()).map_err(io("reading", path));
    let is_ours = |name: &str| {
        let image = name.strip_suffix(".md5").unwrap_or(name);
        ["fsimage.ckpt", "seen_txid", "VERSION"].contains(&name) || txid_of(image).is_some()
    };
    if !is_directory(part)? {
        return Ok(false);
    }
    for entry in fs::read_dir(part).map_err(io("reading", part))? {
        let entry = entry.map_err(io("reading", part))?;
        let current = entry.path();
        if entry.file_name() != "current" || !is_directory(&current)? {
            return Ok(false);
        }
        for entry in fs::read_dir(&current).map_err(io("reading", &current))? {
            let entry = entry.map_err(io("reading", &current))?;
            if !entry.file_name().to_str().is_some_and(is_ours) || is_directory(&entry.path())? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn version_text(identity: &PoolIdentity) -> String {
    print_properties(
        "The namespace of Hearth's NameNode for Apache's",
        &[
            ("namespaceID", &identity.namespace_id.to_string()),
            ("clusterID", &identity.cluster_id),
            ("cTime", &identity.created_ms.to_string()),
            ("storageType", "NAME_NODE"),
            ("blockpoolID", identity.pool.as_str()),
            ("layoutVersion", &LAYOUT_VERSION.to_string()),
        ],
    )
}

fn create(path: &Path) -> Result<File, ImageError> {
    OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(path).map_err(io("creating", path))
}

fn write_text(path: &Path, text: &str) -> Result<(), ImageError> {
    let mut file = create(path)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io("writing", path))
}

pub(super) fn sync(directory: &Path) -> Result<(), ImageError> {
    File::open(directory).and_then(|file| file.sync_all()).map_err(io("syncing", directory))
}

/// Returns the directory that has `path`.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// An image to import, and what stands beside it.
#[derive(Debug)]
pub struct ImageSource {
    pub path: PathBuf,
    /// Digest in the file beside it.
    pub md5: [u8; 16],
    /// Identity in the VERSION file beside it.
    pub identity: PoolIdentity,
}

impl ImageSource {
    /// Finds the image at `path`: an image, or a directory as described above, or its `current`. In a directory the
    /// newest image counts.
    ///
    /// Errors: `Damaged` if there is no image, or no VERSION or digest beside it; `Unsupported` if changes after the
    /// image are in edit logs beside it.
    pub fn find(path: &Path) -> Result<Self, ImageError> {
        let damaged = |problem: &str| ImageError::Damaged { path: path.to_owned(), problem: problem.to_owned() };
        let about = fs::metadata(path).map_err(io("looking at", path))?;
        let image = match about.is_dir() {
            false => path.to_owned(),
            true => {
                let current = path.join("current");
                let directory = if current.is_dir() { current } else { path.to_owned() };
                newest(&directory)?
                    .ok_or_else(|| damaged("it has no fsimage_N; give the directory of an image, or its path"))?
            }
        };
        let directory = parent(&image);
        let name = image.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let txid = txid_of(&name).ok_or_else(|| damaged("its name is not fsimage_N"))?;
        let digest = image.with_file_name(format!("{name}.md5"));
        let md5 = parse_digest(&read_text(&digest)?, &name)
            .ok_or_else(|| damaged("the .md5 file beside it is not `DIGEST *NAME`"))?;
        let version = directory.join("VERSION");
        let identity = parse_version(&version, &read_text(&version)?)?;
        edits::check(directory, txid)?;
        Ok(Self { path: image, md5, identity })
    }
}

/// Returns the path of the newest image in a directory.
fn newest(directory: &Path) -> Result<Option<PathBuf>, ImageError> {
    let mut found: Option<(u64, PathBuf)> = None;
    for entry in fs::read_dir(directory).map_err(io("reading", directory))? {
        let entry = entry.map_err(io("reading", directory))?;
        let Some(txid) = entry.file_name().to_str().and_then(txid_of) else { continue };
        if found.as_ref().is_none_or(|(newest, _)| txid > *newest) {
            found = Some((txid, entry.path()));
        }
    }
    Ok(found.map(|(_, path)| path))
}

fn read_text(path: &Path) -> Result<String, ImageError> {
    let mut text = String::new();
    let file = File::open(path).map_err(io("opening", path))?;
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text).map_err(io("reading", path))?;
    Ok(text)
}

/// Parses `DIGEST *NAME`.
fn parse_digest(text: &str, name: &str) -> Option<[u8; 16]> {
    let (digits, of) = text.trim_end().split_once(' ')?;
    if of.strip_prefix(['*', ' '])? != name || digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut md5 = [0; 16];
    for (byte, at) in md5.iter_mut().zip((0..32).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(md5)
}

fn parse_version(path: &Path, text: &str) -> Result<PoolIdentity, ImageError> {
    let bad = |problem: String| ImageError::Damaged { path: path.to_owned(), problem };
    let properties = parse_properties(text).map_err(|error| bad(error.to_string()))?;
    let get = |key: &str| {
        let value = properties.get(key).filter(|value| !value.is_empty());
        value.ok_or_else(|| bad(format!("{key} is missing")))
    };
    let number = |key: &str| get(key)?.parse::<u64>().map_err(|_| bad(format!("{key} is not a number")));
    if get("storageType")? != "NAME_NODE" {
        return Err(bad("storageType is not NAME_NODE: it does not belong to an fsimage".to_owned()));
    }
    let namespace_id = u32::try_from(number("namespaceID")?);
    Ok(PoolIdentity {
        pool: BlockPoolId::new(get("blockpoolID")?.as_str()),
        namespace_id: namespace_id.map_err(|_| bad("namespaceID is out of range".to_owned()))?,
        cluster_id: get("clusterID")?.clone(),
        created_ms: number("cTime")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> PoolIdentity {
        PoolIdentity {
            pool: BlockPoolId::new("BP-1-127.0.0.1-2"),
            namespace_id: 7,
            cluster_id: "CID-x".into(),
            created_ms: 2,
        }
    }

    #[test]
    fn finished_directory_is_found_again() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("backup");
        let new = NewNameDirectory::begin(&root).unwrap();
        let (mut file, _) = new.create_image().unwrap();
        file.write_all(b"image").unwrap();
        assert!(!root.exists());
        let image = new.finish(&identity(), 42, [0xAB; 16]).unwrap();
        assert_eq!(image, root.join("current/fsimage_0000000000000000042"));
        let line = fs::read_to_string(image.with_extension("md5")).unwrap();
        assert_eq!(line, format!("{} *fsimage_0000000000000000042\n", "ab".repeat(16)));
        assert_eq!(fs::read_to_string(root.join("current/seen_txid")).unwrap(), "42\n");
        for path in [root.clone(), root.join("current"), image.clone()] {
            let source = ImageSource::find(&path).unwrap();
            assert_eq!((source.path, source.md5, source.identity), (image.clone(), [0xAB; 16], identity()));
        }
        assert!(matches!(NewNameDirectory::begin(&root).err(), Some(ImageError::Exists { .. })));
    }

    #[test]
    fn empty_directory_is_replaced_and_attempts_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("backup");
        fs::create_dir(&root).unwrap();
        NewNameDirectory::begin(&root).unwrap().create_image().unwrap();
        let new = NewNameDirectory::begin(&root).unwrap();
        new.create_image().unwrap();
        new.finish(&identity(), 1, [0; 16]).unwrap();
        assert!(root.join("current/VERSION").is_file());
        let other = place.path().join("other");
        NewNameDirectory::begin(&other).unwrap().abandon();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn foreign_directories_are_not_removed() {
        let place = tempfile::tempdir().unwrap();
        for (number, file) in ["note", "current/note", "current/fsimage_1/x"].into_iter().enumerate() {
            let root = place.path().join(number.to_string());
            let file = place.path().join(format!("{number}.part")).join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, b"stays").unwrap();
            let said = NewNameDirectory::begin(&root).err().unwrap().to_string();
            assert!(said.contains("not an unfinished backup") && file.exists(), "{said}");
        }
        for root in [".", "/"] {
            let said = NewNameDirectory::begin(Path::new(root)).err().unwrap().to_string();
            assert!(said.contains("does not end in a name"), "{said}");
        }
    }

    #[test]
    fn digest_must_name_the_image() {
        let line = format!("{} *fsimage_1\n", "0f".repeat(16));
        assert_eq!(parse_digest(&line, "fsimage_1"), Some([0x0F; 16]));
        for bad in [line.replace("_1", "_2"), line.replace("0f0f", "0fé"), line.replace(" *", "*"), String::new()] {
            assert_eq!(parse_digest(&bad, "fsimage_1"), None, "{bad}");
        }
    }

    #[test]
    fn only_images_have_a_number() {
        assert_eq!(txid_of("fsimage_0000000000000000042"), Some(42));
        for name in ["fsimage_", "fsimage_1.md5", "fsimage_+1", "fsimage.ckpt_1", "fsimage_99999999999999999999"] {
            assert_eq!(txid_of(name), None, "{name}");
        }
    }

    #[test]
    fn directory_without_digest_or_version_is_refused() {
        let place = tempfile::tempdir().unwrap();
        assert!(matches!(ImageSource::find(place.path()).err(), Some(ImageError::Damaged { .. })));
        fs::write(place.path().join("fsimage_1"), b"x").unwrap();
        assert!(matches!(ImageSource::find(place.path()).err(), Some(ImageError::Io { .. })));
        fs::write(place.path().join("fsimage_1.md5"), format!("{} *fsimage_1\n", "0".repeat(32))).unwrap();
        assert!(matches!(ImageSource::find(place.path()).err(), Some(ImageError::Io { .. })));
        fs::write(place.path().join("VERSION"), "storageType=HEARTH_NAME_NODE\n").unwrap();
        assert!(matches!(ImageSource::find(place.path()).err(), Some(ImageError::Damaged { .. })));
    }
}
