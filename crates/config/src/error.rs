use std::path::PathBuf;

/// Errors of reading a configuration. Every variant names the file or the key involved.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read configuration {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write configuration {path}: {source}", path = path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{path} is not well-formed XML: {source}", path = path.display())]
    Xml { path: PathBuf, source: roxmltree::Error },
    #[error("{path} line {line}: {problem}", path = path.display())]
    Structure { path: PathBuf, line: u32, problem: String },
    #[error("{path} includes itself, or includes nest deeper than {limit}", path = path.display())]
    IncludeDepth { path: PathBuf, limit: usize },
    #[error("{key} = {value:?} (from {source_name}): {wanted}")]
    Value {
        key: String,
        value: String,
        /// The file, or another origin of the value.
        source_name: String,
        /// Description of a valid value.
        wanted: String,
    },
    #[error("{key} is not set: {why}")]
    Missing { key: String, why: String },
    #[error("{key} = {value:?}: variable substitution goes deeper than {limit}", limit = crate::expand::DEPTH_MAX)]
    ExpansionDepth { key: String, value: String },
}
