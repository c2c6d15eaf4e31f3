//! `-concat`

use super::failure::Failure;
use super::options::Arguments;
use super::shell::Shell;
use super::store::Store;

pub async fn concat(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    if arguments.rest.len() < 3 {
        let takes = "<target path> <src path> <src path> ...";
        return Err(Failure::Message(format!("The number of source paths is less than 2. {takes}")));
    }
    let mut items = Vec::new();
    for argument in &arguments.rest {
        let item = shell.item(argument).await?;
        item.status()?;
        items.push(item);
    }
    let Some((target, sources)) = items.split_first() else { return Ok(()) };
    let Store::Hdfs(fs) = &target.store else {
        return Err(Failure::path(&target.shown, "Dest filesystem 'LocalFileSystem' doesn't support concat"));
    };
    let paths: Vec<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    fs.concat(&target.path, &paths).await.map_err(|error| Failure::of(&target.shown, error))
}
