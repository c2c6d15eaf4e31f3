use bytes::Bytes;
use hearth_wire::proto::hdfs::{SafeModeActionProto, SetSafeModeRequestProto, SetSafeModeResponseProto};

use super::audited::Audited;
use crate::error::Error;
use crate::state::{CallContext, Namenode, encode};

/// Queries or switches safe mode. Answers whether it is on afterwards.
pub async fn set_safe_mode(
    namenode: &Namenode,
    context: &CallContext,
    request: SetSafeModeRequestProto,
) -> Result<Bytes, Error> {
    let operation = match request.action() {
        SafeModeActionProto::Get => {
            let result = namenode.read().blocks.in_safe_mode();
            return Ok(encode(&SetSafeModeResponseProto { result }));
        }
        SafeModeActionProto::Enter => "safemode_enter",
        SafeModeActionProto::Leave => "safemode_leave",
        SafeModeActionProto::ForceExit => "safemode_force_exit",
    };
    let result = match request.action() {
        // Gives up the stamps that a recovery skipped, which is stored.
        SafeModeActionProto::ForceExit => {
            let change = namenode.change(|state, now| {
                state.namespace.require_superuser(&context.caller, operation)?;
                state.blocks.leave_safe_mode(true, now);
                Ok(state.blocks.in_safe_mode())
            });
            change.await?
        }
        action => {
            let mut state = namenode.state.write();
            state.namespace.require_superuser(&context.caller, operation)?;
            match action {
                SafeModeActionProto::Enter => state.blocks.enter_safe_mode(),
                _ => drop(state.blocks.leave_safe_mode(false, namenode.now())),
            }
            state.blocks.in_safe_mode()
        }
    };
    Ok(encode(&SetSafeModeResponseProto { result }))
}

pub fn audit(request: &SetSafeModeRequestProto) -> Option<Audited> {
    use SafeModeActionProto as Action;
    Some(Audited::new(match Action::try_from(request.action).ok()? {
        Action::Leave => "safemode_leave",
        Action::Enter => "safemode_enter",
        Action::Get => "safemode_get",
        Action::ForceExit => "safemode_force_exit",
    }))
}
