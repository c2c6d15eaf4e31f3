//! Proxy users: the rules for users that act for other users, read at start and again on `dfsadmin
//! -refreshSuperUserGroupsConfiguration`.

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
    /// Reads the rules. Resolves host names, which may take a while.
    pub fn read(configuration: &Configuration) -> Result<Self, ConfigError> {
        let rules = ProxyUsers::read(configuration, resolve)?;
        Ok(Self { configuration: configuration.clone(), rules: RwLock::new(Arc::new(rules)) })
    }

    /// The rules, for a decision without the groups of a user.
    pub fn rules(&self) -> Arc<ProxyUsers> {
        self.rules.read().clone()
    }

    /// Reads the configuration files again. On failure the old rules stay in force. Resolves host names.
    pub fn refresh(&self) -> Result<(), ConfigError> {
        let rules = ProxyUsers::read(&self.configuration.reread()?, resolve)?;
        *self.rules.write() = Arc::new(rules);
        Ok(())
    }

    /// Checks that `real`, from `address`, may act for `user`.
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

/// Returns the addresses of a host; none, with a warning, if it is unknown.
fn resolve(host: &str) -> Vec<IpAddr> {
    if let Ok(address) = host.parse() {
        return vec![address];
    }
    match (host, 0).to_socket_addrs() {
        Ok(found) => found.map(|address| address.ip()).collect(),
        Err(error) => {
            tracing::warn!(host, %error, "cannot resolve a host of hadoop.proxyuser.*.hosts or hadoop.proxyservers");
            Vec::new()
        }
    }
}
