//! NameNodes that this DataNode's WebHDFS may contact: those that the DataNode serves. A request names the NameNode of
//! its file. Without this check, it could make this process read from any cluster and probe any port.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use hearth_config::{ConfigError, Configuration, HostPort, keys};
use hearth_web::webhdfs::Exception;

/// Port of a NameNode whose address has none. Source: `HdfsClientConfigKeys.DFS_NAMENODE_RPC_PORT_DEFAULT`.
const RPC_PORT: u16 = 8020;

/// Time-out of a name lookup.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// The NameNodes of the DataNode's configuration, and those added by `hearth.datanode.webhdfs.namenodes`.
pub(crate) struct ServedNamenodes {
    any: bool,
    /// Names of nameservices.
    names: Vec<String>,
    addresses: Vec<HostPort>,
}

impl ServedNamenodes {
    pub(crate) fn new(configuration: &Configuration) -> Result<Self, ConfigError> {
        let served = configuration.served_namenodes()?;
        let mut this = Self { any: false, names: served.nameservices, addresses: served.addresses };
        for more in configuration.get(keys::HEARTH_DATANODE_WEBHDFS_NAMENODES)? {
            match HostPort::parse(&more, None) {
                _ if more == "*" => this.any = true,
                Ok(address) => this.addresses.push(address),
                // Without a port it is a nameservice.
                Err(_) => this.names.push(more),
            }
        }
        Ok(this)
    }

    /// Returns the authority by which to reach `namenode`, the `host:port` or nameservice of a request.
    ///
    /// Errors: `AccessControlException` if it is not one of the NameNodes; `IllegalArgumentException` if it is not an
    /// address.
    pub(crate) async fn authority(&self, namenode: &str) -> Result<String, Exception> {
        let name = namenode.strip_suffix(":8020").unwrap_or(namenode);
        if self.any || self.names.iter().any(|known| known == name) {
            return Ok(namenode.to_owned());
        }
        let is_authority = |character: char| character.is_ascii_alphanumeric() || "-._:[]".contains(character);
        let asked = HostPort::parse(namenode, Some(RPC_PORT)).ok().filter(|_| namenode.chars().all(is_authority));
        let unusable = || Exception::illegal_argument(format!("{namenode:?} is not the address of a NameNode"));
        let asked = asked.ok_or_else(unusable)?;
        let same_port = || self.addresses.iter().filter(|known| known.port == asked.port);
        if same_port().any(|known| known.host.eq_ignore_ascii_case(&asked.host)) {
            return Ok(namenode.to_owned());
        }
        // One machine may have several names.
        if same_port().next().is_some() {
            let addresses = look_up(&asked).await;
            for known in same_port() {
                if !addresses.is_disjoint(&look_up(known).await) {
                    // Use the known name: the requested name may resolve to another machine the next time.
                    return Ok(known.to_string());
                }
            }
        }
        let class = "org.apache.hadoop.security.AccessControlException";
        let key = keys::HEARTH_DATANODE_WEBHDFS_NAMENODES.name;
        Err(Exception::new(
            class,
            format!("this DataNode does not serve the NameNode {namenode}; to allow it, add it to {key}"),
        ))
    }
}

/// Resolves a host. Returns no addresses if the name has none or the lookup times out.
async fn look_up(of: &HostPort) -> HashSet<IpAddr> {
    let found = tokio::time::timeout(LOOK_UP_TIMEOUT, tokio::net::lookup_host((of.host.as_str(), of.port))).await;
    match found {
        Ok(Ok(found)) => found.map(|address| address.ip().to_canonical()).collect(),
        Ok(Err(_)) | Err(_) => HashSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn authority(configuration: &Configuration, namenode: &str) -> Result<String, String> {
        let served = ServedNamenodes::new(configuration).unwrap();
        served.authority(namenode).await.map_err(|error| error.simple_name().to_owned())
    }

    #[tokio::test]
    async fn only_served_namenodes_are_contacted() {
        let single = Configuration::empty().with("fs.defaultFS", "hdfs://127.0.0.1:9");
        for (namenode, expected) in [
            ("127.0.0.1:9", Ok("127.0.0.1:9")),
            // Another name of the same NameNode.
            ("localhost:9", Ok("127.0.0.1:9")),
            ("127.0.0.1:10", Err("AccessControlException")),
            ("127.0.0.1", Err("AccessControlException")),
            ("127.0.0.2:9", Err("AccessControlException")),
            ("ns1", Err("AccessControlException")),
            ("", Err("IllegalArgumentException")),
            ("127.0.0.1:x", Err("IllegalArgumentException")),
        ] {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(authority(&single, namenode).await, expected, "{namenode}");
        }
        let more = single.clone().with("hearth.datanode.webhdfs.namenodes", "127.0.0.1:10,routers");
        for namenode in ["127.0.0.1:9", "127.0.0.1:10", "routers"] {
            assert_eq!(authority(&more, namenode).await, Ok(namenode.to_owned()));
        }
        assert!(authority(&more, "127.0.0.1:11").await.is_err());
        let any = single.with("hearth.datanode.webhdfs.namenodes", "*");
        assert_eq!(authority(&any, "127.0.0.1:11").await, Ok("127.0.0.1:11".to_owned()));
    }

    #[tokio::test]
    async fn all_addresses_of_nameservices_are_served() {
        let configuration = Configuration::empty()
            .with("dfs.nameservices", "one,two,other")
            .with("dfs.internal.nameservices", "one,two")
            .with("dfs.ha.namenodes.one", "a,b")
            .with("dfs.namenode.rpc-address.one.a", "127.0.0.1:1")
            .with("dfs.namenode.rpc-address.one.b", "127.0.0.1:2")
            .with("dfs.namenode.servicerpc-address.one.b", "127.0.0.1:3")
            .with("dfs.namenode.rpc-address.two", "127.0.0.1:4")
            .with("dfs.namenode.rpc-address.other", "127.0.0.1:5");
        for namenode in ["one", "one:8020", "two", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4"] {
            assert_eq!(authority(&configuration, namenode).await, Ok(namenode.to_owned()));
        }
        for namenode in ["other", "127.0.0.1:5"] {
            assert_eq!(authority(&configuration, namenode).await, Err("AccessControlException".to_owned()));
        }
    }
}
