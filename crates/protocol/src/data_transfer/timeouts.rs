use std::time::Duration;

/// How long one end waits for the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    pub connect: Duration,
    /// Without one byte arriving: `dfs.client.socket-timeout`.
    pub read: Duration,
    /// Without the peer taking one byte: `dfs.datanode.socket.write.timeout`.
    pub write: Duration,
}

impl Timeouts {
    /// What each DataNode further down a pipeline adds to the time-outs above it.
    pub const PER_TARGET: Duration = Duration::from_secs(5);

    /// Time-outs towards a pipeline with `targets` DataNodes below the peer (a client counts all of them).
    pub fn with_targets(self, targets: usize) -> Self {
        let extra = Self::PER_TARGET * u32::try_from(targets).unwrap_or(u32::MAX).min(10_000);
        Self { connect: self.connect + extra, read: self.read + extra, write: self.write + extra }
    }
}

impl Default for Timeouts {
    /// Hadoop's.
    fn default() -> Self {
        Self { connect: Duration::from_secs(60), read: Duration::from_secs(60), write: Duration::from_secs(480) }
    }
}
