//! `-getmerge`

use hearth_client::CreateOptions;

use super::failure::Failure;
use super::options::Arguments;
use super::shell::Shell;

pub async fn getmerge(shell: &mut Shell, mut arguments: Arguments) -> Result<(), Failure> {
    let Some(last) = arguments.rest.pop() else { return Ok(()) };
    let target = shell.local_item(&last).await?;
    if target.is_directory() {
        return Err(Failure::is_directory(&target.shown));
    }
    let mut sources = Vec::new();
    for item in shell.existing(&arguments.rest).await {
        if item.is_directory() {
            // Directories below are passed over.
            sources.extend(item.children().await?.into_iter().filter(|child| !child.is_directory()));
        } else {
            sources.push(item);
        }
    }
    let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
    let mut sink = target.store.create(&target.path, &target.shown, options).await?;
    for item in sources {
        if arguments.has("skip-empty-file") && item.status()?.length == 0 {
            continue;
        }
        let mut source = item.store.open(&item.path, &item.shown).await?;
        sink.take(&mut source, |_| {}).await?;
        if arguments.has("nl") {
            sink.write(b"\n").await?;
        }
    }
    sink.close().await
}
