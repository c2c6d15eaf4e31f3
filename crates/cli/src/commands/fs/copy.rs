//! `-put`, `-get`, `-cp` and related commands: one engine, which copies trees between any two file systems.

mod workers;

use hearth_client::CreateOptions;

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::progress::Progress;
use super::shell::Shell;
use super::store::{Source, Store};
use super::{acl, xattrs};
use workers::{Threads, Workers};

/// Options of a copy.
#[derive(Clone, Copy, Debug)]
struct CopyOptions {
    overwrite: bool,
    times: bool,
    ownership: bool,
    permission: bool,
    /// Copy ACLs. Set together with `permission`, since an ACL is part of it.
    acl: bool,
    xattrs: bool,
    /// Write to the target file itself instead of to a temporary file that is renamed.
    direct: bool,
    /// `-l`: replication 1.
    lazy: bool,
    /// Move: remove each source after it was copied.
    remove: bool,
    /// Verify the checksums of the bytes read.
    verify: bool,
    /// `-crc`: write checksum files for local files.
    checksums: bool,
    threads: Threads,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            overwrite: false,
            times: false,
            ownership: false,
            permission: false,
            acl: false,
            xattrs: false,
            direct: false,
            lazy: false,
            remove: false,
            verify: true,
            checksums: false,
            threads: Threads { at_once: 1, waiting: 1 },
        }
    }
}

/// Suffix of the names of incomplete files.
const TEMPORARY: &str = "._COPYING_";

impl CopyOptions {
    fn from(arguments: &Arguments) -> Result<Self, Failure> {
        let mut copying = Self {
            overwrite: arguments.has("f"),
            direct: arguments.has("d"),
            lazy: arguments.has("l"),
            verify: !arguments.has("ignoreCrc"),
            checksums: arguments.has("crc"),
            threads: Threads::from(arguments)?,
            ..Self::default()
        };
        let letters = if arguments.has("p") { Some("") } else { arguments.letters.as_deref() };
        if let Some(letters) = letters {
            if letters.is_empty() {
                (copying.times, copying.ownership, copying.permission) = (true, true, true);
            }
            for letter in letters.chars() {
                match letter.to_ascii_lowercase() {
                    't' => copying.times = true,
                    'o' => copying.ownership = true,
                    'p' => copying.permission = true,
                    'a' => (copying.acl, copying.permission) = (true, true),
                    'x' => copying.xattrs = true,
                    _ => return Err(Failure::Usage(format!("No attribute for {letter}"))),
                }
            }
        }
        Ok(copying)
    }
}

pub async fn put(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    put_and(shell, arguments, false).await
}

pub async fn move_from_local(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    put_and(shell, arguments, true).await
}

async fn put_and(shell: &mut Shell, mut arguments: Arguments, remove: bool) -> Result<(), Failure> {
    let copying = CopyOptions { remove, ..CopyOptions::from(&arguments)? };
    let target = destination(shell, &mut arguments.rest).await?;
    if arguments.rest == ["-"] {
        if remove {
            return Err(Failure::Message("moveFromLocal doesn't support '-'".to_owned()));
        }
        let mut source = Source::standard_input();
        if target.is_directory() {
            return Err(Failure::exists(&target.shown));
        }
        let outcome = copy_bytes(&mut source, None, &target, copying).await;
        if arguments.has("v") {
            shell.report_paths_written();
        }
        return outcome;
    }
    let mut sources = Vec::new();
    for argument in &arguments.rest {
        match shell.local_items(argument).await {
            Ok(items) => sources.extend(items),
            Err(failure) => shell.report(&failure),
        }
    }
    let outcome = copy_all(shell, sources, arguments.rest.len(), target, copying).await;
    if arguments.has("v") {
        shell.report_paths_written();
    }
    outcome
}

pub async fn get(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    get_and(shell, arguments, false).await
}

pub async fn move_to_local(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    get_and(shell, arguments, true).await
}

