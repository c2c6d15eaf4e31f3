//! Small administrative protocols of a NameNode: refreshing policies and queues, high availability, reconfiguration.
//!
//! Each call is answered like Apache's NameNode without high availability and without service-level authorization
//! answers it, or refused with a class that its clients know. `docs/compatibility/rpc.md` has the table.

use bytes::Bytes;
use hearth_config::ReconfigurationTask;
use hearth_protocol::rpc::{Call, RemoteError, application_error, no_such_method, undecodable};
use hearth_wire::proto::common::{
    GenericRefreshRequestProto, GetServiceStatusResponseProto, HaRequestSource, HaServiceStateProto,
    MonitorHealthResponseProto, RefreshCallQueueResponseProto, TransitionToActiveRequestProto,
};
use hearth_wire::proto::hdfs::{
    GetReconfigurationStatusConfigChangeProto, GetReconfigurationStatusResponseProto,
    ListReconfigurablePropertiesResponseProto,
};
use hearth_wire::rpc::{exceptions, protocols};
use prost::Message;

use super::{NamenodeService, OVER_RPC, to_remote};
use crate::audit::Event;
use crate::namespace::Caller;
use crate::state::encode;

/// Protocols that this file answers.
pub const PROTOCOLS: [&str; 5] = [
    protocols::REFRESH_AUTHORIZATION_POLICY,
    protocols::REFRESH_CALL_QUEUE,
    protocols::GENERIC_REFRESH,
    protocols::HA_SERVICE,
    protocols::RECONFIGURATION,
];

/// Answers one call of [`PROTOCOLS`].
pub async fn call(service: &NamenodeService, call: &Call) -> Result<Bytes, RemoteError> {
    let caller = service.caller(call).await?;
    match call.protocol.as_str() {
        protocols::REFRESH_AUTHORIZATION_POLICY => refresh_service_acl(call),
        protocols::REFRESH_CALL_QUEUE => refresh_call_queue(service, &caller, call).await,
        protocols::GENERIC_REFRESH => generic_refresh(call),
        protocols::HA_SERVICE => ha_service(service, &caller, call),
        _ => reconfiguration(service, &caller, call).await,
    }
}

/// A NameNode with `hadoop.security.authorization` does not start, so there is never a policy to reload.
fn refresh_service_acl(call: &Call) -> Result<Bytes, RemoteError> {
    match call.method.as_str() {
        "refreshServiceAcl" => {
            Err(application_error(exceptions::AUTHORIZATION, "Service Level Authorization not enabled!"))
        }
        method => Err(no_such_method(&call.protocol, method)),
    }
}

/// Calls reach the state without a queue, so there is nothing to replace.
async fn refresh_call_queue(service: &NamenodeService, caller: &Caller, call: &Call) -> Result<Bytes, RemoteError> {
    match call.method.as_str() {
        "refreshCallQueue" => {
            require_superuser(service, caller, "refreshCallQueue")?;
            tracing::info!(user = %caller.user, "refreshCallQueue: this namenode has no call queue, nothing changes");
            write_audit(service, caller, "refreshCallQueue").await;
            Ok(encode(&RefreshCallQueueResponseProto {}))
        }
        method => Err(no_such_method(&call.protocol, method)),
    }
}

/// Apache's NameNode registers no handler either, and refuses every name with these words.
fn generic_refresh(call: &Call) -> Result<Bytes, RemoteError> {
    match call.method.as_str() {
        "refresh" => {
            let request: GenericRefreshRequestProto = decode(call)?;
            let message = match request.identifier {
                Some(identifier) => {
                    format!("Identifier '{identifier}' does not exist in RefreshRegistry. Valid options are: ")
                }
                None => "Request must contain identifier".to_owned(),
            };
            Err(application_error(exceptions::ILLEGAL_ARGUMENT, message))
        }
        method => Err(no_such_method(&call.protocol, method)),
    }
}

