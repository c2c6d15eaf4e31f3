//! Delegation tokens with simple authentication: none is issued, and foreign tokens get the same answers as from
//! Apache's NameNode.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use hearth_interop::{Check, Session, Suite, run};
use hearth_testkit::{ClusterSpec, DriverError, Implementation};
use serde_json::{Value, json};

const CHECKS: &[Check] = &[("delegation_token_answers_match_apaches", answers)];

fn main() -> ExitCode {
    let clusters = [Implementation::Apache, Implementation::Hearth]
        .map(|make| ClusterSpec::new(make, Implementation::Hearth).only_namenode());
    run(&[Suite { name: "tokens", clusters: clusters.to_vec(), checks: CHECKS }])
}

/// Expiry of a valid token, far in the future, in ms.
const LATER: u64 = 4_102_444_800_000;

fn questions() -> Vec<Value> {
    let mut all = Vec::new();
    for does in ["renew", "cancel"] {
        for (owner, renewer, ends) in [
            ("ann", "ann", LATER),
            ("ann", "root", LATER),
            ("ann", "yarn", LATER),
            ("ann", "", LATER),
            ("", "root", LATER),
            ("root", "yarn", LATER),
            ("root", "root", 2000),
            ("root", "yarn", 2000),
        ] {
            all.push(json!({"does": does, "owner": owner, "renewer": renewer, "ends": ends}));
        }
        for bytes in ["", "\0", "\u{1}garbage", "\0\u{ff}", "\0\u{3}ann", "\0\u{8c}\u{7f}\u{ff}\u{ff}\u{ff}"] {
            all.push(json!({"does": does, "bytes": bytes}));
        }
    }
    all
}

fn answers(session: &mut Session) -> Result<()> {
    let none = session.java()?.call("token", json!({"does": "get", "renewer": "yarn"}))?;
    ensure!(none == "null", "a token: {none}");
    let mut answers = Vec::new();
    for question in questions() {
        let answer = match session.java()?.call("token", question.clone()) {
            Ok(answer) => answer,
            Err(DriverError::Thrown { class, message }) => {
                // The message contains the current time.
                let message = message.split(" currentTime: ").next().unwrap_or_default().to_owned();
                json!([class, message])
            }
            Err(error) => return Err(error.into()),
        };
        answers.push((question, answer));
    }
    for (question, answer) in answers {
        session.same_as_oracle(&question.to_string(), answer)?;
    }
    Ok(())
}
