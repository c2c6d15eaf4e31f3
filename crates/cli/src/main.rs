//! `hearth`: arguments, configuration and start-up; no logic of its own.
fn main() {}
