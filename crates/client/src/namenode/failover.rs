//! Choice of the namenode for a call, with retries and failover when it does not answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hearth_config::{HostPort, NamenodeAddress, Nameservice};
use hearth_protocol::rpc::{CallId, RpcClient, RpcError, Target};
use hearth_wire::rpc::protocols;
use parking_lot::Mutex;
use prost::Message;
use tokio::time::Instant;

use super::{Exception, Observers, without_stack_trace};
use crate::error::Failure;
use crate::options::NamenodeOptions;
use crate::{Error, backoff, retry_notices};

/// Maximum number of answers "try the same server again later" before the call fails.
const RETRIABLE_MAX: u32 = 10;

/// The namenodes of one file system. All methods are idempotent or protected by the namenode's retry cache (every
/// repetition has the same call id), so a call whose answer was lost is repeated.
pub(crate) struct Namenode {
    rpc: RpcClient,
    service: Nameservice,
    /// Set if reads go to observer namenodes.
    observers: Option<Observers>,
    user: Arc<str>,
    /// Index of the namenode that answered last.
    current: AtomicUsize,
    options: NamenodeOptions,
    /// Time at which a namenode answered that it does not support the call that opens many files.
    pub(super) open_many_unsupported: Mutex<Option<Instant>>,
}

/// Next step after a failed call.
enum RetryDecision {
    GiveUp,
    /// Retry at the same namenode after a pause.
    Retry(Duration),
    /// Retry at the next namenode after a pause.
    FailOver(Duration),
}

#[derive(Default)]
struct RetryCounts {
    refused: u32,
    failovers: u32,
    retriable: u32,
}

impl Namenode {
    pub(crate) fn new(
        rpc: RpcClient,
        service: Nameservice,
        observers: Option<Observers>,
        user: Arc<str>,
        options: NamenodeOptions,
    ) -> Self {
        Self {
            rpc,
            service,
            observers,
            user,
            current: AtomicUsize::new(0),
            options,
            open_many_unsupported: Mutex::default(),
        }
    }

    /// Returns `host:port` of the namenode that calls currently go to.
    pub(crate) fn address(&self) -> &HostPort {
        let count = self.service.namenodes.len();
        &self.service.namenodes[self.current.load(Ordering::Relaxed) % count].rpc
    }

    pub(super) fn rpc(&self) -> &RpcClient {
        &self.rpc
    }

    pub(super) fn namenodes(&self) -> &[NamenodeAddress] {
        &self.service.namenodes
    }

    pub(super) async fn call<A: Message + Default>(
        &self,
        method: &'static str,
        request: &impl Message,
    ) -> Result<A, Error> {
        if let Some(observers) = &self.observers
            && let Some(answer) = self.call_observer(observers, method, request).await?
        {
            return Ok(answer);
        }
        self.call_active(method, request).await
    }

    /// Makes one attempt at one namenode.
    pub(super) async fn call_one<A: Message + Default>(
        &self,
        index: usize,
        call: CallId,
        repetition: i32,
        method: &str,
        request: &impl Message,
    ) -> Result<A, RpcError> {
        let address = resolve(&self.service.namenodes[index].rpc).await.map_err(unresolved)?;
        self.call_at(address, protocols::CLIENT, call, repetition, method, request).await
    }

    async fn call_at<A: Message + Default>(
        &self,
        address: SocketAddr,
        protocol: &'static str,
        call: CallId,
        repetition: i32,
        method: &str,
        request: &impl Message,
    ) -> Result<A, RpcError> {
        let target = Target { address, protocol, user: Arc::clone(&self.user) };
        let state = self.observers.as_ref().map(|observers| &observers.state);
        self.rpc.call_after(state, call, repetition, &target, method, request).await
    }

    /// Calls the active namenode, and follows it after a failover.
    pub(super) async fn call_active<A: Message + Default>(
        &self,
        method: &'static str,
        request: &impl Message,
    ) -> Result<A, Error> {
        self.call_active_by(protocols::CLIENT, method, request).await
    }

