//! Which namenodes there are: one address, or nameservices with several (high availability, federation).

use crate::{ConfigError, Configuration, HostPort, keys, parse};

/// The port of `hdfs://host` without one.
pub const DEFAULT_RPC_PORT: u16 = 8020;

/// One namespace and the namenodes that can serve it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nameservice {
    /// `None` when none is configured: a single namenode, named by its address.
    pub id: Option<String>,
    /// In configured order; at least one.
    pub namenodes: Vec<NamenodeAddress>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamenodeAddress {
    /// As in `dfs.ha.namenodes.NS`; `None` without high availability.
    pub id: Option<String>,
    pub rpc: HostPort,
    /// Where a datanode sends lifelines; `None`: it takes none, or this is not for a datanode.
    pub lifeline: Option<HostPort>,
}

impl Configuration {
    /// Where a datanode registers: for each nameservice (all, or `dfs.internal.nameservices`), for each of its namenodes
    /// the service address when set, else the RPC address; without nameservices, `dfs.namenode.servicerpc-address`,
    /// `dfs.namenode.rpc-address` or the authority of `fs.defaultFS`.
    ///
    /// Errors: `Missing` when none of them says where a namenode is.
    pub fn datanode_nameservices(&self) -> Result<Vec<Nameservice>, ConfigError> {
        let internal = self.get(keys::DFS_INTERNAL_NAMESERVICES)?.unwrap_or_default();
        let all = self.get(keys::DFS_NAMESERVICES)?.unwrap_or_default();
        for name in &internal {
            if !all.contains(name) {
                let wanted = "wanted only names that stand in dfs.nameservices";
                return Err(self.value_error(keys::DFS_INTERNAL_NAMESERVICES.name, name, wanted));
            }
        }
        let names = if internal.is_empty() { all } else { internal };
        if names.is_empty() {
            let service = self.get(keys::DFS_NAMENODE_SERVICERPC_ADDRESS)?;
            let rpc = match service {
                Some(address) => address,
                None => self.single_namenode()?,
            };
            let lifeline = self.get(keys::DFS_NAMENODE_LIFELINE_RPC_ADDRESS)?;
            return Ok(vec![Nameservice { id: None, namenodes: vec![NamenodeAddress { id: None, rpc, lifeline }] }]);
        }
        names.iter().map(|name| self.nameservice(name, true)).collect()
    }

    /// The nameservice that a NameNode with this configuration serves, if that has a name (`dfs.nameservice.id`, or the only one) and
    /// addresses.
    pub fn own_nameservice(&self) -> Result<Option<Nameservice>, ConfigError> {
        let id = self.get(keys::DFS_NAMESERVICE_ID)?;
        let names = self.get(keys::DFS_NAMESERVICES)?.unwrap_or_default();
        let Some(name) = id.or_else(|| <[String; 1]>::try_from(names).ok().map(|[name]| name)) else { return Ok(None) };
        let has_addresses = [format!("dfs.ha.namenodes.{name}"), format!("dfs.namenode.rpc-address.{name}")]
            .iter()
            .any(|key| self.is_set(key));
        if has_addresses { self.nameservice(&name, false).map(Some) } else { Ok(None) }
    }

    /// Where a client finds `authority` (the `host[:port]` or nameservice of an `hdfs://` URI).
    pub fn client_nameservice(&self, authority: &str) -> Result<Nameservice, ConfigError> {
        let name = authority.strip_suffix(":8020").unwrap_or(authority);
        let logical = self.get(keys::DFS_NAMESERVICES)?.unwrap_or_default().iter().any(|known| known == name)
            && self.is_set(&format!("dfs.ha.namenodes.{name}"));
        if logical {
            return self.nameservice(name, false);
        }
        let rpc = HostPort::parse(authority, Some(DEFAULT_RPC_PORT))
            .map_err(|wanted| self.value_error(keys::FS_DEFAULT_FS.name, authority, wanted))?;
        Ok(Nameservice { id: None, namenodes: vec![NamenodeAddress { id: None, rpc, lifeline: None }] })
    }

