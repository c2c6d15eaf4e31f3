//! Users who act for others: the rules of the configuration, read at the start and again on `dfsadmin -refreshSuperUserGroupsConfiguration`.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use hearth_config::{ConfigError, Configuration, ProxyUsers};
use parking_lot::RwLock;

use crate::groups::Groups;

/// The rules in force.
pub struct Impersonation {
    configuration: Configuration,
    rules: RwLock<Arc<ProxyUsers>>,
}

impl Impersonation {
    /// Looks hosts up, which may take a while.
    pub fn read(configuration: &Configuration) -> Result<Self, ConfigError> {
        let rules = ProxyUsers::read(configuration, resolve)?;
        Ok(Self { configuration: configuration.clone(), rules: RwLock::new(Arc::new(rules)) })
    }

    /// The rules, for a decision without the groups of a user.
    pub fn rules(&self) -> Arc<ProxyUsers> {
        self.rules.read().clone()
    }

    /// Reads the files of the configuration again. Where that fails the old rules hold. Looks hosts up.
    pub fn refresh(&self) -> Result<(), ConfigError> {
        let rules = ProxyUsers::read(&self.configuration.reread()?, resolve)?;
        *self.rules.write() = Arc::new(rules);
        Ok(())
    }

    /// Whether `real`, from `address`, may act for `user`.
    ///
    /// Errors: the text of Hadoop's `AuthorizationException`.
    pub async fn check(&self, groups: &Groups, real: &str, user: &str, address: IpAddr) -> Result<(), String> {
        let rules = self.rules();
        if let Some(decided) = rules.check(real, user, None, address) {
            return decided;
        }
        let of_user = groups.rights(user).await.groups;
        rules.check(real, user, Some(&of_user), address).expect("the groups are known")
    }
}

/// The addresses of a host; none, with a warning, when it is unknown.
fn resolve(host: &str) -> Vec<IpAddr> {
    if let Ok(address) = host.parse() {
        return vec![address];
    }
    match (host, 0).to_socket_addrs() {
        Ok(found) => found.map(|address| address.ip()).collect(),
        Err(error) => {
            tracing::warn!(host, %error, "a host of hadoop.proxyuser.*.hosts or hadoop.proxyservers is unknown");
            Vec::new()
        }
    }
}
