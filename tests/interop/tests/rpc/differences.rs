//! Differences between the answers of two implementations, and the list of intended ones.

use std::collections::BTreeSet;

use crate::caller::{Heard, Said};
use crate::recorded::Seen;

/// Intended difference: the call, the field (`*` for the whole answer), and the reason. `docs/compatibility/rpc.md`
/// lists them.
struct Meant {
    call: &'static str,
    field: &'static str,
    #[allow(dead_code, reason = "for those who read the list")]
    why: &'static str,
}

const NO_ERASURE_CODING: &str = "erasure coding is not supported";
const NO_EDIT_LOG: &str = "there is no edit log, and nothing to make a checkpoint of";
const NO_HIGH_AVAILABILITY: &str = "a single NameNode is active; Apache's refuses without high availability";
const OTHER_KEYS: &str = "Hearth's servers change keys of their own, and not all of Apache's";
const BETTER_SAID: &str = "Apache's DataNode closes the connection without a word";

const fn meant(call: &'static str, field: &'static str, why: &'static str) -> Meant {
    Meant { call, field, why }
}

/// A `*` stands for any text.
const MEANT: &[Meant] = &[
    meant("addErasureCodingPolicies", "*", NO_ERASURE_CODING),
    meant("removeErasureCodingPolicy", "*", NO_ERASURE_CODING),
    meant("enableErasureCodingPolicy", "*", NO_ERASURE_CODING),
    meant("disableErasureCodingPolicy", "*", NO_ERASURE_CODING),
    meant("getECTopologyResultForPolicies", "*", NO_ERASURE_CODING),
    meant("getErasureCodingPolicies", "ec_policies", NO_ERASURE_CODING),
    meant("getErasureCodingPolicies", "ec_policies.id", NO_ERASURE_CODING),
    meant("getErasureCodingPolicies", "ec_policies.state", NO_ERASURE_CODING),
    meant("getErasureCodingCodecs", "codec", NO_ERASURE_CODING),
    meant("getErasureCodingCodecs", "codec.codec", NO_ERASURE_CODING),
    meant("getErasureCodingCodecs", "codec.coders", NO_ERASURE_CODING),
    meant("getCurrentEditLogTxid", "*", "there is no stream of namespace events"),
    meant("getEditsFromTxid", "*", "there is no stream of namespace events"),
    meant("metaSave", "*", "only a file name without a directory is taken"),
    meant("getHAServiceState", "*", NO_HIGH_AVAILABILITY),
    meant("getServiceStatus", "*", NO_HIGH_AVAILABILITY),
    meant(
        "getSnapshotDiffReportListing",
        "diff_report.created_entries.is_reference",
        "Java's client looks at it for entries that were deleted",
    ),
    meant("rollEditLog", "*", NO_EDIT_LOG),
    meant("getEditLogManifest", "*", NO_EDIT_LOG),
    meant("registerSubordinateNamenode", "*", NO_EDIT_LOG),
    meant("startCheckpoint", "*", NO_EDIT_LOG),
    meant("endCheckpoint", "*", NO_EDIT_LOG),
    meant("listReconfigurableProperties*", "name", OTHER_KEYS),
    meant("refreshNamenodes", "*", "the NameNodes are read at start"),
    meant("refresh", "*", "Apache's ends with a NullPointerException instead of its own words"),
    meant("getProtocolVersions", "*", "Apache's server fails on the kinds of RPC that it lacks"),
    meant("queryDiskBalancerPlan", "*", "there is no disk balancer in the DataNode"),
    meant("append: in a new block", "block.block_token.kind", "with tokens on: one more than is needed"),
    meant(
        "sendHeartbeat: that wants a lease",
        "cmds*",
        "with tokens on: the keys once more, which came at registration",
    ),
    meant("*", "message", "a text for people, where Apache's DataNode often sends none"),
    meant(
        "requestShortCircuitFds over TCP*",
        "status",
        "with tokens on: refused for TCP first, at Apache's for the token",
    ),
    meant("getReplicaVisibleLength*", "*", "with tokens on: the DataNode's RPC port asks for none"),
    meant("blockChecksum*, no such block", "*", BETTER_SAID),
    meant("copyBlock, no such block", "*", BETTER_SAID),
];

fn is_meant(call: &str, field: &str) -> bool {
    let fits = |pattern: &str, text: &str| match pattern.split_once('*') {
        Some((start, end)) => text.starts_with(start) && text.ends_with(end),
        None => pattern == text,
    };
    MEANT.iter().any(|meant| fits(meant.call, call) && fits(meant.field, field))
}

/// Returns every unintended difference, one per line.
pub fn of(apaches: &Heard, ours: &Heard) -> Vec<String> {
    let mut found = Vec::new();
    let names: BTreeSet<&String> = apaches.iter().chain(ours).map(|(name, _)| name).collect();
    for name in names {
        let (theirs, ours) = (all(apaches, name), all(ours, name));
        if theirs.len() != ours.len() {
            found.push(format!("{name}: asked {} times of Apache's, {} times of ours", theirs.len(), ours.len()));
        }
        for (theirs, ours) in theirs.into_iter().zip(ours) {
            one(name, theirs, ours, &mut found);
        }
    }
    found
}

fn all<'a>(heard: &'a Heard, name: &str) -> Vec<&'a Said> {
    heard.iter().filter(|(other, _)| other == name).map(|(_, said)| said).collect()
}

fn one(name: &str, theirs: &Said, ours: &Said, found: &mut Vec<String>) {
    let mut add = |field: &str, theirs: String, ours: String| {
        if !is_meant(name, field) {
            found.push(format!("  {name} | {field} | Apache: {theirs} | Hearth: {ours}"));
        }
    };
    let (Said::Answer(theirs), Said::Answer(ours)) = (theirs, ours) else {
        if theirs != ours {
            add("*", brief(theirs), brief(ours));
        }
        return;
    };
    let fields: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    for field in fields {
        let (theirs, ours) = (theirs.get(field), ours.get(field));
        if theirs != ours {
            let shown =
                |values: Option<&Vec<String>>| values.map_or("absent".to_owned(), |values| format!("{values:?}"));
            add(field, shown(theirs), shown(ours));
        }
    }
}

fn brief(said: &Said) -> String {
    match said {
        Said::Answer(fields) => format!("an answer with {:?}", fields.keys().collect::<Vec<_>>()),
        Said::Unknown => "an answer that the schema lacks".to_owned(),
        Said::Refused(class) => class.clone(),
    }
}

/// Returns fields that Apache's server sent in answers to a method that Hearth answered, too, but that Hearth never
/// sent.
pub fn unseen(apaches: &Seen, ours: &Seen) -> Vec<String> {
    let mut found = Vec::new();
    for (method, fields) in apaches {
        let Some(ours) = ours.get(method) else { continue };
        let missing = fields.difference(ours).filter(|field| !is_meant(method, field));
        found.extend(missing.map(|field| format!("  {method} | {field}")));
    }
    found
}
