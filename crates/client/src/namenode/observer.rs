//! Reads from observer namenodes. They follow the edits of the active namenode and take reads off it. An observer
//! answers only once it has caught up with everything that this client has seen, including its own changes.
//!
//! The configuration is that of Java's client: `dfs.client.failover.proxy.provider.NS` names
//! `ObserverReadProxyProvider`. Each answer carries the state id (last transaction) of its namenode. Each call carries
//! the highest state id seen, and an observer that is behind delays the call. Before the first read, and every
//! `dfs.client.failover.observer.auto-msync-period.NS`, `msync` asks the active namenode for its state id, so that
//! changes of other clients are seen too.
//! Source: Hadoop's `ObserverReadProxyProvider`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hearth_config::{ConfigError, Configuration, parse};
use hearth_protocol::rpc::{RpcError, StateId};
use hearth_wire::proto::common::HaServiceStateProto;
use hearth_wire::proto::hdfs::{
    HaServiceStateRequestProto, HaServiceStateResponseProto, MsyncRequestProto, MsyncResponseProto,
};
use parking_lot::Mutex;
use prost::Message;
use tokio::time::Instant;

use super::Exception;
use super::failover::{Namenode, failed};
use crate::Error;

/// Interval at which observers are looked for again after none was found. The value is Hadoop's.
const PROBE_INTERVAL: Duration = Duration::from_secs(600);

/// Methods that an observer may answer, among those that this client calls.
/// Source: the methods marked `@ReadOnly` of ClientProtocol, less those marked `activeOnly`.
const OBSERVER_METHODS: &[&str] = &[
    "getBlockLocations",
    "getServerDefaults",
    "getListing",
    "getFileInfo",
    "getFileLinkInfo",
    "isFileClosed",
    "checkAccess",
    "getContentSummary",
];

/// Policy for asking the active namenode for its state id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Msync {
    /// Before the first read only.
    Once,
    Every(Duration),
}

/// State of this client's use of one nameservice's observers.
pub(crate) struct Observers {
    pub(super) state: StateId,
    msync: Msync,
    view: Mutex<ObserverView>,
    /// Round-robin counter.
    next: AtomicUsize,
}

#[derive(Default)]
struct ObserverView {
    /// Indices of the namenodes that are observers.
    observers: Vec<usize>,
    probed: Option<Instant>,
    synced: Option<Instant>,
}

impl Observers {
    /// Returns `None` unless the configuration enables reads from observers.
    pub(crate) fn read(configuration: &Configuration, nameservice: &str) -> Result<Option<Self>, ConfigError> {
        let key = format!("dfs.client.failover.proxy.provider.{nameservice}");
        let provider = configuration.get_as(&key, parse::text)?.unwrap_or_default();
        if !provider.contains("ObserverReadProxyProvider") {
            return Ok(None);
        }
        let key = format!("dfs.client.failover.observer.auto-msync-period.{nameservice}");
        let msync = match configuration.get_as(&key, parse::text)? {
            None => Msync::Once,
            Some(text) if text.trim().starts_with('-') => Msync::Once,
            Some(_) => Msync::Every(configuration.get_as(&key, parse::duration_ms)?.unwrap_or_default()),
        };
        Ok(Some(Self {
            state: StateId::default(),
            msync,
            view: Mutex::new(ObserverView::default()),
            next: AtomicUsize::new(0),
        }))
    }

    fn known(&self) -> Vec<usize> {
        self.view.lock().observers.clone()
    }

    fn wants_probe(&self) -> bool {
        let view = self.view.lock();
        view.observers.is_empty() && view.probed.is_none_or(|probed| probed.elapsed() >= PROBE_INTERVAL)
    }

    fn wants_msync(&self) -> bool {
        match (self.view.lock().synced, self.msync) {
            (None, _) => true,
            (Some(_), Msync::Once) => false,
            (Some(synced), Msync::Every(period)) => synced.elapsed() >= period,
        }
    }

    fn forget(&self, observer: usize) {
        let mut view = self.view.lock();
        view.observers.retain(|known| *known != observer);
        if view.observers.is_empty() {
            view.probed = Some(Instant::now());
        }
    }
}

