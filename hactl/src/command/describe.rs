//! `hactl describe`: shows an object in full, with its conditions and events.

use super::events;
use crate::client::{Collection, List};
use crate::failure::{Exit, Failure, Outcome};
use crate::merge;
use crate::names::{Selection, Target, listed_name, name_of, parse_selection};
use crate::object::{AnyCondition, AnyObject};
use crate::render::table::{Cell, Table};
use crate::render::{age, readable, yaml};
use crate::session::Session;
use crate::terminal::Style;
use clap::Args;
use ha_api_types::kind::Kind;
use ha_api_types::reason::capitalized;
use serde_json::{Value, json};

/// Show an object with its conditions and events
#[derive(Args, Debug)]
#[command(
    override_usage = "hactl describe [OPTIONS] KIND [NAME…]\n       hactl describe [OPTIONS] KIND/NAME…",
    after_help = "Examples:\n  hactl describe resource web\n  hactl describe node/node1 group/rack1\n  hactl describe nodes"
)]
pub(crate) struct Describe {
    /// KIND [NAME…] or KIND/NAME…
    #[arg(required = true, value_name = "OBJECT")]
    object_arguments: Vec<String>,
}

impl Describe {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let client = session.client()?;
        let mut objects: Vec<(Kind, Value)> = Vec::new();
        match parse_selection(&self.object_arguments)? {
            Selection::Kinds(kinds) => {
                for kind in kinds {
                    let list = client.list(Collection::Kind(kind), &[]).await?;
                    objects.extend(list.items.into_iter().map(|object| (kind, object)));
                }
            }
            Selection::Objects(targets) => {
                for target in &targets {
                    let target: &Target = target;
                    objects.push((target.kind, client.get_target(target).await?));
                }
            }
        }
        if objects.is_empty() {
            session.terminal().note("No resources found");
        }
        for (index, (kind, object)) in objects.iter().enumerate() {
            if index > 0 {
                session.terminal().print_line("");
            }
            let event_list = events::events_of(client, *kind, name_of(object)).await?;
            session.terminal().print(&text(session, *kind, object, &event_list)?);
        }
        Ok(Exit::Done)
    }
}

fn text(session: &Session, kind: Kind, object: &Value, event_list: &List) -> Result<String, Failure> {
    let terminal = session.terminal();
    let object = readable(object);
    let AnyObject { metadata, status: observed } = AnyObject::from_value(&object);
    let created = metadata.creation_timestamp.as_ref();
    let mut text = format!("{} {}\n", terminal.paint(Style::Bold, kind.name()), listed_name(kind, &object));
    text += &format!("Created: {} ({} ago)\n", created.map_or("-", |at| &at.0), age(created));
    if let Some(deleted) = &metadata.deletion_timestamp {
        text += &format!("Deletion requested: {deleted} ({} ago)\n", age(Some(deleted)));
    }
    let generation = metadata.generation;
    text += &format!("Generation: {generation}");
    if let Some(observed_generation) =
        observed.observed_generation.filter(|observed_generation| *observed_generation != generation)
    {
        text += &format!(" (status is for {observed_generation})");
    }
    text.push('\n');
    text += &sections(session, &object)?;
    if !observed.conditions.is_empty() {
        let mut table = Table::new(&["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"]);
        for AnyCondition { kind, status, reason, message, last_transition_time, .. } in &observed.conditions {
            let age_text = age(last_transition_time.as_ref());
            table.add_row([kind, status, &age_text, reason, message].map(|text| Cell::plain(text)).to_vec());
        }
        text += &format!("\n{}\n{}", terminal.paint(Style::Bold, "Conditions"), table.render(terminal, 2));
    }
    text += &format!("\n{}\n", terminal.paint(Style::Bold, "Events"));
    if event_list.items.is_empty() {
        text += "  none in the last hour\n";
    } else {
        let rows = event_list.items.iter().map(|event| (event, false));
        let table = events::columns(&event_list.columns, false).table(rows);
        text += &table.render(terminal, 2);
    }
    Ok(text)
}

/// Returns labels, annotations, spec and status of an object of any kind as YAML. The object is untyped, because every
/// field is shown as received, even if this version does not support the field.
fn sections(session: &Session, object: &Value) -> Result<String, Failure> {
    let is_filled = |value: &Value| value.as_object().is_some_and(|map| !map.is_empty());
    let mut text = String::new();
    for field in ["labels", "annotations"] {
        let map = &object["metadata"][field];
        if is_filled(map) {
            text += &section(session, &capitalized(field), map)?;
        }
    }
    text += &section(session, "Spec", &object["spec"])?;
    let status = merge::with_merge_patch(&object["status"], &json!({"conditions": null}));
    if is_filled(&status) {
        text += &section(session, "Status", &status)?;
    }
    Ok(text)
}

fn section(session: &Session, title: &str, value: &Value) -> Result<String, Failure> {
    let body = if value.as_object().is_some_and(|map| !map.is_empty()) {
        yaml(value)?
    } else {
        "(defaults)\n".to_owned()
    };
    let body: String = body.lines().map(|line| format!("  {line}\n")).collect();
    Ok(format!("\n{}\n{body}", session.terminal().paint(Style::Bold, title)))
}