async fn get_and(shell: &mut Shell, mut arguments: Arguments, remove: bool) -> Result<(), Failure> {
    let copying = CopyOptions { remove, ..CopyOptions::from(&arguments)? };
    let local = if arguments.rest.len() < 2 { None } else { arguments.rest.pop() };
    if local.as_deref() == Some("-") {
        return super::cat::cat(shell, arguments).await;
    }
    let target = shell.local_item(local.as_deref().unwrap_or(".")).await?;
    let sources = shell.all_items(&arguments.rest).await?;
    let outcome = copy_all(shell, sources, arguments.rest.len(), target, copying).await;
    if arguments.has("v") {
        shell.report_paths_read();
    }
    outcome
}

pub async fn cp(shell: &mut Shell, mut arguments: Arguments) -> Result<(), Failure> {
    let copying = CopyOptions::from(&arguments)?;
    let target = destination(shell, &mut arguments.rest).await?;
    let sources = shell.all_items(&arguments.rest).await?;
    copy_all(shell, sources, arguments.rest.len(), target, copying).await
}

/// Takes the last argument, or the working directory if there is only one argument.
pub async fn destination(shell: &mut Shell, arguments: &mut Vec<String>) -> Result<Item, Failure> {
    let last = if arguments.len() < 2 { None } else { arguments.pop() };
    let last = last.unwrap_or_else(|| ".".to_owned());
    let mut items = shell.items(&last).await?;
    match items.pop() {
        Some(item) if items.is_empty() => Ok(item),
        Some(_) => Err(Failure::path(last, "Too many matches")),
        None => Err(Failure::not_found(last)),
    }
}

/// Checks that `sources` may be copied to `target`, with the conditions of Hadoop's commands that have a destination.
pub async fn check_destination(sources: usize, target: &Item, overwrite: bool) -> Result<(), Failure> {
    if sources > 1 {
        return match target.is_directory() {
            true => Ok(()),
            false if target.exists() => Err(Failure::not_directory(&target.shown)),
            false => Err(Failure::not_found(&target.shown)),
        };
    }
    if target.exists() {
        if target.is_directory() || overwrite { Ok(()) } else { Err(Failure::exists(&target.shown)) }
    } else if target.parent_exists().await? {
        Ok(())
    } else {
        Err(Failure::parent_not_found(&target.shown, &target.uri()))
    }
}

async fn copy_all(
    shell: &mut Shell,
    sources: Vec<Item>,
    arguments: usize,
    target: Item,
    copying: CopyOptions,
) -> Result<(), Failure> {
    check_destination(arguments.max(sources.len()), &target, copying.overwrite).await?;
    // A single file is copied on this task.
    let several = sources.len() > 1 || sources.iter().any(Item::is_directory);
    let mut workers = (copying.threads.at_once > 1 && several).then(|| Workers::new(copying.threads));
    for source in sources {
        if !source.exists() {
            shell.report(&Failure::not_found(&source.shown));
            continue;
        }
        let copied = async {
            let into = target_of(&source, &target).await?;
            copy_tree(shell, &source, &into, copying, &mut workers).await
        };
        if let Err(failure) = copied.await {
            shell.report(&failure);
        }
    }
    if let Some(workers) = workers {
        workers.finish(shell, copying).await;
    }
    Ok(())
}

/// Returns the target of `source`: inside `target` if that is a directory, else `target` itself.
///
/// Errors: a directory would be copied to itself or below itself. Source: CommandWithDestination.java.
pub async fn target_of(source: &Item, target: &Item) -> Result<Item, Failure> {
    let into = if target.is_directory() {
        target.child(source.name()).await?
    } else if target.represents_directory() {
        return Err(Failure::not_found(&target.shown));
    } else {
        target.clone()
    };
    if source.is_directory() && source.store.same(&into.store) {
        let (from, to) = (with_slash(&source.path), with_slash(&into.path));
        if to == from {
            return Err(Failure::pair(&source.shown, &into.uri(), "are identical"));
        }
        if to.starts_with(&from) {
            return Err(Failure::pair(&source.shown, &into.shown, "is a subdirectory of itself"));
        }
    }
    Ok(into)
}

fn with_slash(path: &str) -> String {
    if path.ends_with('/') { path.to_owned() } else { format!("{path}/") }
}

