//! One client process that carries out many operations: requests and answers are lines of JSON.
//!
//! The other ends are `tests/interop/java/Driver.java` (Apache's FileSystem) and `tests/interop/python/driver.py`
//! (hdfs-native); the operations and their arguments are listed there. So does `tests/interop/java/hbase/Tables.java`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::Apache;
use crate::prerequisites::{python_with_hdfs_native, workspace_root};

/// Long enough for 2 GiB on a busy machine with two cores.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);

pub struct Driver {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
    answer_timeout: Duration,
}

/// Why an operation did not give a value.
#[derive(Debug)]
pub enum DriverError {
    /// The client threw this.
    Thrown { class: String, message: String },
    /// No answer in time; the client was killed.
    Silent { operation: String, after: Duration },
    /// The client is gone or does not speak our JSON.
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
    /// The exception's class name without its package; empty when none was thrown.
    pub fn class(&self) -> &str {
        match self {
            Self::Thrown { class, .. } => class.rsplit('.').next().unwrap_or_default(),
            _ => "",
        }
    }
}

impl Driver {
    /// A JVM with Apache's FileSystem configured by `conf`.
    pub fn java(apache: &Apache, conf: &Path) -> Result<Self> {
        Self::start(&mut apache.our_java(conf, "Driver")?)
    }

    /// Python with hdfs-native configured by `conf`.
    pub fn python(conf: &Path) -> Result<Self> {
        let mut command = Command::new(python_with_hdfs_native()?);
        command.arg(workspace_root().join("tests/interop/python/driver.py")).arg(conf).env("HADOOP_CONF_DIR", conf);
        Self::start(&mut command)
    }

    /// Any program that speaks the drivers' JSON.
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

    /// The process, for its CPU time and memory.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How long an operation may take.
    pub fn set_answer_timeout(&mut self, patience: Duration) {
        self.answer_timeout = patience;
    }

    /// Carries out `operation` with `arguments` (an object).
    pub fn call(&mut self, operation: &str, arguments: Value) -> Result<Value, DriverError> {
        self.send(operation, arguments)?;
        self.answer(operation)
    }

    /// Asks without waiting, so that the operation can be disturbed while it runs; [`Driver::answer`] follows.
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

    /// SIGKILL: a client that vanishes with its files open.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Its input ends: it ends. A client with open files may take its time over them, which nobody waits for.
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
