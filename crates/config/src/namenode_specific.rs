//! Keys that are specific to one NameNode: they have the name of a nameservice, and optionally of a NameNode, as a
//! suffix.

use crate::{ConfigError, Configuration, HostPort, keys, parse};

/// Keys that may be set per nameservice or per namenode, including those that Hearth does not use.
/// Source: NameNode.java of Hadoop 3.4, `NAMENODE_SPECIFIC_KEYS`.
pub(crate) const NAMENODE_SPECIFIC_KEYS: &[&str] = &[
    "dfs.namenode.rpc-address",
    "dfs.namenode.rpc-bind-host",
    "dfs.namenode.name.dir",
    "dfs.namenode.edits.dir",
    "dfs.namenode.shared.edits.dir",
    "dfs.namenode.checkpoint.dir",
    "dfs.namenode.checkpoint.edits.dir",
    "dfs.namenode.lifeline.rpc-address",
    "dfs.namenode.lifeline.rpc-bind-host",
    "dfs.namenode.servicerpc-address",
    "dfs.namenode.servicerpc-bind-host",
    "dfs.namenode.http-address",
    "dfs.namenode.https-address",
    "dfs.namenode.http-bind-host",
    "dfs.namenode.https-bind-host",
    "dfs.namenode.keytab.file",
    "dfs.namenode.secondary.http-address",
    "dfs.namenode.secondary.https-address",
    "dfs.secondary.namenode.keytab.file",
    "dfs.namenode.backup.address",
    "dfs.namenode.backup.http-address",
    "dfs.namenode.backup.dnrpc-address",
    "dfs.namenode.kerberos.principal",
    "dfs.namenode.kerberos.internal.spnego.principal",
    "dfs.ha.fencing.methods",
    "dfs.ha.zkfc.port",
];

/// Keys that may be set per nameservice only. Source: the same, `NAMESERVICE_SPECIFIC_KEYS`.
pub(crate) const NAMESERVICE_SPECIFIC_KEYS: &[&str] = &["dfs.ha.automatic-failover.enabled"];

impl Configuration {
    /// Resolves the keys of one NameNode: for each key, `KEY.NS.NN` overrides `KEY.NS`, which overrides `KEY`. The
    /// result is stored under `KEY`; the names of the NameNode are stored under `dfs.nameservice.id` and
    /// `dfs.ha.namenode.id`.
    ///
    /// `is_here`: returns true for an address of this machine. It selects the nameservice if there are several and
    /// `dfs.nameservice.id` is not set. If no address matches, no nameservice is selected.
    ///
    /// Errors: several nameservices have an address of this machine.
    pub fn for_namenode(&self, is_here: impl Fn(&HostPort) -> bool) -> Result<Self, ConfigError> {
        let nameservice = match self.own_nameservice()? {
            Some(name) => Some(name),
            None => self.nameservice_at(is_here)?,
        };
        let namenode = self.own_namenode_id(nameservice.as_deref())?;
        let mut own = self.clone();
        let mut suffixes = Vec::new();
        if let Some(id) = &namenode {
            own.set(keys::DFS_HA_NAMENODE_ID.name, id);
            suffixes.push(nameservice.iter().chain([id]).map(String::as_str).collect::<Vec<_>>().join("."));
        }
        if let Some(name) = &nameservice {
            own.set(keys::DFS_NAMESERVICE_ID.name, name);
            suffixes.push(name.clone());
            for key in NAMESERVICE_SPECIFIC_KEYS {
                own.copy(&format!("{key}.{name}"), key)?;
            }
        }
        for key in NAMENODE_SPECIFIC_KEYS {
            for suffix in &suffixes {
                if own.copy(&format!("{key}.{suffix}"), key)? {
                    break;
                }
            }
        }
        Ok(own)
    }

    /// Returns the nameservice that a NameNode with this configuration serves: `dfs.nameservice.id`, or the only one of
    /// this cluster.
    pub fn own_nameservice(&self) -> Result<Option<String>, ConfigError> {
        match self.get(keys::DFS_NAMESERVICE_ID)? {
            Some(name) => Ok(Some(name)),
            None => Ok(<[String; 1]>::try_from(self.nameservices_here()?).ok().map(|[name]| name)),
        }
    }

    /// Returns the nameservice that has a namenode on this machine. If `dfs.ha.namenode.id` is set, only namenodes of
    /// that name count, as in Hadoop.
    fn nameservice_at(&self, is_here: impl Fn(&HostPort) -> bool) -> Result<Option<String>, ConfigError> {
        let id = self.get(keys::DFS_HA_NAMENODE_ID)?;
        let mut here = Vec::new();
        for name in self.nameservices_here()? {
            let mut suffixes: Vec<_> = self.namenode_ids(&name)?.into_iter().map(Some).collect();
            if suffixes.is_empty() {
                suffixes.push(None);
            }
            for suffix in suffixes.iter().filter(|suffix| id.is_none() || **suffix == id) {
                let key = keys::DFS_NAMENODE_RPC_ADDRESS.name;
                let key = match suffix {
                    Some(namenode) => format!("{key}.{name}.{namenode}"),
                    None => format!("{key}.{name}"),
                };
                if self.get_as(&key, parse::rpc_address)?.is_some_and(|address| is_here(&address)) {
                    here.push(name);
                    break;
                }
            }
        }
        if here.len() > 1 {
            let wanted = "set dfs.nameservice.id as well: several nameservices have an address of this machine";
            return Err(self.value_error(keys::DFS_NAMESERVICES.name, &here.join(","), wanted));
        }
        Ok(here.pop())
    }

