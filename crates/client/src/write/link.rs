//! The way to a pipeline's first datanode, whichever it is, under the one loop that retries.

use super::packet::Packet;
use super::packets::{self, Reply, SetUp};
use super::pipeline::Failure;
use super::place::Ground;
use super::{local, one_sided};
use hearth_types::ExtendedBlock;

use crate::file_system::Shared;
use crate::{DataPath, DatanodeError};

/// The way down.
pub(super) enum Link {
    Packets(packets::Link),
    Local(local::Link),
    OneSided(one_sided::Link),
}

/// The way up.
pub(super) enum Acknowledgements {
    Stream(packets::Acknowledgements),
    OneSided(one_sided::Acknowledgements),
}

/// Connects the pipeline's datanodes with each other and with us, by the first path that leads to the first of them.
///
/// `paths`: only those may be tried.
pub(super) async fn set_up(
    shared: &Shared,
    spec: &SetUp<'_>,
    paths: &[DataPath],
) -> Result<(Link, Acknowledgements), Failure> {
    if let Some(head) = spec.targets.first() {
        shared.offers.note(&head.datanode);
    }
    for path in paths {
        match path {
            DataPath::Local => {
                if let Some((link, acknowledgements)) = local::set_up(shared, spec).await? {
                    return Ok((Link::Local(link), Acknowledgements::Stream(acknowledgements)));
                }
            }
            DataPath::OneSided => {
                if let Some((link, acknowledgements)) = one_sided::set_up(shared, spec).await? {
                    return Ok((Link::OneSided(link), Acknowledgements::OneSided(acknowledgements)));
                }
            }
            DataPath::Packets => break,
        }
    }
    let (link, acknowledgements) = packets::set_up(shared, spec).await?;
    Ok((Link::Packets(link), Acknowledgements::Stream(acknowledgements)))
}

impl Link {
    pub(super) async fn send(&self, packet: &Packet) -> Result<(), DatanodeError> {
        match self {
            Self::Packets(link) => link.send(packet).await,
            Self::Local(link) => link.send(packet).await,
            Self::OneSided(link) => link.send(packet).await,
        }
    }

    /// Keeps the pipeline from taking silence for death.
    pub(super) async fn send_heartbeat(&self) -> Result<(), DatanodeError> {
        match self {
            Self::Packets(link) => link.send_heartbeat().await,
            Self::Local(link) => link.send_heartbeat().await,
            Self::OneSided(link) => link.send_heartbeat().await,
        }
    }

    /// Where the writer may put its bytes itself.
    pub(super) fn ground(&self) -> Ground {
        match self {
            Self::Packets(_) => Ground::Packets,
            Self::Local(link) => link.ground(),
            Self::OneSided(link) => link.ground(),
        }
    }

    pub(super) fn path(&self) -> DataPath {
        match self {
            Self::Packets(_) => DataPath::Packets,
            Self::Local(_) => DataPath::Local,
            Self::OneSided(_) => DataPath::OneSided,
        }
    }
}

impl Acknowledgements {
    /// `oldest`: the packet that is awaited, for messages.
    pub(super) async fn next(&mut self, oldest: Option<i64>, block: &ExtendedBlock) -> Result<Reply, DatanodeError> {
        match self {
            Self::Stream(acknowledgements) => acknowledgements.next(oldest, block).await,
            Self::OneSided(acknowledgements) => acknowledgements.next(oldest, block).await,
        }
    }

    pub(super) fn unexpected(&self, sequence: i64, expected: Option<i64>) -> DatanodeError {
        match self {
            Self::Stream(acknowledgements) => acknowledgements.unexpected(sequence, expected),
            Self::OneSided(acknowledgements) => acknowledgements.unexpected(),
        }
    }

    /// The block's end is acknowledged.
    pub(super) fn ended(&self) {
        if let Self::OneSided(acknowledgements) = self {
            acknowledgements.ended();
        }
    }
}
