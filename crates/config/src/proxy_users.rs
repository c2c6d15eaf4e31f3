//! Proxy users: users that act on behalf of other users (`hadoop.proxyuser.USER.{users,groups,hosts}`), and the web
//! proxies of `hadoop.proxyservers`.
//! `hadoop.proxyservers`.
//!
//! Source: `DefaultImpersonationProvider`, `AccessControlList`, `MachineList` and `ProxyServers` of Hadoop 3.4.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use crate::{ConfigError, Configuration, parse};

const PREFIX: &str = "hadoop.proxyuser.";
const WEB_PROXIES: &str = "hadoop.proxyservers";
/// Key of a class that decides instead of these rules.
const PROVIDER: &str = "hadoop.security.impersonation.provider.class";
const OWN_PROVIDER: &str = "org.apache.hadoop.security.authorize.DefaultImpersonationProvider";
const EVERYTHING: &str = "*";
/// Prefix of the proxy user's own name in its list of users. It allows the proxy user to act for every user.
const FOR_ANYBODY: &str = "~";

/// Rules for all proxy users.
#[derive(Clone, Debug, Default)]
pub struct ProxyUsers {
    rules: BTreeMap<String, Rule>,
    web_proxies: HashSet<IpAddr>,
}

/// Users that one proxy user may act for, and hosts from which it may do so.
#[derive(Clone, Debug, Default)]
struct Rule {
    anybody: bool,
    users: HashSet<String>,
    groups: HashSet<String>,
    hosts: Hosts,
}

#[derive(Clone, Debug, Default)]
struct Hosts {
    all: bool,
    addresses: HashSet<IpAddr>,
    ranges: Vec<Range>,
}

/// Range of addresses with a common prefix.
#[derive(Clone, Copy, Debug)]
struct Range {
    first: IpAddr,
    bits: u32,
}

impl ProxyUsers {
    /// Reads the rules. `resolve`: returns the addresses of a host, or none if it is unknown. Unknown hosts are
    /// ignored.
    ///
    /// Errors: an invalid range of addresses, or a provider other than Hadoop's own.
    pub fn read(configuration: &Configuration, resolve: impl Fn(&str) -> Vec<IpAddr>) -> Result<Self, ConfigError> {
        let provider = configuration.get_as(PROVIDER, parse::text)?;
        if let Some(class) = provider.filter(|class| class != OWN_PROVIDER) {
            let wanted = format!("{OWN_PROVIDER}, or nothing: Hearth loads no Java classes");
            return Err(configuration.value_error(PROVIDER, &class, wanted));
        }
        let mut rules: BTreeMap<String, Rule> = BTreeMap::new();
        for key in configuration.names().filter(|name| name.starts_with(PREFIX)) {
            let Some((user, part)) = key[PREFIX.len()..].rsplit_once('.') else { continue };
            let value = configuration.get_as(key, parse::text)?.unwrap_or_default();
            if !["users", "groups", "hosts"].contains(&part) {
                continue;
            }
            let rule = rules.entry(user.to_owned()).or_default();
            match part {
                "hosts" => {
                    let hosts = Hosts::read(&value, &resolve);
                    rule.hosts = hosts.map_err(|wanted| configuration.value_error(key, &value, wanted))?;
                }
                _ if value == EVERYTHING => rule.anybody = true,
                "users" => rule.users = names(&value),
                _ => rule.groups = names(&value),
            }
        }
        let web_proxies = configuration.get_as(WEB_PROXIES, parse::text)?.unwrap_or_default();
        let hosts = names(&web_proxies).into_iter();
        let web_proxies = hosts.flat_map(|host| resolve(&host)).map(|ip| ip.to_canonical()).collect();
        Ok(Self { rules, web_proxies })
    }

