//! The files of the stress test: their permitted content, and their changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hearth_client::{CreateOptions, ErrorKind, FileSystem};
use hearth_testkit::Content;
use parking_lot::Mutex;

use crate::readers::Dice;

pub const ROOT: &str = "/stress";
/// The first eight bytes of a file are the seed of its content, so a reader can compute the expected rest.
pub const HEAD: u64 = 8;
const LARGEST: u64 = 3 << 20;
/// Timeout of a truncation, during which a DataNode may be killed and restarted.
const CUT_WITHIN: Duration = Duration::from_secs(180);

/// All files. Each has at most one writer at a time.
pub struct Files {
    files: Vec<File>,
    seeds: AtomicU64,
    /// Counts of each of [`CHANGES`].
    changes: [AtomicU64; CHANGES.len()],
}

/// Kinds of changes, in words.
const CHANGES: [&str; 5] = ["rewritten", "appended to", "cut", "moved", "deleted"];

pub struct File {
    pub path: String,
    changing: tokio::sync::Mutex<()>,
    now: Mutex<State>,
}

/// State of the file in the namespace, as known to its writer.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct State {
    /// 0: the file does not exist.
    seed: u64,
    length: u64,
    /// A change has failed (a DataNode was killed during it): the file may have either length, or be missing.
    unsure: bool,
}

/// Returns the content at `position` of a file with this seed.
pub fn expected(seed: u64, position: u64, length: usize) -> Vec<u8> {
    let mut bytes = Content::new(seed).bytes(position, length);
    for (at, byte) in seed.to_le_bytes().iter().enumerate() {
        let at = at as u64;
        if (position..position + length as u64).contains(&at) {
            bytes[(at - position) as usize] = *byte;
        }
    }
    bytes
}

impl Files {
    pub fn new(count: u64) -> Self {
        let files = (0..count)
            .map(|number| File {
                path: format!("{ROOT}/d{}/f{number}", number % 4),
                changing: tokio::sync::Mutex::default(),
                now: Mutex::default(),
            })
            .collect();
        Self { files, seeds: AtomicU64::new(1), changes: Default::default() }
    }

    /// Returns a text with the counts of all changes.
    pub fn changes(&self) -> String {
        let counted = CHANGES.iter().zip(&self.changes);
        let counted: Vec<_> =
            counted.map(|(what, count)| format!("{} {what}", count.load(Ordering::Relaxed))).collect();
        counted.join(", ")
    }

    pub fn any(&self, dice: &mut Dice) -> &File {
        &self.files[dice.below(self.files.len() as u64) as usize]
    }

    /// Returns whether the seed was given to a file.
    pub fn knows(&self, seed: u64) -> bool {
        (1..self.seeds.load(Ordering::Relaxed)).contains(&seed)
    }

    /// Changes one file after the other until it is stopped.
    pub async fn change(self: Arc<Self>, client: &FileSystem, seed: u64, stop: &AtomicBool) -> Result<()> {
        let mut dice = Dice::new(seed);
        while !stop.load(Ordering::Relaxed) {
            let file = self.any(&mut dice);
            let Ok(_alone) = file.changing.try_lock() else { continue };
            let before = *file.now.lock();
            file.now.lock().unsure = true;
            match self.change_one(client, file, before, &mut dice).await {
                Ok((change, after)) => {
                    self.changes[change].fetch_add(1, Ordering::Relaxed);
                    *file.now.lock() = after;
                }
                // A killed DataNode may take a pipeline of two with it, or delay its lease recovery for a while. Wrong
                // bytes are found by the readers.
                Err(error) if is_due_to_a_kill(&error) => {
                    // Time for the DataNode to start again.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("changing {}, which was {before:?}", file.path));
                }
            }
        }
        Ok(())
    }

