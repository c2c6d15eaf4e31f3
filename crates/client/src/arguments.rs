//! Arguments of file system calls that are converted before they are sent.

use std::time::{SystemTime, UNIX_EPOCH};

use hearth_types::FsPermission;

use crate::options::ClientOptions;
use crate::{Error, ErrorKind};

/// Options for creating a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MkdirsOptions {
    /// Permission of the new directory. `None` uses 0777. The umask is applied to it unless `exact` is set.
    pub permission: Option<FsPermission>,
    /// Use `permission` as it is, without the umask.
    pub exact: bool,
    /// Create missing parent directories.
    pub parents: bool,
}

impl Default for MkdirsOptions {
    /// Options for a directory with the configured permission, whose missing parents are created.
    fn default() -> Self {
        Self { permission: None, exact: false, parents: true }
    }
}

impl MkdirsOptions {
    /// Returns the permission after and before the umask.
    pub(crate) fn masked_and_unmasked(&self, options: &ClientOptions) -> (FsPermission, FsPermission) {
        let (masked, unmasked) = options.directory_permission(self.permission);
        (if self.exact { unmasked } else { masked }, unmasked)
    }
}

/// Returns milliseconds since 1970.
///
/// Errors: kind `InvalidInput` for an earlier time, which HDFS cannot store.
pub(crate) fn milliseconds(time: Option<SystemTime>) -> Result<Option<u64>, Error> {
    let convert = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_millis()).ok()
    };
    match time.map(convert) {
        None => Ok(None),
        Some(Some(ms)) => Ok(Some(ms)),
        Some(None) => Err(Error::new(ErrorKind::InvalidInput, "a time before 1970 cannot be stored in HDFS")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hearth_config::Configuration;

    use super::*;

    #[test]
    fn times_are_milliseconds_since_1970() {
        let time = UNIX_EPOCH + Duration::from_micros(1_500);
        assert_eq!(milliseconds(Some(time)).unwrap(), Some(1));
        assert_eq!(milliseconds(None).unwrap(), None);
        let early = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(milliseconds(Some(early)).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn umask_applies_unless_the_permission_is_exact() {
        let configuration = Configuration::empty().with("fs.permissions.umask-mode", "027");
        let options = ClientOptions::read(&configuration).unwrap();
        let masked = |options_of: MkdirsOptions| options_of.masked_and_unmasked(&options).0.0;
        assert_eq!(masked(MkdirsOptions::default()), 0o750);
        let permission = Some(FsPermission(0o775));
        assert_eq!(masked(MkdirsOptions { permission, ..Default::default() }), 0o750);
        assert_eq!(masked(MkdirsOptions { permission, exact: true, ..Default::default() }), 0o775);
    }
}
