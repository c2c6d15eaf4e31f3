//! `-test`

use hearth_types::Access;

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::store::Store;

pub async fn test(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let flags = ["e", "d", "f", "s", "z", "w", "r"];
    let given: Vec<&str> = flags.into_iter().filter(|flag| arguments.has(flag)).collect();
    let flag = match given[..] {
        [] => return Err(Failure::Usage("No test flag given".to_owned())),
        [flag] => flag,
        _ => return Err(Failure::Usage("Only one test flag is allowed".to_owned())),
    };
    let Some(argument) = arguments.rest.first() else { return Ok(()) };
    let items = shell.items(argument).await?;
    for item in &items {
        if !holds(flag, item).await? {
            return Err(Failure::Exit(1));
        }
    }
    Ok(())
}

async fn holds(flag: &str, item: &Item) -> Result<bool, Failure> {
    let Some(status) = &item.status else { return Ok(false) };
    Ok(match flag {
        "e" => true,
        "d" => item.is_directory(),
        "f" => !item.is_directory(),
        "s" => status.length > 0,
        "z" => status.length == 0,
        "w" => allowed(item, Access::WRITE).await?,
        _ => allowed(item, Access::READ).await?,
    })
}

async fn allowed(item: &Item, access: Access) -> Result<bool, Failure> {
    match &item.store {
        Store::Hdfs(fs) => match fs.check_access(&item.path, access).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == hearth_client::ErrorKind::PermissionDenied => Ok(false),
            Err(error) => Err(Failure::of(&item.shown, error)),
        },
        // An archive can be read by every user that can reach it, and not written.
        Store::Archive(_) | Store::View(_) => Ok(access != Access::WRITE),
        Store::Local => {
            use rustix::fs::Access as Local;
            let wanted = if access == Access::WRITE { Local::WRITE_OK } else { Local::READ_OK };
            Ok(rustix::fs::access(item.path.as_str(), wanted).is_ok())
        }
    }
}
