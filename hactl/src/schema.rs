//! Fields in the schemas of the kinds. A JSON schema has no fixed shape: this view names the words that hactl reads.

use ha_api_types::kind::Kind;
use ha_api_types::schema;
use serde_json::Value;

/// The schema of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a>(pub(crate) &'a Value);

impl<'a> Field<'a> {
    /// Returns the schema of an object.
    pub(crate) fn object(kind: Kind) -> Field<'static> {
        Field(schema::of(kind))
    }

    /// Returns the schema of an object's spec.
    pub(crate) fn spec(kind: Kind) -> Field<'static> {
        Field(&schema::of(kind)["properties"]["spec"])
    }

    /// Returns the fields of a map with fixed fields, by name; `None` for other fields.
    pub(crate) fn members(self) -> Option<impl Iterator<Item = (&'a str, Field<'a>)>> {
        let members = self.0["properties"].as_object()?;
        Some(members.iter().map(|(name, member)| (name.as_str(), Field(member))))
    }

    pub(crate) fn member(self, name: &str) -> Option<Field<'a>> {
        self.0["properties"].get(name).map(Field)
    }

    /// Returns the schema of every value of a map with any keys.
    pub(crate) fn values(self) -> Option<Field<'a>> {
        Some(Field(&self.0["additionalProperties"])).filter(|field| field.0.is_object())
    }

    /// Returns the schema of the items of a list.
    pub(crate) fn items(self) -> Option<Field<'a>> {
        Some(Field(&self.0["items"])).filter(|field| field.0.is_object())
    }

    /// Returns the alternatives of a field with several types.
    pub(crate) fn alternatives(self) -> impl Iterator<Item = Field<'a>> {
        self.0["anyOf"].as_array().into_iter().flatten().map(Field)
    }

    /// Returns the name of the type; `None` for a field with several types.
    pub(crate) fn type_name(self) -> Option<&'a str> {
        self.0["type"].as_str()
    }

    pub(crate) fn description(self) -> Option<&'a str> {
        self.0["description"].as_str()
    }

    /// Returns the allowed words; empty if any word is allowed.
    pub(crate) fn words(self) -> Vec<&'a str> {
        self.0["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }
}