    /// Checks that `real`, from `address`, may act for `user`. Returns `None` if that depends on the groups of `user`
    /// and `groups` is `None`.
    ///
    /// `groups`: the groups of `user`, if known. Errors: the text of Hadoop's `AuthorizationException`.
    pub fn check(
        &self,
        real: &str,
        user: &str,
        groups: Option<&[String]>,
        address: IpAddr,
    ) -> Option<Result<(), String>> {
        let refused = || Some(Err(format!("User: {real} is not allowed to impersonate {user}")));
        let Some(rule) = self.rules.get(real) else { return refused() };
        let is_named = rule.anybody
            || rule.users.contains(user)
            || rule.users.iter().any(|name| name.strip_prefix(FOR_ANYBODY) == Some(real));
        if !is_named {
            match groups {
                None if !rule.groups.is_empty() => return None,
                Some(groups) if groups.iter().any(|group| rule.groups.contains(group)) => {}
                _ => return refused(),
            }
        }
        let address = address.to_canonical();
        if !rule.hosts.has(address) {
            return Some(Err(format!("Unauthorized connection for super-user: {real} from IP /{address}")));
        }
        Some(Ok(()))
    }

    /// Returns the address of a web client: that of `peer`, or the one that a trusted web proxy reports.
    ///
    /// `forwarded`: the value of `X-Forwarded-For`.
    pub fn web_client(&self, peer: IpAddr, forwarded: Option<&str>) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.web_proxies.contains(&peer) {
            return peer;
        }
        let first = forwarded.and_then(|all| all.split(',').next());
        first.and_then(|first| first.trim().parse().ok()).unwrap_or(peer)
    }
}

impl Hosts {
    fn read(text: &str, resolve: &impl Fn(&str) -> Vec<IpAddr>) -> Result<Self, String> {
        let mut hosts = Self { all: text == EVERYTHING, ..Self::default() };
        for host in names(text).into_iter().filter(|host| host != EVERYTHING) {
            if let Some((first, bits)) = host.split_once('/') {
                let wanted = || format!("{host} is not a range of addresses such as 10.2.0.0/16");
                let first: IpAddr = first.parse().map_err(|_| wanted())?;
                let bits: u32 = bits.parse().map_err(|_| wanted())?;
                if bits > if first.is_ipv4() { 32 } else { 128 } {
                    return Err(wanted());
                }
                hosts.ranges.push(Range { first, bits });
                continue;
            }
            hosts.addresses.extend(resolve(&host).into_iter().map(|ip| ip.to_canonical()));
        }
        Ok(hosts)
    }

    fn has(&self, address: IpAddr) -> bool {
        self.all || self.addresses.contains(&address) || self.ranges.iter().any(|range| range.has(address))
    }
}

impl Range {
    fn has(self, address: IpAddr) -> bool {
        let differ = match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => u128::from(first.to_bits() ^ address.to_bits()) << 96,
            (IpAddr::V6(first), IpAddr::V6(address)) => first.to_bits() ^ address.to_bits(),
            _ => return false,
        };
        differ.leading_zeros() >= self.bits
    }
}