    /// Returns `dfs.ha.namenode.id`, or the only configured name. Addresses are not compared to choose one of a pair:
    /// Hearth's NameNode is never part of a pair.
    fn own_namenode_id(&self, nameservice: Option<&str>) -> Result<Option<String>, ConfigError> {
        match (self.get(keys::DFS_HA_NAMENODE_ID)?, nameservice) {
            (None, Some(name)) => Ok(<[String; 1]>::try_from(self.namenode_ids(name)?).ok().map(|[id]| id)),
            (id, _) => Ok(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME_DIR: &str = "dfs.namenode.name.dir";

    fn with(settings: &[(&str, &str)]) -> Configuration {
        settings.iter().fold(Configuration::empty(), |conf, (key, value)| conf.with(key, *value))
    }

    fn nowhere(_: &HostPort) -> bool {
        false
    }

    #[test]
    fn most_specific_suffix_wins() {
        let common = [("dfs.nameservices", "ns1"), (NAME_DIR, "/all"), ("dfs.namenode.http-address", "all:1")];
        let of_service = [("dfs.namenode.name.dir.ns1", "/ns1"), ("dfs.namenode.rpc-address.ns1", "ns1:1")];
        let of_namenode = [("dfs.namenode.name.dir.ns1.a", "/a"), ("dfs.namenode.name.dir.ns1.b", "/b")];
        let read = |settings: &[&[(&str, &str)]]| with(&settings.concat()).for_namenode(nowhere).unwrap();
        let text = |conf: &Configuration, key: &str| conf.text(key).unwrap().unwrap();
        assert_eq!(text(&read(&[&common]), NAME_DIR), "/all");
        let own = read(&[&common, &of_service, &of_namenode]);
        assert_eq!(text(&own, NAME_DIR), "/ns1");
        assert_eq!(text(&own, "dfs.nameservice.id"), "ns1");
        assert_eq!(text(&own, "dfs.namenode.http-address"), "all:1");
        assert_eq!(own.single_namenode().unwrap().to_string(), "ns1:1");
        // With one name, and with an explicit one. A value that is not set for the namenode may be set for the
        // nameservice.
        for (ids, said) in [("b", &[][..]), ("a,b", &[("dfs.ha.namenode.id", "b")][..])] {
            let own = read(&[&common, &of_service, &of_namenode, &[("dfs.ha.namenodes.ns1", ids)], said]);
            assert_eq!(text(&own, NAME_DIR), "/b");
            assert_eq!(own.single_namenode().unwrap().to_string(), "ns1:1");
        }
        // Without a nameservice.
        assert_eq!(text(&read(&[&[("dfs.ha.namenode.id", "b"), ("dfs.namenode.name.dir.b", "/b")]]), NAME_DIR), "/b");
    }

    #[test]
    fn suffixed_value_may_refer_to_the_base_key() {
        let own_dir = ("dfs.namenode.name.dir.ns", "${dfs.namenode.name.dir}/ns");
        let conf = with(&[("dfs.nameservices", "ns"), (NAME_DIR, "/d"), own_dir]);
        assert_eq!(conf.for_namenode(nowhere).unwrap().text(NAME_DIR).unwrap().unwrap(), "/d/ns");
        // An empty value is ignored.
        let conf = conf.with("dfs.namenode.name.dir.ns", " ");
        assert_eq!(conf.for_namenode(nowhere).unwrap().text(NAME_DIR).unwrap().unwrap(), "/d");
    }

    #[test]
    fn nameservice_is_chosen_by_local_address() {
        let conf = with(&[
            ("dfs.nameservices", "ns1,ns2,ns3"),
            ("dfs.namenode.rpc-address.ns1", "one:1"),
            ("dfs.ha.namenodes.ns2", "a,b"),
            ("dfs.namenode.rpc-address.ns2.b", "two:2"),
            ("dfs.namenode.name.dir.ns1", "/ns1"),
            ("dfs.namenode.name.dir.ns2", "/ns2"),
            ("dfs.namenode.name.dir.ns3", "/ns3"),
            (NAME_DIR, "/all"),
        ]);
        let at = |conf: &Configuration, here: &[&str]| -> Result<String, ConfigError> {
            let own = conf.for_namenode(|address| here.contains(&address.host.as_str()))?;
            Ok(own.text(NAME_DIR)?.unwrap())
        };
        assert_eq!(at(&conf, &["one"]).unwrap(), "/ns1");
        assert_eq!(at(&conf, &["two"]).unwrap(), "/ns2");
        assert_eq!(at(&conf, &["elsewhere"]).unwrap(), "/all");
        let said = at(&conf, &["one", "two"]).unwrap_err().to_string();
        assert!(said.contains("ns1,ns2") && said.contains("dfs.nameservice.id"), "{said}");
        assert_eq!(at(&conf.clone().with("dfs.nameservice.id", "ns3"), &["one", "two"]).unwrap(), "/ns3");
        assert_eq!(at(&conf.clone().with("dfs.ha.namenode.id", "b"), &["one", "two"]).unwrap(), "/ns2");
        assert_eq!(at(&conf.with("dfs.internal.nameservices", "ns3"), &["one"]).unwrap(), "/ns3");
    }
}
