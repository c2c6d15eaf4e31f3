//! `-finalizeUpgrade`, `-rollingUpgrade`, `-upgrade`

use hearth_client::{FileSystem, HaState, RollingUpgrade, RollingUpgradeAction};

use super::Verb;
use super::namespace::at_each;
use crate::commands::fs::time::Calendar;
use crate::commands::tool::{FAILED, IllegalArgument, Tool};

pub async fn finalize(tool: &Tool) -> anyhow::Result<u8> {
    let fs = tool.fs()?;
    match tool.namenodes(&fs).await? {
        Some(namenodes) => {
            let mut is_one_active = false;
            for namenode in &namenodes {
                is_one_active |= namenode.fs.ha_state().await.is_ok_and(|state| state == HaState::Active);
            }
            anyhow::ensure!(is_one_active, "Cannot finalize with no NameNode active");
            at_each(namenodes, "Finalize upgrade failed", async |fs: &FileSystem| {
                fs.finalize_upgrade().await?;
                Ok("Finalize upgrade successful".to_owned())
            })
            .await
        }
        None => {
            fs.finalize_upgrade().await?;
            println!("Finalize upgrade successful");
            Ok(0)
        }
    }
}

pub async fn upgrade(tool: &Tool, verb: &Verb, action: &str) -> anyhow::Result<u8> {
    if action.eq_ignore_ascii_case("finalize") {
        return finalize(tool).await;
    }
    if !action.eq_ignore_ascii_case("query") {
        eprint!("{}", verb.usage());
        return Ok(FAILED);
    }
    let fs = tool.fs()?;
    let text = |finalized| if finalized { "Upgrade finalized" } else { "Upgrade not finalized" };
    match tool.namenodes(&fs).await? {
        Some(namenodes) => {
            at_each(namenodes, "Getting upgrade status failed", async |fs: &FileSystem| {
                Ok(text(fs.is_upgrade_finalized().await?).to_owned())
            })
            .await
        }
        None => {
            println!("{}", text(fs.is_upgrade_finalized().await?));
            Ok(0)
        }
    }
}

pub async fn rolling(tool: &Tool, name: &str) -> anyhow::Result<u8> {
    let fs = tool.fs()?;
    let (shown, action) = match name.to_ascii_uppercase().as_str() {
        "" | "QUERY" => ("QUERY", RollingUpgradeAction::Query),
        "PREPARE" => ("PREPARE", RollingUpgradeAction::Prepare),
        "FINALIZE" => ("FINALIZE", RollingUpgradeAction::Finalize),
        _ => {
            let message = format!("Failed to convert \"{name}\" to RollingUpgradeAction");
            return Err(IllegalArgument::new(message).into());
        }
    };
    println!("{shown} rolling upgrade ...");
    match fs.rolling_upgrade(action).await? {
        Some(state) if state.start_ms != 0 => {
            if state.finalize_ms != 0 {
                println!("Rolling upgrade is finalized.");
            } else if state.has_rollback_image {
                println!("Proceed with rolling upgrade:");
            } else {
                println!("Preparing for upgrade. Data is being saved for rollback.");
                println!("Run \"dfsadmin -rollingUpgrade query\" to check the status");
                println!("for proceeding with rolling upgrade");
            }
            println!("{}", described(&state));
        }
        _ => println!("There is no rolling upgrade in progress or rolling upgrade has already been finalized."),
    }
    Ok(0)
}

fn described(state: &RollingUpgrade) -> String {
    let time = |ms: u64, otherwise: &str| match ms {
        0 => otherwise.to_owned(),
        ms => format!("{} (={ms})", Calendar::java_date(ms)),
    };
    format!(
        "  Block Pool ID: {}\n     Start Time: {}\n  Finalize Time: {}",
        state.block_pool,
        time(state.start_ms, "<NOT STARTED>"),
        time(state.finalize_ms, "<NOT FINALIZED>")
    )
}
