//! Dispatch of RPC calls: decodes a call, finds its caller, detects repetitions, runs the operation, writes the audit
//! line, and encodes the answer.

mod administration;
mod audit_line;
mod operations;
mod webhdfs;

use std::sync::Arc;

use bytes::Bytes;
use hearth_protocol::rpc::{
    Attempt, Call, Caller as Connected, RemoteError, RetryCache, Service, application_error, no_such_method,
    server_error, undecodable,
};
use hearth_wire::proto::common::{
    GetGroupsForUserRequestProto, GetGroupsForUserResponseProto, RefreshSuperUserGroupsConfigurationResponseProto,
    RefreshUserToGroupsMappingsResponseProto,
};
use hearth_wire::proto::hdfs::RefreshNodesResponseProto;
use hearth_wire::rpc::{ErrorCode, exceptions, protocols};
use prost::Message;

use crate::audit::Event;
use crate::datanode_service::{self, DatanodeService};
use crate::error::Error;
use crate::namespace::Caller;
use crate::ops::audited::Audited;
use crate::ops::unsupported::Unread;
use crate::retries::retry_key;
use crate::state::{CallContext, Namenode, encode};

use audit_line::write_audit;

pub use webhdfs::Webhdfs;

/// Service for clients and datanodes on one port.
pub struct NamenodeService {
    namenode: Arc<Namenode>,
    datanodes: DatanodeService,
    /// `None` if `dfs.namenode.enable.retrycache` is off.
    retries: Option<Arc<RetryCache>>,
}

/// Protocol name in the audit log.
const OVER_RPC: &str = "rpc";

const PROTOCOLS: [&str; 11] = [
    protocols::CLIENT,
    protocols::DATANODE,
    protocols::DATANODE_LIFELINE,
    protocols::NAMENODE,
    protocols::GET_USER_MAPPINGS,
    protocols::REFRESH_USER_MAPPINGS,
    protocols::REFRESH_AUTHORIZATION_POLICY,
    protocols::REFRESH_CALL_QUEUE,
    protocols::GENERIC_REFRESH,
    protocols::HA_SERVICE,
    protocols::RECONFIGURATION,
];

impl NamenodeService {
    pub fn new(namenode: Arc<Namenode>, datanodes: DatanodeService, retries: Option<Arc<RetryCache>>) -> Self {
        Self { namenode, datanodes, retries }
    }

    /// `over`: protocol of the call for the audit log.
    async fn client_call(&self, call: &Call, over: &'static str) -> Result<Bytes, RemoteError> {
        let caller = self.caller(call).await?;
        let columns = operations::columns(&call.method);
        self.namenode.top_users.record(&caller.user, columns.name, call.began);
        let repeated = match (&self.retries, call.client_id) {
            (Some(retries), Some(client)) if columns.at_most_once && call.call_id >= 0 => {
                match retries.begin(client, call.call_id).await {
                    Attempt::Answered(answer) => return Ok(answer),
                    Attempt::New(guard) => Some((guard, retry_key(client, call.call_id), retries.expiry_ms())),
                }
            }
            _ => None,
        };
        let retry = repeated.as_ref().map(|(_, key, expires_ms)| (*key, *expires_ms));
        if columns.rack {
            self.datanodes.place_client(&caller.machine).await;
        }
        let context = CallContext::new(caller, retry);
        let (audited, outcome) = operations::execute(self, &context, call).await;
        if let Some((log, audited)) = self.namenode.audit.as_ref().zip(audited) {
            write_audit(log, &self.namenode, &context.caller, call, over, &audited, &outcome).await;
        }
        if let (Ok(answer), Some((guard, _, expires_ms)), true) = (&outcome, repeated, context.is_remembered()) {
            guard.finish(expires_ms, answer.clone());
        }
        outcome
    }

    /// Handles `hdfs groups` and `dfsadmin -refreshUserToGroupsMappings`.
    async fn users_call(&self, call: &Call) -> Result<Bytes, RemoteError> {
        match call.method.as_str() {
            "getGroupsForUser" => {
                let request = GetGroupsForUserRequestProto::decode(call.request.clone())
                    .map_err(|error| undecodable(&call.method, &error))?;
                let rights = self.namenode.groups.rights(&request.user).await;
                Ok(encode(&GetGroupsForUserResponseProto { groups: rights.groups.to_vec() }))
            }
            "refreshUserToGroupsMappings" => {
                let caller = self.superuser(call, "refreshUserToGroupsMappings").await?;
                self.namenode.groups.refresh();
                self.note_refresh(call, &caller, "refreshUserToGroupsMappings").await;
                Ok(encode(&RefreshUserToGroupsMappingsResponseProto {}))
            }
            "refreshSuperUserGroupsConfiguration" => {
                let caller = self.superuser(call, "refreshSuperUserGroupsConfiguration").await?;
                let namenode = self.namenode.clone();
                let refreshed = tokio::task::spawn_blocking(move || namenode.impersonation.refresh()).await;
                let refreshed = refreshed.map_err(|error| error.to_string());
                refreshed.and_then(|refreshed| refreshed.map_err(|error| error.to_string())).map_err(|error| {
                    let message = format!("cannot read the proxy user rules, the old ones stay in force: {error}");
                    application_error(exceptions::IO, message)
                })?;
                self.note_refresh(call, &caller, "refreshSuperUserGroupsConfiguration").await;
                Ok(encode(&RefreshSuperUserGroupsConfigurationResponseProto {}))
            }
            method => Err(no_such_method(&call.protocol, method)),
        }
    }

