//! Values that objects get from this machine (`valueFrom`): files, credentials of systemd, and variables of the process.

use ha_api_types::setting::{Reference, Setting, VALUE_BYTES_MAX, ValueLocation};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Locations of the values on this machine.
#[derive(Clone, Debug)]
pub struct LocalValues {
    /// Directory of the files.
    pub secrets_directory: PathBuf,
    /// Directory of the credentials that systemd passes to this process; `None` if there are none.
    pub credentials_directory: Option<PathBuf>,
}

impl LocalValues {
    /// Returns the locations for a process that systemd may have started.
    pub fn new(secrets_directory: PathBuf) -> LocalValues {
        let credentials_directory = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        LocalValues { secrets_directory, credentials_directory }
    }

    /// Returns the texts of all settings.
    ///
    /// # Errors
    /// Fails if a text cannot be read. The message names the setting and the location, never the text.
    pub fn resolve(&self, settings: &BTreeMap<String, Setting>) -> io::Result<BTreeMap<String, String>> {
        settings.iter().map(|(name, setting)| Ok((name.clone(), self.text(name, setting)?))).collect()
    }

    /// Returns the texts of all settings that can be read. A service must stop even without a secret that was removed.
    pub fn resolve_available(&self, settings: &BTreeMap<String, Setting>) -> BTreeMap<String, String> {
        available(settings.iter().map(|(name, setting)| (name, self.text(name, setting))))
    }

    /// Returns values without a fixed schema, in which references are replaced by their texts.
    ///
    /// # Errors
    /// Fails if a text cannot be read. The message names the setting and the location, never the text.
    pub fn resolve_values(&self, values: &BTreeMap<String, Value>) -> io::Result<BTreeMap<String, Value>> {
        values.iter().map(|(name, value)| Ok((name.clone(), self.value(name, value)?))).collect()
    }

    /// Returns the values of [`LocalValues::resolve_values`], without those that cannot be read.
    pub fn resolve_available_values(&self, values: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
        available(values.iter().map(|(name, value)| (name, self.value(name, value))))
    }

    fn value(&self, name: &str, value: &Value) -> io::Result<Value> {
        match Reference::from_value(value) {
            None => Ok(value.clone()),
            Some(Ok(reference)) => self.referenced_text(name, &reference).map(Value::String),
            Some(Err(problem)) => Err(invalid_reference(name, problem)),
        }
    }

    /// Returns the text of the setting `name`.
    ///
    /// # Errors
    /// Fails if the text cannot be read. The message names the setting and the location, never the text.
    pub fn text(&self, name: &str, setting: &Setting) -> io::Result<String> {
        match setting {
            Setting::Text(text) => Ok(text.clone()),
            Setting::Reference(reference) => self.referenced_text(name, reference),
        }
    }

    fn referenced_text(&self, name: &str, reference: &Reference) -> io::Result<String> {
        let location = reference.value_from.location().map_err(|problem| invalid_reference(name, problem))?;
        self.read(location).map_err(|problem| io::Error::other(format!("{name}: {location}: {problem}")))
    }

    fn read(&self, location: ValueLocation<'_>) -> Result<String, String> {
        match location {
            ValueLocation::File(name) => read_secret(&self.secrets_directory.join(name)),
            ValueLocation::Credential(name) => {
                let directory = self.credentials_directory.as_ref().ok_or(
                    "systemd passes no credentials to this process: add LoadCredential= to its unit",
                )?;
                read_secret(&directory.join(name))
            }
            ValueLocation::Env(name) => {
                std::env::var(name).map_err(|_| "this process has no such variable with text".to_owned())
            }
        }
    }
}

fn invalid_reference(name: &str, problem: &str) -> io::Error {
    io::Error::other(format!("{name}: valueFrom {problem}"))
}

/// Returns the values that could be read, and logs the others.
fn available<'a, T>(values: impl Iterator<Item = (&'a String, io::Result<T>)>) -> BTreeMap<String, T> {
    values
        .filter_map(|(name, value)| match value {
            Ok(value) => Some((name.clone(), value)),
            Err(error) => {
                tracing::warn!(%error, "program runs without a value from the node");
                None
            }
        })
        .collect()
}

/// Reads a file that other users cannot read. One newline at the end is not part of the text.
fn read_secret(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let read = || {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let mut text = String::new();
        file.take(VALUE_BYTES_MAX + 1).read_to_string(&mut text)?;
        io::Result::Ok((metadata, text))
    };
    let (metadata, text) = read().map_err(|error| format!("cannot read {shown}: {error}"))?;
    if metadata.mode() & 0o007 != 0 {
        return Err(format!("every user can access {shown}: run chmod o= {shown}"));
    }
    if text.len() as u64 > VALUE_BYTES_MAX {
        return Err(format!("{shown} is larger than {} KiB", VALUE_BYTES_MAX / 1024));
    }
    if text.contains('\0') {
        return Err(format!("{shown} contains a NUL character"));
    }
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::os::unix::fs::PermissionsExt;

    fn settings(json: &Value) -> BTreeMap<String, Setting> {
        serde_json::from_value(json.clone()).unwrap()
    }

    fn write(directory: &Path, name: &str, content: &[u8], mode: u32) {
        let path = directory.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn texts_come_from_files_credentials_and_variables() {
        let directory = tempfile::tempdir().unwrap();
        let credentials = tempfile::tempdir().unwrap();
        write(directory.path(), "db", b"one\n\n", 0o600);
        write(credentials.path(), "db", b"two", 0o400);
        let values = LocalValues {
            secrets_directory: directory.path().to_owned(),
            credentials_directory: Some(credentials.path().to_owned()),
        };
        let all =
            settings(&json!({"A": {"valueFrom": {"file": "db"}}, "B": {"valueFrom": {"credential": "db"}},
            "C": {"valueFrom": {"env": "PATH"}}, "D": "text"}));
        let path = std::env::var("PATH").unwrap();
        let texts = values.resolve(&all).unwrap();
        assert_eq!(texts.into_values().collect::<Vec<_>>(), ["one\n", "two", &path, "text"]);
    }

    #[test]
    fn an_unusable_value_fails_a_start_and_not_a_stop() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "open", b"x", 0o644);
        write(directory.path(), "large", &vec![b'x'; 70_000], 0o600);
        write(directory.path(), "binary", b"a\0b", 0o600);
        let values =
            LocalValues { secrets_directory: directory.path().to_owned(), credentials_directory: None };
        for (kind, source, problem) in [
            ("file", "none", "No such file or directory"),
            ("file", "open", "chmod o="),
            ("file", "large", "larger than 64 KiB"),
            ("file", "binary", "NUL character"),
            ("file", "../open", "must be a name"),
            ("credential", "db", "LoadCredential="),
            ("env", "HACTL_NO_SUCH_VARIABLE", "no such variable"),
        ] {
            let settings = settings(&json!({"A": {"valueFrom": {kind: source}}, "B": "text"}));
            let error = values.resolve(&settings).unwrap_err().to_string();
            assert!(error.starts_with("A: ") && error.contains(problem), "{error}");
            let texts = values.resolve_available(&settings);
            assert_eq!(texts, BTreeMap::from([("B".to_owned(), "text".to_owned())]));
        }
    }
}
