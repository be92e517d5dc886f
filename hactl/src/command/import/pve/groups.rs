//! Import of groups.cfg: nodes with priorities, as objects of kind Group.

use super::imported::ImportResult;
use super::names::UniqueNames;
use super::section::{Problem, sections};
use super::values;
use ha_api_types::kind::Kind;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Names of groups in this project, by their names in ha-manager.
pub(super) type Groups = BTreeMap<String, String>;

/// Reads groups.cfg.
pub(super) fn read(text: &str, path: &str, imported: &mut ImportResult) -> Result<Groups, Problem> {
    let mut groups = Groups::new();
    let mut names = UniqueNames::default();
    for section in sections(text)? {
        let location = format!("{path}:{}", section.line);
        if section.type_name != "group" {
            let text = format!("{}: {} is not a group", section.type_name, section.name);
            return Err(Problem::new(section.line, text));
        }
        let mut spec: Map<String, Value> = Map::new();
        for property in &section.properties {
            match property.name.as_str() {
                "nodes" => {
                    spec.insert("nodes".to_owned(), values::node_priorities(property, path, imported)?);
                }
                "restricted" | "nofailback" => {
                    if property.boolean()? {
                        spec.insert(property.name.clone(), json!(true));
                    }
                }
                "comment" => {
                    spec.insert("comment".to_owned(), json!(property.decoded()));
                }
                _ => {
                    let location = format!("{path}:{}", property.line);
                    imported.add_note(
                        &location,
                        &format!("unknown setting {} of group {}", property.name, section.name),
                    );
                }
            }
        }
        if !spec.contains_key("nodes") {
            return Err(Problem::new(section.line, format!("group {} has no nodes", section.name)));
        }
        let name = names.assign(&section.name);
        if name != section.name {
            imported.add_note(&location, &format!("group {} renamed to {name}", section.name));
        }
        imported.add_object(Kind::Group, &name, &spec, &location, &section.comments);
        imported.record_field_locations(&["spec"], path, &section.properties);
        groups.insert(section.name, name);
    }
    Ok(groups)
}
