use hearth_types::Token;

use crate::proto::common::TokenProto;

impl From<&Token> for TokenProto {
    fn from(token: &Token) -> Self {
        Self {
            identifier: token.identifier.clone().into(),
            password: token.password.clone().into(),
            kind: token.kind.clone(),
            service: token.service.clone(),
        }
    }
}

impl From<TokenProto> for Token {
    /// Copies the parts, so that a kept token does not keep the frame that contains it.
    fn from(message: TokenProto) -> Self {
        Self {
            identifier: message.identifier.to_vec(),
            password: message.password.to_vec(),
            kind: message.kind,
            service: message.service,
        }
    }
}
