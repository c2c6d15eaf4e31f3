//! Verbs about the NameNode's storage and lists: `-saveNamespace`, `-rollEdits`, `-restoreFailedStorage`,
//! `-refreshNodes`, `-metasave`

use hearth_client::{Exception, FileSystem};
use hearth_config::parse;

use crate::commands::tool::{FAILED, NamenodeOf, Tool, java_text};

/// Performs `call` at each namenode. `done` and `failed`: texts before the namenode's address. Errors: those of all
/// namenodes, if any failed.
pub(super) async fn at_each(
    namenodes: Vec<NamenodeOf>,
    failed: &str,
    call: impl AsyncFn(&FileSystem) -> anyhow::Result<String>,
) -> anyhow::Result<u8> {
    let mut errors = Vec::new();
    for NamenodeOf { fs, shown } in namenodes {
        match call(&fs).await {
            Ok(done) => println!("{done} for {shown}"),
            Err(error) => {
                eprintln!("{failed} for {shown}");
                errors.push(error);
            }
        }
    }
    of_all(errors)
}

/// Returns the only error, or one that lists them. Source: MultipleIOException.java.
pub(super) fn of_all(mut errors: Vec<anyhow::Error>) -> anyhow::Result<u8> {
    match errors.len() {
        0 => Ok(0),
        1 => Err(errors.remove(0)),
        count => {
            let lines: Vec<_> = errors.iter().map(java_text).collect();
            anyhow::bail!("{count} exceptions [{}]", lines.join(", "))
        }
    }
}

pub async fn save(tool: &Tool, before_shutdown: bool) -> anyhow::Result<u8> {
    let fs = tool.fs()?;
    let (mut window, mut transactions) = (0, 0);
    if before_shutdown {
        let configuration = &tool.configuration;
        let number = |key: &str, default: u64| -> anyhow::Result<u64> {
            Ok(configuration.get_as(key, parse::int_u64)?.unwrap_or(default))
        };
        let period = configuration.get_as("dfs.namenode.checkpoint.period", parse::duration_s)?;
        let periods = number("dfs.namenode.missing.checkpoint.periods.before.shutdown", 3)?;
        window = period.map_or(3600, |period| period.as_secs()) * periods;
        transactions = number("dfs.namenode.checkpoint.txns", 1_000_000)? * periods;
        println!(
            "Do checkpoint if necessary before stopping namenode. The time window is {window} seconds, and the transaction \
             gap is {transactions}"
        );
    }
    let text = |saved| if saved { "Save namespace successful" } else { "No extra checkpoint has been made" };
    match tool.namenodes(&fs).await? {
        Some(namenodes) => {
            at_each(namenodes, "Save namespace failed", async |fs: &FileSystem| {
                Ok(text(fs.save_namespace(window, transactions).await?).to_owned())
            })
            .await
        }
        None => {
            println!("{}", text(fs.save_namespace(window, transactions).await?));
            Ok(0)
        }
    }
}

pub async fn roll_edits(tool: &Tool) -> anyhow::Result<u8> {
    let transaction = tool.fs()?.roll_edits().await?;
    println!("Successfully rolled edit logs.\nNew segment starts at txid {transaction}");
    Ok(0)
}

pub async fn restore_failed_storage(tool: &Tool, argument: &str) -> anyhow::Result<u8> {
    if !["check", "true", "false"].contains(&argument) {
        eprintln!("restoreFailedStorage valid args are true|false|check");
        return Ok(FAILED);
    }
    let fs = tool.fs()?;
    match tool.namenodes(&fs).await? {
        Some(namenodes) => {
            at_each(namenodes, "restoreFailedStorage failed", async |fs: &FileSystem| {
                Ok(format!("restoreFailedStorage is set to {}", fs.restore_failed_storage(argument).await?))
            })
            .await
        }
        None => {
            println!("restoreFailedStorage is set to {}", fs.restore_failed_storage(argument).await?);
            Ok(0)
        }
    }
}

pub async fn refresh_nodes(tool: &Tool) -> anyhow::Result<u8> {
    let fs = tool.fs()?;
    match tool.namenodes(&fs).await? {
        Some(namenodes) => {
            at_each(namenodes, "Refresh nodes failed", async |fs: &FileSystem| {
                fs.refresh_nodes().await?;
                Ok("Refresh nodes successful".to_owned())
            })
            .await
        }
        None => {
            fs.refresh_nodes().await?;
            println!("Refresh nodes successful");
            Ok(0)
        }
    }
}

pub async fn meta_save(tool: &Tool, name: &str) -> anyhow::Result<u8> {
    let fs = tool.fs()?;
    let made = format!("Created metasave file {name} in the log directory of namenode");
    let Some(namenodes) = tool.namenodes(&fs).await? else {
        fs.meta_save(name).await?;
        println!("{made} {}", fs.uri());
        return Ok(0);
    };
    let mut errors = Vec::new();
    for NamenodeOf { fs, shown } in namenodes {
        match fs.meta_save(name).await {
            Ok(()) => println!("{made} {shown}"),
            Err(error) if error.exception() == Some(Exception::Standby) => {
                println!("Skip Standby NameNode, since it cannot perform metasave operation");
            }
            Err(error) if error.exception().is_some() => return Err(error.into()),
            Err(error) => {
                eprintln!("{made} {shown} failed");
                errors.push(error.into());
            }
        }
    }
    of_all(errors)
}
