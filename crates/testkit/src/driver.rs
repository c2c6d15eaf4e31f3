//! A client process that carries out many operations: requests and answers are lines of JSON.
//!
//! The clients are `tests/interop/java/Driver.java` (Apache's FileSystem) and `tests/interop/python/driver.py`
//! (hdfs-native), which list the operations and their arguments. `tests/interop/java/hbase/Tables.java` uses the same
//! protocol.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::Apache;
use crate::prerequisites::{python_with_hdfs_native, workspace_root};

/// Timeout of an answer: long enough for 2 GiB on a busy machine with two cores.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);

pub struct Driver {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    answer_timeout: Duration,
}

/// Reason why an operation returned no value.
#[derive(Debug)]
pub enum DriverError {
    /// The client threw this exception.
    Thrown { class: String, message: String },
    /// No answer arrived in time, and the client was killed.
    Silent { operation: String, after: Duration },
    /// The client has ended or does not speak this protocol.
    Broken { operation: String, reason: String },
}

impl std::fmt::Display for DriverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Thrown { class, message } => write!(f, "{class}: {message}"),
            Self::Silent { operation, after } => write!(f, "{operation}: no answer within {after:?}"),
            Self::Broken { operation, reason } => write!(f, "{operation}: {reason}"),
        }
    }
}

impl std::error::Error for DriverError {}

impl DriverError {
    /// Returns the exception's class name without its package. Empty if no exception was thrown.
    pub fn class(&self) -> &str {
        match self {
            Self::Thrown { class, .. } => class.rsplit('.').next().unwrap_or_default(),
            _ => "",
        }
    }
}

impl Driver {
    /// Starts a JVM with Apache's FileSystem, configured by `conf`.
    pub fn java(apache: &Apache, conf: &Path) -> Result<Self> {
        Self::start(&mut apache.our_java(conf, "Driver")?)
    }

    /// Starts Python with hdfs-native, configured by `conf`.
    pub fn python(conf: &Path) -> Result<Self> {
        let mut command = Command::new(python_with_hdfs_native()?);
        command.arg(workspace_root().join("tests/interop/python/driver.py")).arg(conf).env("HADOOP_CONF_DIR", conf);
        Self::start(&mut command)
    }

    /// Starts any program that speaks the drivers' JSON.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped above"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, input, answers, answer_timeout: ANSWER_TIMEOUT })
    }

    /// Returns the process id, to measure its CPU time and memory.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sets the timeout of an operation.
    pub fn set_answer_timeout(&mut self, patience: Duration) {
        self.answer_timeout = patience;
    }

    /// Carries out `operation` with `arguments` (an object).
    pub fn call(&mut self, operation: &str, arguments: Value) -> Result<Value, DriverError> {
        self.send(operation, arguments)?;
        self.answer(operation)
    }

    /// Sends a request without waiting, so that the test can disturb the operation while it runs. [`Driver::answer`]
    /// must follow.
    pub fn send(&mut self, operation: &str, mut arguments: Value) -> Result<(), DriverError> {
        arguments["op"] = operation.into();
        let mut line = arguments.to_string();
        line.push('\n');
        let input = self.input.as_mut().expect("open until dropped");
        input
            .write_all(line.as_bytes())
            .and_then(|()| input.flush())
            .map_err(|error| DriverError::Broken { operation: operation.to_owned(), reason: error.to_string() })
    }

    pub fn answer(&mut self, operation: &str) -> Result<Value, DriverError> {
        let broken = |reason: String| DriverError::Broken { operation: operation.to_owned(), reason };
        let line = match self.answers.recv_timeout(self.answer_timeout) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                let _ = self.child.kill();
                return Err(DriverError::Silent { operation: operation.to_owned(), after: self.answer_timeout });
            }
            Err(RecvTimeoutError::Disconnected) => return Err(broken("the client ended".to_owned())),
        };
        let mut answer: Value =
            serde_json::from_str(&line).map_err(|error| broken(format!("answered {line:?}: {error}")))?;
        match answer.get("error").and_then(Value::as_str) {
            Some(class) => Err(DriverError::Thrown {
                class: class.to_owned(),
                message: answer["message"].as_str().unwrap_or_default().to_owned(),
            }),
            None => Ok(answer["value"].take()),
        }
    }

    /// Sends SIGKILL: the client vanishes with its files open.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The client ends when its input ends. With open files that may take a while, so its end is not awaited.
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
