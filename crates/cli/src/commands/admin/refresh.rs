//! Verbs that make a server read something again: `-refreshServiceAcl`, `-refreshUserToGroupsMappings`,
//! `-refreshSuperUserGroupsConfiguration`, `-refreshCallQueue`, `-refresh`

use hearth_client::{Administration, Error, FileSystem};
use hearth_config::HostPort;

use super::namespace::at_each;
use crate::commands::tool::{FAILED, Tool, address};

/// What a namenode reads again.
#[derive(Clone, Copy)]
pub enum What {
    ServiceAcl,
    UserGroups,
    ProxyUsers,
    CallQueue,
}

impl What {
    fn shown(self) -> &'static str {
        match self {
            Self::ServiceAcl => "Refresh service acl",
            Self::UserGroups => "Refresh user to groups mapping",
            Self::ProxyUsers => "Refresh super user groups configuration",
            Self::CallQueue => "Refresh call queue",
        }
    }

    async fn order(self, administration: &Administration, namenode: &HostPort) -> Result<(), Error> {
        match self {
            Self::ServiceAcl => administration.refresh_service_acl(namenode).await,
            Self::UserGroups => administration.refresh_user_groups(namenode).await,
            Self::ProxyUsers => administration.refresh_proxy_users(namenode).await,
            Self::CallQueue => administration.refresh_call_queue(namenode).await,
        }
    }
}

pub async fn refresh(tool: &Tool, what: What) -> anyhow::Result<u8> {
    let fs = tool.fs()?;
    let administration = tool.administration()?;
    let done = format!("{} successful", what.shown());
    match tool.namenodes(&fs).await? {
        Some(namenodes) => {
            at_each(namenodes, &format!("{} failed", what.shown()), async |fs: &FileSystem| {
                what.order(&administration, &tool.namenode_address(fs)?).await?;
                Ok(done.clone())
            })
            .await
        }
        None => {
            what.order(&administration, &tool.namenode_address(&fs)?).await?;
            println!("{done}");
            Ok(0)
        }
    }
}

pub async fn generic(tool: &Tool, words: Vec<String>) -> anyhow::Result<u8> {
    let [server, identifier, arguments @ ..] = words.as_slice() else { return Ok(FAILED) };
    let server = address(server)?;
    let answers = match tool.administration()?.refresh(&server, identifier, arguments).await {
        Ok(answers) => answers,
        Err(error) => {
            tracing::debug!(%error, "refresh failed");
            // Apache's tool does not show the reason. It is what an administrator needs, so it goes to standard error.
            eprintln!("refresh: {error}");
            println!("Failed to get response.\n");
            return Ok(FAILED);
        }
    };
    println!("Refresh Responses:\n");
    let mut code = 0;
    for answer in answers {
        let sender = answer.sender.map(|sender| format!("{sender}: ")).unwrap_or_default();
        println!("{sender}{} (exit {})", answer.message.unwrap_or_default(), answer.code);
        // Several failures have no common code.
        code = match (code, answer.code) {
            (code, 0) => code,
            (0, other) => other,
            _ => -1,
        };
    }
    Ok(code as u8)
}