    /// Like `call_active`, for a method of another protocol of namenodes.
    pub(super) async fn call_active_by<A: Message + Default>(
        &self,
        protocol: &'static str,
        method: &'static str,
        request: &impl Message,
    ) -> Result<A, Error> {
        let call = self.rpc.new_call();
        let mut tries = RetryCounts::default();
        let mut repetition = 0;
        loop {
            let index = self.current.load(Ordering::Relaxed);
            let address = self.address().clone();
            let outcome = match resolve(&address).await {
                Ok(resolved) => {
                    let call = self.call_at(resolved, protocol, call, repetition, method, request);
                    let silent = |passed: Duration| {
                        format!("the NameNode at {address} has not answered {method} for {passed:?}: still waiting")
                    };
                    retry_notices::note_silence(call, silent).await
                }
                Err(why) if self.service.namenodes.len() == 1 => {
                    return Err(Failure::InvalidUri { uri: address.to_string(), why }.into());
                }
                Err(why) => Err(unresolved(why)),
            };
            let error = match outcome {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            repetition += 1;
            let pause = match self.decide(&error, &mut tries) {
                RetryDecision::GiveUp => return Err(failed(method, &address, error)),
                RetryDecision::Retry(pause) => {
                    retry_notices::note(|| self.retry_notice(&address, &error, pause));
                    pause
                }
                RetryDecision::FailOver(pause) => {
                    retry_notices::note(|| {
                        format!("the NameNode at {address} {}: trying the next one", reason(&error))
                    });
                    // Another task may already have switched to the next namenode.
                    let next = index.wrapping_add(1);
                    let _ = self.current.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
                    pause
                }
            };
            tracing::debug!(%address, method, %error, ?pause, "retrying");
            tokio::time::sleep(pause).await;
        }
    }

    fn decide(&self, error: &RpcError, tries: &mut RetryCounts) -> RetryDecision {
        let several = self.service.namenodes.len() > 1;
        let exception = error.remote_class().map(Exception::from_class);
        match (exception, error) {
            (Some(Exception::Standby | Exception::ObserverRetryOnActive), _) if several => self.fail_over(tries),
            (Some(Exception::Retriable), _) => {
                tries.retriable += 1;
                if tries.retriable > RETRIABLE_MAX {
                    RetryDecision::GiveUp
                } else {
                    RetryDecision::Retry(self.pause(tries.retriable))
                }
            }
            (Some(_), _) => RetryDecision::GiveUp,
            (None, error) if !error.is_transport() => RetryDecision::GiveUp,
            (None, _) if several => self.fail_over(tries),
            (None, RpcError::Connect { .. } | RpcError::Disconnected { .. }) => {
                tries.refused += 1;
                if tries.refused > self.options.connect_retries {
                    RetryDecision::GiveUp
                } else {
                    RetryDecision::Retry(self.options.connect_retry_interval)
                }
            }
            (None, _) => RetryDecision::GiveUp,
        }
    }

    /// Returns a sentence about a call that is tried again at the same namenode.
    fn retry_notice(&self, address: &HostPort, error: &RpcError, pause: Duration) -> String {
        let reason = reason(error);
        match error {
            RpcError::Remote(_) => format!("the NameNode at {address} {reason}: trying again"),
            _ => {
                let times = match self.options.connect_retries {
                    1 => "once".to_owned(),
                    times => format!("{times} times"),
                };
                format!("the NameNode at {address} {reason}: trying again every {pause:?}, {times}")
            }
        }
    }

    fn fail_over(&self, tries: &mut RetryCounts) -> RetryDecision {
        tries.failovers += 1;
        if tries.failovers > self.options.failovers_max {
            return RetryDecision::GiveUp;
        }
        let pause = if tries.failovers == 1 { Duration::ZERO } else { self.pause(tries.failovers - 1) };
        RetryDecision::FailOver(pause)
    }

    /// Returns 0.5 to 1.5 times a base that doubles with every attempt.
    fn pause(&self, attempt: u32) -> Duration {
        let base =
            self.options.failover_sleep.saturating_mul(1 << attempt.min(10)).min(self.options.failover_sleep_max);
        base / 2 + backoff::random_part(base)
    }
}

async fn resolve(address: &HostPort) -> Result<SocketAddr, String> {
    crate::resolve::resolve(&address.host, address.port).await
}

/// Returns why a namenode has not done a call, as the end of a sentence.
fn reason(error: &RpcError) -> String {
    match error {
        RpcError::Remote(remote) => format!("asks to try later ({})", without_stack_trace(&remote.message)),
        RpcError::Connect { source, .. } if source.kind() != std::io::ErrorKind::NotFound => {
            format!("does not answer ({})", source.kind())
        }
        RpcError::Connect { source, .. } => format!("does not answer ({source})"),
        RpcError::Disconnected { reason, .. } => format!("does not answer ({reason})"),
        other => format!("does not answer ({other})"),
    }
}

fn unresolved(why: String) -> RpcError {
    let source = std::io::Error::new(std::io::ErrorKind::NotFound, why);
    RpcError::Connect { address: SocketAddr::from(([0, 0, 0, 0], 0)), source }
}

pub(super) fn failed(method: &'static str, address: &HostPort, error: RpcError) -> Error {
    match error {
        RpcError::Remote(remote) => Failure::Refused {
            exception: Exception::from_class(&remote.class),
            message: without_stack_trace(&remote.message).to_owned(),
            class: remote.class,
        }
        .into(),
        error => Failure::Namenode { method, address: address.to_string(), source: Arc::new(error) }.into(),
    }
}

impl std::fmt::Debug for Namenode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Namenode").field("service", &self.service).field("user", &self.user).finish_non_exhaustive()
    }
}
