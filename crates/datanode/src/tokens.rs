//! Block tokens as this datanode checks and mints them.

/// What a token must allow. Names as in `AccessModeProto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
    Copy,
    Replace,
}

/// Why a token does not open the block.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    #[error("the request carries no block token")]
    Missing,
}
