//! Every protocol, field by field: calls that Apache's NameNode and DataNode answer are sent to Hearth's, too.
//!
//! Java reads optional fields without a check if its own servers always send them, and programs in other languages rely
//! on the fields that Apache's servers set. So an answer must have the fields of Apache's. Their values must be equal
//! unless they depend on the machine. `docs/compatibility/rpc.md` names each method and each intended difference.

mod caller;
mod differences;
mod recorded;
mod schema;
mod script;
mod table;
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite, run};
use hearth_protocol::rpc::hadoop_methods;
use hearth_testkit::{ClusterSpec, Implementation, NamenodePorts, RecordingProxy, free_port, wait_until};
use hearth_wire::rpc::protocols;
use serde_json::{Value as Json, json};

use caller::{Caller, Heard};
use recorded::Seen;
use schema::Schema;

const CHECKS: &[Check] = &[
    ("the_table_names_every_method", table::names_every_method),
    ("client_answers_have_the_same_fields", clients),
    ("tool_answers_have_the_same_fields", tools),
    ("datanode_answers_have_the_same_fields", datanodes),
    ("real_program_answers_have_the_same_fields", real_programs),
    ("no_method_is_unknown", none_unknown),
];

const BLOCK: u64 = 1 << 20;

/// Proxies in front of the NameNodes, by the port that clients use. They listen before the clusters start.
static PROXIES: Mutex<BTreeMap<String, RecordingProxy>> = Mutex::new(BTreeMap::new());

fn main() -> ExitCode {
    let spec = |namenode: Implementation, datanodes: Implementation| {
        let ports = NamenodePorts { rpc: free_port(), seen: free_port() };
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let proxy = match RecordingProxy::start(local(ports.seen), local(ports.rpc)) {
            Ok(proxy) => proxy,
            Err(error) => panic!("no proxy: {error:#}"),
        };
        PROXIES.lock().expect("no thread panics with it").insert(ports.seen.to_string(), proxy);
        ClusterSpec::new(namenode, datanodes)
            .datanodes(2)
            .ports(ports)
            .set("dfs.blocksize", BLOCK)
            .set("dfs.namenode.redundancy.interval.seconds", 1)
            // With the default of five, a busy DataNode would have 62 ms to report a block.
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
            .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
    };
    let both = |change: fn(ClusterSpec) -> ClusterSpec| {
        [Implementation::Apache, Implementation::Hearth].map(|make| change(spec(make, make))).to_vec()
    };
    let with_tokens = |spec: ClusterSpec| spec.set("dfs.block.access.token.enable", true).labelled("tokens");
    run(&[
        Suite { name: "rpc", clusters: both(|spec| spec), checks: CHECKS },
        Suite { name: "rpc", clusters: both(with_tokens), checks: CHECKS },
    ])
}

/// Compares with Apache's answers, which come from the first cluster. `told`: the answers of one check.
fn compare(session: &mut Session, check: &str, told: Heard) -> Result<()> {
    if session.is_oracle() {
        ORACLE.lock().expect("no thread panics with it").insert(check.to_owned(), told);
        return Ok(());
    }
    let oracle = ORACLE.lock().expect("no thread panics with it");
    let apaches =
        oracle.get(check).context("what Apache's servers said; run the suite without a filter for one cluster")?;
    let found = differences::of(apaches, &told);
    ensure!(found.is_empty(), "{check}: {} differences that are not meant:\n{}", found.len(), found.join("\n"));
    Ok(())
}

/// Answers of Apache's servers, by check.
static ORACLE: Mutex<BTreeMap<String, Heard>> = Mutex::new(BTreeMap::new());

