//! `/jmx` compared with Apache's: the beans that monitoring and Apache's router read have every attribute of Apache's
//! servers, with values of the same kind. [`PAGE`] lists the attributes and beans that are absent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use hearth_interop::{Check, Session, Suite, run};
use hearth_testkit::{ClusterSpec, Implementation, Process, free_port, get_text, jmx_bean, wait_until, workspace_root};
use serde_json::{Value, json};

const PAGE: &str = "docs/compatibility/jmx.md";

const NAMENODE_BEANS: &[&str] = &[
    "FSNamesystem",
    "FSNamesystemState",
    "NameNodeInfo",
    "NameNodeStatus",
    "ReplicatedBlocksState",
    "ECBlockGroupsState",
    "BlockStats",
    "SnapshotInfo",
];
const DATANODE_BEANS: &[&str] = &["FSDatasetState", "DataNodeInfo"];
/// A bean of every JVM, which agents read.
const MEMORY_BEAN: &str = "java.lang:type=Memory";
/// Attributes of that bean that are objects of numbers.
const MEMORY_USAGES: &[&str] = &["HeapMemoryUsage", "NonHeapMemoryUsage"];
/// Attributes whose text is JSON.
const JSON_TEXTS: &[&str] = &[
    "LiveNodes",
    "DeadNodes",
    "DecomNodes",
    "EnteringMaintenanceNodes",
    "NodeUsage",
    "NameDirStatuses",
    "NameDirSize",
    "NameJournalStatus",
    "JournalTransactionInfo",
    "CorruptFiles",
    "SnapshotStats",
    "TopUserOpCounts",
    "VerifyECWithTopologyResult",
    "NamenodeAddresses",
    "BPServiceActorInfo",
    "VolumeInfo",
    "DiskBalancerStatus",
];

/// Beans about activity, which lack some of Apache's attributes; `*` stands for ports and host names.
const NAMENODE_ACTIVITY: &[&str] =
    &["NameNodeActivity", "StartupProgress", "JvmMetrics", "RpcActivityForPort*", "RpcDetailedActivityForPort*"];
const DATANODE_ACTIVITY: &[&str] = &["DataNodeActivity-*", "JvmMetrics", "RpcActivityForPort*"];
/// Starts of names whose rest differs between clusters.
const VARYING: &[&str] = &[
    "DataNodeActivity-",
    "DataNodeVolume-",
    "FSDatasetState-",
    "HttpServer2-",
    "RpcActivityForPort",
    "RpcDetailedActivityForPort",
];
/// Starts of names of a JVM's own beans, whose next part differs between JVMs and their collectors.
const VARYING_OF_JVMS: &[&str] = &["java.lang:name=", "java.nio:name="];
/// Fewer beans than each of Apache's servers has.
const APACHES_BEANS_MIN: usize = 20;

const CHECKS: &[Check] = &[
    ("beans_have_every_attribute_of_apaches", every_attribute),
    ("activity_beans_lack_only_the_listed_attributes", listed_attributes),
    ("servers_lack_only_the_listed_beans", listed_beans),
    ("beans_have_the_routers_attributes", attributes_of_the_router),
    ("the_router_shows_the_namenodes_statistics", statistics_of_the_router),
];

fn main() -> ExitCode {
    let clusters = [Implementation::Apache, Implementation::Hearth]
        .map(|make| ClusterSpec::new(make, make).set("hearth.memory.limit", "64m").set("dfs.replication", 1));
    run(&[Suite { name: "jmx", clusters: clusters.to_vec(), checks: CHECKS }])
}

/// Returns the kind of a value: `number`, `text` and so on. Values that may be null on an idle cluster match any kind.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Returns names and kinds of a bean's attributes. For JSON attributes, also those of the content, except for variable
/// names.
fn shape(bean: &Value) -> Result<Vec<(String, &'static str)>> {
    let mut shape = Vec::new();
    for (name, value) in bean.as_object().into_iter().flatten() {
        if name == "modelerType" {
            continue;
        }
        shape.push((name.clone(), kind(value)));
        if MEMORY_USAGES.contains(&name.as_str()) {
            let members = value.as_object().with_context(|| format!("{name} is not an object: {value}"))?;
            shape.extend(members.iter().map(|(member, value)| (format!("{name}: {member}"), kind(value))));
        }
        if JSON_TEXTS.contains(&name.as_str()) {
            let Some(text) = value.as_str() else { bail!("{name} is not a string: {value}") };
            let inside: Value = serde_json::from_str(text)?;
            // In lists and maps of similar elements, the first one stands for all.
            let like = match &inside {
                Value::Array(list) => list.first().cloned(),
                Value::Object(map) => {
                    map.values().next().filter(|value| value.is_object()).cloned().or(Some(inside.clone()))
                }
                _ => None,
            };
            for (inner, value) in like.as_ref().and_then(Value::as_object).into_iter().flatten() {
                // Names that are paths or addresses differ between clusters.
                if !inner.contains(['/', ':']) && name != "NamenodeAddresses" {
                    shape.push((format!("{name}: {inner}"), kind(value)));
                }
            }
        }
    }
    Ok(shape)
}