/// Copies a file, or a directory with everything below it, to exactly `target`. Failures below are reported and
/// skipped.
async fn copy_tree(
    shell: &mut Shell,
    source: &Item,
    target: &Item,
    copying: CopyOptions,
    workers: &mut Option<Workers>,
) -> Result<(), Failure> {
    // Like Hadoop, a move does not merge directories.
    if copying.remove && target.is_directory() {
        return Err(Failure::exists(&target.shown));
    }
    if !source.is_directory() {
        // The bytes would be gone before they are read.
        if copying.direct && source.store.same(&target.store) && source.path == target.path {
            return Err(Failure::pair(&source.shown, &target.shown, "are identical"));
        }
        if let Some(workers) = workers {
            workers.copy(shell, source, target, copying).await;
            return Ok(());
        }
        copy_file(source, target, copying).await?;
        return remove_moved(source, copying).await;
    }
    if target.exists() {
        if !target.is_directory() {
            return Err(Failure::not_directory(&target.shown));
        }
    } else {
        target.store.mkdirs(&target.path, &target.shown, true).await?;
    }
    // A link is moved only as such: the files that it leads to stay where they are.
    let inside = CopyOptions { remove: copying.remove && !source.store.is_link(&source.path), ..copying };
    for child in source.children().await? {
        let copied = async {
            let below = target.child(child.name()).await?;
            Box::pin(copy_tree(shell, &child, &below, inside, workers)).await
        };
        if let Err(failure) = copied.await {
            shell.report(&failure);
        }
    }
    if let Some(workers) = workers {
        workers.directory(source, target);
        return Ok(());
    }
    preserve(source, target, copying).await?;
    remove_moved(source, copying).await
}

/// Removes the source at the end of a move. A directory that is not empty stays: its entries were not copied, or were
/// created during the move.
async fn remove_moved(source: &Item, copying: CopyOptions) -> Result<(), Failure> {
    if copying.remove && !source.store.delete(&source.path, &source.shown, false).await? {
        return Err(Failure::Message(format!("remove `{}': Input/output error", source.shown)));
    }
    Ok(())
}

async fn copy_file(source: &Item, target: &Item, copying: CopyOptions) -> Result<(), Failure> {
    if target.exists() && (target.is_directory() || !copying.overwrite) {
        return Err(Failure::exists(&target.shown));
    }
    let mut bytes = source.store.open_with(&source.path, &source.shown, copying.verify).await?;
    copy_bytes(&mut bytes, Some(source), target, copying).await
}

/// Writes `source` to a temporary file beside `target` and renames it, unless the copy is direct. `from`: the item that
/// the bytes are read from.
async fn copy_bytes(
    source: &mut Source,
    from: Option<&Item>,
    target: &Item,
    copying: CopyOptions,
) -> Result<(), Failure> {
    if target.exists() && (target.is_directory() || !copying.overwrite) {
        return Err(Failure::exists(&target.shown));
    }
    let (replication, lazy_persist) = (copying.lazy.then_some(1), copying.lazy);
    let options = CreateOptions { overwrite: true, replication, lazy_persist, ..CreateOptions::default() };
    if copying.direct {
        write(source, target, &target.path, options, copying).await?;
    } else {
        let temporary = format!("{}{TEMPORARY}", target.path);
        if let Err(failure) = write(source, target, &temporary, options, copying).await {
            // Removes the partial file of a failed copy.
            let _ = target.store.delete(&temporary, &target.shown, false).await;
            return Err(failure);
        }
        if target.exists() && matches!(target.store, Store::Hdfs(_)) {
            target.store.delete(&target.path, &target.shown, false).await?;
        }
        if !target.store.rename(&temporary, &target.path, &target.shown).await? {
            return Err(Failure::path(&target.shown, format!("cannot rename {temporary} to it")));
        }
    }
    match from {
        Some(from) => preserve(from, target, copying).await,
        None => Ok(()),
    }
}

