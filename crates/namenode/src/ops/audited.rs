//! Audit data of a call: Apache's name of the operation, and the paths in the request. Each operation has a function
//! beside it that says them.
//!
//! Successful and permission-denied calls are logged; other failures are not. Source: the calls of `logAuditEvent` in
//! `FSNamesystem.java` of Hadoop 3.4.

use std::borrow::Cow;

use bytes::Bytes;

use crate::state::Namenode;

/// Condition for a line, apart from refusals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// The call succeeded.
    Done,
    /// The call succeeded and answered true.
    True,
    /// The call succeeded; its answer is logged as `allowed`.
    Answered,
    /// Always, also after a failure.
    Always,
}

/// Returns a text that is known only after the call was executed, from the answer.
pub type FromAnswer = Box<dyn Fn(&Namenode, &Bytes) -> Option<String> + Send + Sync>;

/// Audit data of a call, collected before the call is executed, because some of it is no longer available afterwards.
pub struct Audited {
    pub command: Cow<'static, str>,
    pub source: Option<String>,
    /// The source in a refusal's line, if it is a different one.
    pub source_refused: Option<String>,
    /// The source of a call that succeeded, if only its answer has it.
    pub source_from_answer: Option<FromAnswer>,
    pub target: Option<String>,
    /// The target of a call that succeeded, if only its answer has it.
    pub target_from_answer: Option<FromAnswer>,
    /// A refusal's line has no target.
    pub only_allowed: bool,
    /// The path whose owner and mode are logged.
    pub status_of: Option<String>,
    pub when: When,
    /// Sources of further lines like this one, for calls about many paths.
    pub others: Vec<String>,
}

impl Audited {
    /// Line without a source.
    pub fn new(command: impl Into<Cow<'static, str>>) -> Self {
        Self {
            command: command.into(),
            source: None,
            source_refused: None,
            source_from_answer: None,
            target: None,
            target_from_answer: None,
            only_allowed: false,
            status_of: None,
            when: When::Done,
            others: Vec::new(),
        }
    }

    pub fn on(command: impl Into<Cow<'static, str>>, source: impl Into<String>) -> Self {
        Self { source: Some(source.into()), ..Self::new(command) }
    }

    /// A line for each path; `None` if there is no path.
    pub fn on_each(command: &'static str, paths: &[String]) -> Option<Self> {
        let (first, others) = paths.split_first()?;
        Some(Self { others: others.to_vec(), ..Self::on(command, first) })
    }

    pub fn to(self, target: impl Into<String>) -> Self {
        Self { target: Some(target.into()), ..self }
    }

    /// Adds the status of the source.
    pub fn changed(self) -> Self {
        Self { status_of: self.source.clone(), ..self }
    }

    pub fn with_status_of(self, path: impl Into<String>) -> Self {
        Self { status_of: Some(path.into()), ..self }
    }

    pub fn when(self, when: When) -> Self {
        Self { when, ..self }
    }

    pub fn source_from_answer(
        self,
        source: impl Fn(&Namenode, &Bytes) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self { source_from_answer: Some(Box::new(source)), ..self }
    }

    pub fn target_from_answer(self, target: impl Fn(&Bytes) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { target_from_answer: Some(Box::new(move |_, answer| target(answer))), ..self }
    }
}
