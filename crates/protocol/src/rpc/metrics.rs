//! Counts and latencies of the calls of one RPC port.
//!
//! Everything is an atomic counter that is made at the start: a call takes no lock, and clients cannot make the table
//! grow. A call of an unknown method is counted under one common name.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hearth_types::{Histogram, RpcFigures, RpcMethodFigures};
use hearth_wire::rpc::protocols;

use super::meta_info::hadoop_methods;

/// Name for all methods that no served protocol has.
pub const OTHER_METHODS: &str = "other";

/// Methods of Hearth's own, by protocol.
const OWN_METHODS: [(&str, &str); 1] = [(protocols::CLIENT, hearth_wire::open_many::METHOD)];

/// Counters of one RPC port. The server updates them; [`RpcMetrics::figures`] reads them.
pub struct RpcMetrics {
    /// Position in `methods`, by name.
    positions: HashMap<&'static str, usize>,
    /// The last one is for all other names.
    methods: Vec<Method>,
    connections: AtomicU64,
    calls_in_progress: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    refused_connections: AtomicU64,
    authorizations: AtomicU64,
    authorization_failures: AtomicU64,
}

struct Method {
    name: &'static str,
    queue: Histogram,
    processing: Histogram,
    errors: AtomicU64,
}

impl Method {
    fn new(name: &'static str) -> Self {
        Self { name, queue: Histogram::default(), processing: Histogram::default(), errors: AtomicU64::default() }
    }
}

/// A method of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MethodIndex(usize);

/// Counts one open connection or one call in progress until it is dropped.
pub(super) struct Counted {
    metrics: Arc<RpcMetrics>,
    what: fn(&RpcMetrics) -> &AtomicU64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.what)(&self.metrics).fetch_sub(1, Ordering::Relaxed);
    }
}

impl RpcMetrics {
    /// Creates the counters of a port that serves these protocols, or of another way to call their methods.
    pub fn new(served: &[&str]) -> Arc<Self> {
        let hadoop = hadoop_methods().map(|method| (method.protocol, method.name));
        let is_served = |protocol: &str| protocol == protocols::PROTOCOL_INFO || served.contains(&protocol);
        let names = hadoop.chain(OWN_METHODS).filter(|(protocol, _)| is_served(protocol)).map(|(_, name)| name);
        let (mut positions, mut methods) = (HashMap::new(), Vec::new());
        for name in names {
            // Protocols share some names.
            positions.entry(name).or_insert_with(|| {
                methods.push(Method::new(name));
                methods.len() - 1
            });
        }
        methods.push(Method::new(OTHER_METHODS));
        Arc::new(Self {
            positions,
            methods,
            connections: AtomicU64::default(),
            calls_in_progress: AtomicU64::default(),
            received_bytes: AtomicU64::default(),
            sent_bytes: AtomicU64::default(),
            refused_connections: AtomicU64::default(),
            authorizations: AtomicU64::default(),
            authorization_failures: AtomicU64::default(),
        })
    }

    /// Returns the place of a method. `likely`: that of the call before it, which is mostly of the same method.
    pub(super) fn method(&self, name: &str, likely: Option<MethodIndex>) -> MethodIndex {
        if let Some(likely) = likely.filter(|likely| self.methods[likely.0].name == name) {
            return likely;
        }
        MethodIndex(self.positions.get(name).copied().unwrap_or(self.methods.len() - 1))
    }

    /// Records that a call begins. `waited`: time since its last byte arrived.
    pub(super) fn record_start(&self, method: MethodIndex, waited: Duration) {
        self.methods[method.0].queue.observe(waited);
    }

    /// Records that a call has its response after `took`.
    pub(super) fn record_end(&self, method: MethodIndex, took: Duration, succeeded: bool) {
        let method = &self.methods[method.0];
        method.processing.observe(took);
        if !succeeded {
            method.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records a call that was made in another way than by RPC and has no queue.
    pub fn record_call(&self, name: &str, took: Duration, succeeded: bool) {
        let method = self.method(name, None);
        self.record_start(method, Duration::ZERO);
        self.record_end(method, took, succeeded);
    }

    fn count(self: &Arc<Self>, what: fn(&Self) -> &AtomicU64) -> Counted {
        what(self).fetch_add(1, Ordering::Relaxed);
        Counted { metrics: self.clone(), what }
    }

    pub(super) fn count_connection(self: &Arc<Self>) -> Counted {
        self.count(|metrics| &metrics.connections)
    }

    /// Counts a call that does not have its response at once.
    pub(super) fn count_call(self: &Arc<Self>) -> Counted {
        self.count(|metrics| &metrics.calls_in_progress)
    }

    pub(super) fn record_received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn record_sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Records a connection that is closed at once.
    pub(super) fn record_refusal(&self) {
        self.refused_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Records whether the user of a new connection was accepted.
    pub(super) fn record_authorization(&self, accepted: bool) {
        let counter = if accepted { &self.authorizations } else { &self.authorization_failures };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the figures of this moment. `port`: the port that they are of.
    pub fn figures(&self, port: u16) -> RpcFigures {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let methods = self.methods.iter().map(|method| RpcMethodFigures {
            name: method.name,
            queue: method.queue.snapshot(),
            processing: method.processing.snapshot(),
            errors: get(&method.errors),
        });
        RpcFigures {
            port,
            methods: methods.collect(),
            connections: get(&self.connections),
            calls_in_progress: get(&self.calls_in_progress),
            received_bytes: get(&self.received_bytes),
            sent_bytes: get(&self.sent_bytes),
            refused_connections: get(&self.refused_connections),
            authorizations: get(&self.authorizations),
            authorization_failures: get(&self.authorization_failures),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_methods_share_one_name() {
        let metrics = RpcMetrics::new(&[protocols::CLIENT]);
        for name in ["none", "", "initReplicaRecovery"] {
            assert_eq!(metrics.method(name, None), metrics.method(OTHER_METHODS, None), "{name}");
        }
        for name in ["getFileInfo", "openMany", "getProtocolSignature"] {
            assert_ne!(metrics.method(name, None), metrics.method(OTHER_METHODS, None), "{name}");
        }
        let before = metrics.figures(0).methods.len();
        metrics.record_start(metrics.method("none", None), Duration::ZERO);
        metrics.record_end(metrics.method("nothing", None), Duration::from_millis(1), false);
        let figures = metrics.figures(8020);
        assert_eq!((figures.port, figures.methods.len()), (8020, before));
        let other = figures.methods.last().unwrap();
        assert_eq!((other.name, other.queue.count(), other.processing.count(), other.errors), (OTHER_METHODS, 1, 1, 1));
    }

    #[test]
    fn every_name_occurs_once() {
        let all: Vec<&str> = hadoop_methods().map(|method| method.protocol).collect();
        let figures = RpcMetrics::new(&all).figures(0);
        let names: std::collections::HashSet<&str> = figures.methods.iter().map(|method| method.name).collect();
        assert_eq!(names.len(), figures.methods.len());
        assert!(names.len() > 120, "{}", names.len());
    }

    #[test]
    fn counts_fall_on_drop() {
        let metrics = RpcMetrics::new(&[]);
        let counted = (metrics.count_connection(), metrics.count_call(), metrics.count_call());
        let of = |metrics: &RpcMetrics| (metrics.figures(0).connections, metrics.figures(0).calls_in_progress);
        assert_eq!(of(&metrics), (1, 2));
        drop(counted);
        assert_eq!(of(&metrics), (0, 0));
    }
}
