//! Output of objects: tables, YAML, JSON, names.

pub(crate) mod columns;
pub(crate) mod cpus;
pub(crate) mod custom_columns;
pub(crate) mod path;
pub(crate) mod table;
pub(crate) mod template;

use crate::failure::Failure;
use crate::merge::LAST_APPLIED;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser, ValueParserFactory};
use custom_columns::CustomColumns;
use ha_api_types::time::Timestamp;
use serde_json::Value;
use std::ffi::OsStr;
use template::Template;

/// The form of the output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Format {
    /// A table with more columns.
    Wide,
    Yaml,
    Json,
    /// Kind and name only.
    Name,
    /// Text with fields of the JSON.
    JsonPath(Template),
    /// A table of fields of the JSON.
    CustomColumns(CustomColumns),
}

impl Format {
    fn parse(text: &str) -> Result<Format, String> {
        match text.split_once('=') {
            Some(("jsonpath", template)) => Template::parse(template).map(Format::JsonPath),
            Some(("custom-columns", columns)) => CustomColumns::parse(columns).map(Format::CustomColumns),
            _ => match text {
                "wide" => Ok(Format::Wide),
                "yaml" => Ok(Format::Yaml),
                "json" => Ok(Format::Json),
                "name" => Ok(Format::Name),
                _ => Err("specify wide, yaml, json, name, jsonpath=TEMPLATE or custom-columns=HEADER:PATH"
                    .to_owned()),
            },
        }
    }

    /// Returns the word before any `=`, as users write it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Format::Wide => "wide",
            Format::Yaml => "yaml",
            Format::Json => "json",
            Format::Name => "name",
            Format::JsonPath(_) => "jsonpath",
            Format::CustomColumns(_) => "custom-columns",
        }
    }

    /// Returns `true` if the format shows fields of the JSON, so that every command with JSON supports it.
    pub(crate) fn has_expressions(&self) -> bool {
        match self {
            Format::JsonPath(_) | Format::CustomColumns(_) => true,
            Format::Wide | Format::Yaml | Format::Json | Format::Name => false,
        }
    }
}

impl ValueParserFactory for Format {
    type Parser = FormatParser;

    fn value_parser() -> FormatParser {
        FormatParser
    }
}

/// The parser of `-o`, whose values completion scripts offer.
#[derive(Clone)]
pub(crate) struct FormatParser;

impl TypedValueParser for FormatParser {
    type Value = Format;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Format, clap::Error> {
        StringValueParser::new()
            .try_map(|text: String| Format::parse(&text))
            .parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values = [
            ("wide", "Table with more columns"),
            ("yaml", "YAML"),
            ("json", "JSON"),
            ("name", "Kind and name only"),
            ("jsonpath=", "Template with fields, such as jsonpath='{.items[*].metadata.name}'"),
            ("custom-columns=", "Table with fields, such as custom-columns=NAME:.metadata.name"),
        ];
        Some(Box::new(values.into_iter().map(|(value, help)| PossibleValue::new(value).help(help))))
    }
}

/// Returns `true` if the output is a table of the server.
pub(crate) fn is_table(format: Option<&Format>) -> bool {
    format.is_none_or(|format| *format == Format::Wide)
}

pub(crate) fn yaml(value: &Value) -> Result<String, Failure> {
    ha_api_types::yaml::to_text(value).map_err(|error| Failure::failed(error.to_string()))
}

/// Returns a value as indented JSON.
pub(crate) fn json(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Returns an object without managed fields and without the annotation of apply.
pub(crate) fn readable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    object
}

/// Returns the age of a timestamp, such as `3h12m`; `-` if the timestamp is missing or invalid.
pub(crate) fn age(timestamp: Option<&Timestamp>) -> String {
    match timestamp.and_then(Timestamp::unix_seconds) {
        Some(seconds) => crate::duration::short_text(now_seconds() - seconds),
        None => "-".to_owned(),
    }
}

/// Returns the seconds since 1970 on the wall clock.
pub(crate) fn now_seconds() -> i64 {
    i64::try_from(crate::duration::since_1970().as_secs()).unwrap_or(0)
}
