//! Parsing of single fields, with errors that name the field and the expected content.

use std::fmt;
use std::ops::RangeInclusive;

/// The reason why a file cannot be read, with its position and the expected content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// Line number, from 1.
    pub line: usize,
    /// Name and position of the field, such as `free memory (field 4)`; empty if the whole line is wrong.
    pub field: String,
    /// Expected content.
    pub expected: String,
    /// Actual content.
    pub actual: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}", self.line)?;
        if !self.field.is_empty() {
            write!(formatter, ", {}", self.field)?;
        }
        write!(formatter, ": expected {}, found {}", self.expected, self.actual)
    }
}

impl std::error::Error for TextError {}

impl TextError {
    /// Returns the name of the node of an instance, if the error is that the file has no such node.
    pub fn unknown_node(&self) -> Option<&str> {
        (self.expected == "a node of the section above").then(|| self.actual.trim_matches('`'))
    }
}

/// Maximum size, which prevents overflows of sums.
const MAX_SIZE: i64 = 1 << 50;

pub(super) struct Fields<'a> {
    line: usize,
    values: Vec<&'a str>,
    separator: char,
}

impl<'a> Fields<'a> {
    /// Splits a line, and checks that the number of its fields is in this range.
    pub(super) fn split(
        line: usize,
        text: &'a str,
        separator: char,
        line_kind: &str,
        count: &RangeInclusive<usize>,
    ) -> Result<Fields<'a>, TextError> {
        let values: Vec<&str> = text.split(separator).collect();
        if count.contains(&values.len()) {
            return Ok(Fields { line, values, separator });
        }
        let (min_count, max_count) = (count.start(), count.end());
        let count_text = if min_count == max_count {
            min_count.to_string()
        } else {
            format!("{min_count} to {max_count}")
        };
        Err(TextError {
            line,
            field: String::new(),
            expected: format!("{line_kind} with {count_text} fields separated by `{separator}`"),
            actual: format!("{} fields", values.len()),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns the text of a field; empty if the line has fewer fields.
    pub(super) fn text(&self, index: usize) -> &'a str {
        self.values.get(index).copied().unwrap_or("")
    }

    pub(super) fn error(&self, index: usize, name: &str, expected: impl Into<String>) -> TextError {
        let kind = if self.separator == '|' { "field" } else { "value" };
        let actual = self.text(index);
        TextError {
            line: self.line,
            field: format!("{name} ({kind} {})", index + 1),
            expected: expected.into(),
            actual: if actual.is_empty() { "nothing".to_owned() } else { format!("`{}`", shortened(actual)) },
        }
    }

    /// Returns a name, which must not be empty.
    pub(super) fn name(&self, index: usize, name: &str) -> Result<String, TextError> {
        match self.text(index) {
            "" => Err(self.error(index, name, "a name")),
            text => Ok(text.to_owned()),
        }
    }

    /// Parses an integer of at least 0.
    pub(super) fn unsigned_integer(&self, index: usize, name: &str) -> Result<i64, TextError> {
        self.integer(index, name, 0, "an integer of 0 or more")
    }

    /// Parses an integer that may be negative, such as an overcommitted free amount.
    pub(super) fn signed_integer(&self, index: usize, name: &str) -> Result<i64, TextError> {
        self.integer(index, name, -MAX_SIZE, "an integer")
    }

    fn integer(&self, index: usize, name: &str, minimum: i64, expected: &str) -> Result<i64, TextError> {
        let text = self.text(index);
        // Older writers print integers with a zero fraction.
        let digits = text.split_once('.').map_or(text, |(integer_part, fraction)| {
            if fraction.bytes().all(|byte| byte == b'0') { integer_part } else { text }
        });
        match digits.parse::<i64>() {
            Ok(number) if (minimum..=MAX_SIZE).contains(&number) => Ok(number),
            Ok(_) | Err(_) => Err(self.error(index, name, expected)),
        }
    }

    /// Parses a decimal number greater than 0.
    pub(super) fn ratio(&self, index: usize, name: &str) -> Result<f64, TextError> {
        match self.text(index).parse::<f64>() {
            Ok(number) if number.is_finite() && (1e-6..=1e9).contains(&number) => Ok(number),
            Ok(_) | Err(_) => Err(self.error(index, name, "a number greater than 0")),
        }
    }

    /// Parses one of several words.
    pub(super) fn word<T: Copy>(
        &self,
        index: usize,
        name: &str,
        words: &[(T, &str)],
    ) -> Result<T, TextError> {
        let text = self.text(index);
        words
            .iter()
            .find(|(_, word)| *word == text)
            .map(|(value, _)| *value)
            .ok_or_else(|| self.error(index, name, one_of(words.iter().map(|(_, word)| *word))))
    }

    /// Parses a list separated by commas; an empty field is an empty list.
    pub(super) fn list(&self, index: usize) -> Vec<String> {
        self.text(index).split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }
}

/// Joins words as in `a, b or c`.
pub(super) fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, first)) => format!("{} or {last}", first.join(", ")),
    }
}

/// Shortens a text to a length that fits into a message.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
