//! Log lines as entries of the systemd journal: each field becomes a field of the entry, for searches such as
//! `journalctl HACTL_RESOURCE=web`.

use crate::journal::{Entry, Journal};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::layer::Context;

/// Sends every line to the journal. Lines that the journal rejects are counted, and the count is logged once it
/// accepts lines again.
#[derive(Debug)]
pub(super) struct JournalLayer {
    journal: Journal,
    identifier: String,
    lost_lines: AtomicU64,
}

impl JournalLayer {
    /// Creates the layer; `identifier` is the word that `journalctl` shows before each line.
    pub(super) fn new(journal: Journal, identifier: String) -> JournalLayer {
        JournalLayer { journal, identifier, lost_lines: AtomicU64::new(0) }
    }

    fn entry(&self, level: Level, message: &str) -> Entry {
        Entry::default()
            .with("PRIORITY", priority(level))
            .with("SYSLOG_IDENTIFIER", &self.identifier)
            .with("MESSAGE", message)
    }

    fn send(&self, entry: &Entry) {
        let lost_lines = self.lost_lines.swap(0, Ordering::Relaxed);
        if lost_lines > 0 {
            let error_text = format!("{lost_lines} log lines were lost because the journal rejected them");
            if self.journal.send(&self.entry(Level::WARN, &error_text)).is_err() {
                self.lost_lines.fetch_add(lost_lines, Ordering::Relaxed);
            }
        }
        if self.journal.send(entry).is_err() {
            self.lost_lines.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S: Subscriber> Layer<S> for JournalLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        // The message also contains the fields, as in text format, because `journalctl -u` shows only the message.
        let mut message = String::new();
        if DefaultFields::new().format_fields(Writer::new(&mut message), event).is_err() {
            return;
        }
        let mut entry = self.entry(*metadata.level(), &message).with("HACTL_TARGET", metadata.target());
        if let (Some(file), Some(line)) = (metadata.file(), metadata.line()) {
            entry = entry.with("CODE_FILE", file).with("CODE_LINE", line.to_string());
        }
        let mut fields = Fields(entry);
        event.record(&mut fields);
        self.send(&fields.0);
    }
}

/// Returns the syslog priority of a level.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

/// A journal entry that receives the fields of a log line.
struct Fields(Entry);

impl Fields {
    fn add(&mut self, field: &Field, value: &str) {
        // Fields that begin with `log.` only repeat the source of a library's line.
        if field.name() != "message" && !field.name().starts_with("log.") {
            self.0 = std::mem::take(&mut self.0).with(&name(field.name()), value);
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, &format!("{value:?}"));
    }
}

/// Returns the journal's name of a field, which may contain only capital letters, digits and `_`.
fn name(field: &str) -> String {
    let letters = field.chars().map(|letter| match letter {
        letter if letter.is_ascii_alphanumeric() => letter.to_ascii_uppercase(),
        _ => '_',
    });
    "HACTL_".chars().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::net::UnixDatagram;
    use tracing_subscriber::layer::SubscriberExt;

    /// Receives an entry and parses its fields as the journal does.
    fn received(listener: &UnixDatagram) -> BTreeMap<String, String> {
        let mut bytes = vec![0; 64 * 1024];
        let length = listener.recv(&mut bytes).unwrap();
        let mut rest = &bytes[..length];
        let mut fields = BTreeMap::new();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let name = String::from_utf8_lossy(&rest[..end]).into_owned();
            let (length, after) = rest[end + 1..].split_at(8);
            let length = usize::try_from(u64::from_le_bytes(length.try_into().unwrap())).unwrap();
            fields.insert(name, String::from_utf8_lossy(&after[..length]).into_owned());
            rest = &after[length + 1..];
        }
        fields
    }

    fn check(log: impl FnOnce(), expected: &[(&str, &str)]) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixDatagram::bind(&path).unwrap();
        let layer = JournalLayer::new(Journal::connect_to(&path).unwrap(), "ha-test".to_owned());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let fields = received(&listener);
        for (name, value) in expected {
            assert_eq!(fields.get(*name).map(String::as_str), Some(*value), "{name} of {fields:?}");
        }
        assert!(fields.keys().all(|name| name != "HACTL_MESSAGE" && name != "HACTL_NODE"), "{fields:?}");
    }

    #[test]
    fn log_line_becomes_entry_with_fields() {
        check(
            || tracing::warn!(resource = "web", epoch = 7, cause = %"two\nlines", node = None::<&str>, "it is {}", "late"),
            &[
                ("PRIORITY", "4"),
                ("SYSLOG_IDENTIFIER", "ha-test"),
                ("HACTL_RESOURCE", "web"),
                ("HACTL_EPOCH", "7"),
                ("HACTL_CAUSE", "two\nlines"),
                ("HACTL_TARGET", module_path!()),
                ("CODE_FILE", file!()),
                ("MESSAGE", "it is late resource=\"web\" epoch=7 cause=two\nlines"),
            ],
        );
    }

    #[test]
    fn log_levels_map_to_syslog_priorities() {
        check(|| tracing::error!("word"), &[("PRIORITY", "3"), ("MESSAGE", "word")]);
        check(|| tracing::info!("word"), &[("PRIORITY", "6")]);
        check(|| tracing::debug!("word"), &[("PRIORITY", "7")]);
    }

    #[test]
    fn field_names_are_valid_for_the_journal() {
        for (field, expected) in
            [("resource", "HACTL_RESOURCE"), ("boot_id", "HACTL_BOOT_ID"), ("a.b", "HACTL_A_B")]
        {
            assert_eq!(name(field), expected);
        }
    }

    #[test]
    fn dropped_log_lines_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixDatagram::bind(&path).unwrap();
        let layer = JournalLayer::new(Journal::connect_to(&path).unwrap(), "ha-test".to_owned());
        let entry = layer.entry(Level::INFO, "word");
        let mut sent: u64 = 0;
        while layer.lost_lines.load(Ordering::Relaxed) < 3 {
            layer.send(&entry);
            sent += 1;
        }
        for _ in 0..sent - 3 {
            received(&listener);
        }
        layer.send(&entry);
        assert_eq!(received(&listener)["MESSAGE"], "3 log lines were lost because the journal rejected them");
        assert_eq!(received(&listener)["MESSAGE"], "word");
    }
}
