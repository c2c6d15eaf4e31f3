//! Verbs about one DataNode, which name its IPC address, and about the bandwidth for balancing.

use hearth_client::Error;

use super::Verb;
use crate::commands::tool::{
    FAILED, IllegalArgument, Tool, address, binary_number, byte_description, java_text, pop_option, pop_value, pop_word,
};

/// Error of a verb that is used to check whether a DataNode is alive.
fn unreachable(error: Error) -> anyhow::Error {
    anyhow::anyhow!("Datanode unreachable. {}", java_text(&error.into()))
}

pub async fn describe(tool: &Tool, datanode: &str) -> anyhow::Result<u8> {
    let info = tool.administration()?.datanode(&address(datanode)?).await.map_err(unreachable)?;
    println!(
        "Uptime: {}, Software version: {}, Config version: {}",
        info.uptime_seconds, info.software_version, info.config_version
    );
    Ok(0)
}

pub async fn volumes(tool: &Tool, datanode: &str) -> anyhow::Result<u8> {
    let volumes = tool.administration()?.volumes(&address(datanode)?).await?;
    println!("Active Volumes : {}", volumes.len());
    for volume in volumes {
        let bytes = |bytes: u64| format!("{bytes}({})", byte_description(bytes));
        println!("\nDirectory: {}", volume.path);
        println!("StorageType: {}", volume.storage_type.name());
        println!("Capacity Used: {}", bytes(volume.used));
        println!("Capacity Left: {}", bytes(volume.free));
        println!("Capacity Reserved: {}", bytes(volume.reserved));
        println!("Reserved Space for Replicas: {}", bytes(volume.reserved_for_replicas));
        println!("Blocks: {}", volume.blocks);
    }
    Ok(0)
}

pub async fn evict_writers(tool: &Tool, datanode: &str) -> anyhow::Result<u8> {
    tool.administration()?.evict_writers(&address(datanode)?).await.map_err(unreachable)?;
    println!("Requested writer eviction to datanode {datanode}");
    Ok(0)
}

pub async fn shut_down(tool: &Tool, verb: &Verb, words: &[String]) -> anyhow::Result<u8> {
    let for_upgrade = match words.get(1) {
        None => false,
        Some(word) if word.eq_ignore_ascii_case("upgrade") => true,
        Some(_) => {
            eprint!("{}", verb.usage());
            return Ok(FAILED);
        }
    };
    tool.administration()?.shut_down_datanode(&address(&words[0])?, for_upgrade).await?;
    println!("Submitted a shutdown request to datanode {}", words[0]);
    Ok(0)
}

pub async fn refresh_namenodes(tool: &Tool, datanode: &str) -> anyhow::Result<u8> {
    tool.administration()?.refresh_namenodes(&address(datanode)?).await?;
    Ok(0)
}

pub async fn delete_block_pool(tool: &Tool, verb: &Verb, words: &[String]) -> anyhow::Result<u8> {
    let force = match words.get(2).map(String::as_str) {
        None => false,
        Some("force") => true,
        Some(_) => {
            eprint!("{}", verb.usage());
            return Ok(FAILED);
        }
    };
    tool.administration()?.delete_block_pool(&address(&words[0])?, &words[1], force).await?;
    Ok(0)
}

pub async fn trigger_block_report(tool: &Tool, mut words: Vec<String>) -> anyhow::Result<u8> {
    let named = pop_value("-namenode", &mut words)?;
    let namenode = named.as_deref().map(address).transpose()?;
    let incremental = pop_option("-incremental", &mut words);
    let Some(datanode) = pop_word(&mut words) else {
        eprintln!("You must specify a host:port pair.");
        return Ok(1);
    };
    if !words.is_empty() {
        eprintln!("Can't understand arguments: {}", words.join(" "));
        return Ok(1);
    }
    let server = address(&datanode)?;
    let triggered = tool.administration()?.trigger_block_report(&server, incremental, namenode.as_ref()).await;
    if let Err(error) = triggered {
        eprintln!("triggerBlockReport error: {}", java_text(&error.into()));
        return Ok(1);
    }
    let kind = if incremental { "an incremental" } else { "a full" };
    let to = named.map(|named| format!(" to namenode {named}")).unwrap_or_default();
    println!("Triggering {kind} block report on {datanode}{to}.");
    Ok(0)
}

pub async fn set_balancer_bandwidth(tool: &Tool, verb: &Verb, text: &str) -> anyhow::Result<u8> {
    let bandwidth = match binary_number(text) {
        Ok(bandwidth) => bandwidth,
        Err(error) if error.downcast_ref::<IllegalArgument>().is_some_and(IllegalArgument::is_number_format) => {
            eprintln!("NumberFormatException: {error}");
            eprint!("{}", verb.usage());
            return Ok(FAILED);
        }
        Err(error) => return Err(error),
    };
    if bandwidth < 0 {
        eprintln!("Bandwidth should be a non-negative integer");
        return Ok(FAILED);
    }
    if let Err(error) = tool.fs()?.set_balancer_bandwidth(bandwidth).await {
        eprintln!("Balancer bandwidth is set failed.");
        return Err(error.into());
    }
    println!("Balancer bandwidth is set to {bandwidth}");
    Ok(0)
}

pub async fn balancer_bandwidth(tool: &Tool, datanode: &str) -> anyhow::Result<u8> {
    let bandwidth = tool.administration()?.balancer_bandwidth(&address(datanode)?).await.map_err(unreachable)?;
    println!("Balancer bandwidth is {bandwidth} bytes per second.");
    Ok(0)
}
