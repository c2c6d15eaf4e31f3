//! Refusal of configured security features that Hearth lacks, so that none is silently missing.

use crate::{ConfigError, Configuration, keys};

impl Configuration {
    /// Checks the authentication of clients.
    ///
    /// Errors: the configuration requires a client to authenticate itself by anything but its user name.
    pub fn refuse_client_authentication(&self) -> Result<(), ConfigError> {
        let authentication = self.get(keys::HADOOP_SECURITY_AUTHENTICATION)?;
        if authentication.trim().eq_ignore_ascii_case("simple") {
            return Ok(());
        }
        let wanted = "`simple`: Hearth's client does not speak Kerberos and does not fall back to SIMPLE; use Apache's client for this cluster";
        Err(self.value_error(keys::HADOOP_SECURITY_AUTHENTICATION.name, &authentication, wanted))
    }

    /// Checks the protection that servers must provide.
    ///
    /// Errors: the configuration requires authentication by Kerberos, service-level authorization, or encryption or
    /// signing of data in transit.
    pub fn refuse_protection(&self) -> Result<(), ConfigError> {
        match self.missing_protection().into_iter().next() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Returns an error for each key that demands a protection which Hearth's servers lack.
    pub(crate) fn missing_protection(&self) -> Vec<ConfigError> {
        let checks = [
            self.refuse_kerberos(),
            self.refuse_authorization(),
            self.refuse_rpc_protection(),
            self.refuse_encryption(),
            self.refuse_transfer_protection(),
            self.refuse_https(),
        ];
        checks.into_iter().filter_map(Result::err).collect()
    }

    fn refuse(&self, key: &str, value: &str, wanted: &str) -> Result<(), ConfigError> {
        Err(self.value_error(key, value, wanted))
    }

    fn refuse_kerberos(&self) -> Result<(), ConfigError> {
        let key = keys::HADOOP_SECURITY_AUTHENTICATION;
        let authentication = self.get(key)?;
        match authentication.eq_ignore_ascii_case("simple") {
            true => Ok(()),
            false => self.refuse(key.name, &authentication, "`simple`: Hearth's servers do not speak Kerberos"),
        }
    }

    fn refuse_authorization(&self) -> Result<(), ConfigError> {
        let key = keys::HADOOP_SECURITY_AUTHORIZATION;
        match self.get(key)? {
            true => self.refuse(key.name, "true", "`false`: Hearth's servers do not read hadoop-policy.xml"),
            false => Ok(()),
        }
    }

    fn refuse_rpc_protection(&self) -> Result<(), ConfigError> {
        let key = keys::HADOOP_RPC_PROTECTION;
        // The key is a list of levels, of which a client may use any.
        let protection = self.get(key)?;
        match protection.split(',').any(|level| level.trim().eq_ignore_ascii_case("authentication")) {
            true => Ok(()),
            false => {
                self.refuse(key.name, &protection, "`authentication`: Hearth's servers neither sign nor encrypt calls")
            }
        }
    }

    fn refuse_encryption(&self) -> Result<(), ConfigError> {
        let key = keys::DFS_ENCRYPT_DATA_TRANSFER;
        match self.get(key)? {
            true => self.refuse(key.name, "true", "`false`: Hearth's servers do not encrypt block data on the wire"),
            false => Ok(()),
        }
    }

    fn refuse_transfer_protection(&self) -> Result<(), ConfigError> {
        let key = keys::DFS_DATA_TRANSFER_PROTECTION;
        match self.get(key)?.filter(|text| !text.trim().is_empty()) {
            Some(protection) => {
                self.refuse(key.name, &protection, "nothing: Hearth's DataNodes do not speak SASL with clients")
            }
            None => Ok(()),
        }
    }

    fn refuse_https(&self) -> Result<(), ConfigError> {
        let key = keys::DFS_HTTP_POLICY;
        let policy = self.get(key)?;
        match policy.eq_ignore_ascii_case("HTTP_ONLY") {
            true => Ok(()),
            false => self.refuse(key.name, &policy, "`HTTP_ONLY`: Hearth's web pages have no HTTPS"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_protection_is_refused_by_key() {
        Configuration::empty().refuse_protection().unwrap();
        let with = |key: &str, value: &str| Configuration::empty().with(key, value).refuse_protection();
        for (key, value) in [
            ("hadoop.security.authentication", "kerberos"),
            ("hadoop.security.authorization", "true"),
            ("hadoop.rpc.protection", "privacy"),
            ("hadoop.rpc.protection", "integrity,privacy"),
            ("dfs.encrypt.data.transfer", "true"),
            ("dfs.data.transfer.protection", "privacy"),
            ("dfs.http.policy", "HTTPS_ONLY"),
            ("dfs.http.policy", "HTTP_AND_HTTPS"),
        ] {
            let error = with(key, value).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(value), "{key}: {error}");
        }
        for (key, value) in [
            ("hadoop.security.authentication", "SIMPLE"),
            ("hadoop.rpc.protection", "privacy, authentication"),
            ("dfs.data.transfer.protection", " "),
        ] {
            with(key, value).unwrap();
        }
    }

    #[test]
    fn kerberos_is_refused_for_clients() {
        let of = |value: &str| {
            Configuration::empty().with("hadoop.security.authentication", value).refuse_client_authentication()
        };
        for simple in ["simple", "SIMPLE", " simple "] {
            assert!(of(simple).is_ok(), "{simple}");
        }
        for other in ["kerberos", "KERBEROS", "token", "none"] {
            let why = of(other).unwrap_err().to_string();
            assert!(why.contains("hadoop.security.authentication") && why.contains("Apache's client"), "{why}");
        }
        assert!(Configuration::empty().refuse_client_authentication().is_ok());
    }
}
