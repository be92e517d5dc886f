//! Settings of a service whose text may come from the node instead of the API.

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::fmt;

/// Largest value that a node reads, in bytes.
pub const VALUE_BYTES_MAX: u64 = 64 * 1024;

/// A setting: its text, or where the node reads the text at each start of the service.
///
/// Guarantees: a text that comes from the node is stored neither in etcd nor in the API, and is part of no identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Setting {
    /// A text that the object itself contains.
    Text(String),
    /// A reference to a text on the node.
    Reference(Reference),
}

/// A reference to a text on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    /// Location of the text.
    pub value_from: ValueSource,
}

/// A file, credential or variable of the node that contains a text. The administrator of the node creates it, and
/// permits its use. Exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ValueSource {
    /// Name of a file in the agent's directory of secrets (`--secrets-directory`). A newline at the end is not part of
    /// the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Name of a credential that systemd passes to the agent (`LoadCredential=` of ha-node-agent.service).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Name of an environment variable of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
}

/// The field of a [`ValueSource`] that is set, with the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueLocation<'a> {
    /// A file in the agent's directory of secrets.
    File(&'a str),
    /// A credential of the agent.
    Credential(&'a str),
    /// A variable of the agent.
    Env(&'a str),
}

impl Setting {
    /// Returns the text, unless it comes from the node.
    pub fn text(&self) -> Option<&str> {
        match self {
            Setting::Text(text) => Some(text),
            Setting::Reference(_) => None,
        }
    }

    /// Returns the location of the text on the node, unless the setting contains the text.
    pub fn source(&self) -> Option<&ValueSource> {
        match self {
            Setting::Text(_) => None,
            Setting::Reference(reference) => Some(&reference.value_from),
        }
    }
}

impl From<&str> for Setting {
    fn from(text: &str) -> Setting {
        Setting::Text(text.to_owned())
    }
}

impl From<String> for Setting {
    fn from(text: String) -> Setting {
        Setting::Text(text)
    }
}

impl Reference {
    /// Returns the reference that a value without a fixed schema is: an object with the field `valueFrom` alone. Returns
    /// `None` for every other value.
    ///
    /// # Errors
    /// The reference does not name one location.
    pub fn from_value(value: &Value) -> Option<Result<Reference, &'static str>> {
        let fields = value.as_object().filter(|fields| fields.len() == 1)?;
        let source = fields.get("valueFrom")?.as_object();
        let reference = source
            .filter(|source| source.len() == 1)
            .and_then(|_| serde_json::from_value::<Reference>(value.clone()).ok())
            .ok_or("must have exactly one of file, credential and env");
        Some(reference.and_then(|reference| {
            reference.value_from.location()?;
            Ok(reference)
        }))
    }
}

impl ValueSource {
    /// Returns the location.
    ///
    /// # Errors
    /// Not exactly one field is set, or the name is invalid: a valid name never leads out of its directory.
    pub fn location(&self) -> Result<ValueLocation<'_>, &'static str> {
        let location = match (&self.file, &self.credential, &self.env) {
            (Some(name), None, None) => ValueLocation::File(name),
            (None, Some(name), None) => ValueLocation::Credential(name),
            (None, None, Some(name)) => ValueLocation::Env(name),
            _ => return Err("must have exactly one of file, credential and env"),
        };
        let name = location.name();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if name.is_empty() || name.len() > 255 || name.starts_with('.') || !name.bytes().all(is_plain) {
            return Err(
                "must be a name of letters, digits, \"_\", \"-\" and \".\" that does not start with \".\"",
            );
        }
        Ok(location)
    }
}

impl ValueLocation<'_> {
    /// Returns the name of the file, credential or variable.
    pub fn name(&self) -> &str {
        match self {
            ValueLocation::File(name) | ValueLocation::Credential(name) | ValueLocation::Env(name) => name,
        }
    }
}

/// The location, as in a message: `file db-password`.
impl fmt::Display for ValueLocation<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            ValueLocation::File(_) => "file",
            ValueLocation::Credential(_) => "credential",
            ValueLocation::Env(_) => "variable",
        };
        write!(formatter, "{kind} {}", self.name())
    }
}

/// The error for a value of another type lists both accepted forms.
impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Setting, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = Setting;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or valueFrom")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Setting, E> {
                Ok(text.into())
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Setting, A::Error> {
                Reference::deserialize(MapAccessDeserializer::new(fields)).map(Setting::Reference)
            }
        }
        deserializer.deserialize_any(Forms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file(name: &str) -> ValueSource {
        ValueSource { file: Some(name.to_owned()), ..ValueSource::default() }
    }

    #[test]
    fn a_setting_is_a_text_or_a_reference() {
        for (value, expected) in [
            (json!("5432"), Setting::from("5432")),
            (
                json!({"valueFrom": {"file": "db-password"}}),
                Setting::Reference(Reference { value_from: file("db-password") }),
            ),
        ] {
            assert_eq!(serde_json::from_value::<Setting>(value.clone()).unwrap(), expected);
            assert_eq!(serde_json::to_value(&expected).unwrap(), value);
        }
        for (value, message) in [
            (json!(5432), "invalid type: integer `5432`, expected a string or valueFrom"),
            (json!({}), "missing field `valueFrom`"),
        ] {
            assert_eq!(serde_json::from_value::<Setting>(value).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn values_without_a_schema_may_be_references() {
        for value in
            [json!("a"), json!({"valueFrom": {"file": "a"}, "b": 1}), json!({"value": {"file": "a"}})]
        {
            assert_eq!(Reference::from_value(&value), None, "{value}");
        }
        let reference = Reference::from_value(&json!({"valueFrom": {"file": "a"}}));
        assert_eq!(reference, Some(Ok(Reference { value_from: file("a") })));
        for source in [
            json!("a"),
            json!({}),
            json!({"vault": "a"}),
            json!({"file": "a", "b": 1}),
            json!({"file": "/a"}),
        ] {
            let value = json!({"valueFrom": source});
            assert!(matches!(Reference::from_value(&value), Some(Err(_))), "{value}");
        }
    }

    #[test]
    fn names_never_lead_out_of_their_directory() {
        for name in ["", ".", "..", "../x", "a/b", "/etc/shadow", ".hidden", "a b", "a\0"] {
            assert!(file(name).location().is_err(), "{name:?}");
        }
        assert_eq!(file("db-password.v2").location(), Ok(ValueLocation::File("db-password.v2")));
    }

    #[test]
    fn exactly_one_place_is_named() {
        assert!(ValueSource::default().location().is_err());
        assert!(ValueSource { env: Some("A".to_owned()), ..file("a") }.location().is_err());
    }
}