    /// The address of the one namenode: `dfs.namenode.rpc-address`, else the authority of `fs.defaultFS`.
    pub fn single_namenode(&self) -> Result<HostPort, ConfigError> {
        if let Some(address) = self.get(keys::DFS_NAMENODE_RPC_ADDRESS)? {
            return Ok(address);
        }
        let default_fs = self.get(keys::FS_DEFAULT_FS)?;
        match default_fs.strip_prefix("hdfs://") {
            Some(authority) => HostPort::parse(authority, Some(DEFAULT_RPC_PORT))
                .map_err(|wanted| self.value_error(keys::FS_DEFAULT_FS.name, &default_fs, wanted)),
            None => Err(ConfigError::Missing {
                key: keys::DFS_NAMENODE_RPC_ADDRESS.name.to_owned(),
                why: format!("and fs.defaultFS ({default_fs}) names no hdfs:// namenode"),
            }),
        }
    }

    fn nameservice(&self, name: &str, for_datanode: bool) -> Result<Nameservice, ConfigError> {
        let ids = self.get_as(&format!("dfs.ha.namenodes.{name}"), parse::list)?.unwrap_or_default();
        let namenodes = if ids.is_empty() {
            let lifeline = self.lifeline_of(name, for_datanode)?;
            vec![NamenodeAddress { id: None, rpc: self.namenode_of(name, for_datanode)?, lifeline }]
        } else {
            let one = |id: &String| {
                let suffix = format!("{name}.{id}");
                let rpc = self.namenode_of(&suffix, for_datanode)?;
                Ok(NamenodeAddress { id: Some(id.clone()), rpc, lifeline: self.lifeline_of(&suffix, for_datanode)? })
            };
            ids.iter().map(one).collect::<Result<_, ConfigError>>()?
        };
        Ok(Nameservice { id: Some(name.to_owned()), namenodes })
    }

    fn lifeline_of(&self, suffix: &str, for_datanode: bool) -> Result<Option<HostPort>, ConfigError> {
        if !for_datanode {
            return Ok(None);
        }
        self.get_as(&format!("{}.{suffix}", keys::DFS_NAMENODE_LIFELINE_RPC_ADDRESS.name), parse::rpc_address)
    }

    fn namenode_of(&self, suffix: &str, for_datanode: bool) -> Result<HostPort, ConfigError> {
        if for_datanode
            && let Some(address) =
                self.get_as(&format!("{}.{suffix}", keys::DFS_NAMENODE_SERVICERPC_ADDRESS.name), parse::rpc_address)?
        {
            return Ok(address);
        }
        let key = format!("{}.{suffix}", keys::DFS_NAMENODE_RPC_ADDRESS.name);
        self.get_as(&key, parse::rpc_address)?
            .ok_or_else(|| ConfigError::Missing { key, why: "the nameservice has no address".to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ha() -> Configuration {
        Configuration::empty()
            .with("fs.defaultFS", "hdfs://ns1")
            .with("dfs.nameservices", "ns1, ns2")
            .with("dfs.ha.namenodes.ns1", "a,b")
            .with("dfs.namenode.rpc-address.ns1.a", "ha:1")
            .with("dfs.namenode.rpc-address.ns1.b", "hb:2")
            .with("dfs.namenode.servicerpc-address.ns1.b", "hb:3")
            .with("dfs.namenode.rpc-address.ns2", "hc")
    }

    #[test]
    fn nameservices_with_and_without_ha() {
        let services = ha().datanode_nameservices().unwrap();
        let shown: Vec<Vec<String>> =
            services.iter().map(|s| s.namenodes.iter().map(|n| n.rpc.to_string()).collect()).collect();
        assert_eq!(shown, [vec!["ha:1", "hb:3"], vec!["hc:8020"]]);
        let client = ha().client_nameservice("ns1").unwrap();
        assert_eq!(client.namenodes[1].rpc.port, 2);
        assert_eq!(ha().client_nameservice("other:5").unwrap().namenodes[0].rpc.to_string(), "other:5");
        let only = ha().with("dfs.internal.nameservices", "ns2").datanode_nameservices().unwrap();
        assert_eq!(only.len(), 1);
    }

    #[test]
    fn a_single_namenode_from_the_default_file_system() {
        let conf = Configuration::empty().with("fs.defaultFS", "hdfs://h:9");
        assert_eq!(conf.datanode_nameservices().unwrap()[0].namenodes[0].rpc.to_string(), "h:9");
        assert!(Configuration::empty().datanode_nameservices().is_err());
        assert!(ha().with("dfs.internal.nameservices", "ns9").datanode_nameservices().is_err());
    }
}
