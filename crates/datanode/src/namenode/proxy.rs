//! Client of one NameNode for the calls of DatanodeProtocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hearth_config::HostPort;
use hearth_protocol::rpc::{RpcClient, RpcError, Target};
use hearth_wire::proto::hdfs::{
    AwaitWorkRequestProto, AwaitWorkResponseProto, BlockReceivedAndDeletedRequestProto,
    BlockReceivedAndDeletedResponseProto, BlockReportRequestProto, BlockReportResponseProto, CacheReportRequestProto,
    CacheReportResponseProto, CommitBlockSynchronizationRequestProto, CommitBlockSynchronizationResponseProto,
    ErrorReportRequestProto, ErrorReportResponseProto, HeartbeatRequestProto, HeartbeatResponseProto,
    LifelineResponseProto, NamespaceInfoProto, RegisterDatanodeRequestProto, RegisterDatanodeResponseProto,
    ReportBadBlocksRequestProto, ReportBadBlocksResponseProto, VersionRequestProto, VersionResponseProto,
};
use hearth_wire::rpc::{exceptions, protocols};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Semaphore;

/// Reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("cannot resolve the address of namenode {name}")]
    Unresolved { name: String, source: std::io::Error },
    #[error(transparent)]
    Rpc(#[from] RpcError),
}

/// Consequence of a failed call for the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// The NameNode refuses this DataNode: stop.
    Refused,
    /// The lease of a full report has expired: request another one.
    LeaseExpired,
    /// Try again a little later.
    Transient,
}

impl CallError {
    pub fn failure_kind(&self) -> FailureKind {
        let Self::Rpc(error) = self else { return FailureKind::Transient };
        match error.remote_class() {
            Some(exceptions::UNREGISTERED_NODE | exceptions::DISALLOWED_DATANODE | exceptions::INCORRECT_VERSION) => {
                FailureKind::Refused
            }
            Some(exceptions::INVALID_BLOCK_REPORT_LEASE) => FailureKind::LeaseExpired,
            _ => FailureKind::Transient,
        }
    }

    /// Returns true if the NameNode answered with an exception, rather than not at all.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Rpc(error) if error.remote_class().is_some())
    }
}

/// Time that a call waits to look up a name whose address is already known. Lookups run on threads that also wait for
/// disks, and must not delay a heartbeat.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Client of one NameNode.
#[derive(Clone)]
pub struct Proxy {
    rpc: RpcClient,
    name: HostPort,
    /// Last address that the name resolved to.
    last_address: Arc<Mutex<Option<SocketAddr>>>,
    /// At most one lookup runs while an address is known.
    lookup_permit: Arc<Semaphore>,
    user: Arc<str>,
    protocol: &'static str,
}

impl Proxy {
    pub fn new(rpc: RpcClient, name: HostPort, user: &str) -> Self {
        Self::for_protocol(rpc, name, user, protocols::DATANODE)
    }

    pub fn for_protocol(rpc: RpcClient, name: HostPort, user: &str, protocol: &'static str) -> Self {
        let lookup_permit = Arc::new(Semaphore::new(1));
        Self { rpc, name, last_address: Arc::default(), lookup_permit, user: user.into(), protocol }
    }

