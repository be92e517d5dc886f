//! A configuration file with contexts. Errors name the line, and writes are atomic.

use crate::failure::Failure;
use crate::names::most_similar;
use ha_api_types::yaml;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ConfigFile {
    /// Name of the default context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current_context: Option<String>,
    /// Contexts of the known clusters.
    pub(crate) contexts: Vec<Context>,
}

/// A cluster with its connection settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Context {
    /// Name of the context.
    pub(crate) name: String,
    /// URLs of the controllers.
    pub(crate) servers: Vec<String>,
    /// Certificate authority (PEM file).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// Certificate of the user (PEM file).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_certificate: Option<PathBuf>,
    /// Key of the user's certificate (PEM file).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_key: Option<PathBuf>,
    /// File with the bearer token of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
}

/// Returns `$HACTL_CONFIG`, or the file in the user's configuration directory; `None` without a home directory.
pub(crate) fn user_file() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("HACTL_CONFIG")
        .or_else(|| variable("XDG_CONFIG_HOME").map(|directory| directory.join("hactl/config.yaml")))
        .or_else(|| variable("HOME").map(|home| home.join(".config/hactl/config.yaml")))
}

impl ConfigFile {
    /// Reads a file; `None` if it does not exist. Relative paths in the file are resolved against its directory.
    ///
    /// # Errors
    /// Fails with file and line if the file cannot be read or contains unknown fields.
    pub(crate) fn read(path: &Path) -> Result<Option<ConfigFile>, Failure> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::usage(format!("cannot read {}: {error}", path.display()))),
        };
        let mut file = ConfigFile::parse(path, &text)?;
        for context in &mut file.contexts {
            for file_name in [
                &mut context.certificate_authority,
                &mut context.client_certificate,
                &mut context.client_key,
                &mut context.token_file,
            ] {
                *file_name = file_name.take().map(|name| super::relative_to(path, &name));
            }
        }
        Ok(Some(file))
    }

    fn parse(path: &Path, text: &str) -> Result<ConfigFile, Failure> {
        let error_at = |line: Option<u32>, message: &str| {
            let line = line.map(|line| format!(":{line}")).unwrap_or_default();
            Failure::usage(format!("{}{line}: {message}", path.display()))
        };
        let mut documents =
            yaml::documents(text).map_err(|error| error_at(error.line, &error.message))?.into_iter();
        let Some(document) = documents.next() else {
            return Ok(ConfigFile::default());
        };
        if documents.next().is_some() {
            return Err(error_at(None, "more than one YAML document; a configuration file has one"));
        }
        if let Some((field_path, field, known)) = unknown_fields(&document.value).into_iter().next() {
            let hint = most_similar(&field, known.into_iter())
                .map(|name| format!("; did you mean {name}?"))
                .unwrap_or_default();
            return Err(error_at(
                document.lines.of(&field_path),
                &format!("unknown field {field_path}{hint}"),
            ));
        }
        serde_json::from_value(document.value).map_err(|error| error_at(None, &error.to_string()))
    }

    /// Writes the file atomically, readable only by its owner.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let failed =
            |error: std::io::Error| Failure::failed(format!("cannot write {}: {error}", path.display()));
        let value = serde_json::to_value(self).map_err(|error| Failure::failed(error.to_string()))?;
        let text = yaml::to_text(&value).map_err(|error| Failure::failed(error.to_string()))?;
        let directory = match path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            Some(_) | None => Path::new("."),
        };
        std::fs::create_dir_all(directory).map_err(failed)?;
        crate::atomic_file::replace(path, &text, |_| Ok(())).map_err(failed)
    }
}

type UnknownField = (String, String, Vec<&'static str>);

fn unknown_fields(value: &serde_json::Value) -> Vec<UnknownField> {
    const TOP_LEVEL_FIELDS: [&str; 2] = ["currentContext", "contexts"];
    const CONTEXT_FIELDS: [&str; 6] =
        ["name", "servers", "certificateAuthority", "clientCertificate", "clientKey", "tokenFile"];
    let keys = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default()
    };
    let mut unknown: Vec<UnknownField> = keys(value)
        .into_iter()
        .filter(|key| !TOP_LEVEL_FIELDS.contains(&key.as_str()))
        .map(|key| (key.clone(), key, TOP_LEVEL_FIELDS.to_vec()))
        .collect();
    for (index, context) in value["contexts"].as_array().into_iter().flatten().enumerate() {
        unknown.extend(
            keys(context)
                .into_iter()
                .filter(|key| !CONTEXT_FIELDS.contains(&key.as_str()))
                .map(|key| (format!("contexts[{index}].{key}"), key, CONTEXT_FIELDS.to_vec())),
        );
    }
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_errors_name_file_line_and_suggestion() {
        let text = "currentContext: a\ncontexts:\n- name: a\n  server: [x]\n";
        let failure = ConfigFile::parse(Path::new("c.yaml"), text).expect_err("an unknown field");
        assert_eq!(failure.message, "c.yaml:4: unknown field contexts[0].server; did you mean servers?");
        assert_eq!(ConfigFile::parse(Path::new("c.yaml"), "").expect("empty"), ConfigFile::default());
    }

    #[test]
    fn written_config_file_is_parsed_again() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("deep/config.yaml");
        let context = Context {
            name: "lab".to_owned(),
            servers: vec!["https://c1:1".to_owned()],
            certificate_authority: Some(PathBuf::from("ca.pem")),
            ..Context::default()
        };
        let file = ConfigFile { current_context: Some("lab".to_owned()), contexts: vec![context] };
        file.write(&path).expect("written");
        let read = ConfigFile::read(&path).expect("readable").expect("there");
        assert_eq!(read.contexts[0].certificate_authority, Some(directory.path().join("deep/ca.pem")));
        assert_eq!(read.current_context, file.current_context);
    }
}
