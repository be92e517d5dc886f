//! `hactl describe`: shows an object in full, with its conditions and events.

use super::events;
use crate::client::{Collection, List};
use crate::failure::{Exit, Failure, Outcome};
use crate::names::{Selection, Target, name_of, selection, shown};
use crate::render::table::{Cell, Table};
use crate::render::{age, readable, yaml};
use crate::session::Session;
use crate::terminal::Style;
use clap::Args;
use ha_api_types::kind::Kind;
use ha_api_types::reason::capitalized;
use serde_json::Value;

/// Show an object with its conditions and events
#[derive(Args, Debug)]
#[command(
    override_usage = "hactl describe [OPTIONS] KIND [NAME…]\n       hactl describe [OPTIONS] KIND/NAME…"
)]
pub(crate) struct Describe {
    /// KIND [NAME…] or KIND/NAME…
    #[arg(required = true, value_name = "OBJECT")]
    what: Vec<String>,
}

impl Describe {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let client = session.client()?;
        let mut objects: Vec<(Kind, Value)> = Vec::new();
        match selection(&self.what)? {
            Selection::Kinds(kinds) => {
                for kind in kinds {
                    let list = client.list(Collection::Kind(kind), &[]).await?;
                    objects.extend(list.items.into_iter().map(|object| (kind, object)));
                }
            }
            Selection::Objects(targets) => {
                for target in &targets {
                    let target: &Target = target;
                    objects.push((target.kind, client.target(target).await?));
                }
            }
        }
        if objects.is_empty() {
            session.terminal().note("No resources found");
        }
        for (index, (kind, object)) in objects.iter().enumerate() {
            if index > 0 {
                session.terminal().line("");
            }
            let happened = events::about(client, *kind, name_of(object)).await?;
            session.terminal().out(&text(session, *kind, object, &happened)?);
        }
        Ok(Exit::Done)
    }
}

fn text(session: &Session, kind: Kind, object: &Value, happened: &List) -> Result<String, Failure> {
    let terminal = session.terminal();
    let object = readable(object);
    let metadata = &object["metadata"];
    let word = |name: &str| metadata[name].as_str().unwrap_or("-").to_owned();
    let mut text = format!("{} {}\n", terminal.paint(Style::Bold, kind.name()), shown(kind, &object));
    text += &format!(
        "Created: {} ({} ago)\n",
        word("creationTimestamp"),
        age(metadata["creationTimestamp"].as_str())
    );
    if let Some(deleted) = metadata["deletionTimestamp"].as_str() {
        text += &format!("Deletion requested: {deleted} ({} ago)\n", age(Some(deleted)));
    }
    let generation = metadata["generation"].as_i64().unwrap_or(0);
    let observed = object["status"]["observedGeneration"].as_i64();
    text += &format!("Generation: {generation}");
    if let Some(observed) = observed.filter(|observed| *observed != generation) {
        text += &format!(" (status is for {observed})");
    }
    text.push('\n');
    for field in ["labels", "annotations"] {
        if metadata[field].as_object().is_some_and(|map| !map.is_empty()) {
            text += &section(session, &capitalized(field), &metadata[field])?;
        }
    }
    text += &section(session, "Spec", &object["spec"])?;
    let mut status = object["status"].clone();
    let conditions = status.as_object_mut().and_then(|status| status.remove("conditions"));
    if status.as_object().is_some_and(|status| !status.is_empty()) {
        text += &section(session, "Status", &status)?;
    }
    if let Some(Value::Array(conditions)) = conditions {
        let mut table = Table::new(&["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"]);
        for condition in &conditions {
            let field = |name: &str| Cell::plain(condition[name].as_str().unwrap_or_default());
            let since = age(condition["lastTransitionTime"].as_str());
            table.row(vec![
                field("type"),
                field("status"),
                Cell::plain(&since),
                field("reason"),
                field("message"),
            ]);
        }
        text += &format!("\n{}\n{}", terminal.paint(Style::Bold, "Conditions"), table.render(terminal, 2));
    }
    text += &format!("\n{}\n", terminal.paint(Style::Bold, "Events"));
    if happened.items.is_empty() {
        text += "  none in the last hour\n";
    } else {
        let rows = happened.items.iter().map(|event| (event, false));
        let table = events::columns(&happened.columns, false).table(rows);
        text += &table.render(terminal, 2);
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