fn every_attribute(session: &mut Session) -> Result<()> {
    session.dfs(&["-touchz", "/a"])?;
    let mut missing = Vec::new();
    let namenode = session.cluster.namenode_http_port();
    let datanode = session.cluster.datanodes[0].port("dfs.datanode.http.address")?;
    let memory = [namenode, datanode].map(|port| (port, MEMORY_BEAN.to_owned()));
    let namenode = NAMENODE_BEANS.iter().map(|name| (namenode, format!("Hadoop:service=NameNode,name={name}")));
    let datanode = DATANODE_BEANS.iter().map(|name| (datanode, format!("Hadoop:service=DataNode,name={name}")));
    for (port, name) in namenode.chain(datanode).chain(memory) {
        let shape = shape(&jmx_bean(port, &name)?)?;
        if session.is_oracle() {
            ensure!(shape.len() > 1, "{name} of Apache's has {} attributes", shape.len());
            session.same_as_oracle(&name, json!(shape))?;
            continue;
        }
        let Some(expected) = session.oracle(&name) else { bail!("the oracle has no {name}") };
        for pair in expected.as_array().into_iter().flatten() {
            let (attribute, wanted) = (pair[0].as_str().unwrap_or_default(), pair[1].as_str().unwrap_or_default());
            match shape.iter().find(|(own, _)| own == attribute) {
                None => missing.push(format!("{name}: {attribute}")),
                Some((_, own)) if *own != wanted && wanted != "null" && *own != "null" => {
                    missing.push(format!("{name}: {attribute} is a {own}, Apache's is a {wanted}"));
                }
                Some(_) => {}
            }
        }
    }
    ensure!(missing.is_empty(), "not as Apache's:\n{}", missing.join("\n"));
    Ok(())
}

/// Returns the cells of the table in the section `heading` of the page. The last cell of a row is the reason.
fn table<const COLUMNS: usize>(heading: &str) -> Result<Vec<[String; COLUMNS]>> {
    let text = fs::read_to_string(workspace_root().join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let (_, section) =
        text.split_once(&format!("\n## {heading}\n")).with_context(|| format!("{PAGE} has no section {heading}"))?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    rows.map(|row| {
        let inner = row.strip_prefix('|').and_then(|row| row.strip_suffix('|'));
        let inner = inner.with_context(|| format!("not a row of a table: {row}"))?;
        let cells: Vec<String> = inner.split('|').map(|cell| cell.trim().to_owned()).collect();
        ensure!(cells.last().is_some_and(|reason| !reason.is_empty()), "no reason: {row}");
        <[String; COLUMNS]>::try_from(cells).map_err(|cells| anyhow!("{} cells, not {COLUMNS}: {row}", cells.len()))
    })
    .collect()
}

/// Returns the rows of the table of absent attributes: server, bean, and patterns of attributes.
fn absent_attributes() -> Result<Vec<(String, String, Vec<String>)>> {
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let rows = table::<4>("Absent attributes")?.into_iter();
    rows.map(|[server, bean, attributes, _]| {
        let bean = quoted(&bean).pop().context("a bean")?;
        Ok((server, bean, quoted(&attributes)))
    })
    .collect()
}

/// Returns whether `text` is as the pattern, in which `*` stands for any text.
fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| is_like(after, &rest[at..]))
        }),
    }
}

