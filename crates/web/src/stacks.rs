//! `/stacks`: the threads of this process with what each waits for, and the number of tasks. For a server that hangs.
//!
//! Apache's page of this name has the stacks of Java's threads. Here the kernel's names of what threads wait for tell
//! whether they are busy, idle, or wait for a disk or a lock; calls in progress are counted by the metrics of RPC.
//! Source: proc_pid_task(5), proc_pid_wchan(5).

use std::fmt::Write;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::process::TICKS_A_SECOND;

/// Maximum number of threads that are listed.
const THREADS_MAX: usize = 2000;

/// Tasks of a runtime.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tasks {
    workers: usize,
    alive: usize,
    /// Tasks that wait for a worker, without those in the workers' own queues.
    queued: usize,
}

impl Tasks {
    /// Returns the figures of the calling task's runtime.
    pub(crate) fn now() -> Self {
        let metrics = Handle::current().metrics();
        Self { workers: metrics.num_workers(), alive: metrics.num_alive_tasks(), queued: metrics.global_queue_depth() }
    }
}

/// A thread, as the kernel describes it.
#[derive(PartialEq, Eq, Debug)]
struct Thread {
    id: u64,
    name: String,
    state: char,
    cpu: Duration,
    /// Function of the kernel in which it waits; empty while it runs.
    waits_in: String,
}

impl Thread {
    /// `stat`: the content of `/proc/self/task/ID/stat`. `None`: it is not in the known form.
    fn parse(stat: &str, waits_in: &str) -> Option<Self> {
        let (id, rest) = stat.split_once(" (")?;
        // The name may contain brackets and spaces.
        let (name, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |place: usize| fields.get(place)?.parse::<u64>().ok();
        // Fields 3, 14 and 15 of the file.
        let ticks = ticks(11)?.saturating_add(ticks(12)?);
        let waits_in = if waits_in.trim() == "0" { "" } else { waits_in.trim() };
        Some(Self {
            id: id.trim().parse().ok()?,
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            cpu: Duration::from_millis(ticks.saturating_mul(1000 / TICKS_A_SECOND)),
            waits_in: waits_in.to_owned(),
        })
    }
}

/// Returns the threads of this process, by id. Those that end while they are read are left out.
fn threads() -> Vec<Thread> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let read = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        // Not readable without a right in some containers.
        let waits_in = std::fs::read_to_string(task.path().join("wchan")).unwrap_or_default();
        Thread::parse(&stat, &waits_in)
    };
    let mut threads: Vec<Thread> = tasks.take(THREADS_MAX).filter_map(read).collect();
    threads.sort_by_key(|thread| thread.id);
    threads
}

/// Returns the page.
pub(crate) fn text(tasks: Tasks) -> String {
    let threads = threads();
    let mut text = format!(
        "Runtime: {} workers, {} tasks alive, {} waiting for a worker\n\n{} threads:\n",
        tasks.workers,
        tasks.alive,
        tasks.queued,
        threads.len()
    );
    for Thread { id, name, state, cpu, waits_in } in threads {
        let state = match state {
            'R' => "runs",
            'S' => "waits",
            'D' => "waits for a disk or the kernel, and cannot be interrupted",
            'T' | 't' => "is stopped",
            'Z' | 'X' => "has ended",
            _ => "is in an unknown state",
        };
        let place = if waits_in.is_empty() { String::new() } else { format!(" in {waits_in}") };
        // Writing into a string cannot fail.
        let _ = writeln!(text, "\"{name}\" {id}: {state}{place}; processor time {:.2} s", cpu.as_secs_f64());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_are_read() {
        let stat = "77 (a) (b) D 1 77 77 0 -1 4194368 10 0 0 0 250 50 0 0 20 0 9 0 100 1 2\n";
        let thread = Thread::parse(stat, "rq_qos_wait").unwrap();
        let cpu = Duration::from_secs(3);
        let wanted = Thread { id: 77, name: "a) (b".to_owned(), state: 'D', cpu, waits_in: "rq_qos_wait".to_owned() };
        assert_eq!(thread, wanted);
        assert_eq!(Thread::parse(stat, "0").unwrap().waits_in, "");
        for wrong in ["", "77 (a", "77 (a) D 1", "x (a) S 1 2 3 4 5 6 7 8 9 10 11 12"] {
            assert_eq!(Thread::parse(wrong, ""), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn own_threads_are_listed() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        // A new thread names itself.
        let (named, is_named) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::Builder::new().name("waits-here".to_owned());
        let waiting = waiting.spawn(move || {
            let _ = named.send(());
            let _ = ended.recv();
        });
        let waiting = waiting.unwrap();
        is_named.recv().unwrap();
        let text = text(Tasks::now());
        assert!(text.contains("\"waits-here\"") && text.starts_with("Runtime: "), "{text}");
        drop(end);
        waiting.join().unwrap();
    }
}
