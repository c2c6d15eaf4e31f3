//! The parameters in a URL.

use std::collections::BTreeMap;

use axum::http::StatusCode;

use crate::webhdfs;

/// Decoded parameters of a request. The first value of a name counts.
pub type Query = BTreeMap<String, String>;

/// Longest query string. Longer ones are refused with 414.
const QUERY_BYTES_MAX: usize = 8 * 1024;

/// Decodes `a=b&c=d` with `%XX` and `+`. Errors: 414 for a query that is too long, 400 for an invalid escape or text
/// that is not UTF-8.
pub(super) fn parse_query(raw: &str) -> Result<Query, StatusCode> {
    if raw.len() > QUERY_BYTES_MAX {
        return Err(StatusCode::URI_TOO_LONG);
    }
    let decoded = |text: &str| webhdfs::decode(text, true).ok_or(StatusCode::BAD_REQUEST);
    let mut query = Query::new();
    for part in raw.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        query.entry(decoded(name)?).or_insert(decoded(value)?);
    }
    Ok(query)
}