/// Writes the files that the scripts use, with Java.
fn prepare(session: &mut Session) -> Result<()> {
    let files = [
        (script::WRITTEN, BLOCK + 700),
        ("/written/part", 700),
        ("/written/part2", 700),
        ("/written/cut", 700),
        ("/written/c1", BLOCK),
        ("/written/c2", BLOCK),
        ("/s/old", 10),
        ("/s/gone", 10),
    ];
    for (path, length) in files {
        session.java()?.call("store", json!({"path": path, "seed": 1, "length": length}))?;
    }
    Ok(())
}

fn clients(session: &mut Session) -> Result<()> {
    prepare(session)?;
    let schema = Schema::read()?;
    let mut caller = Caller::connect(&schema, session.cluster.namenode_rpc_port(), &user()?)?;
    script::written_block(&mut caller)?;
    script::client(&mut caller)?;
    let asked: BTreeSet<&str> = caller.called.iter().map(|(_, method)| *method).collect();
    let of_clients = hadoop_methods().filter(|method| method.protocol == protocols::CLIENT);
    let never: Vec<&str> = of_clients.map(|method| method.name).filter(|name| !asked.contains(name)).collect();
    ensure!(never.is_empty(), "the script asks never for {never:?}");
    compare(session, "clients", caller.heard)
}

fn tools(session: &mut Session) -> Result<()> {
    let schema = Schema::read()?;
    let port = session.cluster.namenode_rpc_port();
    let mut caller = Caller::connect(&schema, port, &user()?)?;
    let block = script::written_block(&mut caller)?;
    let datanode = block["locs"][0]["id"].clone();
    script::others(&mut caller, &datanode)?;
    script::datanode_protocol(&mut caller)?;
    let mut heard = caller.heard;
    let mut stranger = Caller::connect(&schema, port, "stranger")?;
    script::stranger(&mut stranger, &datanode)?;
    heard.extend(stranger.heard);
    compare(session, "tools", heard)
}

fn datanodes(session: &mut Session) -> Result<()> {
    let schema = Schema::read()?;
    let mut caller = Caller::connect(&schema, session.cluster.namenode_rpc_port(), &user()?)?;
    let located = script::written_block(&mut caller)?;
    let block = located["b"].clone();
    let mut nothing = block.clone();
    nothing["block_id"] = (1u64 << 40).into();
    let port = |located: &Json, name: &str| -> Result<u16> {
        let number = located["locs"][0]["id"][name].as_u64().with_context(|| format!("no {name}"))?;
        Ok(u16::try_from(number)?)
    };
    let fresh = fresh_block(&mut caller)?;
    let reading = (port(&located, "xfer_port")?, &block);
    let writing = (port(&fresh, "xfer_port")?, &fresh["b"]);
    let mut heard = transfer::operations(&schema, reading, &nothing, writing)?;
    let mut datanode = Caller::connect(&schema, port(&located, "ipc_port")?, &user()?)?;
    script::datanode(&mut datanode, &block, &nothing)?;
    heard.extend(datanode.heard);
    compare(session, "datanodes", heard)
}

/// Allocates a block of a new file, on any DataNode.
fn fresh_block(caller: &mut Caller) -> Result<Json> {
    caller.call(
        protocols::CLIENT,
        "create",
        "",
        json!({
            "src": "/fresh", "masked": {"perm": 0o644}, "client_name": "fresh", "create_flag": 3, "create_parent": true,
            "replication": 1, "block_size": BLOCK,
        }),
    )?;
    let added = caller.call(protocols::CLIENT, "addBlock", "", json!({"src": "/fresh", "client_name": "fresh"}))?;
    added.get("block").cloned().context("a block")
}