    async fn target(&self) -> Result<Target, CallError> {
        let address = match self.name.host.parse::<std::net::IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, self.name.port),
            Err(_) => self.resolve().await?,
        };
        Ok(Target { address, protocol: self.protocol, user: self.user.clone() })
    }

    /// Resolves the NameNode's name again for each call, because it may have moved. Until a lookup succeeds the known
    /// address is used.
    async fn resolve(&self) -> Result<SocketAddr, CallError> {
        let known = *self.last_address.lock();
        let Some(address) = known else { return self.lookup().await };
        if let Ok(one) = self.lookup_permit.clone().try_acquire_owned() {
            let this = self.clone();
            // The lookup continues after the timeout, and a later call uses its result.
            let asking = tokio::spawn(async move {
                let asked = this.lookup().await;
                drop(one);
                asked
            });
            if let Ok(Ok(Ok(found))) = tokio::time::timeout(LOOKUP_TIMEOUT, asking).await {
                return Ok(found);
            }
            tracing::debug!(namenode = %self.name, %address, "cannot resolve the namenode's name; using its last address");
        }
        Ok(address)
    }

    async fn lookup(&self) -> Result<SocketAddr, CallError> {
        let found = tokio::net::lookup_host((self.name.host.as_str(), self.name.port)).await;
        let first = found
            .and_then(|mut addresses| addresses.next().ok_or_else(|| std::io::Error::other("the name has no address")));
        let address = first.map_err(|source| CallError::Unresolved { name: self.name.to_string(), source })?;
        Ok(*self.last_address.lock().insert(address))
    }

    async fn call<A: Message + Default>(&self, method: &str, request: &impl Message) -> Result<A, CallError> {
        let target = self.target().await?;
        Ok(self.rpc.call(&target, method, request).await?)
    }

    pub async fn version_request(&self) -> Result<NamespaceInfoProto, CallError> {
        let answer: VersionResponseProto = self.call("versionRequest", &VersionRequestProto {}).await?;
        Ok(answer.info)
    }

    pub async fn register(
        &self,
        request: &RegisterDatanodeRequestProto,
    ) -> Result<RegisterDatanodeResponseProto, CallError> {
        self.call("registerDatanode", request).await
    }

    pub async fn heartbeat(&self, request: &HeartbeatRequestProto) -> Result<HeartbeatResponseProto, CallError> {
        self.call("sendHeartbeat", request).await
    }

    /// Asks if there is work: see `work_poll.rs`.
    pub async fn await_work(&self, request: &AwaitWorkRequestProto) -> Result<bool, CallError> {
        let answer: AwaitWorkResponseProto = self.call("awaitWork", request).await?;
        Ok(answer.waiting())
    }

    pub async fn block_report(&self, request: &BlockReportRequestProto) -> Result<BlockReportResponseProto, CallError> {
        self.call("blockReport", request).await
    }

    pub async fn cache_report(&self, request: &CacheReportRequestProto) -> Result<CacheReportResponseProto, CallError> {
        self.call("cacheReport", request).await
    }

    /// Sends a lifeline (DatanodeLifelineProtocol).
    pub async fn lifeline(&self, request: &HeartbeatRequestProto) -> Result<(), CallError> {
        let _: LifelineResponseProto = self.call("sendLifeline", request).await?;
        Ok(())
    }

    pub async fn received_and_deleted(&self, request: &BlockReceivedAndDeletedRequestProto) -> Result<(), CallError> {
        let _: BlockReceivedAndDeletedResponseProto = self.call("blockReceivedAndDeleted", request).await?;
        Ok(())
    }

    pub async fn error_report(&self, request: &ErrorReportRequestProto) -> Result<(), CallError> {
        let _: ErrorReportResponseProto = self.call("errorReport", request).await?;
        Ok(())
    }

    pub async fn report_bad_blocks(&self, request: &ReportBadBlocksRequestProto) -> Result<(), CallError> {
        let _: ReportBadBlocksResponseProto = self.call("reportBadBlocks", request).await?;
        Ok(())
    }

    pub async fn commit_block_synchronization(
        &self,
        request: &CommitBlockSynchronizationRequestProto,
    ) -> Result<(), CallError> {
        let _: CommitBlockSynchronizationResponseProto = self.call("commitBlockSynchronization", request).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hearth_protocol::rpc::RpcClientOptions;

    use super::*;

    #[tokio::test]
    async fn failed_lookup_uses_last_address() {
        let proxy = |host: &str| {
            let name = HostPort { host: host.to_owned(), port: 8020 };
            Proxy::new(RpcClient::new(RpcClientOptions::default()), name, "tester")
        };
        // A reserved name that never resolves.
        let unknown = proxy("namenode.invalid");
        assert!(matches!(unknown.target().await, Err(CallError::Unresolved { .. })));
        let address = SocketAddr::from(([127, 0, 0, 9], 8020));
        *unknown.last_address.lock() = Some(address);
        assert_eq!(unknown.clone().target().await.unwrap().address, address);
        let known = proxy("localhost");
        assert!(known.target().await.unwrap().address.ip().is_loopback());
        assert!(known.last_address.lock().is_some());
    }
}