/// Splits names at commas and line ends.
fn names(text: &str) -> HashSet<String> {
    text.split([',', '\n']).map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 2, 0, 7));

    fn resolve(host: &str) -> Vec<IpAddr> {
        match host {
            "gateway" => vec![HOME],
            other => other.parse().into_iter().collect(),
        }
    }

    fn rules(settings: &[(&str, &str)]) -> ProxyUsers {
        let set = |conf: Configuration, (name, value): &(&str, &str)| conf.with(name, *value);
        ProxyUsers::read(&settings.iter().fold(Configuration::empty(), set), resolve).unwrap()
    }

    fn groups(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn impersonation_needs_a_rule() {
        let refused = Some(Err("User: hive is not allowed to impersonate bob".to_owned()));
        assert_eq!(rules(&[]).check("hive", "bob", None, HOME), refused);
        assert_eq!(rules(&[("hadoop.proxyuser.knox.users", "*")]).check("hive", "bob", None, HOME), refused);
        // A user without a rule may not even act for itself by proxy.
        let same = Some(Err("User: hive is not allowed to impersonate hive".to_owned()));
        assert_eq!(rules(&[]).check("hive", "hive", None, HOME), same);
    }

    #[test]
    fn users_groups_and_hosts_decide() {
        let all = ("hadoop.proxyuser.hive.hosts", "*");
        let (yes, no) = (Some(Ok(())), Some(Err("User: hive is not allowed to impersonate bob".to_owned())));
        let named = rules(&[all, ("hadoop.proxyuser.hive.users", " ann , bob ")]);
        assert_eq!(named.check("hive", "bob", None, HOME), yes);
        assert!(named.check("hive", "carol", None, HOME).unwrap().is_err());
        let grouped = rules(&[all, ("hadoop.proxyuser.hive.groups", "staff,\nguests")]);
        assert_eq!(grouped.check("hive", "bob", None, HOME), None);
        assert_eq!(grouped.check("hive", "bob", Some(&groups(&["guests"])), HOME), yes);
        assert_eq!(grouped.check("hive", "bob", Some(&groups(&["others"])), HOME), no);
        // Either list may allow every user. As one of several names, the star has no special meaning.
        let mixed = rules(&[all, ("hadoop.proxyuser.hive.users", "ann"), ("hadoop.proxyuser.hive.groups", "*")]);
        assert_eq!(mixed.check("hive", "bob", None, HOME), yes);
        assert_eq!(rules(&[all, ("hadoop.proxyuser.hive.users", "ann,*")]).check("hive", "bob", None, HOME), no);
        assert_eq!(rules(&[all, ("hadoop.proxyuser.hive.users", "~hive")]).check("hive", "bob", None, HOME), yes);
        // The name of a user may contain dots.
        let dotted = rules(&[("hadoop.proxyuser.a.b.users", "*"), ("hadoop.proxyuser.a.b.hosts", "*")]);
        assert_eq!(dotted.check("a.b", "bob", None, HOME), yes);
    }

    #[test]
    fn hosts_are_names_addresses_and_ranges() {
        let from = |hosts: &str, address: &str| {
            let rules = rules(&[("hadoop.proxyuser.hive.users", "*"), ("hadoop.proxyuser.hive.hosts", hosts)]);
            rules.check("hive", "bob", None, address.parse().unwrap()).unwrap().is_ok()
        };
        assert!(from("gateway", "10.2.0.7") && from("unknown, 10.2.0.7", "::ffff:10.2.0.7"));
        assert!(!from("gateway", "10.2.0.8") && !from("unknown", "10.2.0.7") && !from("", "10.2.0.7"));
        assert!(from("10.2.0.0/16", "10.2.255.255") && !from("10.2.0.0/16", "10.3.0.0"));
        assert!(from("10.2.0.7/32", "10.2.0.7") && !from("10.2.0.7/32", "10.2.0.6"));
        assert!(from("0.0.0.0/0", "192.168.1.1") && !from("0.0.0.0/0", "fe80::1"));
        assert!(from("fe80::/10", "fe80::1") && !from("fe80::/10", "2001:db8::1"));
        let nowhere = rules(&[("hadoop.proxyuser.hive.users", "*")]).check("hive", "bob", None, HOME);
        let text = "Unauthorized connection for super-user: hive from IP /10.2.0.7";
        assert_eq!(nowhere, Some(Err(text.to_owned())));
    }

    #[test]
    fn invalid_values_are_errors_naming_the_key() {
        for (key, value) in [
            ("hadoop.proxyuser.hive.hosts", "10.2.0.0/33"),
            ("hadoop.proxyuser.hive.hosts", "10.2/16"),
            ("hadoop.security.impersonation.provider.class", "org.example.Mine"),
        ] {
            let error = ProxyUsers::read(&Configuration::empty().with(key, value), resolve).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(value), "{error}");
        }
        let own = Configuration::empty().with(PROVIDER, OWN_PROVIDER);
        assert!(ProxyUsers::read(&own, resolve).is_ok());
    }

    #[test]
    fn forwarded_addresses_need_a_trusted_proxy() {
        let trusting = rules(&[("hadoop.proxyservers", "gateway")]);
        let client: IpAddr = "192.168.1.1".parse().unwrap();
        assert_eq!(trusting.web_client(HOME, Some("192.168.1.1, 10.9.9.9")), client);
        assert_eq!(trusting.web_client(HOME, Some("unreadable")), HOME);
        assert_eq!(trusting.web_client(HOME, None), HOME);
        assert_eq!(trusting.web_client("10.2.0.8".parse().unwrap(), Some("192.168.1.1")).to_string(), "10.2.0.8");
    }
}