impl Namenode {
    /// Calls an observer. `Ok(None)`: no observer could or would answer, so the active namenode must be asked.
    pub(super) async fn call_observer<A: Message + Default>(
        &self,
        observers: &Observers,
        method: &'static str,
        request: &impl Message,
    ) -> Result<Option<A>, Error> {
        if !OBSERVER_METHODS.contains(&method) {
            return Ok(None);
        }
        if observers.wants_probe() {
            self.probe(observers).await;
        }
        let known = observers.known();
        if known.is_empty() {
            return Ok(None);
        }
        if observers.wants_msync() {
            let _: MsyncResponseProto = self.call_active("msync", &MsyncRequestProto {}).await?;
            observers.view.lock().synced = Some(Instant::now());
        }
        let turn = observers.next.fetch_add(1, Ordering::Relaxed);
        for offset in 0..known.len() {
            let index = known[(turn.wrapping_add(offset)) % known.len()];
            let error = match self.call_one(index, self.rpc().new_call(), 0, method, request).await {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) => error,
            };
            let address = &self.namenodes()[index].rpc;
            match error.remote_class().map(Exception::from_class) {
                // It will not answer this call, for example because it knows no replica yet.
                Some(Exception::ObserverRetryOnActive) => return Ok(None),
                // It is far behind and may answer later.
                Some(Exception::Retriable) => {}
                Some(Exception::Standby) => observers.forget(index),
                None if error.is_transport() => observers.forget(index),
                _ => return Err(failed(method, address, error)),
            }
            tracing::debug!(%address, method, %error, "observer call failed");
        }
        Ok(None)
    }

    /// Determines which namenodes are observers.
    async fn probe(&self, observers: &Observers) {
        let mut found = Vec::new();
        for (index, namenode) in self.namenodes().iter().enumerate() {
            let call = self.rpc().new_call();
            let answer: Result<HaServiceStateResponseProto, RpcError> =
                self.call_one(index, call, 0, "getHAServiceState", &HaServiceStateRequestProto {}).await;
            match answer {
                Ok(answer) if answer.state() == HaServiceStateProto::Observer => found.push(index),
                Ok(_) => {}
                Err(error) => tracing::debug!(address = %namenode.rpc, %error, "cannot query the namenode's state"),
            }
        }
        tracing::debug!(observers = found.len(), "probed for observers");
        let mut view = observers.view.lock();
        view.observers = found;
        view.probed = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[test]
    fn observers_are_enabled_by_the_proxy_provider() {
        let provider = |name: &str| {
            Configuration::empty().with("dfs.client.failover.proxy.provider.ns", format!("org.apache.hadoop.{name}"))
        };
        let read = |conf: &Configuration| Observers::read(conf, "ns").unwrap().map(|observers| observers.msync);
        assert_eq!(read(&Configuration::empty()), None);
        assert_eq!(read(&provider("ConfiguredFailoverProxyProvider")), None);
        let observer = provider("hdfs.server.namenode.ha.ObserverReadProxyProvider");
        assert_eq!(read(&observer), Some(Msync::Once));
        let period =
            |value: &str| read(&observer.clone().with("dfs.client.failover.observer.auto-msync-period.ns", value));
        assert_eq!(period("-1ms"), Some(Msync::Once));
        assert_eq!(period("0"), Some(Msync::Every(Duration::ZERO)));
        assert_eq!(period("2s"), Some(Msync::Every(Duration::from_secs(2))));
    }

    #[tokio::test(start_paused = true)]
    async fn probes_and_msync_are_repeated_at_their_intervals() {
        const LITTLE: Duration = Duration::from_millis(1);
        let period = Duration::from_secs(2);
        let observers =
            |msync| Observers { state: StateId::default(), msync, view: Mutex::default(), next: AtomicUsize::new(0) };
        let (often, once) = (observers(Msync::Every(period)), observers(Msync::Once));
        for observers in [&often, &once] {
            assert!(observers.wants_probe() && observers.wants_msync());
            let mut view = observers.view.lock();
            (view.observers, view.synced) = (vec![1], Some(Instant::now()));
        }
        advance(period - LITTLE).await;
        assert!(!often.wants_msync());
        advance(LITTLE).await;
        assert!(often.wants_msync() && !once.wants_msync());
        // The last one is gone.
        often.forget(1);
        advance(PROBE_INTERVAL - LITTLE).await;
        assert!(!often.wants_probe());
        advance(LITTLE).await;
        assert!(often.wants_probe() && !once.wants_probe());
    }
}
