use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Used if the system sets no limit.
const UNLIMITED: u64 = 1 << 20;

/// Raises the soft limit of file descriptors to the hard limit and returns the new limit. Each connection takes one
/// descriptor, and the usual soft limit of 1024 exists only for programs that use `select`.
pub fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!(%error, "cannot raise the limit of file descriptors");
            limit.current
        }
    };
    current.unwrap_or(UNLIMITED) as usize
}
