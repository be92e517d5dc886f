//! JSON documents, with a report of duplicate fields.

use crate::problem::{element_path, field_path};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::fmt;

/// The error for a text that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// Line of the error, from 1; 0 if unknown.
    pub line: u64,
    /// Description of the error, with its position.
    pub message: String,
}

/// One JSON document.
#[derive(Clone, Debug, PartialEq)]
pub struct Json {
    /// The document; a duplicate field has its last value.
    pub value: Value,
    /// Paths of the duplicate fields.
    pub duplicates: Vec<String>,
}

/// Reads one JSON document. Nesting is limited to 128 levels.
pub fn json(bytes: &[u8]) -> Result<Json, ParseError> {
    let duplicates = RefCell::new(Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let outcome = Duplicates { path: String::new(), duplicates: &duplicates }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    match outcome {
        Ok(value) => Ok(Json { value, duplicates: duplicates.into_inner() }),
        Err(error) => Err(ParseError {
            line: u64::try_from(error.line()).unwrap_or(0),
            message: format!("body is not valid JSON: {error}"),
        }),
    }
}

/// Deserializes a value and records the paths that occur twice.
struct Duplicates<'f> {
    path: String,
    duplicates: &'f RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Duplicates<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Duplicates<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(part) = parts.next_element_seed(Duplicates {
            path: element_path(&self.path, list.len()),
            duplicates: self.duplicates,
        })? {
            list.push(part);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut parts: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = parts.next_key::<String>()? {
            let path = field_path(&self.path, &name);
            let part =
                parts.next_value_seed(Duplicates { path: path.clone(), duplicates: self.duplicates })?;
            if map.insert(name, part).is_some() {
                self.duplicates.borrow_mut().push(path);
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn duplicate_json_fields_are_named_with_their_paths() {
        let read = json(br#"{"spec":{"a":1,"b":[{"c":1,"c":2}],"a":3}}"#).unwrap();
        assert_eq!(read.value, json!({"spec": {"a": 3, "b": [{"c": 2}]}}));
        assert_eq!(read.duplicates, vec!["spec.b[0].c", "spec.a"]);
        assert_eq!(json(b"{\n\"a\": }").map_err(|error| error.line), Err(2));
        assert!(json(b"{} {}").is_err());
        assert!(json("[".repeat(100_000).as_bytes()).is_err());
    }
}