async fn write(
    source: &mut Source,
    target: &Item,
    path: &str,
    options: CreateOptions,
    copying: CopyOptions,
) -> Result<(), Failure> {
    // The progress bars of several files would overwrite each other.
    let progress = match copying.threads.at_once {
        1 => Progress::start(&target.shown, source.length()),
        _ => Progress::none(),
    };
    let mut sink = target.store.create(path, &target.shown, options).await?;
    if copying.checksums {
        sink = sink.with_checksums(path)?;
    }
    sink.take(source, |bytes| progress.moved(bytes)).await?;
    sink.close().await
}

/// Gives `target` the attributes of its source.
async fn preserve(source: &Item, target: &Item, copying: CopyOptions) -> Result<(), Failure> {
    let status = source.status()?;
    let (store, path, shown) = (&target.store, target.path.as_str(), target.shown.as_str());
    if copying.times {
        store.set_times(path, shown, Some(status.modification_time_ms), Some(status.access_time_ms)).await?;
    }
    if copying.ownership {
        store.set_owner(path, shown, Some(&status.owner), Some(&status.group)).await?;
    }
    if copying.permission {
        store.set_permission(path, shown, status.permission).await?;
    }
    if copying.acl {
        acl::copy(source, target).await?;
    }
    if copying.xattrs {
        xattrs::copy(source, target).await?;
    }
    Ok(())
}

