//! Endpoints that datanodes offer besides packets: a domain socket on their own machine, and a listener for one-sided
//! connections.
//!
//! Hearth's namenode sends a datanode's offer with the locations of blocks, at no extra cost. With another namenode,
//! the client asks the datanode itself from time to time. The namenode's version is a hint: it may come from an earlier
//! incarnation of the datanode. A caller that detects this calls [`Offers::note_stale`], and the datanode is asked.
//!
//! That a datanode has made an offer is remembered for longer than the offer: it is still Hearth's while it does not
//! answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hearth_types::{DatanodeInfo, DatanodeUuid};
use hearth_wire::offer::Offer;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time for which a datanode's own answer is cached: an offer, and the absence of one. The absence is cached for
/// no longer than an offer while an earlier offer is not refuted.
const OFFER_TTL: Duration = Duration::from_secs(60);
const NO_OFFER_TTL: Duration = Duration::from_secs(600);

/// Maximum number of datanodes in the cache.
const DATANODES_MAX: usize = 4096;

/// Cache of the offers of datanodes.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    datanodes: Mutex<HashMap<DatanodeUuid, CachedOffer>>,
}

#[derive(Debug, Default)]
struct CachedOffer {
    /// The namenode's hint: its bytes and the decoded offer.
    hint: Option<(Bytes, Arc<Offer>)>,
    /// Incarnation of a hint that proved stale.
    stale_incarnation: Option<u64>,
    /// The datanode's own answer and its time. The inner `None`: it gave no offer.
    described: Option<(Option<Arc<Offer>>, Instant)>,
    /// It has made an offer, however old, that is not refuted. See [`Offers::note_described`].
    is_hearths: bool,
}

impl CachedOffer {
    fn offer(&self) -> Option<Option<Arc<Offer>>> {
        if let Some((_, offer)) = &self.hint
            && self.stale_incarnation != Some(offer.incarnation)
        {
            return Some(Some(Arc::clone(offer)));
        }
        let (offer, since) = self.described.as_ref()?;
        let believed = if offer.is_some() || self.is_hearths { OFFER_TTL } else { NO_OFFER_TTL };
        (since.elapsed() < believed).then(|| offer.clone())
    }
}

impl Offers {
    /// Stores the offer that the namenode sent for a datanode, if any.
    pub(crate) fn note(&self, datanode: &DatanodeInfo) {
        let Some(bytes) = &datanode.offer else { return };
        let mut datanodes = self.datanodes.lock();
        if let Some(known) = datanodes.get(&datanode.id.uuid)
            && known.hint.as_ref().is_some_and(|(noted, _)| noted == bytes)
        {
            return;
        }
        let Some(offer) = Offer::decode(bytes) else { return };
        let known = entry(&mut datanodes, &datanode.id.uuid);
        known.hint = Some((bytes.clone(), Arc::new(offer)));
        known.is_hearths = true;
    }

    /// Returns the cached offer without waiting. `None`: the datanode must be asked. `Some(None)`: it gave no offer
    /// when it was asked.
    pub(crate) fn known(&self, datanode: &DatanodeUuid) -> Option<Option<Arc<Offer>>> {
        self.datanodes.lock().get(datanode)?.offer()
    }

    /// Returns whether the datanode has made an offer, however old, that is not refuted.
    pub(super) fn is_hearths(&self, datanode: &DatanodeUuid) -> bool {
        self.datanodes.lock().get(datanode).is_some_and(|known| known.is_hearths)
    }

    /// Stores the datanode's own answer. `None`: it gave no offer. A Hearth datanode gives none while it is about to
    /// restart or has too many connections. So one such answer does not refute an earlier offer. The next one does, if
    /// it comes after [`OFFER_TTL`].
    pub(super) fn note_described(&self, datanode: &DatanodeUuid, offer: Option<Arc<Offer>>) {
        let mut datanodes = self.datanodes.lock();
        let known = entry(&mut datanodes, datanode);
        // Several callers may ask at once.
        let is_next = matches!(&known.described, Some((None, since)) if since.elapsed() >= OFFER_TTL);
        known.is_hearths = offer.is_some() || (known.is_hearths && !is_next);
        known.described = Some((offer, Instant::now()));
    }