    /// Makes a change. Returns which of [`CHANGES`] it was, and the resulting state of the file.
    async fn change_one(
        &self,
        client: &FileSystem,
        file: &File,
        now: State,
        dice: &mut Dice,
    ) -> Result<(usize, State)> {
        let path = file.path.as_str();
        let choice = if now.seed == 0 || now.unsure { 0 } else { dice.below(10) };
        match choice {
            0..=3 => {
                let seed = self.seeds.fetch_add(1, Ordering::Relaxed);
                let length = size(dice);
                let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
                let mut writer = client.create(path, options).await?;
                fill(&mut writer, seed, 0, length, dice).await?;
                writer.close().await?;
                Ok((0, State { seed, length, unsure: false }))
            }
            4..=5 => {
                let length = now.length + size(dice).min(LARGEST / 2);
                let mut writer = client.append(path).await?;
                fill(&mut writer, now.seed, now.length, length, dice).await?;
                writer.close().await?;
                Ok((1, State { length, ..now }))
            }
            6..=7 if now.length > HEAD => {
                let length = HEAD + dice.below(now.length - HEAD);
                if !client.truncate(path, length).await? {
                    let begun = Instant::now();
                    while !client.is_file_closed(path).await? {
                        // This also holds if the DataNode that leads the recovery is killed.
                        ensure!(begun.elapsed() < CUT_WITHIN, "still being cut to {length} bytes");
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
                Ok((2, State { length, ..now }))
            }
            8 => {
                // There and back, so that the name is missing for a moment.
                let aside = format!("{path}.aside");
                ensure!(client.rename(path, &aside).await?, "it was there");
                ensure!(client.rename(&aside, path).await?, "it was there");
                Ok((3, now))
            }
            _ => {
                client.delete(path, false).await?;
                Ok((4, State::default()))
            }
        }
    }

    /// Reads every file whose content is known. Returns how many.
    pub async fn check_all(&self, client: &FileSystem) -> Result<usize> {
        let mut checked = 0;
        for file in &self.files {
            let now = *file.now.lock();
            if now.unsure || now.seed == 0 {
                continue;
            }
            let reader = client.open(&file.path).await.with_context(|| file.path.clone())?;
            ensure!(reader.length() == now.length, "{} has {} bytes, not {now:?}", file.path, reader.length());
            let mut bytes = vec![0; now.length as usize];
            let read = reader.read_at(0, &mut bytes).await.with_context(|| file.path.clone())?;
            ensure!(read == bytes.len(), "{read} bytes of {} arrived, whose state is {now:?}", file.path);
            ensure!(bytes == expected(now.seed, 0, bytes.len()), "{} has wrong content", file.path);
            checked += 1;
        }
        if checked == 0 {
            bail!("no file is left to be looked at");
        }
        Ok(checked)
    }
}

/// Returns a size: many small ones for the slabs, some near the slabs' limit, and some of several blocks.
fn size(dice: &mut Dice) -> u64 {
    HEAD + match dice.below(6) {
        0 => dice.below(300),
        1 | 2 => dice.below(40 << 10),
        3 => (60 << 10) + dice.below(10 << 10),
        _ => dice.below(LARGEST),
    }
}

async fn fill(writer: &mut hearth_client::Writer, seed: u64, from: u64, to: u64, dice: &mut Dice) -> Result<()> {
    let mut position = from;
    while position < to {
        let piece = (1 + dice.below(200 << 10)).min(to - position) as usize;
        writer.write(&expected(seed, position, piece)).await?;
        position += piece as u64;
        if dice.below(8) == 0 {
            writer.hflush().await?;
        }
    }
    Ok(())
}

fn is_due_to_a_kill(error: &anyhow::Error) -> bool {
    error.downcast_ref::<hearth_client::Error>().is_some_and(|error| {
        matches!(
            error.kind(),
            ErrorKind::DataUnavailable
                | ErrorKind::Busy
                | ErrorKind::Unreachable
                | ErrorKind::NotFound
                | ErrorKind::LeaseLost
                | ErrorKind::FileChanged
                | ErrorKind::Other
        )
    })
}
