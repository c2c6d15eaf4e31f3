//! Delegation tokens: none is issued without Kerberos, and a client with a token of another NameNode gets the same
//! answer as over RPC.

use hearth_web::webhdfs::Exception;
use hearth_wire::proto::common::TokenProto;
use hearth_wire::proto::hdfs::{
    CancelDelegationTokenRequestProto, CancelDelegationTokenResponseProto, GetDelegationTokenRequestProto,
    GetDelegationTokenResponseProto, RenewDelegationTokenRequestProto, RenewDelegationTokenResponseProto,
};
use serde_json::json;

use super::{Answer, Operation, answer, token};

impl Operation {
    /// Answers that there is no token, which Java's clients take for "no token needed".
    pub(super) async fn delegation_token(&self) -> Answer {
        if self.parameters.text("delegation").is_some() {
            return Err(Exception::illegal_argument("delegation parameter is not null."));
        }
        let renewer = self.parameters.text_or_null("renewer").unwrap_or(&self.caller.user).to_owned();
        let request = GetDelegationTokenRequestProto { renewer };
        let found: GetDelegationTokenResponseProto = self.call("getDelegationToken", &request).await?;
        let shown = found.token.as_ref().map(|token| json!({ "urlString": token::encode(token) }));
        Ok(answer(&json!({ "Token": shown })))
    }

    pub(super) async fn renew_delegation_token(&self) -> Answer {
        let request = RenewDelegationTokenRequestProto { token: self.token("RENEWDELEGATIONTOKEN")? };
        let renewed: RenewDelegationTokenResponseProto = self.call("renewDelegationToken", &request).await?;
        Ok(answer(&json!({ "long": renewed.new_expiry_time as i64 })))
    }

    pub(super) async fn cancel_delegation_token(&self) -> Answer {
        let request = CancelDelegationTokenRequestProto { token: self.token("CANCELDELEGATIONTOKEN")? };
        self.change::<CancelDelegationTokenResponseProto>("cancelDelegationToken", &request).await
    }

    fn token(&self, operation: &str) -> Result<TokenProto, Exception> {
        let given = self.parameters.needed("token", operation)?;
        token::decode(given).ok_or_else(|| Exception::io(format!("{given} is not a token")))
    }
}
