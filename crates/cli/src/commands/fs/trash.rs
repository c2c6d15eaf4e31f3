//! The trash, a directory of the user that deleted items are moved to, and `-expunge`.

use hearth_client::{Error, ErrorKind, MkdirsOptions, RenameOptions};
use hearth_types::{FileKind, FsPermission};

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::remote::Remote;
use super::shell::Shell;
use super::store::Store;
use super::time::{Calendar, now_ms};

/// Directory of the items deleted since the last checkpoint.
const CURRENT: &str = "Current";

/// Number of names tried if the trash already contains an item of that name.
const NAMES_MAX: u32 = 10;

fn trash_root(fs: &Remote) -> String {
    format!("{}/.Trash", fs.home())
}

/// Moves `item` to the trash. Returns false if it has no trash; the caller then deletes it.
pub async fn take(shell: &mut Shell, item: &Item) -> Result<bool, Failure> {
    let Store::Hdfs(fs) = &item.store else { return Ok(false) };
    if fs.trash_interval().await?.is_zero() {
        return Ok(false);
    }
    let root = trash_root(fs);
    let inside = |path: &str, directory: &str| path == directory || path.starts_with(&format!("{directory}/"));
    if inside(&item.path, &root) {
        // An item that is in the trash already is deleted.
        return Ok(false);
    }
    if inside(&root, &item.path) {
        let what = format!("Cannot move \"{}\" to the trash, as it contains the trash", item.uri());
        return Err(Failure::Message(what));
    }
    let parent = format!("{root}/{CURRENT}{}", item.parent_path());
    let parent = parent.trim_end_matches('/').to_owned();
    let parent = make_directory(fs, &root, parent.clone()).await.map_err(|why| {
        let (from, to) = (item.uri(), format!("{}{parent}/{}", fs.uri(), item.name()));
        Failure::Message(format!("Failed to move {from} to trash {to}: {why}. Consider using -skipTrash option"))
    })?;
    let target = format!("{parent}/{}", item.name());
    let mut name = target.clone();
    for _ in 0..NAMES_MAX {
        let options = RenameOptions { overwrite: false, to_trash: true };
        match fs.rename_to(&item.path, &name, options).await {
            Ok(()) => {
                shell.line(format_args!("Moved: '{}' to trash at: {}{name}", item.uri(), fs.uri()));
                return Ok(true);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => name = format!("{target}{}", now_ms()),
            Err(error) => {
                let why = Failure::from(error);
                return Err(Failure::Message(format!(
                    "Failed to move to trash: {}: {why}. Consider using -skipTrash option",
                    item.uri()
                )));
            }
        }
    }
    Err(Failure::Message(format!("Failed to move to trash: {}: no free name there", item.uri())))
}

/// Makes a directory of the trash, with those above it. Returns its path. A file of a directory's name may be in the
/// trash already, because it was deleted earlier than the directory. The directory, if it is below the trash root, then
/// gets the time as a suffix.
///
/// Source: TrashPolicyDefault.java.
async fn make_directory(fs: &Remote, root: &str, mut path: String) -> Result<String, Failure> {
    for _ in 0..NAMES_MAX {
        let options = MkdirsOptions { permission: Some(FsPermission(0o700)), exact: true, parents: true };
        let error = match fs.mkdirs_with(&path, options).await {
            Ok(()) => return Ok(path),
            Err(error) => error,
        };
        if !matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotADirectory) {
            return Err(error.into());
        }
        let Some(end) = end_of_first_file(fs, &path).await? else { return Err(error.into()) };
        // The trash root must keep its name: the emptier looks nowhere else.
        if end <= root.len() {
            return Err(error.into());
        }
        path.insert_str(end, &now_ms().to_string());
    }
    Err(Failure::Message(format!("Failed to make {path} in the trash: no free name there")))
}

/// Returns the end in `path` of the first component that is not a directory. Checks from the root on, because a
/// NameNode may refuse to look below a file.
async fn end_of_first_file(fs: &Remote, path: &str) -> Result<Option<usize>, Error> {
    for end in ends(path) {
        match fs.status(&path[..end]).await {
            Ok(status) if status.kind == FileKind::Directory => {}
            Ok(_) => return Ok(Some(end)),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns the ends of the paths above `path`, and of its own, without the root.
fn ends(path: &str) -> impl Iterator<Item = usize> {
    path.match_indices('/').map(|(slash, _)| slash).skip(1).chain([path.len()])
}

/// `-expunge`: removes checkpoints older than the interval, then makes one of the items deleted since the last.
pub async fn expunge(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let store = match arguments.value("fs") {
        Some(uri) => shell.locate(uri)?.0,
        None => shell.default_store()?,
    };
    let Store::Hdfs(fs) = &store else { return Ok(()) };
    let root = trash_root(fs);
    let interval_ms = fs.trash_interval().await?.as_millis() as u64;
    let entries = match fs.list_all(&root).await {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let now = now_ms();
    for entry in &entries {
        let name = super::shown_name(&entry.local_name);
        let Some(made) = Calendar::checkpoint_ms(&name) else { continue };
        if arguments.has("immediate") || now.saturating_sub(made) > interval_ms {
            fs.delete(&format!("{root}/{name}"), true).await?;
            eprintln!("Deleted trash checkpoint: {root}/{name}");
        }
    }
    if entries.iter().all(|entry| entry.local_name != CURRENT.as_bytes()) {
        return Ok(());
    }
    if arguments.has("immediate") {
        fs.delete(&format!("{root}/{CURRENT}"), true).await?;
        return Ok(());
    }
    for attempt in 0..NAMES_MAX {
        let checkpoint = format!("{root}/{}", Calendar::checkpoint_name(now, attempt));
        match fs.rename_to(&format!("{root}/{CURRENT}"), &checkpoint, RenameOptions::default()).await {
            Ok(()) => {
                eprintln!("Created trash checkpoint: {checkpoint}");
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::Message(format!("Failed to checkpoint trash: no free name for {}", Calendar::checkpoint_name(now, 0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_file_is_found_from_the_root() {
        let all = |path: &'static str| ends(path).map(|end| &path[..end]).collect::<Vec<_>>();
        assert_eq!(all("/user/ada/.Trash"), ["/user", "/user/ada", "/user/ada/.Trash"]);
        assert_eq!(all("/a"), ["/a"]);
    }
}
