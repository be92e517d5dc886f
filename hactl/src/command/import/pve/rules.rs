//! rules.cfg: affinity to nodes and between guests, as objects of kind AffinityRule.

use super::imported::Imported;
use super::names::Names;
use super::resources::Known;
use super::section::{Problem, Property, Section, list, sections};
use super::words;
use ha_api_types::kind::Kind;
use serde_json::{Map, Value, json};

/// Which of the two kinds of rule a section is.
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
                let text = format!("rule {} is of type {other}, which is not known: left out", section.name);
                imported.note(&place, &text);
                continue;
            }
        };
        let spec = rule(&section, affinity, known, path, imported)?;
        let name = names.of(&section.name);
        if name != section.name {
            imported.note(&place, &format!("rule {} is called {name} here", section.name));
        }
        imported.object(Kind::AffinityRule, &name, &spec, &place, &section.comments);
    }
    Ok(())
}

fn rule(
    section: &Section,
    affinity: Affinity,
    known: &Known,
    path: &str,
    imported: &mut Imported,
) -> Result<Map<String, Value>, Problem> {
    let mut inner: Map<String, Value> = Map::new();
    let mut outer: Map<String, Value> = Map::new();
    // ha-manager knows only rules between guests that hold always.
    if affinity == Affinity::Resource {
        inner.insert("strict".to_owned(), json!(true));
    }
    for property in &section.properties {
        let place = format!("{path}:{}", property.line);
        match (property.name.as_str(), affinity) {
            ("resources", _) => {
                let resources = resources(property)?;
                for resource in &resources {
                    match (known.get(*resource), affinity) {
                        (None, _) => {
                            let text = format!("{resource} of rule {} is in no resources.cfg", section.name);
                            imported.note(&place, &text);
                        }
                        (Some(Some(group)), Affinity::Node) => {
                            let text = format!(
                                "{resource} is in rule {} and in group {group}: leave one of them",
                                section.name
                            );
                            imported.note(&place, &text);
                        }
                        (Some(Some(_)), Affinity::Resource) | (Some(None), _) => (),
                    }
                }
                inner.insert("resources".to_owned(), json!(resources));
            }
            ("nodes", Affinity::Node) => {
                inner.insert("nodes".to_owned(), words::nodes(property)?);
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
            _ => imported.note(&place, &format!("{} of rule {} is not known", property.name, section.name)),
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
    Ok(spec)
}

fn resources(property: &Property) -> Result<Vec<&str>, Problem> {
    let resources: Vec<&str> = list(&property.value)
        .into_iter()
        .map(|text| words::service(text, property))
        .collect::<Result<_, _>>()?;
    if resources.is_empty() { Err(property.expected("resources as vm:100,ct:101")) } else { Ok(resources) }
}

fn word(property: &Property) -> Result<&'static str, Problem> {
    match property.value.as_str() {
        "positive" => Ok("Positive"),
        "negative" => Ok("Negative"),
        _ => Err(property.expected("positive or negative")),
    }
}
