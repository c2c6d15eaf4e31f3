//! The way to a pipeline's first datanode, whichever it is, under the one loop that retries.

use super::local;
use super::packet::Packet;
use super::packets::{self, Acknowledgements, SetUp};
use super::pipeline::Failure;
use super::place::Ground;
use crate::file_system::Shared;
use crate::{DataPath, DatanodeError};

/// The way down.
pub(super) enum Link {
    Packets(packets::Link),
    Local(local::Link),
}

/// Connects the pipeline's datanodes with each other and with us, by the first path that leads to the first of them.
///
/// `paths`: only those may be tried.
pub(super) async fn set_up(
    shared: &Shared,
    spec: &SetUp<'_>,
    paths: &[DataPath],
) -> Result<(Link, Acknowledgements), Failure> {
    for path in paths {
        match path {
            DataPath::Local => {
                if let Some((link, acknowledgements)) = local::set_up(shared, spec).await? {
                    return Ok((Link::Local(link), acknowledgements));
                }
            }
            DataPath::OneSided => {}
            DataPath::Packets => break,
        }
    }
    let (link, acknowledgements) = packets::set_up(shared, spec).await?;
    Ok((Link::Packets(link), acknowledgements))
}

impl Link {
    pub(super) async fn send(&self, packet: &Packet) -> Result<(), DatanodeError> {
        match self {
            Self::Packets(link) => link.send(packet).await,
            Self::Local(link) => link.send(packet).await,
        }
    }

    /// Keeps the pipeline from taking silence for death.
    pub(super) async fn send_heartbeat(&self) -> Result<(), DatanodeError> {
        match self {
            Self::Packets(link) => link.send_heartbeat().await,
            Self::Local(link) => link.send_heartbeat().await,
        }
    }

    /// Where the writer may put its bytes itself.
    pub(super) fn ground(&self) -> Ground {
        match self {
            Self::Packets(_) => Ground::Packets,
            Self::Local(link) => link.ground(),
        }
    }

    pub(super) fn path(&self) -> DataPath {
        match self {
            Self::Packets(_) => DataPath::Packets,
            Self::Local(_) => DataPath::Local,
        }
    }
}
