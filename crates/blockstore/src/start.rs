//! From directories to a store: locks, identities, and what is found again. Drawn in docs/design/0001, "Start".

mod attach;
mod find;
mod open;

pub use open::open;
