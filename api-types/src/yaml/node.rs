//! A YAML node with its position in the text, before the conversion to JSON, and the line of every field.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_yaml::Spanned;
use std::collections::BTreeMap;
use std::fmt;

/// Lines by path. A path is written as `spec.driver.exec.command[1]`. Brackets and dots are equivalent, so
/// `metadata.annotations[example.org/x]` also finds its field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    by_path: BTreeMap<String, u32>,
}

impl Lines {
    /// Returns the line of a path, from 1. For a path that does not exist, returns the line of its nearest existing
    /// parent. `None` only for a document without lines.
    pub fn of(&self, path: &str) -> Option<u32> {
        let mut path = normalized(path);
        loop {
            if let Some(line) = self.by_path.get(&path) {
                return Some(*line);
            }
            if path.is_empty() {
                return None;
            }
            path.truncate(path.rfind('.').unwrap_or(0));
        }
    }

    /// Returns the first line of the document.
    pub fn first(&self) -> Option<u32> {
        self.of("")
    }

    /// Records the line of a path from [`child`].
    fn put(&mut self, path: &str, line: u32) {
        if line > 0 {
            self.by_path.entry(path.to_owned()).or_insert(line);
        }
    }
}

/// Returns the path of a field or list element below another path.
fn child(path: &str, name: &str) -> String {
    if path.is_empty() { normalized(name) } else { format!("{path}.{}", normalized(name)) }
}

fn normalized(path: &str) -> String {
    let mut normal = String::with_capacity(path.len());
    for character in path.chars() {
        match character {
            '[' if !normal.is_empty() => normal.push('.'),
            '[' | ']' | '"' | '\'' => {}
            other => normal.push(other),
        }
    }
    normal.trim_start_matches('.').to_owned()
}

/// A node with its position.
pub(super) struct Node(Spanned<Content>);

enum Content {
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<(Spanned<Key>, Node)>),
}

/// The key of a map; numbers and booleans stay as written.
struct Key(String);

impl Node {
    /// Converts the node to JSON and records the lines of all its descendants.
    pub(super) fn into_value(self, lines: &mut Lines) -> Value {
        lines.put("", line(&self.0));
        self.0.value.into_value("", lines)
    }
}

impl Content {
    fn into_value(self, path: &str, lines: &mut Lines) -> Value {
        match self {
            Content::Scalar(value) => value,
            Content::List(nodes) => Value::Array(
                nodes
                    .into_iter()
                    .enumerate()
                    .map(|(index, node)| {
                        let path = child(path, &index.to_string());
                        lines.put(&path, line(&node.0));
                        node.0.value.into_value(&path, lines)
                    })
                    .collect(),
            ),
            Content::Map(entries) => {
                let mut map = Map::new();
                for (key, node) in entries {
                    let path = child(path, &key.value.0);
                    lines.put(&path, line(&key));
                    lines.put(&path, line(&node.0));
                    let value = node.0.value.into_value(&path, lines);
                    map.insert(key.value.0, value);
                }
                Value::Object(map)
            }
        }
    }
}

fn line<T>(spanned: &Spanned<T>) -> u32 {
    u32::try_from(spanned.referenced.line()).unwrap_or(0)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        Spanned::<Content>::deserialize(deserializer).map(Node)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        String::deserialize(deserializer).map(Key)
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Number(value.into())))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Number(value.into())))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Content, E> {
        Number::from_f64(value)
            .map(|number| Content::Scalar(Value::Number(number)))
            .ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar(Value::String(value.to_owned())))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Content, E> {
        Ok(Content::Scalar(Value::String(value)))
    }

    fn visit_unit<E: Error>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_none<E: Error>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        Content::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Content, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = elements.next_element()? {
            nodes.push(node);
        }
        Ok(Content::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Content, A::Error> {
        let mut nodes = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            nodes.push(entry);
        }
        Ok(Content::Map(nodes))
    }
}
