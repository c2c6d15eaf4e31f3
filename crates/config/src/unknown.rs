//! Names of keys that are probably typing errors.
//!
//! Hadoop's programs ignore keys that they do not know, and a file may hold keys of any other program. So a key is
//! questioned only if it begins with `hearth.`, or if its name is almost that of a key that matters.

use crate::namenode_specific::{NAMENODE_SPECIFIC_KEYS, NAMESERVICE_SPECIFIC_KEYS};
use crate::{HadoopKey, Handling, KeyInfo, hadoop_keys, keys};

/// Keys that are followed by a name that users choose.
const FAMILIES: [&str; 3] = ["dfs.client.failover.proxy.provider.", "dfs.datanode.du.reserved.", "dfs.ha.namenodes."];

const PROXY_USERS: &str = "hadoop.proxyuser.";
const PROXY_USER_PARTS: [&str; 3] = ["groups", "hosts", "users"];

/// First parts that users confuse, the right ones first.
const FIRST_PARTS: [&str; 10] = ["dfs", "hearth", "hadoop", "fs", "ipc", "io", "net", "hdfs", "core", "common"];
/// Second parts that users confuse.
const SECOND_PARTS: [&str; 4] = ["namenode", "datanode", "client", ""];

/// Names shorter than this are compared with at most one difference, because they resemble each other too much.
const LONG_NAME: usize = 12;

/// A name that is probably wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Questionable {
    /// No key has this name. The suggestion is the name of one.
    Unknown { suggestion: Option<String> },
    /// The name ends with a nameservice that is not configured.
    Nameservice { name: String },
}

/// Questions the name of a key. `nameservices`: configured names of nameservices and of this NameNode.
pub(crate) fn question(name: &str, nameservices: &[String]) -> Option<Questionable> {
    if is_known(name) || FAMILIES.iter().any(|family| name.starts_with(family)) {
        return None;
    }
    if let Some(rest) = name.strip_prefix(PROXY_USERS) {
        let (user, part) = rest.rsplit_once('.').unwrap_or((rest, ""));
        if PROXY_USER_PARTS.contains(&part) {
            return None;
        }
        let nearest = PROXY_USER_PARTS.into_iter().find(|known| distance(part, known, 2).is_some());
        let suggestion = nearest.map(|part| format!("{PROXY_USERS}{user}.{part}"));
        return Some(Questionable::Unknown { suggestion });
    }
    let specific = NAMENODE_SPECIFIC_KEYS.iter().chain(NAMESERVICE_SPECIFIC_KEYS);
    let suffix = specific.filter_map(|key| name.strip_prefix(key)?.strip_prefix('.')).min_by_key(|suffix| suffix.len());
    if let Some(suffix) = suffix {
        let is_configured =
            nameservices.iter().any(|known| suffix.strip_prefix(known.as_str()).is_some_and(is_end_of_name));
        let name = suffix.split('.').next().unwrap_or(suffix).to_owned();
        return (!is_configured).then_some(Questionable::Nameservice { name });
    }
    let suggestion = suggestion(name).map(str::to_owned).or_else(|| with_nameservice(name, nameservices));
    let is_questionable = suggestion.is_some() || name.starts_with("hearth.");
    is_questionable.then_some(Questionable::Unknown { suggestion })
}

fn is_end_of_name(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('.')
}

/// Returns true for the name of a key of Hearth or Hadoop.
fn is_known(name: &str) -> bool {
    KeyInfo::of(name).is_some()
        || HadoopKey::of(name).is_some()
        || keys::JAVA_KEYS.contains(&name)
        || NAMENODE_SPECIFIC_KEYS.contains(&name)
        || NAMESERVICE_SPECIFIC_KEYS.contains(&name)
}

/// Returns all names of Hearth's keys, and of Hadoop's that have a meaning for Hearth.
fn names_that_matter() -> impl Iterator<Item = &'static str> {
    let of_hadoop = hadoop_keys().iter().filter(|row| row.handling != Handling::NotApplicable).map(|row| row.name);
    let names = keys::ALL.iter().map(|key| key.name).chain(keys::JAVA_KEYS).chain(of_hadoop);
    names.filter(|name| !name.contains('['))
}