    /// Returns the caller, which must be a superuser.
    async fn superuser(&self, call: &Call, operation: &'static str) -> Result<Caller, RemoteError> {
        let caller = self.caller(call).await?;
        self.namenode.read().namespace.require_superuser(&caller, operation).map_err(to_remote)?;
        Ok(caller)
    }

    /// Writes an audit line about tables that were read again.
    async fn note_refresh(&self, call: &Call, caller: &Caller, command: &'static str) {
        let Some(log) = &self.namenode.audit else { return };
        let (user, real_user, machine) = (&caller.user, call.caller.real_user.as_deref(), &caller.machine);
        let protocol = Some(OVER_RPC);
        let context = call.caller_context.as_deref().map(|context| (context, &call.caller_signature));
        log.write(Event { allowed: true, user, real_user, machine, command, protocol, context, ..Event::default() })
            .await;
    }

    /// Rejects a user that acts for another one without permission by a rule. Checked for each call, so that new rules
    /// apply to existing connections.
    async fn check_impersonation(&self, caller: &Connected) -> Result<(), String> {
        let Some(real) = &caller.real_user else { return Ok(()) };
        let namenode = &self.namenode;
        namenode.impersonation.check(&namenode.groups, real, &caller.user, caller.address.ip()).await
    }

    /// The user in whose name the call is made.
    async fn caller(&self, call: &Call) -> Result<Caller, RemoteError> {
        let user = &call.caller.user;
        if user.is_empty() {
            return Err(application_error(exceptions::ACCESS_CONTROL, "The connection names no user"));
        }
        let rights = self.namenode.groups.rights(user).await;
        Ok(Caller {
            user: user.clone(),
            groups: rights.groups,
            superuser: rights.superuser,
            machine: call.caller.machine.clone(),
        })
    }
}

impl Service for NamenodeService {
    fn protocols(&self) -> &[&'static str] {
        &PROTOCOLS
    }

    /// Checks without the user's groups: if the decision depends on them, each call is checked separately.
    fn authorize(&self, caller: &Connected) -> Result<(), RemoteError> {
        let Some(real) = &caller.real_user else { return Ok(()) };
        let rules = self.namenode.impersonation.rules();
        match rules.check(real, &caller.user, None, caller.address.ip()) {
            Some(Err(message)) => {
                let refused = application_error(exceptions::AUTHORIZATION, message);
                Err(RemoteError { code: Some(ErrorCode::FatalUnauthorized), fatal: true, ..refused })
            }
            _ => Ok(()),
        }
    }

    fn disconnected(&self, caller: &Connected) {
        self.datanodes.disconnected(caller.connection);
    }

    async fn call(&self, call: Call) -> Result<Bytes, RemoteError> {
        let impersonation = self.check_impersonation(&call.caller).await;
        impersonation.map_err(|message| server_error(exceptions::AUTHORIZATION, message))?;
        if datanode_service::PROTOCOLS.contains(&call.protocol.as_str()) {
            return self.datanodes.call(&call).await;
        }
        match call.protocol.as_str() {
            protocols::CLIENT => self.client_call(&call, OVER_RPC).await,
            protocols::GET_USER_MAPPINGS | protocols::REFRESH_USER_MAPPINGS => self.users_call(&call).await,
            protocol if administration::PROTOCOLS.contains(&protocol) => administration::call(self, &call).await,
            other => Err(no_such_method(other, &call.method)),
        }
    }
}

/// Reads the hosts files again: the one call of ClientProtocol that concerns the datanode service.
async fn refresh_nodes(service: &NamenodeService, context: &CallContext, _: Unread) -> Result<Bytes, Error> {
    service.namenode.read().namespace.require_superuser(&context.caller, "refreshNodes")?;
    service.datanodes.refresh_nodes().await.map_err(Error::HostsFiles)?;
    Ok(encode(&RefreshNodesResponseProto {}))
}

fn audit_refresh_nodes(_: &Unread) -> Audited {
    Audited::new("refreshNodes")
}

/// Converts an operation's error to its form on the wire.
pub fn to_remote(error: Error) -> RemoteError {
    application_error(error.class(), error.to_string())
}
