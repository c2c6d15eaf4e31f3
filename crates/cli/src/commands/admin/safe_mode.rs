//! `-safemode`

use std::time::Duration;

use hearth_client::{FileSystem, SafeModeAction};

use super::Verb;
use crate::commands::tool::Tool;

/// Interval at which `-safemode wait` looks.
const WAIT: Duration = Duration::from_secs(1);

pub async fn safe_mode(tool: &Tool, verb: &Verb, action: &str) -> anyhow::Result<u8> {
    let is = |other: &str| action.eq_ignore_ascii_case(other);
    let (action, wait) = match () {
        () if is("leave") => (SafeModeAction::Leave, false),
        () if is("enter") => (SafeModeAction::Enter, false),
        () if is("get") => (SafeModeAction::Get, false),
        () if is("wait") => (SafeModeAction::Get, true),
        () if is("forceExit") => (SafeModeAction::ForceExit, false),
        () => {
            eprint!("{}", verb.usage());
            // Apache's tool counts this as success.
            return Ok(0);
        }
    };
    let fs = tool.fs()?;
    match tool.namenodes(&fs).await? {
        Some(namenodes) => {
            for namenode in namenodes {
                let on = performed(&namenode.fs, action, wait).await?;
                println!("Safe mode is {} in {}", shown(on), namenode.shown);
            }
        }
        None => println!("Safe mode is {}", shown(performed(&fs, action, wait).await?)),
    }
    Ok(0)
}

/// Performs the action, then waits for the end of safe mode if requested. Returns whether safe mode is on.
async fn performed(fs: &FileSystem, action: SafeModeAction, wait: bool) -> anyhow::Result<bool> {
    let mut on = fs.safe_mode(action).await?;
    while on && wait {
        tokio::time::sleep(WAIT).await;
        on = fs.safe_mode(SafeModeAction::Get).await?;
    }
    Ok(on)
}

fn shown(on: bool) -> &'static str {
    if on { "ON" } else { "OFF" }
}