    /// Marks `offer` as stale because the datanode was not at its address. The next lookup asks the datanode.
    pub(crate) fn note_stale(&self, datanode: &DatanodeUuid, offer: &Offer) {
        let mut datanodes = self.datanodes.lock();
        let Some(known) = datanodes.get_mut(datanode) else { return };
        known.stale_incarnation = Some(offer.incarnation);
        if matches!(&known.described, Some((Some(described), _)) if described.incarnation == offer.incarnation) {
            known.described = None;
        }
    }
}

fn entry<'a>(datanodes: &'a mut HashMap<DatanodeUuid, CachedOffer>, datanode: &DatanodeUuid) -> &'a mut CachedOffer {
    if datanodes.len() >= DATANODES_MAX && !datanodes.contains_key(datanode) {
        datanodes.clear();
    }
    datanodes.entry(datanode.clone()).or_default()
}

#[cfg(test)]
mod tests {
    use hearth_types::DatanodeId;
    use tokio::time::advance;

    use super::*;

    fn datanode(offer: Option<&Offer>) -> DatanodeInfo {
        DatanodeInfo {
            offer: offer.map(Offer::encode),
            ..DatanodeInfo::of(DatanodeId {
                ip: "127.0.0.1".to_owned(),
                host_name: "localhost".to_owned(),
                uuid: DatanodeUuid("uuid".into()),
                transfer_port: 1,
                info_port: 0,
                ipc_port: 0,
                info_secure_port: 0,
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn own_answer_of_datanode_expires() {
        const LITTLE: Duration = Duration::from_millis(1);
        let (offers, uuid) = (Offers::default(), datanode(None).id.uuid);
        // The absence first: after an offer it would expire earlier.
        for (answer, ttl) in [(None, NO_OFFER_TTL), (Some(Arc::new(Offer::default())), OFFER_TTL)] {
            offers.note_described(&uuid, answer.clone());
            advance(ttl - LITTLE).await;
            let known = offers.known(&uuid).map(|offer| offer.is_some());
            assert_eq!(known, Some(answer.is_some()));
            advance(LITTLE).await;
            assert!(offers.known(&uuid).is_none(), "the datanode must be asked again");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn second_answer_without_an_offer_refutes_an_earlier_offer() {
        let (offers, uuid) = (Offers::default(), datanode(None).id.uuid);
        assert!(!offers.is_hearths(&uuid));
        for hint in [true, false] {
            if hint {
                offers.note(&datanode(Some(&Offer::default())));
                offers.note_stale(&uuid, &Offer::default());
            } else {
                offers.note_described(&uuid, Some(Arc::default()));
            }
            advance(NO_OFFER_TTL).await;
            assert!(offers.known(&uuid).is_none() && offers.is_hearths(&uuid));
            // Two callers have asked at once.
            for _ in 0..2 {
                offers.note_described(&uuid, None);
                assert!(offers.known(&uuid) == Some(None) && offers.is_hearths(&uuid));
            }
            advance(OFFER_TTL).await;
            assert!(offers.known(&uuid).is_none(), "the datanode must be asked again soon");
            offers.note_described(&uuid, None);
            advance(OFFER_TTL).await;
            assert!(offers.known(&uuid) == Some(None) && !offers.is_hearths(&uuid));
        }
    }

    #[test]
    fn stale_hints_are_ignored_until_the_next_incarnation() {
        let offers = Offers::default();
        let uuid = datanode(None).id.uuid;
        let life = |incarnation| Offer { incarnation, ..Offer::default() };
        let known = || offers.known(&uuid).map(|offer| offer.map(|offer| offer.incarnation));
        offers.note(&datanode(None));
        assert_eq!(known(), None);
        offers.note(&datanode(Some(&life(1))));
        assert_eq!(known(), Some(Some(1)));
        offers.note_stale(&uuid, &life(1));
        assert_eq!(known(), None, "the datanode must be asked now");
        // An older answer of the namenode arrives once more.
        offers.note(&datanode(Some(&life(1))));
        assert_eq!(known(), None);
        offers.note(&datanode(Some(&life(2))));
        assert_eq!(known(), Some(Some(2)));
        // An unreadable offer changes nothing.
        offers.note(&DatanodeInfo { offer: Some(Bytes::from_static(b"\xff")), ..datanode(None) });
        assert_eq!(known(), Some(Some(2)));
    }
}