/// Java and the DataNodes run, and the proxy in front of the NameNode has recorded its answers since the start.
fn real_programs(session: &mut Session) -> Result<()> {
    for (operation, arguments) in [
        ("store", json!({"path": "/real/one", "seed": 1, "length": 2 * BLOCK + 5})),
        ("store", json!({"path": "/real/two", "seed": 2, "length": BLOCK})),
        ("extend", json!({"path": "/real/one", "seed": 3, "length": 1000})),
        ("list", json!({"path": "/real"})),
        ("setrep", json!({"path": "/real/one", "replication": 2})),
        ("truncate", json!({"path": "/real/one", "length": BLOCK + 1})),
    ] {
        session.java()?.call(operation, arguments)?;
    }
    let within = Duration::from_secs(120);
    wait_until("the second replicas", within, || {
        let blocks = session.java()?.call("locations", json!({"path": "/real/one"}))?;
        let copied = blocks.as_array().is_some_and(|blocks| {
            blocks.len() == 2
                && blocks.iter().all(|block| block["names"].as_array().is_some_and(|names| names.len() == 2))
        });
        Ok(copied.then_some(()))
    })?;
    session.java()?.call("setrep", json!({"path": "/real/one", "replication": 1}))?;
    session.java()?.call("delete", json!({"path": "/real/two", "recursive": true}))?;
    session.cluster.apache()?.dfsadmin(session.cluster.conf(), ["-report"])?.success()?;
    let schema = Schema::read()?;
    let port = session.cluster.uri().rsplit(':').next().context("a port")?.to_owned();
    let look = || -> Result<Seen> {
        let mut seen = Seen::new();
        let recorded = PROXIES.lock().expect("no thread panics with it").get(&port).context("a proxy")?.recorded();
        for connection in &recorded {
            recorded::add(&schema, connection, &mut seen)?;
        }
        Ok(seen)
    };
    // The DataNodes fetch the commands to delete with later heartbeats.
    let seen = wait_until("the commands to delete", within, || {
        let seen = look()?;
        Ok(seen.keys().any(|name| name.ends_with(recorded::DELETION)).then_some(seen))
    })?;
    if session.is_oracle() {
        *SEEN.lock().expect("no thread panics with it") = seen;
        return Ok(());
    }
    let apaches = SEEN.lock().expect("no thread panics with it").clone();
    wait_until("the fields of Apache's NameNode", within, || {
        let missing = differences::unseen(&apaches, &look()?);
        ensure!(missing.is_empty(), "fields that Apache's NameNode sends and ours does not:\n{}", missing.join("\n"));
        Ok(Some(()))
    })
}

/// Protocols of a DataNode's IPC port. A NameNode has all others, except for the lifeline protocol, which has its own
/// port.
const OF_DATANODES: [&str; 2] = [protocols::CLIENT_DATANODE, protocols::INTER_DATANODE];

fn none_unknown(session: &mut Session) -> Result<()> {
    let schema = Schema::read()?;
    let ipc = session.cluster.datanodes[0].port("dfs.datanode.ipc.address")?;
    let mut datanode = Caller::connect(&schema, ipc, &user()?)?;
    let mut namenode = Caller::connect(&schema, session.cluster.namenode_rpc_port(), &user()?)?;
    let mut unknown = Vec::new();
    for method in hadoop_methods() {
        // The DataNode would shut down. The tests of proxy users cover the other one.
        let left_out = ["shutdownDatanode", "refreshSuperUserGroupsConfiguration"];
        if left_out.contains(&method.name) || method.protocol == protocols::DATANODE_LIFELINE {
            continue;
        }
        let server = if OF_DATANODES.contains(&method.protocol) { &mut datanode } else { &mut namenode };
        if !server.knows(&method)? {
            unknown.push(method);
        }
        let of_both = [protocols::RECONFIGURATION, protocols::PROTOCOL_INFO].contains(&method.protocol);
        if of_both && !datanode.knows(&method)? {
            unknown.push(method);
        }
    }
    ensure!(unknown.is_empty(), "unknown: {unknown:?}");
    Ok(())
}

static SEEN: Mutex<Seen> = Mutex::new(Seen::new());

/// Returns the user of the server processes, which is a superuser.
fn user() -> Result<String> {
    let output = std::process::Command::new("id").arg("-un").output().context("cannot start id")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
