use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hearth_protocol::data_transfer::Timeouts;
use hearth_protocol::rpc::RpcClientOptions;
use hearth_types::DatanodeId;
use hearth_wire::data_transfer::{DatanodeDescription, Describe, Operation};
use hearth_wire::offer::Offer;

use super::offers::Offers;
use super::peer::Peer;
use super::peer_cache::PeerCache;
use super::unreachable::Unreachable;
use super::warning_limit::WarningLimit;
use crate::DatanodeError;
use crate::options::DatanodeOptions;
use crate::resolve::resolve;

/// Access to datanodes, shared by all paths to replicas: settings, connections, and the state of each datanode that
/// this client has seen.
#[derive(Debug)]
pub(crate) struct Datanodes {
    pub options: DatanodeOptions,
    /// Options of calls to datanodes.
    pub rpc_options: RpcClientOptions,
    /// Name of this client in requests. Unique per client.
    pub client_name: String,
    pub peer_cache: PeerCache,
    pub offers: Offers,
    /// Datanodes that a reader could not reach. They come last in every choice of a replica.
    pub unreachable: Unreachable,
    /// Datanodes that did not answer [`Self::is_hearth`] in time.
    silent: Unreachable,
    pub warning_limit: WarningLimit,
}

impl Datanodes {
    pub(crate) fn new(options: DatanodeOptions, rpc_options: RpcClientOptions, client_name: String) -> Self {
        Self {
            peer_cache: PeerCache::new(&options),
            options,
            rpc_options,
            client_name,
            offers: Offers::default(),
            unreachable: Unreachable::default(),
            silent: Unreachable::default(),
            warning_limit: WarningLimit::default(),
        }
    }

    /// Returns the address of a datanode's transfer or RPC port, from its IP address or its host name as configured.
    pub(crate) async fn address(&self, datanode: &DatanodeId, port: u16) -> Result<SocketAddr, DatanodeError> {
        let host = if self.options.use_hostname { &datanode.host_name } else { &datanode.ip };
        resolve(host, port).await.map_err(|why| DatanodeError::Address { address: format!("{host}:{port}"), why })
    }

    /// Sends `operation` over a new connection that nothing else uses.
    pub(crate) async fn request(
        &self,
        datanode: &DatanodeId,
        operation: &Operation,
        timeouts: Timeouts,
    ) -> Result<Peer, DatanodeError> {
        let address = self.address(datanode, datanode.transfer_port).await?;
        let peer = self.peer_cache.connect_for_messages(address, timeouts).await?;
        peer.sender.send_operation(operation).await?;
        Ok(peer)
    }

    /// Returns the cached offer, or asks the datanode. `None`: it gives no offer, as another vendor's datanode.
    pub(crate) async fn offer(&self, datanode: &DatanodeId) -> Result<Option<Arc<Offer>>, DatanodeError> {
        if let Some(offer) = self.offers.known(&datanode.uuid) {
            return Ok(offer);
        }
        let offer = self.describe(datanode).await?.map(Arc::new);
        self.offers.note_described(&datanode.uuid, offer.clone());
        Ok(offer)
    }

    /// Returns whether it is a Hearth datanode, from the cache or from its answer within `patience`. One that does not
    /// answer in time is not asked again for a while. One that was Hearth's remains so while it does not answer.
    ///
    /// Errors: it does not answer, and has made no offer before.
    pub(crate) async fn is_hearth(&self, datanode: &DatanodeId, patience: Duration) -> Result<bool, DatanodeError> {
        let silent = || DatanodeError::Silent { datanode: Box::new(datanode.clone()) };
        let answer = match self.offers.known(&datanode.uuid) {
            Some(offer) => Ok(offer),
            None if self.silent.contains(&datanode.uuid) => Err(silent()),
            None => {
                let asking = tokio::time::timeout(patience, self.offer(datanode));
                let answer = asking.await.unwrap_or_else(|_| Err(silent()));
                if answer.as_ref().is_err_and(DatanodeError::is_time_out) {
                    self.silent.insert(datanode.uuid.clone());
                }
                answer
            }
        };
        if self.offers.is_hearths(&datanode.uuid) {
            return Ok(true);
        }
        answer.map(|offer| offer.is_some())
    }

    /// Asks the datanode for its offer. `None`: it gives none.
    async fn describe(&self, datanode: &DatanodeId) -> Result<Option<Offer>, DatanodeError> {
        let question = Operation::Describe(Describe { client_name: self.client_name.clone() });
        // A server that does not know the request closes each connection. If a Hearth datanode's process ends during
        // the request, the next attempt to connect fails.
        for _ in 0..2 {
            let mut peer = self.request(datanode, &question, self.options.read_timeouts()).await?;
            match peer.receiver.receive(DatanodeDescription::decode).await {
                Ok(description) => return Ok((description.datanode == datanode.uuid).then_some(description.offer)),
                Err(error) if error.is_closed() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}