/// A single NameNode: it is active and healthy, and its state cannot change.
fn ha_service(service: &NamenodeService, caller: &Caller, call: &Call) -> Result<Bytes, RemoteError> {
    match call.method.as_str() {
        "monitorHealth" => {
            require_superuser(service, caller, "monitorHealth")?;
            if let Some(failed) = service.namenode.store.failure() {
                let message = format!("The NameNode cannot store changes: {}; restart it", failed.reason);
                return Err(application_error(exceptions::HEALTH_CHECK_FAILED, message));
            }
            Ok(encode(&MonitorHealthResponseProto {}))
        }
        // Apache refuses this call without high availability; its own router then discards the NameNode's state.
        "getServiceStatus" => Ok(encode(&GetServiceStatusResponseProto {
            state: HaServiceStateProto::Active as i32,
            ready_to_become_active: Some(true),
            not_ready_reason: None,
        })),
        "transitionToActive" => refuse_transition(service, caller, call, "transitionToActive"),
        "transitionToStandby" => refuse_transition(service, caller, call, "transitionToStandby"),
        "transitionToObserver" => refuse_transition(service, caller, call, "transitionToObserver"),
        method => Err(no_such_method(&call.protocol, method)),
    }
}

fn refuse_transition(
    service: &NamenodeService,
    caller: &Caller,
    call: &Call,
    operation: &'static str,
) -> Result<Bytes, RemoteError> {
    // The three requests have the same fields.
    let request: TransitionToActiveRequestProto = decode(call)?;
    if request.req_info.req_source() == HaRequestSource::RequestByZkfc {
        let message = format!(
            "Request from ZK failover controller at {} denied since automatic HA is not enabled",
            caller.machine
        );
        return Err(application_error(exceptions::ACCESS_CONTROL, message));
    }
    require_superuser(service, caller, operation)?;
    Err(application_error(exceptions::SERVICE_FAILED, "HA for namenode is not enabled"))
}

/// The task of a start is done when the start is answered.
async fn reconfiguration(service: &NamenodeService, caller: &Caller, call: &Call) -> Result<Bytes, RemoteError> {
    let operation = match call.method.as_str() {
        "startReconfiguration" => "startNamenodeReconfiguration",
        "getReconfigurationStatus" => "getNamenodeReconfigurationStatus",
        "listReconfigurableProperties" => "listNamenodeReconfigurableProperties",
        method => return Err(no_such_method(&call.protocol, method)),
    };
    require_superuser(service, caller, operation)?;
    let answer = match call.method.as_str() {
        "getReconfigurationStatus" => encode(&status(service.namenode.reconfiguration.last())),
        "listReconfigurableProperties" => {
            let name = service.namenode.reconfiguration.keys().map(str::to_owned).collect();
            encode(&ListReconfigurablePropertiesResponseProto { name })
        }
        _ => {
            let namenode = service.namenode.clone();
            let done = tokio::task::spawn_blocking(move || namenode.reconfigure()).await;
            let done = done.map_err(|error| error.to_string()).and_then(|done| done.map_err(|error| error.to_string()));
            done.map_err(|message| application_error(exceptions::IO, message))?;
            // An empty message.
            encode(&())
        }
    };
    write_audit(service, caller, operation).await;
    Ok(answer)
}

/// `None`: no task has run, whose start Apache's tool recognizes by 0.
fn status(last: Option<ReconfigurationTask>) -> GetReconfigurationStatusResponseProto {
    let Some(task) = last else { return GetReconfigurationStatusResponseProto::default() };
    let changes = task.changes.into_iter().map(|change| GetReconfigurationStatusConfigChangeProto {
        name: change.key.to_owned(),
        old_value: change.old,
        new_value: change.new,
        error_message: change.error,
    });
    GetReconfigurationStatusResponseProto {
        start_time: task.started_ms as i64,
        end_time: Some(task.ended_ms as i64),
        changes: changes.collect(),
    }
}

fn decode<M: Message + Default>(call: &Call) -> Result<M, RemoteError> {
    M::decode(call.request.clone()).map_err(|error| undecodable(&call.method, &error))
}

fn require_superuser(service: &NamenodeService, caller: &Caller, operation: &'static str) -> Result<(), RemoteError> {
    service.namenode.read().namespace.require_superuser(caller, operation).map_err(to_remote)
}

/// Writes the audit line of a call that was executed.
async fn write_audit(service: &NamenodeService, caller: &Caller, command: &str) {
    let Some(log) = &service.namenode.audit else { return };
    let (user, machine) = (&*caller.user, &*caller.machine);
    log.write(Event { allowed: true, user, machine, command, protocol: Some(OVER_RPC), ..Event::default() }).await;
}
