//! Import of resources.cfg: guests, as objects of kind Resource.

use super::groups::Groups;
use super::guests::Guests;
use super::imported::ImportResult;
use super::section::{Problem, Property, Section, sections};
use ha_api_types::kind::Kind;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Guests by their number.
pub(super) type KnownGuests = BTreeMap<String, KnownGuest>;

/// The data of a guest that rules need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownGuest {
    /// Type of the guest: `vm` or `ct`.
    pub(super) type_name: String,
    /// Group of the guest, by its name in ha-manager; `None` if the guest has no existing group.
    pub(super) group: Option<String>,
}

/// Reads resources.cfg.
pub(super) fn read(
    text: &str,
    path: &str,
    groups: &Groups,
    guests: &mut Guests,
    imported: &mut ImportResult,
) -> Result<KnownGuests, Problem> {
    let mut known_guests = KnownGuests::new();
    for section in sections(text)? {
        let location = format!("{path}:{}", section.line);
        let Some(guest) = guests.guest(&section.type_name, &section.name) else {
            let text = format!("{}:{} is not a vm or ct; omitted", section.type_name, section.name);
            imported.add_note(&location, &text);
            continue;
        };
        let mut spec: Map<String, Value> = Map::new();
        spec.insert("driver".to_owned(), guest.driver);
        spec.insert("state".to_owned(), json!("Started"));
        for property in &section.properties {
            add_property(&mut spec, &section, property, groups, imported, path)?;
        }
        if let Some(requests) = guest.requests {
            spec.insert("requests".to_owned(), requests);
        }
        let mut comments = section.comments.clone();
        comments.splice(0..0, guest.name);
        imported.add_object(Kind::Resource, &section.name, &spec, &location, &comments);
        imported.record_field_locations(&["spec"], path, &section.properties);
        let group = section.properties.iter().find(|property| property.name == "group");
        let group = group.map(|group| group.value.clone()).filter(|group| groups.contains_key(group));
        known_guests.insert(section.name, KnownGuest { type_name: section.type_name, group });
    }
    Ok(known_guests)
}

fn add_property(
    spec: &mut Map<String, Value>,
    section: &Section,
    property: &Property,
    groups: &Groups,
    imported: &mut ImportResult,
    path: &str,
) -> Result<(), Problem> {
    let (key, value) = match property.name.as_str() {
        "state" => ("state", json!(requested_state(property)?)),
        "max_restart" => ("maxRestart", json!(property.count()?)),
        "max_relocate" => ("maxRelocate", json!(property.count()?)),
        "failback" => ("failback", json!(property.boolean()?)),
        "comment" => ("comment", json!(property.decoded())),
        "group" => {
            let Some(name) = groups.get(&property.value) else {
                let text = format!("group {:?} of {} not found in groups.cfg", property.value, section.name);
                imported.add_note(&format!("{path}:{}", property.line), &text);
                return Ok(());
            };
            ("group", json!(name))
        }
        _ => {
            let text = format!("unknown setting {} of {}:{}", property.name, section.type_name, section.name);
            imported.add_note(&format!("{path}:{}", property.line), &text);
            return Ok(());
        }
    };
    spec.insert(key.to_owned(), value);
    Ok(())
}

fn requested_state(property: &Property) -> Result<&'static str, Problem> {
    match property.value.as_str() {
        "started" | "enabled" => Ok("Started"),
        "stopped" => Ok("Stopped"),
        "disabled" => Ok("Disabled"),
        "ignored" => Ok("Ignored"),
        _ => Err(property.expected("started, stopped, disabled, ignored or enabled")),
    }
}
