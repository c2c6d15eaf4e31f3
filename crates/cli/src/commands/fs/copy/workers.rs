//! `-t`: copies several files at the same time.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{CopyOptions, copy_file, preserve};
use crate::commands::fs::failure::Failure;
use crate::commands::fs::item::Item;
use crate::commands::fs::options::Arguments;
use crate::commands::fs::shell::Shell;

/// Maximum number of queued files, unless `-q` is given. Source: CopyCommandWithMultiThread.java.
const QUEUE: usize = 1024;

/// Maximum number of concurrent copies, and of queued ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threads {
    pub at_once: usize,
    pub waiting: usize,
}

impl Threads {
    /// Reads `-t` and `-q`. Errors: `Usage` if a value is not a number. A value below 1 stands for the default, as in
    /// Apache's shell.
    pub fn from(arguments: &Arguments) -> Result<Self, Failure> {
        let number = |option: &str, default: usize| -> Result<usize, Failure> {
            let Some(text) = arguments.given(option) else { return Ok(default) };
            let number = text.parse::<i32>().map_err(|_| Failure::Usage(format!("For input string: \"{text}\"")))?;
            Ok(usize::try_from(number).ok().filter(|number| *number > 0).unwrap_or(default))
        };
        Ok(Self { at_once: number("t", 1)?, waiting: number("q", QUEUE)? })
    }
}

/// Copies files concurrently. Dropping it ends the copies.
pub struct Workers {
    threads: Threads,
    places: Arc<Semaphore>,
    copies: JoinSet<Result<(), Failure>>,
    /// Directories that get their attributes after all copies, because a file created in a directory changes its time.
    directories: Vec<(Item, Item)>,
}

impl Workers {
    pub fn new(threads: Threads) -> Self {
        let places = Arc::new(Semaphore::new(threads.at_once));
        Self { threads, places, copies: JoinSet::new(), directories: Vec::new() }
    }

    /// Starts or queues the copy of a file. If the queue is full, waits until a copy ends.
    pub async fn copy(&mut self, shell: &mut Shell, source: &Item, target: &Item, copying: CopyOptions) {
        while self.copies.len() >= self.threads.at_once + self.threads.waiting {
            self.end_one(shell).await;
        }
        let (places, source, target) = (self.places.clone(), source.clone(), target.clone());
        self.copies.spawn(async move {
            // The semaphore is never closed.
            let _place = places.acquire_owned().await;
            copy_file(&source, &target, copying).await
        });
    }

    /// Records a directory, after those below it.
    pub fn directory(&mut self, source: &Item, target: &Item) {
        self.directories.push((source.clone(), target.clone()));
    }

    /// Waits for all copies, then sets the attributes of the directories.
    pub async fn finish(mut self, shell: &mut Shell, copying: CopyOptions) {
        while !self.copies.is_empty() {
            self.end_one(shell).await;
        }
        for (source, target) in &self.directories {
            if let Err(failure) = preserve(source, target, copying).await {
                shell.report(&failure);
            }
        }
    }

    async fn end_one(&mut self, shell: &mut Shell) {
        match self.copies.join_next().await {
            Some(Ok(Err(failure))) => shell.report(&failure),
            Some(Err(error)) => shell.report(&Failure::Message(format!("a copy ended early: {error}"))),
            Some(Ok(Ok(()))) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::fs::commands;

    #[test]
    fn numbers_below_one_mean_the_default() {
        let put = commands::find("put").unwrap();
        let of = |line: &str| {
            let words = line.split(' ').map(str::to_owned).collect();
            let threads = Threads::from(&put.format.parse(words)?)?;
            Ok::<_, Failure>((threads.at_once, threads.waiting))
        };
        assert_eq!(of("a b").unwrap(), (1, 1024));
        assert_eq!(of("-t 4 -q 2 a b").unwrap(), (4, 2));
        assert_eq!(of("-t 0 -q 0 a b").unwrap(), (1, 1024));
        assert_eq!(of("-t x a b").unwrap_err().to_string(), "For input string: \"x\"");
        assert_eq!(of("-q 99999999999 a b").unwrap_err().to_string(), "For input string: \"99999999999\"");
    }
}
