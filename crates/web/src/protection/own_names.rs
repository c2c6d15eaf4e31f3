//! Names by which browsers may address this server: the header `Host` of changes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use hearth_config::{ConfigError, Configuration, keys};

/// Keys whose values have names of this server, or of others of its cluster. Also with a suffix, such as a nameservice.
const ADDRESSES: [&str; 6] = [
    keys::FS_DEFAULT_FS.name,
    keys::DFS_NAMENODE_RPC_ADDRESS.name,
    keys::DFS_NAMENODE_SERVICERPC_ADDRESS.name,
    keys::DFS_NAMENODE_HTTP_ADDRESS.name,
    keys::DFS_DATANODE_HTTP_ADDRESS.name,
    keys::DFS_DATANODE_HOSTNAME.name,
];

/// Configuration of the machine's resolver: see resolv.conf(5).
const RESOLVER: &str = "/etc/resolv.conf";

/// Names of this server, in lower case. Addresses are always known: a site cannot rebind them.
#[derive(Debug)]
pub struct OwnNames(BTreeSet<String>);

impl OwnNames {
    /// Collects `localhost`, the name of this machine, names in configured addresses, and those of `hearth.web.hosts`.
    ///
    /// `host_name`: the name of this machine, short or full. If it is short, the full name is assumed to be in the
    /// domain of a configured address, or in one that the machine searches for short names.
    pub fn read(conf: &Configuration, host_name: &str) -> Result<Self, ConfigError> {
        let is_address = |name: &str| {
            let mut suffixes = ADDRESSES.iter().filter_map(|key| name.strip_prefix(*key));
            suffixes.any(|suffix| suffix.is_empty() || suffix.starts_with('.'))
        };
        let own = host(host_name);
        let short = short(&own).to_owned();
        let mut names: BTreeSet<String> = ["localhost".to_owned(), own, short.clone()].into();
        for key in conf.names().filter(|name| is_address(name)) {
            // A value that cannot be read is reported where it is needed.
            let Ok(Some(value)) = conf.text(key) else { continue };
            let authority = value.split_once("://").map_or(&*value, |(_, rest)| rest);
            let name = host(authority.split('/').next().unwrap_or_default());
            if name.is_empty() || name.parse::<IpAddr>().is_ok() {
                continue;
            }
            if let Some((first, domain)) = name.split_once('.') {
                names.extend([first.to_owned(), format!("{short}.{domain}")]);
            }
            names.insert(name);
        }
        let resolver = std::fs::read_to_string(RESOLVER).unwrap_or_default();
        names.extend(search_domains(&resolver).map(|domain| format!("{short}.{domain}")));
        names.extend(conf.get(keys::HEARTH_WEB_HOSTS)?.iter().map(|name| host(name)));
        Ok(Self(names))
    }

    /// Returns true if the value of a header `Host` is an address or one of the names.
    pub fn contains(&self, header: &str) -> bool {
        let name = host(header);
        name.parse::<IpAddr>().is_ok() || self.0.contains(&name)
    }
}

/// Returns the host of `host:port`, `host` or `[address]:port`, in lower case and without brackets.
fn host(authority: &str) -> String {
    let name = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split_once(':').map_or(authority, |(name, _)| name),
    };
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Returns the domains, in lower case, in which short names are searched.
fn search_domains(resolver: &str) -> impl Iterator<Item = String> {
    let lines = resolver.lines().map(str::split_whitespace);
    let domains =
        lines.filter_map(|mut words| words.next().filter(|word| ["search", "domain"].contains(word)).map(|_| words));
    domains.flatten().map(host)
}

/// Returns the first part of a name.
fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(host_name: &str, set: &[(&str, &str)]) -> OwnNames {
        let conf = set.iter().fold(Configuration::empty(), |conf, (key, value)| conf.with(key, *value));
        OwnNames::read(&conf, host_name).unwrap()
    }

    #[test]
    fn names_come_from_machine_addresses_and_key() {
        let own = names(
            "dn7",
            &[
                ("fs.defaultFS", "hdfs://nn1.Corp.example:8020/"),
                ("dfs.namenode.http-address.ns1.nn2", "nn2.other.example:9870"),
                ("dfs.datanode.http.address", "0.0.0.0:9864"),
                ("hearth.web.hosts", "hdfs.example,Proxy"),
            ],
        );
        for known in [
            "localhost:9864",
            "dn7",
            "DN7:9864",
            "dn7.corp.example:9864",
            "dn7.other.example.",
            "nn1.corp.example:9870",
            "nn1",
            "nn2.other.example",
            "hdfs.example:80",
            "proxy",
            "192.0.2.1",
            "192.0.2.1:9864",
            "[2001:db8::1]:9864",
        ] {
            assert!(own.contains(known), "{known}");
        }
        for unknown in ["", "evil.example", "dn7.evil.example", "nn1.evil.example", "corp.example", "dn7.0.0.0", ":80"]
        {
            assert!(!own.contains(unknown), "{unknown}");
        }
        let resolver =
            "# search no.example\nnameserver 192.0.2.53\nsearch Corp.example lab.example\ndomain old.example\n";
        assert!(search_domains(resolver).eq(["corp.example", "lab.example", "old.example"]));
        let full = names("dn7.corp.example", &[("dfs.datanode.hostname", "dn7.public.example")]);
        assert!(["dn7", "dn7.corp.example", "dn7.public.example"].iter().all(|known| full.contains(known)));
    }
}
