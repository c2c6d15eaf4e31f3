//! What is remembered of the way to a datanode.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hearth_wire::offer::Offer;

/// How long a datanode's description of itself is believed, and that it has none.
const DESCRIBED: Duration = Duration::from_secs(60);
const STRANGER: Duration = Duration::from_secs(600);

/// How long a datanode that could not be reached one-sidedly is not tried while there is another way.
const FAILED: Duration = Duration::from_secs(30);

/// Where a datanode listens, and in which of its lives.
pub type Listening = (SocketAddr, u64);

/// Of one datanode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Where it listens, if it does, and since when that is known.
    listens: Option<(Option<Listening>, Instant)>,
    failed: Option<Instant>,
}

impl Known {
    /// Where it listens; `Some(None)`: nowhere; `None`: it is to be asked.
    pub fn listens(&self) -> Option<Option<Listening>> {
        let (address, since) = self.listens?;
        (since.elapsed() < if address.is_some() { DESCRIBED } else { STRANGER }).then_some(address)
    }

    pub fn set_listens(&mut self, address: Option<Listening>) {
        self.listens = Some((address, Instant::now()));
    }

    /// It may have been started again, on another port.
    pub fn forget(&mut self) {
        self.listens = None;
    }

    pub fn failed_lately(&self) -> bool {
        self.failed.is_some_and(|failed| failed.elapsed() < FAILED)
    }

    /// `true`: it was tried just now, in vain; `false`: it has answered.
    pub fn set_failed(&mut self, failed: bool) {
        self.failed = failed.then(Instant::now);
    }
}

/// Where a datanode with this offer listens; `own`: an address by which it was reached. `None`: not in the network `transport`.
pub fn listening(offer: &Offer, own: IpAddr, transport: &str) -> Option<Listening> {
    if offer.transport.as_ref().is_some_and(|name| name != transport) {
        return None;
    }
    Some((offer.listener(own)?, offer.incarnation))
}
