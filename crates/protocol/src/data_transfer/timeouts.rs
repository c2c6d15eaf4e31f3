use std::time::Duration;

/// Timeouts of one end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    pub connect: Duration,
    /// Longest time without a received byte: `dfs.client.socket-timeout`.
    pub read: Duration,
    /// Longest time in which the peer accepts no byte: `dfs.datanode.socket.write.timeout`.
    pub write: Duration,
}

impl Timeouts {
    /// Time that each DataNode further down a pipeline adds to the timeouts above it.
    pub const PER_TARGET: Duration = Duration::from_secs(5);

    /// Returns the timeouts for a pipeline with `targets` DataNodes below the peer (a client counts all of them).
    pub fn with_targets(self, targets: usize) -> Self {
        let extra = Self::PER_TARGET * u32::try_from(targets).unwrap_or(u32::MAX).min(10_000);
        Self { connect: self.connect + extra, read: self.read + extra, write: self.write + extra }
    }
}

impl Default for Timeouts {
    /// Hadoop's defaults.
    fn default() -> Self {
        Self { connect: Duration::from_secs(60), read: Duration::from_secs(60), write: Duration::from_secs(480) }
    }
}
