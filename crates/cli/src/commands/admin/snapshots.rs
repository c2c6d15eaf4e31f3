//! `-allowSnapshot`, `-disallowSnapshot`, `-provisionSnapshotTrash`

use hearth_client::{ErrorKind, FileFlags, FileSystem, MkdirsOptions};
use hearth_types::{FileKind, FsPermission};

use crate::commands::tool::{IllegalArgument, Tool};

/// Name of the trash in a snapshottable directory.
const TRASH: &str = ".Trash";
/// Everybody may put files there, and remove only own ones.
const TRASH_PERMISSION: FsPermission = FsPermission(0o1777);

pub async fn allow(tool: &Tool, path: &str) -> anyhow::Result<u8> {
    let (fs, there) = tool.fs_of(path)?;
    fs.allow_snapshot(there).await?;
    if fs.server_defaults().await?.snapshot_trash_root {
        made_trash(&fs, there).await?;
    }
    println!("Allowing snapshot on {path} succeeded");
    Ok(0)
}

pub async fn disallow(tool: &Tool, path: &str) -> anyhow::Result<u8> {
    let (fs, there) = tool.fs_of(path)?;
    remove_empty_trash(&fs, there).await?;
    fs.disallow_snapshot(there).await?;
    println!("Disallowing snapshot on {path} succeeded");
    Ok(0)
}

pub async fn provision_trash(tool: &Tool, path: &str) -> anyhow::Result<u8> {
    if path == "-all" {
        let fs = tool.fs()?;
        for directory in fs.snapshottable_directories().await? {
            provision(&fs, &directory.path).await?;
        }
    } else {
        let (fs, there) = tool.fs_of(path)?;
        provision(&fs, there).await?;
    }
    Ok(0)
}

async fn provision(fs: &FileSystem, path: &str) -> anyhow::Result<()> {
    let trash = made_trash(fs, path).await?;
    println!("Successfully provisioned snapshot trash at {trash}");
    Ok(())
}

/// Creates the trash of a directory. Returns its path.
async fn made_trash(fs: &FileSystem, path: &str) -> anyhow::Result<String> {
    let path = fs.absolute(path)?;
    if !fs.status(&path).await?.flags.contains(FileFlags::SNAPSHOTTABLE) {
        return Err(IllegalArgument::new(format!("{path} is not a snapshottable directory.")).into());
    }
    let trash = format!("{}/{TRASH}", path.trim_end_matches('/'));
    match fs.status(&trash).await {
        Ok(status) => {
            let mut warnings = String::new();
            if status.kind != FileKind::Directory {
                warnings += &format!("\r\nWARNING: {trash} is not a directory.");
            }
            if status.permission != TRASH_PERMISSION {
                warnings +=
                    &format!("\r\nWARNING: Permission of {trash} differs from provided permission {TRASH_PERMISSION}");
            }
            // An existing trash that is right is provisioned again.
            anyhow::ensure!(
                warnings.is_empty(),
                "Can't provision trash for snapshottable directory {path} because trash path {trash} already \
                 exists.{warnings}"
            );
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    fs.mkdirs_with(&trash, MkdirsOptions::default()).await?;
    // The umask does not apply to this call.
    fs.set_permission(&trash, TRASH_PERMISSION).await?;
    Ok(trash)
}

/// Removes the trash of a directory if it is empty. Errors: it is not. Source: DistributedFileSystem.java,
/// `checkTrashRootAndRemoveIfEmpty`.
async fn remove_empty_trash(fs: &FileSystem, path: &str) -> anyhow::Result<()> {
    let trash = format!("{}/{TRASH}", fs.absolute(path)?.trim_end_matches('/'));
    let status = match fs.status(&trash).await {
        Ok(status) => status,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if status.kind != FileKind::Directory {
        tracing::warn!("{trash} is not a directory. Ignored.");
        return Ok(());
    }
    // A directory that is not empty stays.
    match fs.delete(&trash, false).await {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            anyhow::bail!("Found non-empty trash root at {trash}. Rename or delete it, then try again.")
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        other => Ok(other.map(drop)?),
    }
}
