//! `-createSnapshot`, `-deleteSnapshot`, `-renameSnapshot`

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::remote::Remote;
use super::shell::Shell;
use super::store::Store;

pub async fn create(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let (directory, name) = match arguments.rest.as_slice() {
        [] => return Err(Failure::Usage("<snapshotDir> is missing.".to_owned())),
        [directory] => (directory, ""),
        [directory, name] => (directory, name.as_str()),
        _ => return Err(Failure::Usage("Too many arguments.".to_owned())),
    };
    let Some(item) = directory_of(shell, directory).await? else { return Ok(()) };
    let made = store(&item)?.create_snapshot(&item.path, name).await?;
    shell.line(format_args!("Created snapshot {made}"));
    Ok(())
}

pub async fn delete(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let [directory, name] = arguments.rest.as_slice() else { return Err(incorrect()) };
    let Some(item) = directory_of(shell, directory).await? else { return Ok(()) };
    store(&item)?.delete_snapshot(&item.path, name).await?;
    shell.line(format_args!("Deleted snapshot {name} under {}", item.uri()));
    Ok(())
}

pub async fn rename(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let [directory, old, new] = arguments.rest.as_slice() else { return Err(incorrect()) };
    let Some(item) = directory_of(shell, directory).await? else { return Ok(()) };
    store(&item)?.rename_snapshot(&item.path, old, new).await?;
    shell.line(format_args!("Renamed snapshot {old} to {new} under {}", item.uri()));
    Ok(())
}

fn incorrect() -> Failure {
    Failure::Usage("Incorrect number of arguments.".to_owned())
}

/// Returns the only directory that an argument names. `None`: a failure was reported.
async fn directory_of(shell: &mut Shell, argument: &str) -> Result<Option<Item>, Failure> {
    let mut items = shell.existing(std::slice::from_ref(&argument.to_owned())).await?;
    if items.len() > 1 {
        shell.report(&Failure::Message(format!("{argument} is more than one directory")));
        return Ok(None);
    }
    let Some(item) = items.pop() else { return Ok(None) };
    if !item.is_directory() {
        shell.report(&Failure::not_directory(&item.shown));
        return Ok(None);
    }
    Ok(Some(item))
}

fn store(item: &Item) -> Result<&Remote, Failure> {
    match &item.store {
        Store::Hdfs(fs) => Ok(fs),
        _ => Err(Failure::path(&item.shown, "a local directory has no snapshots")),
    }
}