/// Each attribute that Apache's bean has and Hearth's lacks is in the table of the documentation, and the table has no
/// others.
fn listed_attributes(session: &mut Session) -> Result<()> {
    session.dfs(&["-touchz", "/b"])?;
    let table = absent_attributes()?;
    let mut wrong = Vec::new();
    let namenode = session.cluster.namenode_http_port();
    let datanode = session.cluster.datanodes[0].port("dfs.datanode.http.address")?;
    let namenode = NAMENODE_ACTIVITY.iter().map(|name| (namenode, "NameNode", *name));
    for (port, server, name) in namenode.chain(DATANODE_ACTIVITY.iter().map(|name| (datanode, "DataNode", *name))) {
        let full = format!("Hadoop:service={server},name={name}");
        let bean = jmx_bean(port, &full)?;
        let own: Vec<&String> = bean.as_object().into_iter().flatten().map(|(attribute, _)| attribute).collect();
        if session.is_oracle() {
            ensure!(own.len() >= 5, "{full} of Apache's has {} attributes", own.len());
            // A call that failed is counted by its exception: here that of a DataNode that came before the NameNode was
            // ready, which happens in some runs only.
            let own: Vec<_> =
                own.into_iter().filter(|attribute| !attribute.starts_with("RetriableException")).collect();
            session.same_as_oracle(&full, json!(own))?;
            continue;
        }
        let Some(expected) = session.oracle(&full) else { bail!("the oracle has no {full}") };
        let expected = expected.as_array().into_iter().flatten().filter_map(Value::as_str);
        let missing: Vec<&str> = expected.filter(|attribute| !own.iter().any(|own| own == attribute)).collect();
        let rows = table.iter().filter(|(of_server, bean, _)| of_server.contains(server) && bean == name);
        let patterns: Vec<&String> = rows.flat_map(|(_, _, patterns)| patterns).collect();
        for attribute in &missing {
            if !patterns.iter().any(|pattern| is_like(pattern, attribute)) {
                wrong.push(format!("{full} lacks {attribute}, which {PAGE} does not list"));
            }
        }
        for pattern in patterns {
            if !missing.iter().any(|attribute| is_like(pattern, attribute)) {
                wrong.push(format!("{full}: {PAGE} lists {pattern}, which is not missing"));
            }
        }
    }
    ensure!(wrong.is_empty(), "the table of absent attributes is wrong:\n{}", wrong.join("\n"));
    Ok(())
}

/// Returns the name of a bean as the page has it: beans of Hadoop's without their server, and `*` for what varies.
fn general_name(server: &str, bean: &str) -> String {
    let name = bean.strip_prefix(&format!("Hadoop:service={server},name=")).unwrap_or(bean);
    let start = VARYING.iter().find(|start| name.len() > start.len() && name.starts_with(**start));
    if let Some(start) = start {
        return format!("{start}*");
    }
    // Such a name is `java.lang:name=Metaspace,type=MemoryPool`.
    let of_jvm = VARYING_OF_JVMS.iter().find(|start| name.starts_with(**start));
    match of_jvm.zip(name.split_once(",type=")) {
        Some((start, (_, kind))) => format!("{start}*,type={kind}"),
        None => name.to_owned(),
    }
}

/// Returns the names of all beans of a server.
fn bean_names(server: &str, port: u16) -> Result<BTreeSet<String>> {
    // Apache's servlet writes numbers of Java that JSON lacks.
    let text = get_text(port, "/jmx")?.replace(": NaN", ": null");
    let answer: Value = serde_json::from_str(&text).with_context(|| format!("/jmx of the {server}"))?;
    let beans = answer["beans"].as_array().with_context(|| format!("/jmx of the {server} has no list of beans"))?;
    let names = beans.iter().map(|bean| {
        let name = bean["name"].as_str().with_context(|| format!("a bean of the {server} has no name: {bean}"))?;
        Ok(general_name(server, name))
    });
    names.collect()
}

/// The table of absent beans has each bean that Apache's servers have and Hearth's lack, and no others.
fn listed_beans(session: &mut Session) -> Result<()> {
    let namenode = session.cluster.namenode_http_port();
    let datanode = session.cluster.datanodes[0].port("dfs.datanode.http.address")?;
    // The servers that lack a bean, by its name.
    let mut absent: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (server, port) in [("NameNode", namenode), ("DataNode", datanode)] {
        let own = bean_names(server, port)?;
        let key = format!("all beans of the {server}");
        if session.is_oracle() {
            ensure!(own.len() >= APACHES_BEANS_MIN, "Apache's {server} has {} beans: {own:?}", own.len());
            session.same_as_oracle(&key, json!(own))?;
            continue;
        }
        let Some(expected) = session.oracle(&key) else { bail!("the oracle has no {key}") };
        for bean in expected.as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !own.contains(bean) {
                absent.entry(bean.to_owned()).or_default().push(server);
            }
        }
    }
    if session.is_oracle() {
        return Ok(());
    }
    let listed: Vec<[String; 3]> = table("Absent beans")?;
    let expected = absent.iter().map(|(bean, servers)| {
        let bean = format!("`{bean}`");
        let reason = listed.iter().find(|[_, listed, _]| *listed == bean).map(|[_, _, reason]| reason.clone());
        [servers.join(", "), bean, reason.unwrap_or_default()]
    });
    let expected: Vec<[String; 3]> = expected.collect();
    let rows: Vec<String> = expected.iter().map(|cells| format!("| {} |", cells.join(" | "))).collect();
    ensure!(
        listed == expected,
        "the rows of \"Absent beans\" in {PAGE} are not these, whose last cells need a reason:\n{}",
        rows.join("\n")
    );
    Ok(())
}

