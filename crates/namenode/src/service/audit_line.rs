//! The audit line of a call: from the data that its operation collected before, and from its outcome.

use bytes::Bytes;
use hearth_protocol::rpc::{Call, RemoteError};
use hearth_wire::proto::hdfs::DeleteResponseProto;
use hearth_wire::rpc::exceptions;
use prost::Message;

use crate::audit::{AuditLog, Event};
use crate::namespace::Caller;
use crate::ops::audited::{Audited, FromAnswer, When};
use crate::state::Namenode;

/// Logs the result of a call. `protocol`: protocol of the call.
pub async fn write_audit(
    log: &AuditLog,
    namenode: &Namenode,
    caller: &Caller,
    call: &Call,
    protocol: &str,
    audited: &Audited,
    outcome: &Result<Bytes, RemoteError>,
) {
    let is_true = |answer: &Bytes| DeleteResponseProto::decode(answer.clone()).is_ok_and(|answer| answer.result);
    let allowed = match (outcome, audited.when) {
        (Ok(answer), When::True) if !is_true(answer) => return,
        (Ok(answer), When::Answered) => is_true(answer),
        (Ok(_), _) => true,
        (Err(error), _) if error.class == exceptions::ACCESS_CONTROL => false,
        (Err(_), When::Always) => false,
        (Err(_), _) => return,
    };
    let status_of = audited.status_of.as_deref().filter(|_| allowed);
    let permissions = status_of.and_then(|path| permissions(namenode, path));
    let from_answer = |text: &Option<FromAnswer>| {
        text.as_ref().zip(outcome.as_ref().ok()).and_then(|(text, answer)| text(namenode, answer))
    };
    let (made, target) = (from_answer(&audited.source_from_answer), from_answer(&audited.target_from_answer));
    let refused = audited.source_refused.as_deref().filter(|_| !allowed);
    let first = refused.or(made.as_deref()).or(audited.source.as_deref());
    let target = target.as_deref().or(audited.target.as_deref()).filter(|_| allowed || !audited.only_allowed);
    let sources = std::iter::once(first).chain(audited.others.iter().map(|path| Some(&**path)));
    let event = |source| Event {
        allowed,
        user: &caller.user,
        real_user: call.caller.real_user.as_deref(),
        machine: &caller.machine,
        command: &audited.command,
        source,
        target,
        permissions: permissions.as_deref(),
        protocol: Some(protocol),
        context: call.caller_context.as_deref().map(|context| (context, &call.caller_signature)),
    };
    log.write_all(sources.map(event)).await;
}

/// Returns `owner:group:rwxr-xr-x` of the inode that is now at `path`.
fn permissions(namenode: &Namenode, path: &str) -> Option<String> {
    let state = namenode.read();
    let namespace = &state.namespace;
    let inode = namespace.inode(namespace.lookup(path)?);
    let (owner, group) = (namespace.names.text(inode.owner()), namespace.names.text(inode.group()));
    Some(format!("{owner}:{group}:{}", symbols(inode.permission().0)))
}

/// Text of a mode as in `ls`.
fn symbols(mode: u16) -> String {
    let mut text: String =
        (0..9).map(|i| if mode & (0o400 >> i) != 0 { ['r', 'w', 'x'][i % 3] } else { '-' }).collect();
    if mode & 0o1000 != 0 {
        text.pop();
        text.push(if mode & 1 != 0 { 't' } else { 'T' });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::symbols;

    #[test]
    fn modes_as_ls_shows_them() {
        assert_eq!(symbols(0o750), "rwxr-x---");
        assert_eq!(symbols(0o1777), "rwxrwxrwt");
        assert_eq!(symbols(0o1640), "rw-r----T");
    }
}
