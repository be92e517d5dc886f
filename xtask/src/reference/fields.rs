//! The page with every field of every kind: path, type, default and meaning, generated from the schemas.

use super::table_cell;
use ha_api_types::kind::Kind;
use ha_api_types::renamed;
use ha_api_types::schema::{self, default_of, type_of};
use ha_api_types::timing::{ActiveTiming, Profile, TimingSpec, Timings};
use serde_json::{Value, json};
use std::fmt::Write;

const INTRODUCTION: &str = "\
# Fields

Every field of every kind, as `hactl explain KIND.PATH` shows it. Editors can use the [JSON schemas](../schemas).
`cargo run -p ha-xtask -- reference` generates this page from the code.

`[]` is an element of a list, and `NAME` is the name of an element of a map. A quantity is a number, or a text such as
`500m` or `2Gi`. A field without a default is unset, unless its meaning states otherwise; lists and maps are empty.
hactl writes the fields under `status`. You write all others.
";

const TABLE_HEADER: &str = "\n| field | type | default | meaning |\n|---|---|---|---|\n";

pub(super) fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    page += "\n## All kinds\n";
    page += TABLE_HEADER;
    for name in ["apiVersion", "kind", "metadata"] {
        append_rows(&mut page, name, &schema::of(Kind::Resource)["properties"][name]);
    }
    for kind in Kind::ALL {
        let schema = schema::of(kind);
        // Writing to a string cannot fail.
        let _ = write!(page, "\n## {}\n\n{}\n", kind.name(), schema::describe(kind));
        for part in ["spec", "status"] {
            let _ = write!(page, "\n### {} {part}\n{TABLE_HEADER}", kind.name());
            for (name, field) in members(&schema["properties"][part]) {
                append_rows(&mut page, &format!("{part}.{name}"), field);
            }
        }
    }
    page
}

fn members(field: &Value) -> impl Iterator<Item = (&String, &Value)> {
    field["properties"].as_object().into_iter().flatten()
}

/// Appends the row of a field and the rows of its subfields.
fn append_rows(page: &mut String, path: &str, field: &Value) {
    let default = profile_default(path).or_else(|| default_of(field)).map(|text| format!("`{text}`"));
    let _ = writeln!(
        page,
        "| `{path}` | {} | {} | {} |",
        table_cell(&type_words(field)),
        default.unwrap_or_default(),
        table_cell(&meaning(field))
    );
    let (mut inner, mut path) = (field, path.to_owned());
    loop {
        if inner["items"].is_object() {
            (inner, path) = (&inner["items"], format!("{path}[]"));
        } else if inner["additionalProperties"].is_object() {
            (inner, path) = (&inner["additionalProperties"], format!("{path}.NAME"));
        } else {
            break;
        }
    }
    for (name, member) in members(inner) {
        append_rows(page, &format!("{path}.{name}"), member);
    }
}

/// Returns the type, with its limits if values are limited.
fn type_words(field: &Value) -> String {
    if is_reason(field) || field["enum"].is_array() {
        return "string".to_owned();
    }
    let number = |name: &str| field[name].as_f64();
    let minimum = number("minimum");
    let maximum = number("maximum").filter(|maximum| *maximum < f64::from(u32::MAX));
    match (type_of(field), minimum, maximum) {
        (name, Some(minimum), Some(maximum)) => format!("{name}, {minimum} to {maximum}"),
        (name, Some(minimum), None) => format!("{name}, {minimum} or more"),
        (name, None, Some(maximum)) => format!("{name}, at most {maximum}"),
        (name, None, None) => name,
    }
}

fn meaning(field: &Value) -> String {
    let mut text = field["description"].as_str().unwrap_or_default().to_owned();
    if is_reason(field) {
        text += " One of the [reasons](reasons.md).";
    } else if let (Some(values), true) = (field["enum"].as_array(), field["x-hactl-values"].is_null()) {
        let values: Vec<String> =
            values.iter().filter_map(Value::as_str).map(|value| format!("`{value}`")).collect();
        text.extend([" One of ", &values.join(", "), "."]);
    }
    text
}

fn is_reason(field: &Value) -> bool {
    let declared = json!("Unschedulable");
    field["enum"].as_array().is_some_and(|values| values.contains(&declared))
}

/// Returns the default of a field of `Cluster.spec.timing`, which depends on the profile. `None` for other fields.
fn profile_default(path: &str) -> Option<String> {
    let name = path.strip_prefix("spec.timing.")?;
    if name == "candidateRetentionSeconds" {
        // Only the leader uses this field, so it does not depend on the profile.
        return Some((TimingSpec::default().candidate_retention_ms() / 1_000).to_string());
    }
    let values: Option<Vec<(Profile, f64)>> = [Profile::Default, Profile::Fast, Profile::Conservative]
        .into_iter()
        .map(|profile| {
            let timing = ActiveTiming::from(Timings::of_profile(profile));
            let mut node = json!({"status": {"timing": timing}});
            renamed::from_stored(Kind::Node, &mut node);
            Some((profile, node["status"]["timing"][name].as_f64()?))
        })
        .collect();
    let values = values?;
    let (_, first) = values.first()?;
    if values.iter().all(|(_, value)| value.to_bits() == first.to_bits()) {
        return Some(first.to_string());
    }
    Some(values.iter().map(|(profile, value)| format!("{profile:?} {value}")).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_timing_fields_name_each_profile() {
        assert_eq!(
            profile_default("spec.timing.heartbeatLifetimeSeconds").as_deref(),
            Some("Default 6, Fast 4, Conservative 20")
        );
        assert_eq!(profile_default("spec.timing.watchdogClockSkewPercent").as_deref(), Some("2"));
        assert_eq!(profile_default("spec.timing.profile"), None);
        for (name, _) in members(&schema::of(Kind::Cluster)["properties"]["spec"]["properties"]["timing"]) {
            assert!(name == "profile" || profile_default(&format!("spec.timing.{name}")).is_some(), "{name}");
        }
    }

    #[test]
    fn every_field_is_described_and_metadata_is_shared() {
        for line in page().lines().filter(|line| line.starts_with("| `")) {
            assert!(!line.ends_with("|  |"), "{line}");
        }
        let metadata = |kind| &schema::of(kind)["properties"]["metadata"];
        for kind in Kind::ALL {
            assert_eq!(metadata(kind), metadata(Kind::Resource), "{kind}");
        }
    }
}