/// Source: NamenodeHeartbeatService.java, `updateJMXParameters`: if one of these is missing, the router drops all
/// statistics.
fn attributes_of_the_router(session: &mut Session) -> Result<()> {
    const READ: &[&str] = &[
        "BlocksTotal",
        "CapacityRemaining",
        "CapacityTotal",
        "CapacityUsed",
        "FilesTotal",
        "NumDeadDataNodes",
        "NumDecomDeadDataNodes",
        "NumDecomLiveDataNodes",
        "NumDecommissioningDataNodes",
        "NumEnteringMaintenanceDataNodes",
        "NumInMaintenanceDeadDataNodes",
        "NumInMaintenanceLiveDataNodes",
        "NumLiveDataNodes",
        "NumStaleDataNodes",
        "PendingDeletionBlocks",
        "PendingReplicationBlocks",
        "PendingSPSPaths",
        "ProvidedCapacityTotal",
        "ScheduledReplicationBlocks",
        "UnderReplicatedBlocks",
    ];
    let port = session.cluster.namenode_http_port();
    let state = jmx_bean(port, "Hadoop:service=NameNode,name=FSNamesystemState")?;
    for name in READ {
        ensure!(state[name].is_u64(), "FSNamesystemState: {name} is {}", state[name]);
    }
    let info = jmx_bean(port, "Hadoop:service=NameNode,name=NameNodeInfo")?;
    for name in [
        "CorruptFilesCount",
        "NumberOfMissingBlocks",
        "NumberOfMissingBlocksWithReplicationFactorOne",
        "HighestPriorityLowRedundancyReplicatedBlocks",
        "HighestPriorityLowRedundancyECBlocks",
    ] {
        ensure!(info[name].is_u64(), "NameNodeInfo: {name} is {}", info[name]);
    }
    Ok(())
}

/// Apache's own router, with the NameNode as its only nameservice.
fn statistics_of_the_router(session: &mut Session) -> Result<()> {
    let here = |port: u16| format!("127.0.0.1:{port}");
    let [rpc, admin, http] = [(); 3].map(|()| free_port());
    let store = session.local("router-store")?.display().to_string();
    let conf = session.cluster.conf_with(
        "router",
        &[
            ("dfs.nameservices", "ns1"),
            ("dfs.namenode.rpc-address.ns1", &here(session.cluster.namenode_rpc_port())),
            ("dfs.namenode.http-address.ns1", &here(session.cluster.namenode_http_port())),
            ("dfs.federation.router.monitor.namenode", "ns1"),
            ("dfs.federation.router.monitor.localnamenode.enable", "false"),
            ("dfs.federation.router.default.nameserviceId", "ns1"),
            ("dfs.federation.router.rpc-address", &here(rpc)),
            ("dfs.federation.router.admin-address", &here(admin)),
            ("dfs.federation.router.http-address", &here(http)),
            ("dfs.federation.router.heartbeat.interval", "500"),
            ("dfs.federation.router.cache.ttl", "500ms"),
            (
                "dfs.federation.router.store.driver.class",
                "org.apache.hadoop.hdfs.server.federation.store.driver.impl.StateStoreFileImpl",
            ),
            ("dfs.federation.router.store.driver.file.directory", &store),
        ],
    )?;
    session.dfs(&["-mkdir", "-p", "/of/the/router"])?;
    let mut command =
        session.cluster.apache()?.java(&conf, "org.apache.hadoop.hdfs.server.federation.router.DFSRouter");
    let mut router = Process::start("router", &mut command, &session.cluster.directory().join("router.log"))?;
    let seen = wait_until("the router's statistics", Duration::from_secs(180), || {
        if router.exited()?.is_some() {
            return Ok(Some(Value::Null));
        }
        let Ok(state) = jmx_bean(http, "Hadoop:service=Router,name=FederationState") else { return Ok(None) };
        let counted = state["NumLiveNodes"] == 1 && state["TotalCapacity"].as_u64().is_some_and(|bytes| bytes > 0);
        Ok((counted && state["NumFiles"].as_u64().is_some_and(|files| files >= 4)).then_some(state))
    });
    let log = router.log_tail();
    router.kill();
    let state = seen?;
    ensure!(state.is_object(), "the router ended\n{log}");
    ensure!(state["NumDeadNodes"] == 0 && state["NumOfMissingBlocks"] == 0, "{state}");
    Ok(())
}
