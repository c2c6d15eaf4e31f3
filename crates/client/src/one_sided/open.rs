//! Opening a replica for reading: a cached lease, the namenode's advertisement, or a request to the datanode.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hearth_fabric::one_sided::{Error, Region};
use hearth_types::{DatanodeId, LocatedBlock};
use hearth_wire::data_transfer::Status;
use hearth_wire::rdma_control::{Located, PURPOSE_READING};
use tokio::time::Instant;

use super::advertised_replica::{AdvertisedReplica, AdvertisementSource, Key, ReceivedAdvertisement};
use super::peers::PeerState;
use super::rdma_context::{RdmaContext, SMALL_BYTES_MAX};
use super::read_connection::ReadConnection;
use super::small_copy::{SmallCopy, small_copy};
use super::{NOT_LISTENING, OneSided, not_shown};
use crate::DatanodeError;

/// A replica, ready to be read.
#[derive(Debug)]
pub(crate) enum OpenRemoteReplica {
    Advertised(Arc<AdvertisedReplica>),
    /// All bytes of the replica.
    Small(SmallCopy),
}

impl OneSided {
    /// Looks up the replica of `block` on `datanode`, or returns a cached lease.
    pub(crate) async fn open(
        &self,
        block: &LocatedBlock,
        datanode: &DatanodeId,
    ) -> Result<OpenRemoteReplica, DatanodeError> {
        let key = Key::new(block, datanode);
        if let Some(replica) = self.leases.usable(&key) {
            return Ok(OpenRemoteReplica::Advertised(replica));
        }
        let Some(rdma) = &self.rdma else { return Err(not_shown(block, "this machine has no one-sided network")) };
        let peer = self.peers.get(&datanode.uuid);
        if let Some(replica) = self.open_piggybacked(rdma, &peer, block, datanode).await? {
            return Ok(OpenRemoteReplica::Advertised(replica));
        }
        let located = self.locate(rdma, &peer, block, datanode).await;
        match located {
            Ok((Located::Shown { advertisement, .. }, asked, read_connection, _)) => {
                peer.note_success();
                let received = ReceivedAdvertisement { advertisement, asked, source: AdvertisementSource::Datanode };
                let kept = self.leases.add(rdma, key, read_connection, received, block);
                kept.map(OpenRemoteReplica::Advertised).map_err(|why| self.note_refusal(block, datanode, why))
            }
            Ok((Located::Small { replica, .. }, _, _, into)) => {
                peer.note_success();
                let copied = small_copy(rdma, block, replica, into);
                copied.map(OpenRemoteReplica::Small).map_err(|why| self.note_refusal(block, datanode, why))
            }
            Ok((Located::Refused { refusal, .. }, ..)) => {
                if refusal.status == Status::ErrorAccessToken {
                    return Err(DatanodeError::AccessToken { block: Box::new(block.block.clone()) });
                }
                Err(self.note_refusal(block, datanode, &refusal.message))
            }
            Err(error) => {
                if !matches!(error, DatanodeError::NotAdvertised { .. }) {
                    peer.note_failure();
                }
                Err(error)
            }
        }
    }

    /// Opens the replica with the namenode's advertisement, if there is one and it is still valid. Otherwise returns
    /// `None`, and the datanode must be asked.
    async fn open_piggybacked(
        &self,
        rdma: &RdmaContext,
        peer: &PeerState,
        block: &LocatedBlock,
        datanode: &DatanodeId,
    ) -> Result<Option<Arc<AdvertisedReplica>>, DatanodeError> {
        let key = Key::new(block, datanode);
        if !self.piggybacked.has(&key) {
            return Ok(None);
        }
        let (read_connection, _) = match self.read_connection(rdma, peer, block, datanode).await {
            Ok(read_connection) => read_connection,
            Err(error) => {
                if !matches!(error, DatanodeError::NotAdvertised { .. }) {
                    peer.note_failure();
                }
                return Err(error);
            }
        };
        // Another task may have opened it in the meantime.
        if let Some(replica) = self.leases.usable(&key) {
            return Ok(Some(replica));
        }
        let Some((advertisement, asked)) = self.piggybacked.take(&key, read_connection.incarnation(), Instant::now())
        else {
            return Ok(None);
        };
        peer.note_success();
        let received = ReceivedAdvertisement { advertisement, asked, source: AdvertisementSource::Namenode };
        match self.leases.add(rdma, key.clone(), read_connection, received, block) {
            Ok(replica) if replica.is_usable() => {
                self.piggybacked.note_used();
                Ok(Some(replica))
            }
            _ => {
                self.leases.remove(&key);
                self.piggybacked.note_refused();
                Ok(None)
            }
        }
    }

    /// Asks the datanode for the location of the replica. Retries over a new connection if the existing one has just
    /// ended.
    async fn locate(
        &self,
        rdma: &RdmaContext,
        peer: &PeerState,
        block: &LocatedBlock,
        datanode: &DatanodeId,
    ) -> Result<(Located, Instant, Arc<ReadConnection>, Option<Arc<dyn Region>>), DatanodeError> {
        let mut again = true;
        loop {
            let (read_connection, fresh) = self.read_connection(rdma, peer, block, datanode).await?;
            // Memory is lent only for replicas that fit. Most replicas are larger, and most others fit into the answer.
            let lend = block.block.length() <= SMALL_BYTES_MAX && read_connection.may_grant_memory();
            let into = if lend { Some(rdma.small_memory()?) } else { None };
            let asked = Instant::now();
            self.asked.fetch_add(1, Ordering::Relaxed);
            match read_connection.locate(&block.block, &block.token, into, rdma.timeout).await {
                Ok((located, into)) => return Ok((located, asked, read_connection, into)),
                Err(Error::Closed { .. }) if again && !fresh => {
                    peer.discard_connection(&read_connection);
                    again = false;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the connection to a datanode, and whether it was opened just now.
    async fn read_connection(
        &self,
        rdma: &RdmaContext,
        peer: &PeerState,
        block: &LocatedBlock,
        datanode: &DatanodeId,
    ) -> Result<(Arc<ReadConnection>, bool), DatanodeError> {
        let find = || Some((peer.open_connection()?, false));
        if let Some(found) = find() {
            return Ok(found);
        }
        let make = async {
            let Some((connection, incarnation)) = rdma.connect(&self.datanodes, datanode, PURPOSE_READING).await?
            else {
                return Err(self.note_refusal(block, datanode, NOT_LISTENING));
            };
            let read_connection = Arc::new(ReadConnection::new(connection, incarnation));
            *peer.read_connection.lock() = Some(read_connection.clone());
            Ok((read_connection, true))
        };
        peer.connecting.get_or_try_init(find, make).await
    }
}
