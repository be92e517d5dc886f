//! The journal on disk: replaced as a whole, and protected by a checksum, and by the lock that prevents a second agent
//! on the node.

use super::Inputs;
use crate::core::{Input, Journal, JournalWriteId};
use anyhow::Context;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// First word of the file, which names the format. The checksum of the second line follows it.
const JOURNAL_HEADER_PREFIX: &str = "hactl-journal-1";

/// The journal's file, with the node's exclusive lock held.
#[derive(Debug)]
pub(super) struct JournalFile {
    directory: PathBuf,
    /// The kernel releases the lock when the process ends, even after a crash.
    lock: Flock<File>,
}

/// Writes journals in order, outside the loop.
#[derive(Clone, Debug)]
pub(super) struct JournalWriter {
    requests: mpsc::UnboundedSender<(JournalWriteId, Journal)>,
}

impl JournalFile {
    /// Takes the lock in the directory; fails immediately if another agent holds it.
    pub(super) fn open(directory: &Path) -> anyhow::Result<JournalFile> {
        let path = directory.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(JournalFile { directory: directory.to_owned(), lock }),
            Err((_, errno)) => anyhow::bail!(
                "{} is locked ({errno}): another agent runs with this --state-dir; stop that agent first",
                path.display()
            ),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join("journal")
    }

    /// Returns the last agent's journal. A missing file is an empty journal.
    ///
    /// A damaged file is moved aside, and also counts as empty. An agent without a journal does not continue under the
    /// previous epoch: it stops the services that it finds, verifies the stops, and registers. No action of the old
    /// epoch is therefore begun again.
    pub(super) fn load(&self) -> anyhow::Result<Journal> {
        let path = self.path();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Journal::default()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        match parse(&String::from_utf8_lossy(&bytes)) {
            Ok(journal) => Ok(journal),
            Err(error) => {
                let aside = self.directory.join("journal.damaged");
                tracing::error!(
                    journal = %path.display(), kept_as = %aside.display(), error = %format!("{error:#}"),
                    "cannot read the damaged journal, registering this node again"
                );
                std::fs::rename(&path, &aside)
                    .with_context(|| format!("cannot rename {}", path.display()))?;
                Ok(Journal::default())
            }
        }
    }

    /// Replaces the file: writes a new file, syncs and renames it, and syncs the directory. A crash leaves the old or
    /// the new file.
    fn store(&self, journal: &Journal) -> std::io::Result<()> {
        let text = render(journal)?;
        let new_file = self.directory.join("journal.new");
        let mut file =
            OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new_file)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new_file, self.path())?;
        File::open(&self.directory)?.sync_all()
    }

    /// Starts the writer thread, which keeps the lock.
    pub(super) fn spawn_writer(self, inputs: Inputs) -> JournalWriter {
        let (requests, mut received) = mpsc::unbounded_channel::<(JournalWriteId, Journal)>();
        std::thread::spawn(move || {
            while let Some((mut id, mut journal)) = received.blocking_recv() {
                // A newer journal contains the entries of every older journal, so one write serves a burst of requests.
                // Each request is answered.
                let mut write_ids = vec![id];
                while let Ok((newer_id, newer)) = received.try_recv() {
                    (id, journal) = (newer_id, newer);
                    write_ids.push(id);
                }
                let result = self.store(&journal).map_err(|error| error.to_string());
                for id in write_ids {
                    // Sending fails only once the loop has ended.
                    let _ = inputs.send(Input::JournalWritten { id, result: result.clone() });
                }
            }
            drop(self.lock);
        });
        JournalWriter { requests }
    }
}

impl JournalWriter {
    /// Writes a journal; answered by [`Input::JournalWritten`].
    pub(super) fn write(&self, id: JournalWriteId, journal: Journal) {
        // Sending cannot fail: the thread runs until this sender is dropped.
        let _ = self.requests.send((id, journal));
    }
}

fn render(journal: &Journal) -> std::io::Result<String> {
    let body = serde_json::to_string(journal)?;
    Ok(format!("{JOURNAL_HEADER_PREFIX} {:016x}\n{body}\n", checksum(body.as_bytes())))
}

fn parse(text: &str) -> anyhow::Result<Journal> {
    let (header, rest) = text.split_once('\n').context("first line is incomplete")?;
    let body = rest.strip_suffix('\n').context("last line is incomplete")?;
    let sum = header
        .strip_prefix(JOURNAL_HEADER_PREFIX)
        .map(str::trim)
        .context("first line has an unknown format")?;
    if sum != format!("{:016x}", checksum(body.as_bytes())) {
        anyhow::bail!("checksum does not match");
    }
    Ok(serde_json::from_str(body)?)
}

/// Returns the FNV-1a hash, 64 bits. It detects torn and flipped bytes, not tampering. Source: Fowler, Noll, Vo, 1991.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::id::Epoch;

    #[test]
    fn stored_journal_is_loaded_again() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = JournalFile::open(directory.path()).expect("the lock");
        assert_eq!(file.load().expect("an empty journal"), Journal::default());
        let journal = Journal { boot_id: "boot".into(), epoch: Epoch(7), ..Journal::default() };
        file.store(&journal).expect("stored");
        assert_eq!(file.load().expect("loaded"), journal);
    }

    #[test]
    fn truncated_journal_is_detected_and_set_aside() {
        let journal = Journal { boot_id: "boot".into(), epoch: Epoch(7), ..Journal::default() };
        let text = render(&journal).expect("rendered");
        for cut in 1..text.len() {
            assert!(parse(&text[..cut]).is_err(), "cut at {cut}");
        }
        assert!(parse(&text.replace("boot", "boat")).is_err());

        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = JournalFile::open(directory.path()).expect("the lock");
        std::fs::write(file.path(), &text[..text.len() / 2]).expect("written");
        assert_eq!(file.load().expect("put aside"), Journal::default());
        assert!(directory.path().join("journal.damaged").exists());
    }

    #[test]
    fn second_agent_on_same_journal_is_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let first_agent_file = JournalFile::open(directory.path()).expect("the lock");
        let error = JournalFile::open(directory.path()).expect_err("refused").to_string();
        assert!(error.contains("another agent"), "{error}");
        drop(first_agent_file);
        JournalFile::open(directory.path()).expect("free again");
    }
}
