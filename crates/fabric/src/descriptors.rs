use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Where the system has no limit.
const UNLIMITED: u64 = 1 << 20;

/// Lets this process have as many descriptors as it may: connections take one each, and the usual soft limit of 1024 is for programs that use
/// `select`. Returns how many those are.
pub fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of descriptors stays as it is");
            limit.current
        }
    };
    current.unwrap_or(UNLIMITED) as usize
}
