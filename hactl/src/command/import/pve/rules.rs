//! Import of rules.cfg: affinity to nodes and between guests, as objects of kind AffinityRule.

use super::imported::Imported;
use super::names::Names;
use super::resources::{Known, KnownGuest};
use super::section::{Problem, Property, Section, list, sections};
use super::words;
use ha_api_types::kind::Kind;
use serde_json::{Map, Value, json};

/// Kind of a rule's section.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Affinity {
    Node,
    Resource,
}

/// Reads rules.cfg.
pub(super) fn read(text: &str, path: &str, known: &Known, imported: &mut Imported) -> Result<(), Problem> {
    let mut names = Names::default();
    for section in sections(text)? {
        let place = format!("{path}:{}", section.line);
        let affinity = match section.type_name.as_str() {
            "node-affinity" => Affinity::Node,
            "resource-affinity" => Affinity::Resource,
            other => {
                let text = format!("rule {} has unknown type {other}; omitted", section.name);
                imported.note(&place, &text);
                continue;
            }
        };
        let Some(spec) = rule(&section, affinity, known, path, imported)? else {
            imported.note(&place, &format!("rule {} has no resources left; omitted", section.name));
            continue;
        };
        let name = names.of(&section.name);
        if name != section.name {
            imported.note(&place, &format!("rule {} renamed to {name}", section.name));
        }
        imported.object(Kind::AffinityRule, &name, &spec, &place, &section.comments);
        let above = ["spec", "spec.nodeAffinity", "spec.resourceAffinity"];
        imported.fields(&above, path, &section.properties);
    }
    Ok(())
}

/// Returns a rule's spec; `None` if no resources remain.
fn rule(
    section: &Section,
    affinity: Affinity,
    known: &Known,
    path: &str,
    imported: &mut Imported,
) -> Result<Option<Map<String, Value>>, Problem> {
    let mut inner: Map<String, Value> = Map::new();
    let mut outer: Map<String, Value> = Map::new();
    // In ha-manager, all rules between guests are strict.
    if affinity == Affinity::Resource {
        inner.insert("strict".to_owned(), json!(true));
    }
    for property in &section.properties {
        let place = format!("{path}:{}", property.line);
        match (property.name.as_str(), affinity) {
            ("resources", _) => {
                let resources = resources(section, property, affinity, known, &place, imported)?;
                if resources.is_empty() {
                    return Ok(None);
                }
                inner.insert("resources".to_owned(), json!(resources));
            }
            ("nodes", Affinity::Node) => {
                inner.insert("nodes".to_owned(), words::nodes(property, path, imported)?);
            }
            ("strict", Affinity::Node) => {
                inner.insert("strict".to_owned(), json!(property.boolean()?));
            }
            ("affinity", Affinity::Resource) => {
                inner.insert("affinity".to_owned(), json!(word(property)?));
            }
            ("disable", _) => {
                if property.boolean()? {
                    outer.insert("disabled".to_owned(), json!(true));
                }
            }
            ("comment", _) => {
                outer.insert("comment".to_owned(), json!(property.decoded()));
            }
            _ => {
                imported.note(&place, &format!("unknown setting {} of rule {}", property.name, section.name));
            }
        }
    }
    let (key, needed) = match affinity {
        Affinity::Node => ("nodeAffinity", ["resources", "nodes"]),
        Affinity::Resource => ("resourceAffinity", ["resources", "affinity"]),
    };
    if let Some(missing) = needed.into_iter().find(|needed| !inner.contains_key(*needed)) {
        return Err(Problem::new(section.line, format!("rule {} has no {missing}", section.name)));
    }
    let mut spec: Map<String, Value> = Map::new();
    spec.insert(key.to_owned(), Value::Object(inner));
    spec.extend(outer);
    Ok(Some(spec))
}

/// Returns the resources of a rule without duplicates: ha-manager treats them as a set.
fn resources<'a>(
    section: &Section,
    property: &'a Property,
    affinity: Affinity,
    known: &Known,
    place: &str,
    imported: &mut Imported,
) -> Result<Vec<&'a str>, Problem> {
    let parts = list(&property.value);
    if parts.is_empty() {
        return Err(property.expected("resources such as vm:100,ct:101"));
    }
    let rule = &section.name;
    let mut resources = Vec::new();
    for part in parts {
        let (type_name, resource) = words::service(part, property)?;
        if resources.contains(&resource) {
            continue;
        }
        match known.get(resource) {
            None => imported.note(place, &format!("{resource} of rule {rule} not found in resources.cfg")),
            // Without its type, the name would mean another guest.
            Some(guest) if !guest.type_name.eq_ignore_ascii_case(type_name) => {
                let right = &guest.type_name;
                let text = format!("{part} of rule {rule} is {right}:{resource} in resources.cfg; omitted");
                imported.note(place, &text);
                continue;
            }
            Some(KnownGuest { group: Some(group), .. }) if affinity == Affinity::Node => {
                let text =
                    format!("{resource} is in rule {rule} and in group {group}; keep only one of them");
                imported.note(place, &text);
            }
            Some(_) => (),
        }
        resources.push(resource);
    }
    Ok(resources)
}

fn word(property: &Property) -> Result<&'static str, Problem> {
    match property.value.as_str() {
        "positive" => Ok("Positive"),
        "negative" => Ok("Negative"),
        _ => Err(property.expected("positive or negative")),
    }
}
