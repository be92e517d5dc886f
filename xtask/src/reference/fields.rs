//! The page with every field of every kind: path, type, default and meaning, generated from the schemas.

use super::cell;
use ha_api_types::kind::Kind;
use ha_api_types::schema::{self, default_of, type_of};
use ha_api_types::timing::{Profile, TimingSpec, Timings};
use serde_json::{Value, json};
use std::fmt::Write;

const HEAD: &str = "\
# Fields

Every field of every kind, as `hactl explain KIND.PATH` shows it. Editors can use the [JSON schemas](../schemas).
`cargo run -p ha-xtask -- reference` generates this page from the code.

`[]` is an element of a list, and `NAME` is the name of an element of a map. A quantity is a number, or a text such as
`500m` or `2Gi`. A field without a default is unset, unless its meaning states otherwise; lists and maps are empty.
hactl writes the fields under `status`. You write all others.
";

const TABLE: &str = "\n| field | type | default | meaning |\n|---|---|---|---|\n";

pub(super) fn page() -> String {
    let mut page = HEAD.to_owned();
    page += "\n## All kinds\n";
    page += TABLE;
    for name in ["apiVersion", "kind", "metadata"] {
        row(&mut page, name, &schema::of(Kind::Resource)["properties"][name]);
    }
    for kind in Kind::ALL {
        let schema = schema::of(kind);
        // Writing to a string cannot fail.
        let _ = write!(page, "\n## {}\n\n{}\n", kind.name(), schema::describe(kind));
        for part in ["spec", "status"] {
            let _ = write!(page, "\n### {} {part}\n{TABLE}", kind.name());
            for (name, field) in members(&schema["properties"][part]) {
                row(&mut page, &format!("{part}.{name}"), field);
            }
        }
    }
    page
}

fn members(field: &Value) -> impl Iterator<Item = (&String, &Value)> {
    field["properties"].as_object().into_iter().flatten()
}

/// Appends the row of a field and the rows of its subfields.
fn row(page: &mut String, path: &str, field: &Value) {
    let default = of_profiles(path).or_else(|| default_of(field)).map(|text| format!("`{text}`"));
    let _ = writeln!(
        page,
        "| `{path}` | {} | {} | {} |",
        cell(&type_words(field)),
        default.unwrap_or_default(),
        cell(&meaning(field))
    );
    let (mut below, mut path) = (field, path.to_owned());
    loop {
        if below["items"].is_object() {
            (below, path) = (&below["items"], format!("{path}[]"));
        } else if below["additionalProperties"].is_object() {
            (below, path) = (&below["additionalProperties"], format!("{path}.NAME"));
        } else {
            break;
        }
    }
    for (name, member) in members(below) {
        row(page, &format!("{path}.{name}"), member);
    }
}

/// Returns the type, with its limits if values are limited.
fn type_words(field: &Value) -> String {
    if is_reason(field) || field["enum"].is_array() {
        return "string".to_owned();
    }
    let number = |name: &str| field[name].as_f64();
    let least = number("minimum");
    let most = number("maximum").filter(|most| *most < f64::from(u32::MAX));
    match (type_of(field), least, most) {
        (name, Some(least), Some(most)) => format!("{name}, {least} to {most}"),
        (name, Some(least), None) => format!("{name}, {least} or more"),
        (name, None, Some(most)) => format!("{name}, at most {most}"),
        (name, None, None) => name,
    }
}

fn meaning(field: &Value) -> String {
    let mut text = field["description"].as_str().unwrap_or_default().to_owned();
    if is_reason(field) {
        text += " One of the [reasons](reasons.md).";
    } else if let (Some(values), true) = (field["enum"].as_array(), field["x-hactl-values"].is_null()) {
        let values: Vec<String> =
            values.iter().filter_map(Value::as_str).map(|one| format!("`{one}`")).collect();
        text.extend([" One of ", &values.join(", "), "."]);
    }
    text
}

fn is_reason(field: &Value) -> bool {
    let declared = json!("Unschedulable");
    field["enum"].as_array().is_some_and(|values| values.contains(&declared))
}

/// Returns the default of a field of `Cluster.spec.timing`, which depends on the profile. `None` for other fields.
fn of_profiles(path: &str) -> Option<String> {
    let name = path.strip_prefix("spec.timing.")?;
    if name == "candidateRetentionSeconds" {
        // Only the leader uses this field, so it does not depend on the profile.
        return Some((TimingSpec::default().candidate_retention_ms() / 1_000).to_string());
    }
    let (kept, scale) = match (name.strip_suffix("Seconds"), name.strip_suffix("Percent")) {
        (Some(stem), _) => (format!("{stem}Ms"), 1_000.0),
        (_, Some(stem)) => (format!("{stem}Ppm"), 10_000.0),
        (None, None) => return None,
    };
    let values: Option<Vec<(Profile, f64)>> = [Profile::Default, Profile::Fast, Profile::Conservative]
        .into_iter()
        .map(|profile| {
            let timings = serde_json::to_value(Timings::of_profile(profile)).ok()?;
            Some((profile, timings[&kept].as_f64()? / scale))
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
    fn what_a_profile_decides_is_named_for_each() {
        assert_eq!(
            of_profiles("spec.timing.heartbeatValidSeconds").as_deref(),
            Some("Default 6, Fast 4, Conservative 20")
        );
        assert_eq!(of_profiles("spec.timing.watchdogRateErrorPercent").as_deref(), Some("2"));
        assert_eq!(of_profiles("spec.timing.profile"), None);
        for (name, _) in members(&schema::of(Kind::Cluster)["properties"]["spec"]["properties"]["timing"]) {
            assert!(name == "profile" || of_profiles(&format!("spec.timing.{name}")).is_some(), "{name}");
        }
    }

    #[test]
    fn every_field_says_what_it_means_and_metadata_is_the_same_for_all() {
        for line in page().lines().filter(|line| line.starts_with("| `")) {
            assert!(!line.ends_with("|  |"), "{line}");
        }
        let metadata = |kind| &schema::of(kind)["properties"]["metadata"];
        for kind in Kind::ALL {
            assert_eq!(metadata(kind), metadata(Kind::Resource), "{kind}");
        }
    }
}