/// `-appendToFile`
pub async fn append_to_file(shell: &mut Shell, mut arguments: Arguments) -> Result<(), Failure> {
    let Some(last) = arguments.rest.pop() else { return Ok(()) };
    let target = shell.item(&last).await?;
    let from_stdin = arguments.rest.iter().any(|argument| argument == "-");
    if from_stdin && arguments.rest.len() > 1 {
        return Err(Failure::Message("Cannot mix stdin with other files".to_owned()));
    }
    let mut sources = Vec::new();
    for argument in &arguments.rest {
        if argument == "-" {
            sources.push(Source::standard_input());
            continue;
        }
        let item = shell.local_item(argument).await?;
        if item.is_directory() {
            return Err(Failure::is_directory(&item.shown));
        }
        sources.push(item.store.open(&item.path, &item.shown).await?);
    }
    if target.is_directory() {
        return Err(Failure::is_directory(&target.shown));
    }
    let Store::Hdfs(fs) = &target.store else {
        return Err(Failure::path(&target.shown, "the local file system cannot append"));
    };
    let writer = if target.exists() {
        if arguments.has("n") { fs.append_new_block(&target.path).await } else { fs.append(&target.path).await }
    } else {
        fs.create(&target.path, CreateOptions::default()).await
    };
    let mut sink = writer.map_err(|error| Failure::of(&target.shown, error))?;
    for source in &mut sources {
        sink.take(source, |_| {}).await?;
    }
    sink.close().await
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use hearth_config::Configuration;
    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::super::commands;
    use super::*;

    /// Creates directories and files. Each file contains its own name.
    fn fill(directory: &Path, directories: &[&str], files: &[&str]) {
        for name in directories {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        for name in files {
            fs::write(directory.join(name), name).unwrap();
        }
    }

    async fn copy(shell: &mut Shell, from: &[String], to: &str, remove: bool) -> Result<(), Failure> {
        let target = shell.local_item(to).await?;
        let mut sources = Vec::new();
        for source in from {
            sources.push(shell.local_item(source).await?);
        }
        copy_all(shell, sources, from.len(), target, CopyOptions { remove, ..CopyOptions::default() }).await
    }

    #[tokio::test]
    async fn move_removes_only_copied_files() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fill(
            directory.path(),
            &["first", "second/sub", "third", "to/first"],
            &["first/a", "second/a", "second/sub/b", "third/a"],
        );
        // The link is listed, but cannot be copied.
        symlink(at("missing"), at("second/link")).unwrap();
        let mut shell = Shell::new(Configuration::empty());
        let sources = ["missing", "first", "second", "third"].map(|name| at(name).to_str().unwrap().to_owned());
        copy(&mut shell, &sources, at("to").to_str().unwrap(), true).await.unwrap();
        // Four failures: the missing path; `first`, since a directory of its name exists; the link; and `second`, where
        // the link stays.
        assert_eq!(shell.failures(), 4);
        assert!(at("first/a").exists() && !at("to/first/a").exists());
        assert!(at("second/link").is_symlink() && !at("second/a").exists() && !at("second/sub").exists());
        assert_eq!(fs::read(at("to/second/a")).unwrap(), b"second/a");
        assert_eq!(fs::read(at("to/second/sub/b")).unwrap(), b"second/sub/b");
        assert!(!at("third").exists());
        assert_eq!(fs::read(at("to/third/a")).unwrap(), b"third/a");
    }

    #[tokio::test]
    async fn files_created_during_move_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fill(directory.path(), &["tree", "to"], &["tree/a"]);
        // The FIFO is opened after the directory was listed, and read to its end after the late file was created.
        mkfifoat(CWD, at("tree/pipe"), Mode::RWXU).unwrap();
        let (pipe, late) = (at("tree/pipe"), at("tree/late"));
        let writer = std::thread::spawn(move || {
            let _pipe = fs::OpenOptions::new().write(true).open(pipe).unwrap();
            fs::write(late, "late").unwrap();
        });
        let mut shell = Shell::new(Configuration::empty());
        let tree = [at("tree").to_str().unwrap().to_owned()];
        copy(&mut shell, &tree, at("to").to_str().unwrap(), true).await.unwrap();
        assert_eq!(fs::read(at("tree/late")).unwrap(), b"late");
        writer.join().unwrap();
        assert_eq!(shell.failures(), 1);
        assert!(!at("tree/a").exists() && !at("tree/pipe").exists() && at("to/tree/pipe").exists());
        assert_eq!(fs::read(at("to/tree/a")).unwrap(), b"tree/a");
    }

    #[tokio::test]
    async fn target_of_moved_link_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fill(directory.path(), &["tree", "elsewhere", "to"], &["elsewhere/a"]);
        symlink(at("elsewhere"), at("tree/link")).unwrap();
        let mut shell = Shell::new(Configuration::empty());
        let tree = [at("tree").to_str().unwrap().to_owned()];
        copy(&mut shell, &tree, at("to").to_str().unwrap(), true).await.unwrap();
        assert_eq!(shell.failures(), 0);
        assert!(!at("tree").exists() && at("elsewhere/a").exists());
        assert_eq!(fs::read(at("to/tree/link/a")).unwrap(), b"elsewhere/a");
    }

    #[tokio::test]
    async fn copies_keep_the_source_name() {
        let directory = tempfile::tempdir().unwrap();
        let written = |name: &str| format!("{}/{name}", directory.path().display());
        fill(directory.path(), &["tree/sub", "one", "two"], &["tree/sub/a"]);
        let mut shell = Shell::new(Configuration::empty());
        copy(&mut shell, &[written("tree/")], &written("one/"), false).await.unwrap();
        copy(&mut shell, &[written("tree/sub/..")], &written("two"), false).await.unwrap();
        assert!(directory.path().join("one/tree/sub/a").exists() && directory.path().join("two/tree/sub/a").exists());
        // A path below a missing directory is not taken for a new name.
        let file = [written("tree/sub/a")];
        assert!(matches!(copy(&mut shell, &file, &written("three/"), false).await, Err(Failure::Path { .. })));
        assert!(!directory.path().join("three").exists());
        copy(&mut shell, &file, &written("three"), false).await.unwrap();
        assert!(directory.path().join("three").is_file());
    }

    #[test]
    fn letters_select_preserved_attributes() {
        let cp = commands::find("cp").unwrap();
        let kept = |option: &str| {
            let words = [option, "from", "to"].map(str::to_owned).to_vec();
            let copying = CopyOptions::from(&cp.format.parse(words).unwrap()).unwrap();
            [copying.times, copying.ownership, copying.permission, copying.acl, copying.xattrs]
        };
        assert_eq!(kept("-f"), [false; 5]);
        assert_eq!(kept("-p"), [true, true, true, false, false]);
        assert_eq!(kept("-pa"), [false, false, true, true, false]);
        assert_eq!(kept("-px"), [false, false, false, false, true]);
        assert_eq!(kept("-ptopax"), [true; 5]);
    }
}
