//! The result of one check by `hactl doctor`: verdict, observation and suggested fix.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a check came out; the later, the worse.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Verdict {
    /// As it should be.
    #[default]
    Ok,
    /// It works, but weaker, slower or less surely than it could.
    Warn,
    /// A promise does not hold: services are not recovered, or a machine is reset late or for nothing.
    Fail,
}

/// One check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Check {
    /// What was looked at, as `watchdog-owner`; stable, for scripts.
    pub name: String,
    /// How it came out.
    pub verdict: Verdict,
    /// What was seen, in a sentence.
    pub seen: String,
    /// The line that mends it; empty when nothing is to be mended.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub help: String,
}

impl Check {
    /// Builds a passed check.
    pub fn ok(name: &str, seen: impl Into<String>) -> Check {
        Check { name: name.to_owned(), verdict: Verdict::Ok, seen: seen.into(), help: String::new() }
    }

    /// Builds a check with a warning, for a state that works but could be better.
    pub fn warn(name: &str, seen: impl Into<String>, help: impl Into<String>) -> Check {
        Check { name: name.to_owned(), verdict: Verdict::Warn, seen: seen.into(), help: help.into() }
    }

    /// Builds a failed check, for a guarantee that does not hold.
    pub fn fail(name: &str, seen: impl Into<String>, help: impl Into<String>) -> Check {
        Check { name: name.to_owned(), verdict: Verdict::Fail, seen: seen.into(), help: help.into() }
    }
}
