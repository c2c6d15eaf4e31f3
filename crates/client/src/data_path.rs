use std::fmt;

use hearth_config::{ConfigError, Configuration, keys};

/// Longest replica that shares memory with others at Hearth's datanodes, and is therefore read by READ_MANY on the local
/// path. Longer ones are kept in separate files.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;

/// Path by which the bytes of a replica travel. The variants are in the default order of attempts, which
/// `hearth.client.paths` can change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DataPath {
    /// The replica's own memory, on the same machine.
    Local,
    /// RDMA, without running code of the datanode.
    OneSided,
    /// DataTransferProtocol over TCP.
    Packets,
}

impl DataPath {
    /// All paths, in the default order of attempts.
    pub const ALL: [Self; 3] = [Self::Local, Self::OneSided, Self::Packets];

    /// Returns the name used in the configuration and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::OneSided => "one-sided",
            Self::Packets => "packets",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|path| path.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Paths that a client may use, in the order in which it tries them. Not empty and without duplicates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DataPaths(Vec<DataPath>);

impl DataPaths {
    /// Reads the paths from `hearth.client.paths`.
    pub(crate) fn read(configuration: &Configuration) -> Result<Self, ConfigError> {
        let key = keys::HEARTH_CLIENT_PATHS;
        let names = configuration.get(key)?;
        let wrong = || {
            let wanted = "wanted one or more of local, one-sided, packets, each at most once";
            configuration.value_error(key.name, &names.join(","), wanted)
        };
        let mut paths = Vec::new();
        for name in &names {
            let path = DataPath::from_name(name).filter(|path| !paths.contains(path)).ok_or_else(wrong)?;
            paths.push(path);
        }
        if paths.is_empty() { Err(wrong()) } else { Ok(Self(paths)) }
    }

    /// Returns the paths for reading: without the local one when `dfs.client.read.shortcircuit` is set to false.
    pub(crate) fn for_reading(&self, configuration: &Configuration) -> Result<Self, ConfigError> {
        let key = keys::DFS_CLIENT_READ_SHORTCIRCUIT;
        if !configuration.is_set(key.name) || configuration.get(key)? {
            return Ok(self.clone());
        }
        let paths: Vec<_> = self.0.iter().copied().filter(|path| *path != DataPath::Local).collect();
        if paths.is_empty() {
            let why = format!("{} names no path other than local", keys::HEARTH_CLIENT_PATHS.name);
            return Err(configuration.value_error(key.name, "false", why));
        }
        Ok(Self(paths))
    }

    /// Returns the path that is tried first.
    pub(crate) fn first(&self) -> DataPath {
        self.0[0]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = DataPath> + '_ {
        self.0.iter().copied()
    }
}

impl fmt::Display for DataPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.0.iter().enumerate() {
            write!(f, "{}{path}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(settings: &[(&str, &str)]) -> Result<String, String> {
        let mut configuration = Configuration::empty();
        for (key, value) in settings {
            configuration = configuration.with(key, *value);
        }
        let paths = DataPaths::read(&configuration).and_then(|paths| paths.for_reading(&configuration));
        paths.map(|paths| paths.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn paths_are_those_configured_in_their_order() {
        assert_eq!(of(&[]).unwrap(), "local,one-sided,packets");
        assert_eq!(of(&[("hearth.client.paths", "Packets, local")]).unwrap(), "packets,local");
        for wrong in ["tcp", "local,local", ",", "local packets"] {
            assert!(of(&[("hearth.client.paths", wrong)]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hadoops_shortcircuit_key_disables_local_reads() {
        let key = "dfs.client.read.shortcircuit";
        assert_eq!(of(&[(key, "false")]).unwrap(), "one-sided,packets");
        assert_eq!(of(&[(key, "true")]).unwrap(), "local,one-sided,packets");
        let error = of(&[(key, "false"), ("hearth.client.paths", "local")]).unwrap_err();
        assert!(error.contains(key), "{error}");
    }
}
