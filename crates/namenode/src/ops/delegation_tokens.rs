//! Delegation tokens. With simple authentication none is issued, and clients work without. A client that presents one,
//! from another NameNode or another time, gets the answer of Apache's NameNode, which then has none either.
//!
//! Source: `AbstractDelegationTokenSecretManager.renewToken` and `cancelToken` of Hadoop 3.4.

use bytes::Bytes;
use hearth_wire::delegation_token::{DELEGATION_TOKEN_KIND, DelegationTokenFormatError, DelegationTokenIdentifier};
use hearth_wire::proto::hdfs::{
    CancelDelegationTokenRequestProto, GetDelegationTokenRequestProto, GetDelegationTokenResponseProto,
    RenewDelegationTokenRequestProto,
};

use super::audited::Audited;
use crate::date::log_time;
use crate::error::Error;
use crate::state::{CallContext, Namenode, encode};

/// Returns no token, which Java takes for "no token needed".
pub async fn get_delegation_token(
    namenode: &Namenode,
    _context: &CallContext,
    _request: GetDelegationTokenRequestProto,
) -> Result<Bytes, Error> {
    namenode.check_safe_mode(&namenode.read(), namenode.now(), || "issue delegation token".into())?;
    Ok(encode(&GetDelegationTokenResponseProto { token: None }))
}

pub async fn renew_delegation_token(
    namenode: &Namenode,
    context: &CallContext,
    request: RenewDelegationTokenRequestProto,
) -> Result<Bytes, Error> {
    namenode.check_safe_mode(&namenode.read(), namenode.now(), || "renew delegation token".into())?;
    let id = identifier(&request.token.identifier)?;
    let named = named(&id);
    let renewer = &context.caller.user;
    let now_ms = namenode.clock.wall_ms();
    if id.latest_end_ms < now_ms as i64 {
        let (end, now) = (log_time(id.latest_end_ms.max(0) as u64), log_time(now_ms));
        let message = format!(
            "{renewer} tried to renew an expired token {named} max expiration date: {end}+0000 currentTime: {now}+0000"
        );
        return Err(Error::InvalidToken { message });
    }
    if id.renewer.is_empty() {
        return Err(Error::TokenDenied {
            message: format!("{renewer} tried to renew a token {named} without a renewer"),
        });
    }
    if *id.renewer != **renewer {
        let message = format!("{renewer} tries to renew a token {named} with non-matching renewer {}", id.renewer);
        return Err(Error::TokenDenied { message });
    }
    let message = format!(
        "Unable to find master key for keyId={} from cache. Failed to renew an unexpired token {named} with sequenceNumber={}",
        id.key_id, id.sequence_number
    );
    Err(Error::InvalidToken { message })
}

pub fn audit_renew_delegation_token(request: &RenewDelegationTokenRequestProto) -> Option<Audited> {
    audit_token("renewDelegationToken", &request.token.identifier)
}

pub async fn cancel_delegation_token(
    namenode: &Namenode,
    context: &CallContext,
    request: CancelDelegationTokenRequestProto,
) -> Result<Bytes, Error> {
    namenode.check_safe_mode(&namenode.read(), namenode.now(), || "cancel delegation token".into())?;
    let id = identifier(&request.token.identifier)?;
    let canceller = &context.caller.user;
    let named = named(&id);
    if id.owner.is_empty() {
        return Err(Error::InvalidToken { message: format!("Token with no owner {named}") });
    }
    if *id.owner != **canceller && *id.renewer != **canceller {
        let message = format!("{canceller} is not authorized to cancel the token {named}");
        return Err(Error::TokenDenied { message });
    }
    Err(Error::InvalidToken { message: format!("Token not found {named}") })
}

pub fn audit_cancel_delegation_token(request: &CancelDelegationTokenRequestProto) -> Option<Audited> {
    audit_token("cancelDelegationToken", &request.token.identifier)
}

/// Audit line of a call about a token; `None` for an unreadable token. Source:
/// `DelegationTokenIdentifier.toStringStable`.
fn audit_token(command: &'static str, identifier: &[u8]) -> Option<Audited> {
    let id = DelegationTokenIdentifier::decode(identifier).ok()?;
    let named =
        format!("{DELEGATION_TOKEN_KIND} token {} for {} with renewer {}", id.sequence_number, id.owner, id.renewer);
    Some(Audited::on(command, named))
}

/// Text of the token in Java's form; Java cannot print one without an owner.
fn named(id: &DelegationTokenIdentifier) -> String {
    if id.owner.is_empty() { format!("( SequenceNumber={} )", id.sequence_number) } else { format!("({id})") }
}

fn identifier(bytes: &[u8]) -> Result<DelegationTokenIdentifier, Error> {
    DelegationTokenIdentifier::decode(bytes).map_err(|error| match error {
        DelegationTokenFormatError::Truncated => Error::TokenTruncated,
        error => Error::TokenUnreadable(error),
    })
}
