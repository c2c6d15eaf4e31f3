//! Namenodes of the configuration: one address, or nameservices with several namenodes (high availability, federation).

use crate::{ConfigError, Configuration, HostPort, keys, parse};

/// Port of `hdfs://host` without a port.
pub const DEFAULT_RPC_PORT: u16 = 8020;

/// One namespace and the namenodes that can serve it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nameservice {
    /// Name of the nameservice. `None` if none is configured: a single namenode, identified by its address.
    pub id: Option<String>,
    /// The namenodes in configured order; at least one.
    pub namenodes: Vec<NamenodeAddress>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamenodeAddress {
    /// Name as in `dfs.ha.namenodes.NS`; `None` without high availability.
    pub id: Option<String>,
    pub rpc: HostPort,
    /// Address to which a datanode sends lifelines. `None` if the namenode accepts none, or if this is not for a
    /// datanode.
    pub lifeline: Option<HostPort>,
}

/// Names and addresses by which clients may refer to the namenodes that a datanode serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServedNamenodes {
    pub nameservices: Vec<String>,
    /// Addresses for clients and for datanodes.
    pub addresses: Vec<HostPort>,
}

impl Configuration {
    /// Returns the namenodes at which a datanode registers, with all their names and addresses in the configuration.
    ///
    /// Errors: the same as those of [`Self::datanode_nameservices`].
    pub fn served_namenodes(&self) -> Result<ServedNamenodes, ConfigError> {
        let nameservices = self.nameservices_here()?;
        let mut services = self.datanode_nameservices()?;
        for name in &nameservices {
            services.push(self.nameservice(name, false)?);
        }
        let of_services = services.into_iter().flat_map(|service| service.namenodes);
        let mut addresses: Vec<HostPort> = of_services.map(|namenode| namenode.rpc).collect();
        if nameservices.is_empty() {
            // The service address may be the only one that is configured.
            addresses.extend(self.single_namenode().ok());
        }
        Ok(ServedNamenodes { nameservices, addresses })
    }

