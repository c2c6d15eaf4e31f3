//! Tracing that is not built in: nothing is recorded, and nothing is sent.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use super::{AttributeValue, SpanContext, TraceError, TraceOptions};

/// An empty span.
#[derive(Debug, Default)]
pub struct Span;

impl Span {
    pub fn none() -> Self {
        Self
    }

    pub fn root(_name: &'static str) -> Self {
        Self
    }

    pub fn child(_name: &'static str) -> Self {
        Self
    }

    pub fn client(_name: impl FnOnce() -> String) -> Self {
        Self
    }

    pub fn server(_parent: Option<SpanContext>, _name: impl FnOnce() -> String) -> Self {
        Self
    }

    pub fn context(&self) -> Option<SpanContext> {
        None
    }

    pub fn is_recording(&self) -> bool {
        false
    }

    pub fn set(&mut self, _key: &'static str, _value: impl Into<AttributeValue>) {}

    pub fn fail(&mut self, _error: &(impl Display + ?Sized)) {}
}

pub fn install(_options: TraceOptions) -> Result<(), TraceError> {
    Err(TraceError::NotBuilt)
}

pub fn flush(_patience: Duration) {}

pub fn current() -> Option<SpanContext> {
    None
}

pub fn within<F: Future>(_context: Option<SpanContext>, work: F) -> F {
    work
}
