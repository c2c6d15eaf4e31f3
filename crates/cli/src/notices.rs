//! Tells a user at a terminal what a command waits for, and what to do about it. Elsewhere nothing is printed, so that the
//! output of commands stays that of Hadoop's.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};

use hearth_client::process::on_retry;

/// Limit of lines, for a client that tries many namenodes.
const LINES_MAX: usize = 10;

const NEXT_STEP: &str = "`hearth up` starts a file system here; -fs hdfs://HOST:PORT names another";

/// Begins to print notices of this process's clients on standard error, if that is a terminal. Called once.
pub fn start() {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let said = Mutex::new(Vec::new());
    on_retry(move |sentence| {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        lines(&mut said, sentence).iter().for_each(|line| eprintln!("hearth: {line}"));
    });
}

/// Returns the lines to print for a sentence. `said`: the sentences before; a repetition is not printed.
fn lines(said: &mut Vec<String>, sentence: &str) -> Vec<String> {
    if said.len() >= LINES_MAX || said.iter().any(|earlier| earlier == sentence) {
        return Vec::new();
    }
    said.push(sentence.to_owned());
    let next_step = (said.len() == 1).then(|| NEXT_STEP.to_owned());
    std::iter::once(sentence.to_owned()).chain(next_step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sentence_is_printed_once_and_the_next_step_with_the_first() {
        let mut said = Vec::new();
        assert_eq!(lines(&mut said, "nn1 does not answer"), ["nn1 does not answer", NEXT_STEP]);
        assert!(lines(&mut said, "nn1 does not answer").is_empty());
        assert_eq!(lines(&mut said, "nn2 does not answer"), ["nn2 does not answer"]);
        let more = (0..100).map(|number| lines(&mut said, &number.to_string()).len()).sum::<usize>();
        assert_eq!(more + 2, LINES_MAX);
    }
}
