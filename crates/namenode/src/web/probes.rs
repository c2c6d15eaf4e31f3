//! Pages of Apache's NameNode that tools ask for: whether it is active, the racks, the progress of the start.
//!
//! Source: Hadoop's `IsActiveServlet`, `NetworkTopologyServlet` and `StartupProgressServlet`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use hearth_web::Document;
use hearth_web::axum::http::{HeaderMap, header};
use serde_json::{Map, Value, json};

use crate::blocks::{DatanodeFilter, StartupSafeMode};
use crate::state::Namenode;

/// How the namespace was read at the start.
#[derive(Clone, Copy, Debug)]
pub struct Loading {
    pub took: Duration,
    /// Number of files and directories.
    pub inodes: u64,
}

/// This NameNode is always active.
pub fn is_active(_: &HeaderMap) -> Document {
    Document::text("I am Active!\n")
}

/// Live DataNodes by rack: as text, or as JSON for clients that accept it.
pub fn topology(namenode: &Namenode, headers: &HeaderMap) -> Document {
    let mut racks = BTreeMap::<String, BTreeSet<(String, String)>>::new();
    let live = namenode.read().blocks.datanode_reports(DatanodeFilter::Live);
    for report in live {
        let node = (report.info.id.transfer_address(), report.info.id.host_name);
        racks.entry(report.info.location).or_default().insert(node);
    }
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if accepted.is_some_and(|accepted| accepted.contains("json")) { json_of(&racks) } else { text_of(&racks) }
}

fn text_of(racks: &BTreeMap<String, BTreeSet<(String, String)>>) -> Document {
    let mut text = String::new();
    for (rack, nodes) in racks {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "Rack: {rack}");
        for (address, host) in nodes {
            let _ = writeln!(text, "   {address} ({host})");
        }
        text.push('\n');
    }
    if racks.is_empty() {
        text.push_str("No DataNodes");
    }
    Document::text(text)
}

fn json_of(racks: &BTreeMap<String, BTreeSet<(String, String)>>) -> Document {
    let list: Vec<Value> = racks
        .iter()
        .map(|(rack, nodes)| {
            let nodes: Vec<Value> =
                nodes.iter().map(|(address, host)| json!({ "hostname": host, "ip": address })).collect();
            Value::Object(Map::from_iter([(rack.clone(), Value::Array(nodes))]))
        })
        .collect();
    Document::json(&Value::Array(list))
}

/// The phases of the start. The web port opens when the namespace has been read, so only the last one, safe mode, may
/// still be running.
pub fn startup_progress(namenode: &Namenode, loading: Loading) -> Document {
    let now = namenode.now();
    let safe = namenode.read().blocks.startup_safe_mode(now);
    Document::json(&progress(loading, safe))
}

fn progress(loading: Loading, safe: StartupSafeMode) -> Value {
    let ms = |time: Duration| time.as_millis() as u64;
    let share = match (safe.is_over, safe.wanted_blocks) {
        (true, _) | (false, 0) => 1.0,
        (false, needed) => (safe.safe_blocks as f64 / needed as f64).min(1.0),
    };
    let phase = |name: &str, description: &str, took: Duration, steps: Vec<Value>| {
        json!({
            "name": name,
            "desc": description,
            "status": "COMPLETE",
            "percentComplete": 1.0,
            "elapsedTime": ms(took),
            "steps": steps,
        })
    };
    let step = |name: &str, description: &str, count: u64, total: u64, share: f64, took: Duration| {
        json!({
            "name": name,
            "desc": description,
            "count": count,
            "total": total,
            "percentComplete": share,
            "elapsedTime": ms(took),
        })
    };
    let inodes = step("Inodes", "inodes", loading.inodes, loading.inodes, 1.0, loading.took);
    let (reported, needed) = (safe.safe_blocks, safe.wanted_blocks);
    let blocks = step("AwaitingReportedBlocks", "awaiting reported blocks", reported, needed, share, safe.lasted);
    let mut safe_mode = phase("SafeMode", "Safe mode", safe.lasted, vec![blocks]);
    safe_mode["status"] = if safe.is_over { "COMPLETE" } else { "RUNNING" }.into();
    safe_mode["percentComplete"] = share.into();
    // One journal is read together with the tables, and there is no checkpoint to write.
    json!({
        "elapsedTime": ms(loading.took + safe.lasted),
        "percentComplete": (3.0 + share) / 4.0,
        "phases": [
            phase("LoadingFsImage", "Loading fsimage", loading.took, vec![inodes]),
            phase("LoadingEdits", "Loading edits", Duration::ZERO, Vec::new()),
            phase("SavingCheckpoint", "Saving checkpoint", Duration::ZERO, Vec::new()),
            safe_mode,
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn racks_are_listed_like_apaches() {
        let node = |address: &str, host: &str| (address.to_owned(), host.to_owned());
        let racks = BTreeMap::from([
            ("/b".to_owned(), BTreeSet::from([node("10.0.0.2:1", "b<1>")])),
            ("/a".to_owned(), BTreeSet::from([node("10.0.0.3:1", "a2"), node("10.0.0.1:1", "a1")])),
        ]);
        let text = "Rack: /a\n   10.0.0.1:1 (a1)\n   10.0.0.3:1 (a2)\n\nRack: /b\n   10.0.0.2:1 (b<1>)\n\n";
        assert_eq!(text_of(&racks).text, text);
        let json: Value = serde_json::from_str(&json_of(&racks).text).unwrap();
        assert_eq!(json[0]["/a"][1], json!({ "ip": "10.0.0.3:1", "hostname": "a2" }));
        assert_eq!(text_of(&BTreeMap::new()).text, "No DataNodes");
    }

    #[test]
    fn progress_ends_with_safe_mode() {
        let loading = Loading { took: Duration::from_millis(30), inodes: 5 };
        let safe = |safe_blocks, is_over| StartupSafeMode {
            safe_blocks,
            wanted_blocks: 10,
            lasted: Duration::from_secs(1),
            is_over,
        };
        let running = progress(loading, safe(5, false));
        assert_eq!((&running["elapsedTime"], &running["percentComplete"]), (&json!(1030), &json!(0.875)));
        assert_eq!(running["phases"][3]["status"], "RUNNING");
        assert_eq!(running["phases"][3]["steps"][0]["count"], 5);
        let over = progress(loading, safe(10, true));
        assert_eq!((&over["percentComplete"], &over["phases"][3]["status"]), (&json!(1.0), &json!("COMPLETE")));
    }
}
