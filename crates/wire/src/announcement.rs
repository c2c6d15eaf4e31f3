//! Messages by which a Hearth DataNode announces memory that clients may read one-sidedly to Hearth's NameNode, and the
//! part of them that is sent with the locations of blocks. They are the bytes of fields 10400 of Hadoop's messages.
//! docs/design/0002 describes the lease.

use std::time::Duration;

use bytes::Bytes;
use hearth_types::{BlockId, GenerationStamp, LocatedAdvertisement};
use prost::Message;

use crate::proto::hearth as proto;

/// Longest encoded advertisement that is kept or passed on. Usual ones have about 150 bytes.
pub const ADVERTISEMENT_BYTES_MAX: usize = 1024;

/// Maximum number of replicas that one DataNode announces to one NameNode.
pub const ANNOUNCED_MAX: usize = 4096;

/// Longest lease of an announcement. DataNodes claim none that is longer, and NameNodes do not accept one.
pub const LEASE_MAX: Duration = Duration::from_secs(600);

/// Part of a heartbeat. Announced replicas that were not withdrawn hold for `lease`, counted from the time at which the
/// NameNode sent `word`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// Word of the last answer that was received.
    pub word: u64,
    pub lease: Duration,
    /// All earlier announcements are void.
    pub anew: bool,
    pub added: Vec<AnnouncedReplica>,
    pub withdrawn: Vec<BlockId>,
}

/// Memory of a replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnnouncedReplica {
    pub block: BlockId,
    pub stamp: GenerationStamp,
    /// An [`Advertisement`](crate::rdma_control::Advertisement), which only clients decode.
    pub advertisement: Bytes,
}

/// Part of the answer to a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnnouncementAck {
    /// Number that was never sent to any DataNode before.
    pub word: u64,
    /// The heartbeat's announcement was accepted, if it had one.
    pub taken: bool,
}

fn milliseconds(duration: Duration) -> u32 {
    // Rounded down, so that a lease is never longer than promised.
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

impl Announcement {
    pub fn encode(&self) -> Bytes {
        let added = self.added.iter().map(|announced| proto::AnnouncedReplicaProto {
            block_id: announced.block.0 as u64,
            generation_stamp: announced.stamp.0,
            advertisement: announced.advertisement.clone(),
        });
        let message = proto::AnnouncementProto {
            word: self.word,
            lease_ms: milliseconds(self.lease),
            anew: self.anew.then_some(true),
            added: added.collect(),
            withdrawn: self.withdrawn.iter().map(|block| block.0 as u64).collect(),
        };
        message.encode_to_vec().into()
    }

    /// Decodes an announcement. `None`: invalid. Advertisements that are too long are omitted; the others share the
    /// memory of `bytes`.
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let message = proto::AnnouncementProto::decode(bytes.clone()).ok()?;
        let added = message.added.into_iter().filter(|added| added.advertisement.len() <= ADVERTISEMENT_BYTES_MAX);
        Some(Self {
            word: message.word,
            lease: Duration::from_millis(message.lease_ms.into()),
            anew: message.anew.unwrap_or(false),
            added: added
                .map(|added| AnnouncedReplica {
                    block: BlockId(added.block_id as i64),
                    stamp: GenerationStamp(added.generation_stamp),
                    advertisement: added.advertisement,
                })
                .collect(),
            withdrawn: message.withdrawn.into_iter().map(|block| BlockId(block as i64)).collect(),
        })
    }
}

impl AnnouncementAck {
    pub fn encode(&self) -> Bytes {
        proto::WordProto { word: self.word, taken: self.taken }.encode_to_vec().into()
    }

    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let message = proto::WordProto::decode(bytes.clone()).ok()?;
        Some(Self { word: message.word, taken: message.taken })
    }
}

pub(crate) fn encode_located_advertisement(located: &LocatedAdvertisement) -> Bytes {
    let message = proto::HandedOnProto {
        location: located.location as u32,
        lease_ms: milliseconds(located.lease),
        advertisement: located.advertisement.clone(),
    };
    message.encode_to_vec().into()
}

/// Decodes an advertisement. `None`: invalid or too long.
pub(crate) fn decode_located_advertisement(bytes: &Bytes) -> Option<LocatedAdvertisement> {
    let message = proto::HandedOnProto::decode(bytes.clone()).ok()?;
    if message.advertisement.len() > ADVERTISEMENT_BYTES_MAX {
        return None;
    }
    Some(LocatedAdvertisement {
        location: message.location as usize,
        lease: Duration::from_millis(message.lease_ms.into()),
        // A copy, because it is kept for a while, but the frame that contains it is not.
        advertisement: Bytes::copy_from_slice(&message.advertisement),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_and_words_round_trip() {
        let announced = |length| AnnouncedReplica {
            block: BlockId(-7),
            stamp: GenerationStamp(1001),
            advertisement: Bytes::from(vec![3; length]),
        };
        let announcement = Announcement {
            word: u64::MAX,
            lease: Duration::from_millis(15_000),
            anew: true,
            added: vec![announced(150), announced(ADVERTISEMENT_BYTES_MAX)],
            withdrawn: vec![BlockId(-1), BlockId(1 << 40)],
        };
        assert_eq!(Announcement::decode(&announcement.encode()), Some(announcement.clone()));
        let longer = Announcement { added: vec![announced(ADVERTISEMENT_BYTES_MAX + 1), announced(1)], ..announcement };
        assert_eq!(Announcement::decode(&longer.encode()).unwrap().added, [announced(1)]);
        assert_eq!(Announcement::decode(&Bytes::from_static(b"\xff\xff")), None);
        for taken in [false, true] {
            let word = AnnouncementAck { word: 1 << 63, taken };
            assert_eq!(AnnouncementAck::decode(&word.encode()), Some(word));
        }
    }

    #[test]
    fn located_advertisement_keeps_its_maximum_length() {
        let located = |advertisement| LocatedAdvertisement {
            location: 2,
            lease: Duration::from_micros(1_999_999),
            advertisement: Bytes::from(advertisement),
        };
        let short = located(vec![1; 100]);
        let expected = LocatedAdvertisement { lease: Duration::from_millis(1999), ..short.clone() };
        assert_eq!(decode_located_advertisement(&encode_located_advertisement(&short)), Some(expected));
        assert_eq!(
            decode_located_advertisement(&encode_located_advertisement(&located(vec![1; ADVERTISEMENT_BYTES_MAX + 1]))),
            None
        );
        assert_eq!(decode_located_advertisement(&Bytes::from_static(b"\x07")), None);
    }
}
