//! `-reconfig`

use hearth_client::{Administration, DatanodeReportKind, Error, ServerKind};
use hearth_config::HostPort;

use crate::commands::fs::time::Calendar;
use crate::commands::tool::{FAILED, Tool, address, java_text};

/// What is requested of each server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Start,
    Status,
    Properties,
}

impl Operation {
    /// Returns how Apache's tool names the operation when it fails.
    fn failed(self) -> &'static str {
        match self {
            Self::Start => "reconfiguring",
            Self::Status => "reloading configuration",
            Self::Properties => "reconfiguration",
        }
    }
}

pub async fn reconfigure(tool: &Tool, words: &[String]) -> anyhow::Result<u8> {
    let [node, server, operation] = words else { return Ok(FAILED) };
    let operation = match operation.as_str() {
        "start" => Operation::Start,
        "status" => Operation::Status,
        "properties" => Operation::Properties,
        other => {
            eprintln!("Unknown operation: {other}");
            return Ok(FAILED);
        }
    };
    let kind = match node.as_str() {
        "namenode" => Some(ServerKind::Namenode),
        "datanode" => Some(ServerKind::Datanode),
        _ => None,
    };
    if server == "livenodes" && operation != Operation::Properties {
        if kind != Some(ServerKind::Datanode) {
            eprintln!("Only datanode type supports reconfiguration in bulk.");
            return Ok(1);
        }
        return at_live_datanodes(tool, operation).await;
    }
    let Some(kind) = kind else {
        eprintln!("Node type {node} does not support reconfiguration.");
        // Apache's tool then goes on as if the call had been made.
        match operation {
            Operation::Start => println!("Started reconfiguration task on node [{server}]."),
            Operation::Status => print!("Reconfiguring status for node [{server}]: "),
            Operation::Properties => {}
        }
        return Ok(1);
    };
    let at = address(server)?;
    let code = match perform(&tool.administration()?, kind, &at, server, operation).await {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("Node [{server}] {}: {}.", operation.failed(), java_text(&error.into()));
            1
        }
    };
    Ok(code)
}

async fn perform(
    administration: &Administration,
    kind: ServerKind,
    at: &HostPort,
    server: &str,
    operation: Operation,
) -> Result<(), Error> {
    match operation {
        Operation::Start => {
            administration.start_reconfiguration(kind, at).await?;
            println!("Started reconfiguration task on node [{server}].");
        }
        Operation::Status => status(administration, kind, at, server).await?,
        Operation::Properties => {
            let keys = administration.reconfigurable_keys(kind, at).await?;
            println!("Node [{server}] Reconfigurable properties:");
            keys.iter().for_each(|key| println!("{key}"));
        }
    }
    Ok(())
}

async fn status(administration: &Administration, kind: ServerKind, at: &HostPort, server: &str) -> Result<(), Error> {
    let state = administration.reconfiguration(kind, at).await?;
    let date = |ms: i64| Calendar::java_date(ms.max(0) as u64);
    print!("Reconfiguring status for node [{server}]: ");
    if state.start_ms == 0 {
        println!("no task was found.");
        return Ok(());
    }
    print!("started at {}", date(state.start_ms));
    let Some(end_ms) = state.end_ms else {
        println!(" and is still running.");
        return Ok(());
    };
    println!(" and finished at {}.", date(end_ms));
    for change in state.changes {
        let outcome = if change.error.is_none() { "SUCCESS: Changed" } else { "FAILED: Change" };
        let new = change.new.unwrap_or_default();
        println!("{outcome} property {}\n\tFrom: \"{}\"\n\tTo: \"{new}\"", change.name, change.old);
        if let Some(error) = change.error {
            println!("\tError: {error}.");
        }
    }
    Ok(())
}

async fn at_live_datanodes(tool: &Tool, operation: Operation) -> anyhow::Result<u8> {
    let administration = tool.administration()?;
    let (mut done, mut failed) = (0, 0);
    for datanode in tool.fs()?.datanodes(DatanodeReportKind::Live).await? {
        let server = format!("{}:{}", datanode.id.ip, datanode.id.ipc_port);
        match perform(&administration, ServerKind::Datanode, &address(&server)?, &server, operation).await {
            Ok(()) => done += 1,
            Err(error) => {
                eprintln!("Node [{server}] {}: {}.", operation.failed(), java_text(&error.into()));
                failed += 1;
            }
        }
    }
    let what = match operation {
        Operation::Start => "Starting of reconfiguration task",
        _ => "Retrieval of reconfiguration status",
    };
    println!("{what} successful on {done} nodes, failed on {failed} nodes.");
    Ok(u8::from(failed > 0))
}
