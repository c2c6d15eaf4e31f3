//! Protobuf messages ⇄ `hearth_types`.
//!
//! To the wire: `From<&Type> for Message`, never fails. From the wire: `TryFrom<Message> for Type`, which checks what
//! the schema cannot: valid ports, names that are not empty, lists of matching lengths. All messages pass through these
//! conversions before the rest of Hearth uses them.

mod acl;
mod block;
mod datanode;
mod file;
mod located;
mod slow;
mod token;
mod xattr;

pub use block::storage_info;
pub use datanode::{storage_type_from_wire, storage_types_from_wire, storage_types_to_wire};
pub use file::{file_status_with_locations, file_status_with_locations_to_wire, type_quotas};

/// Error of a well-formed message with invalid content.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConvertError {
    /// A missing required field also reads as empty.
    #[error("{field} is empty")]
    Empty { field: &'static str },
    #[error("{field} is {value}, out of range")]
    OutOfRange { field: &'static str, value: u64 },
    #[error("{field} has unknown number {number}")]
    UnknownNumber { field: &'static str, number: i32 },
    #[error("{field} has {actual} entries instead of {expected}")]
    Count { field: &'static str, expected: usize, actual: usize },
    #[error("block {block} is a group of erasure-coded blocks, which this program cannot read")]
    Striped { block: String },
}

fn not_empty(text: String, field: &'static str) -> Result<String, ConvertError> {
    if text.is_empty() { Err(ConvertError::Empty { field }) } else { Ok(text) }
}

fn narrow<T: TryFrom<u64>>(value: impl Into<u64>, field: &'static str) -> Result<T, ConvertError> {
    let value = value.into();
    T::try_from(value).map_err(|_| ConvertError::OutOfRange { field, value })
}

#[cfg(test)]
mod tests;