    /// Returns the namenodes at which a datanode registers. For each nameservice (all, or `dfs.internal.nameservices`)
    /// and each of its namenodes, it uses the service address if set, else the RPC address, else the authority of
    /// `fs.defaultFS`. Without nameservices it uses `dfs.namenode.servicerpc-address` and `dfs.namenode.rpc-address` in
    /// the same way.
    ///
    /// Errors: `Missing` if none of them gives an address.
    pub fn datanode_nameservices(&self) -> Result<Vec<Nameservice>, ConfigError> {
        let names = self.nameservices_here()?;
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

    /// Returns the names of this cluster's nameservices: `dfs.internal.nameservices`, or all.
    pub(crate) fn nameservices_here(&self) -> Result<Vec<String>, ConfigError> {
        let internal = self.get(keys::DFS_INTERNAL_NAMESERVICES)?.unwrap_or_default();
        let all = self.get(keys::DFS_NAMESERVICES)?.unwrap_or_default();
        if let Some(unknown) = internal.iter().find(|name| !all.contains(name)) {
            let wanted = "wanted only names that are listed in dfs.nameservices";
            return Err(self.value_error(keys::DFS_INTERNAL_NAMESERVICES.name, unknown, wanted));
        }
        Ok(if internal.is_empty() { all } else { internal })
    }

    /// Returns the names of a nameservice's namenodes (`dfs.ha.namenodes.NS`). Empty without high availability.
    pub fn namenode_ids(&self, nameservice: &str) -> Result<Vec<String>, ConfigError> {
        Ok(self.get_as(&format!("dfs.ha.namenodes.{nameservice}"), parse::list)?.unwrap_or_default())
    }

    /// Returns the namenodes that a client uses for `authority` (the `host[:port]` or nameservice of an `hdfs://` URI).
    pub fn client_nameservice(&self, authority: &str) -> Result<Nameservice, ConfigError> {
        let name = authority.strip_suffix(":8020").unwrap_or(authority);
        if self.is_logical(name)? {
            return self.nameservice(name, false);
        }
        let rpc = HostPort::parse(authority, Some(DEFAULT_RPC_PORT))
            .map_err(|wanted| self.value_error(keys::FS_DEFAULT_FS.name, authority, wanted))?;
        Ok(Nameservice { id: None, namenodes: vec![NamenodeAddress { id: None, rpc, lifeline: None }] })
    }

    /// Returns the address of the single namenode: `dfs.namenode.rpc-address`, else the authority of `fs.defaultFS`.
    pub fn single_namenode(&self) -> Result<HostPort, ConfigError> {
        if let Some(address) = self.get(keys::DFS_NAMENODE_RPC_ADDRESS)? {
            return Ok(address);
        }
        match self.default_namenode()? {
            Some(address) => Ok(address),
            None => Err(ConfigError::Missing {
                key: keys::DFS_NAMENODE_RPC_ADDRESS.name.to_owned(),
                why: format!("and fs.defaultFS ({}) names no hdfs:// namenode", self.get(keys::FS_DEFAULT_FS)?),
            }),
        }
    }

    /// Returns the authority of `fs.defaultFS`, or `None` if that is not an hdfs:// URI.
    fn default_namenode(&self) -> Result<Option<HostPort>, ConfigError> {
        let default_fs = self.get(keys::FS_DEFAULT_FS)?;
        let Some(authority) = default_fs.strip_prefix("hdfs://") else { return Ok(None) };
        HostPort::parse(authority, Some(DEFAULT_RPC_PORT))
            .map(Some)
            .map_err(|wanted| self.value_error(keys::FS_DEFAULT_FS.name, &default_fs, wanted))
    }

    /// Returns true if the host of an `hdfs://` URI is a nameservice with namenodes of its own instead of a machine.
    fn is_logical(&self, name: &str) -> Result<bool, ConfigError> {
        let names = self.get(keys::DFS_NAMESERVICES)?.unwrap_or_default();
        Ok(names.iter().any(|known| known == name) && self.is_set(&format!("dfs.ha.namenodes.{name}")))
    }

    fn nameservice(&self, name: &str, for_datanode: bool) -> Result<Nameservice, ConfigError> {
        let ids = self.namenode_ids(name)?;
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
        if let Some(address) = self.get_as(&key, parse::rpc_address)? {
            return Ok(address);
        }
        // Source: DFSUtil.java, getNNServiceRpcAddressesForCluster. Apache's DataNode also accepts the name of a
        // nameservice, and then tries forever to resolve it as a host name.
        if for_datanode
            && let Some(address) = self.default_namenode()?
            && !self.is_logical(&address.host)?
        {
            return Ok(address);
        }
        Err(ConfigError::Missing { key, why: "the nameservice has no address".to_owned() })
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

    #[test]
    fn nameservice_without_addresses_uses_default_fs() {
        let conf = Configuration::empty().with("fs.defaultFS", "hdfs://h:9/").with("dfs.nameservices", "ns1");
        let services = conf.datanode_nameservices().unwrap();
        assert_eq!((services.len(), services[0].id.as_deref()), (1, Some("ns1")));
        assert_eq!(services[0].namenodes[0].rpc.to_string(), "h:9");
        // Keys of the nameservice take precedence; keys without a nameservice are ignored.
        let said = conf.clone().with("dfs.namenode.rpc-address", "g:1").with("dfs.namenode.rpc-address.ns1", "i:2");
        assert_eq!(said.datanode_nameservices().unwrap()[0].namenodes[0].rpc.to_string(), "i:2");
        // The name of a nameservice is not a host name.
        let logical = conf.with("fs.defaultFS", "hdfs://ns1").with("dfs.ha.namenodes.ns1", "a");
        let said = logical.datanode_nameservices().unwrap_err().to_string();
        assert!(said.contains("dfs.namenode.rpc-address.ns1.a"), "{said}");
    }
}
