//! What is said of one NameNode: keys with the name of its nameservice behind them, and perhaps its own.

use crate::{ConfigError, Configuration, HostPort, keys, parse};

/// Keys that may be said of a nameservice or of one of its namenodes, those that nobody here looks at included.
/// Source: NameNode.java of Hadoop 3.4, `NAMENODE_SPECIFIC_KEYS`.
const NAMENODE_SPECIFIC_KEYS: &[&str] = &[
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

/// Keys that may be said of a nameservice only. Source: the same, `NAMESERVICE_SPECIFIC_KEYS`.
const NAMESERVICE_SPECIFIC_KEYS: &[&str] = &["dfs.ha.automatic-failover.enabled"];

impl Configuration {
    /// As a NameNode is to read it: what is said of it (`KEY.NS.NN`), else of its nameservice (`KEY.NS`), stands under the key itself,
    /// whatever that said, and who it is under `dfs.nameservice.id` and `dfs.ha.namenode.id`.
    ///
    /// `is_here`: whether an address is one of this machine's. Asked when neither `dfs.nameservice.id` nor there being only one says
    /// which nameservice it is; where no address is, none of them.
    ///
    /// Errors: several nameservices have one.
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

    /// The nameservice that a NameNode with this configuration serves: `dfs.nameservice.id`, or the only one that this cluster has.
    pub fn own_nameservice(&self) -> Result<Option<String>, ConfigError> {
        match self.get(keys::DFS_NAMESERVICE_ID)? {
            Some(name) => Ok(Some(name)),
            None => Ok(<[String; 1]>::try_from(self.nameservices_here()?).ok().map(|[name]| name)),
        }
    }

    /// Of several nameservices the one with a namenode here. With `dfs.ha.namenode.id` only namenodes of that name count, as in Hadoop.
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
            let wanted = "wanted dfs.nameservice.id beside it: several have an address of this machine";
            return Err(self.value_error(keys::DFS_NAMESERVICES.name, &here.join(","), wanted));
        }
        Ok(here.pop())
    }

    /// `dfs.ha.namenode.id`, or the only name there is. Which of a pair is here is not looked for: Hearth's NameNode is none of a pair.
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
    fn the_nearest_suffix_counts() {
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
        // The only one, and one that is said; what is not said of the namenode may be said of the nameservice.
        for (ids, said) in [("b", &[][..]), ("a,b", &[("dfs.ha.namenode.id", "b")][..])] {
            let own = read(&[&common, &of_service, &of_namenode, &[("dfs.ha.namenodes.ns1", ids)], said]);
            assert_eq!(text(&own, NAME_DIR), "/b");
            assert_eq!(own.single_namenode().unwrap().to_string(), "ns1:1");
        }
        // Without a nameservice.
        assert_eq!(text(&read(&[&[("dfs.ha.namenode.id", "b"), ("dfs.namenode.name.dir.b", "/b")]]), NAME_DIR), "/b");
    }

    #[test]
    fn what_a_suffixed_key_refers_to_is_what_stood_under_the_key() {
        let own_dir = ("dfs.namenode.name.dir.ns", "${dfs.namenode.name.dir}/ns");
        let conf = with(&[("dfs.nameservices", "ns"), (NAME_DIR, "/d"), own_dir]);
        assert_eq!(conf.for_namenode(nowhere).unwrap().text(NAME_DIR).unwrap().unwrap(), "/d/ns");
        // An empty one says nothing.
        let conf = conf.with("dfs.namenode.name.dir.ns", " ");
        assert_eq!(conf.for_namenode(nowhere).unwrap().text(NAME_DIR).unwrap().unwrap(), "/d");
    }

    #[test]
    fn of_several_nameservices_it_is_the_one_that_is_here() {
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
