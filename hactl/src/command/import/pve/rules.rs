//! Import of rules.cfg: affinity to nodes and between guests, as objects of kind AffinityRule.

use super::imported::ImportResult;
use super::names::UniqueNames;
use super::resources::{KnownGuest, KnownGuests};
use super::section::{Problem, Property, Section, list, sections};
use super::values;
use ha_api_types::kind::Kind;
use serde_json::{Map, Value, json};

/// Kind of a rule's section.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Affinity {
    Node,
    Resource,
}

/// Reads rules.cfg.
pub(super) fn read(
    text: &str,
    path: &str,
    known_guests: &KnownGuests,
    imported: &mut ImportResult,
) -> Result<(), Problem> {
    let mut names = UniqueNames::default();
    for section in sections(text)? {
        let location = format!("{path}:{}", section.line);
        let affinity = match section.type_name.as_str() {
            "node-affinity" => Affinity::Node,
            "resource-affinity" => Affinity::Resource,
            other => {
                let text = format!("rule {} has unknown type {other}; omitted", section.name);
                imported.add_note(&location, &text);
                continue;
            }
        };
        let Some(spec) = rule_spec(&section, affinity, known_guests, path, imported)? else {
            imported
                .add_note(&location, &format!("rule {} has no remaining resources; omitted", section.name));
            continue;
        };
        let name = names.assign(&section.name);
        if name != section.name {
            imported.add_note(&location, &format!("rule {} renamed to {name}", section.name));
        }
        imported.add_object(Kind::AffinityRule, &name, &spec, &location, &section.comments);
        let parent_paths = ["spec", "spec.nodeAffinity", "spec.resourceAffinity"];
        imported.record_field_locations(&parent_paths, path, &section.properties);
    }
    Ok(())
}

/// Returns a rule's spec; `None` if no resources remain.
fn rule_spec(
    section: &Section,
    affinity: Affinity,
    known_guests: &KnownGuests,
    path: &str,
    imported: &mut ImportResult,
) -> Result<Option<Map<String, Value>>, Problem> {
    let mut affinity_fields: Map<String, Value> = Map::new();
    let mut rule_fields: Map<String, Value> = Map::new();
    // In ha-manager, all rules between guests are strict.
    if affinity == Affinity::Resource {
        affinity_fields.insert("strict".to_owned(), json!(true));
    }
    for property in &section.properties {
        let location = format!("{path}:{}", property.line);
        match (property.name.as_str(), affinity) {
            ("resources", _) => {
                let resources =
                    rule_resources(section, property, affinity, known_guests, &location, imported)?;
                if resources.is_empty() {
                    return Ok(None);
                }
                affinity_fields.insert("resources".to_owned(), json!(resources));
            }
            ("nodes", Affinity::Node) => {
                affinity_fields
                    .insert("nodes".to_owned(), values::node_priorities(property, path, imported)?);
            }
            ("strict", Affinity::Node) => {
                affinity_fields.insert("strict".to_owned(), json!(property.boolean()?));
            }
            ("affinity", Affinity::Resource) => {
                affinity_fields.insert("affinity".to_owned(), json!(affinity_word(property)?));
            }
            ("disable", _) => {
                if property.boolean()? {
                    rule_fields.insert("disabled".to_owned(), json!(true));
                }
            }
            ("comment", _) => {
                rule_fields.insert("comment".to_owned(), json!(property.decoded()));
            }
            _ => {
                imported.add_note(
                    &location,
                    &format!("unknown setting {} of rule {}", property.name, section.name),
                );
            }
        }
    }
    let (key, needed_fields) = match affinity {
        Affinity::Node => ("nodeAffinity", ["resources", "nodes"]),
        Affinity::Resource => ("resourceAffinity", ["resources", "affinity"]),
    };
    if let Some(missing) =
        needed_fields.into_iter().find(|needed_fields| !affinity_fields.contains_key(*needed_fields))
    {
        return Err(Problem::new(section.line, format!("rule {} has no {missing}", section.name)));
    }
    let mut spec: Map<String, Value> = Map::new();
    spec.insert(key.to_owned(), Value::Object(affinity_fields));
    spec.extend(rule_fields);
    Ok(Some(spec))
}

/// Returns the resources of a rule without duplicates, because ha-manager treats them as a set.
fn rule_resources<'a>(
    section: &Section,
    property: &'a Property,
    affinity: Affinity,
    known_guests: &KnownGuests,
    location: &str,
    imported: &mut ImportResult,
) -> Result<Vec<&'a str>, Problem> {
    let parts = list(&property.value);
    if parts.is_empty() {
        return Err(property.expected("resources such as vm:100,ct:101"));
    }
    let rule = &section.name;
    let mut resources = Vec::new();
    for part in parts {
        let (type_name, resource) = values::typed_resource(part, property)?;
        if resources.contains(&resource) {
            continue;
        }
        match known_guests.get(resource) {
            None => {
                imported.add_note(location, &format!("{resource} of rule {rule} not found in resources.cfg"));
            }
            // Without the type, the name would refer to another guest.
            Some(guest) if !guest.type_name.eq_ignore_ascii_case(type_name) => {
                let actual_type = &guest.type_name;
                let text =
                    format!("{part} of rule {rule} is {actual_type}:{resource} in resources.cfg; omitted");
                imported.add_note(location, &text);
                continue;
            }
            Some(KnownGuest { group: Some(group), .. }) if affinity == Affinity::Node => {
                let text =
                    format!("{resource} is in rule {rule} and in group {group}; keep only one of them");
                imported.add_note(location, &text);
            }
            Some(_) => (),
        }
        resources.push(resource);
    }
    Ok(resources)
}

fn affinity_word(property: &Property) -> Result<&'static str, Problem> {
    match property.value.as_str() {
        "positive" => Ok("Positive"),
        "negative" => Ok("Negative"),
        _ => Err(property.expected("positive or negative")),
    }
}