/// Returns the name of the key that was probably meant: the same but for case and separators, with another first or
/// second part, or with at most two differing characters. `name`: not the name of a key.
pub fn suggestion(name: &str) -> Option<&'static str> {
    let of_hadoop = hadoop_keys().iter().map(|row| row.name);
    let mut all = names_that_matter().chain(of_hadoop);
    if let Some(found) = all.find(|known| folded(known).eq(folded(name))) {
        return Some(found);
    }
    let other_parts = with_other_parts(name);
    if let Some(found) = other_parts.iter().find_map(|other| names_that_matter().find(|known| known == other)) {
        return Some(found);
    }
    let limit = if name.len() < LONG_NAME { 1 } else { 2 };
    let near = names_that_matter().filter_map(|known| Some((distance(name, known, limit)?, known)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// Returns the characters of a name without separators, in lower case.
fn folded(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().filter(|byte| !b".-_ ".contains(byte)).map(|byte| byte.to_ascii_lowercase())
}

/// Returns the name with the first part added, removed or exchanged, and with other second parts.
fn with_other_parts(name: &str) -> Vec<String> {
    let mut others: Vec<String> = FIRST_PARTS.iter().map(|first| format!("{first}.{name}")).collect();
    let Some((first, rest)) = name.split_once('.') else { return others };
    if !FIRST_PARTS.contains(&first) {
        return others;
    }
    others.push(rest.to_owned());
    others.extend(FIRST_PARTS.iter().map(|first| format!("{first}.{rest}")));
    if ["dfs", "hearth"].contains(&first) {
        let tail = match rest.split_once('.') {
            Some((second, tail)) if SECOND_PARTS.contains(&second) => tail,
            _ => rest,
        };
        for second in SECOND_PARTS {
            let separator = if second.is_empty() { "" } else { "." };
            others.push(format!("{first}.{second}{separator}{tail}"));
        }
    }
    others
}

/// Returns a suggestion for a name with a suffix such as `.NAMESERVICE.NAMENODE`.
fn with_nameservice(name: &str, nameservices: &[String]) -> Option<String> {
    nameservices.iter().find_map(|nameservice| {
        let (at, _) = name.match_indices(&format!(".{nameservice}")).last()?;
        let (key, suffix) = name.split_at(at);
        is_end_of_name(&suffix[1 + nameservice.len()..]).then_some(())?;
        let meant = suggestion(key).filter(|meant| NAMENODE_SPECIFIC_KEYS.contains(meant))?;
        Some(format!("{meant}{suffix}"))
    })
}

/// Returns the number of characters to insert, delete, replace, or exchange with the next one, to get from `left` to
/// `right`. `None` if it is greater than `limit`.
fn distance(left: &str, right: &str, limit: usize) -> Option<usize> {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len().abs_diff(right.len()) > limit {
        return None;
    }
    // Three rows of the table of distances between the beginnings of both names.
    let mut before = vec![0; right.len() + 1];
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (row, from) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, to) in right.iter().enumerate() {
            let replaced = last[column] + usize::from(from != to);
            let mut least = replaced.min(last[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && *from == right[column - 1] && left[row - 1] == *to {
                least = least.min(before[column - 1] + 1);
            }
            current.push(least);
        }
        before = std::mem::replace(&mut last, current);
    }
    Some(last[right.len()]).filter(|distance| *distance <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suggested(name: &str) -> Option<String> {
        match question(name, &["ns1".to_owned()]) {
            Some(Questionable::Unknown { suggestion }) => Some(suggestion.unwrap_or_default()),
            Some(other) => panic!("{name}: {other:?}"),
            None => None,
        }
    }

    #[test]
    fn probable_names_are_suggested() {
        for (wrong, right) in [
            // Differing characters, transposed ones included.
            ("dfs.replicaton", "dfs.replication"),
            ("dfs.replicatoin", "dfs.replication"),
            ("hearth.memroy.limit", "hearth.memory.limit"),
            // Case and separators.
            ("dfs.namenode.handlercount", "dfs.namenode.handler.count"),
            ("dfs.blockSize", "dfs.blocksize"),
            ("fs.defaultfs", "fs.defaultFS"),
            ("dfs.namenode.http.address", "dfs.namenode.http-address"),
            ("dfs_replication", "dfs.replication"),
            ("hearth.memory-limit", "hearth.memory.limit"),
            // First and second parts.
            ("hdfs.replication", "dfs.replication"),
            ("namenode.name.dir", "dfs.namenode.name.dir"),
            ("hadoop.dfs.blocksize", "dfs.blocksize"),
            ("dfs.memory.limit", "hearth.memory.limit"),
            ("hearth.blocksize", "dfs.blocksize"),
            ("dfs.namenode.failed.volumes.tolerated", "dfs.datanode.failed.volumes.tolerated"),
            ("hearth.stream.nice", "hearth.datanode.stream.nice"),
            // Suffixes.
            ("dfs.namenode.rpc-adress.ns1.a", "dfs.namenode.rpc-address.ns1.a"),
            ("hadoop.proxyuser.hive.host", "hadoop.proxyuser.hive.hosts"),
        ] {
            assert_eq!(suggested(wrong).as_deref(), Some(right), "{wrong}");
        }
        for without in ["hearth.no.such.key", "hadoop.proxyuser.hive"] {
            assert_eq!(suggested(without).as_deref(), Some(""), "{without}");
        }
    }

    #[test]
    fn keys_of_other_programs_are_not_questioned() {
        for name in [
            "my.own",
            "yarn.resourcemanager.hostname",
            "mapreduce.client.submit.file.replication",
            "fs.gs.impl",
            "fs.s3n.impl",
            "fs.viewfs.mounttable.cluster.link./data",
            "dfs.federation.router.rpc-address",
            "hive.exec.scratchdir",
            "hbase.rootdir",
            "ha.zookeeper.quorum",
            "ipc.8020.backoff.enable",
            "dfs.datanode.du.reserved.ssd",
            "dfs.datanode.du.reserved./data/1.disk",
            "dfs.ha.namenodes.ns1",
            "dfs.client.failover.proxy.provider.ns1",
            "hadoop.proxyuser.hive.hosts",
            "hearth.java.required",
            "dfs.namenode.rpc-address.ns1.nn1",
            "dfs.namenode.name.dir.ns1",
            "dfs.namenode.backup.dnrpc-address",
        ] {
            assert_eq!(question(name, &["ns1".to_owned()]), None, "{name}");
        }
        for key in keys::ALL.iter().map(|key| key.name).chain(hadoop_keys().iter().map(|row| row.name)) {
            assert_eq!(question(key, &[]), None, "{key}");
        }
    }

    #[test]
    fn unknown_nameservice_is_questioned() {
        let names = ["ns1".to_owned()];
        let wrong = Some(Questionable::Nameservice { name: "ns2".to_owned() });
        assert_eq!(question("dfs.namenode.rpc-address.ns2.a", &names), wrong);
        assert_eq!(question("dfs.namenode.rpc-address.ns2", &names), wrong);
        assert_eq!(question("dfs.namenode.rpc-address.ns2", &["ns2".to_owned()]), None);
        let longer = Some(Questionable::Nameservice { name: "ns11".to_owned() });
        assert_eq!(question("dfs.namenode.rpc-address.ns11", &names), longer);
    }

    #[test]
    fn distances() {
        assert_eq!(distance("abc", "abc", 2), Some(0));
        assert_eq!(distance("abc", "acb", 2), Some(1));
        assert_eq!(distance("abc", "abcd", 2), Some(1));
        assert_eq!(distance("abc", "ac", 2), Some(1));
        assert_eq!(distance("abc", "axcx", 2), Some(2));
        assert_eq!(distance("abc", "xyz", 2), None);
        assert_eq!(distance("", "abc", 2), None);
    }
}
