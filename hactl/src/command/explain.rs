//! `hactl explain`: describes fields, from the schemas of the API, and resource agents.

mod agents;

use crate::failure::{Exit, Failure, Outcome};
use crate::names::{most_similar, parse_kind};
use crate::schema::Field;
use crate::session::Session;
use crate::terminal::{Style, Terminal};
use clap::Args;
use ha_api_types::kind::API_VERSION;
use ha_api_types::renamed;
use ha_api_types::schema::{default_of, type_of};
use std::path::PathBuf;

/// Describe a kind, a field or a resource agent
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hactl explain resource\n  hactl explain resource.spec.driver.exec\n  hactl explain cluster.spec --recursive\n  hactl explain ocf\n  hactl explain ocf:heartbeat:IPaddr2"
)]
pub(crate) struct Explain {
    /// KIND, KIND.FIELD…, ocf (agents of this host) or ocf:PROVIDER:AGENT
    #[arg(value_name = "KIND.PATH")]
    path: String,
    /// Print fields recursively
    #[arg(long, short = 'r')]
    recursive: bool,
    /// Directory of OCF resource agents
    #[arg(long, env = "OCF_ROOT", default_value = ha_api_types::ocf::DEFAULT_ROOT, value_name = "DIR")]
    ocf_root: PathBuf,
}

impl Explain {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        if self.path == "ocf" || self.path.starts_with("ocf:") {
            return agents::explain(session.terminal(), &self.path, &self.ocf_root).await;
        }
        let mut parts = self.path.split('.');
        let kind = parse_kind(parts.next().unwrap_or_default())?;
        let mut schema = Field::object(kind);
        let mut current_path = kind.singular().to_owned();
        for name in parts {
            schema = child_schema(schema, name).map_err(|most_similar| {
                let failure =
                    |hint: &str| Failure::usage(format!("{current_path} has no field {name}{hint}"));
                let path = format!("{current_path}.{name}");
                match path.split_once('.').and_then(|(_, path)| renamed::renamed_field_in_schema(kind, path))
                {
                    Some(renamed) => failure("; this field was renamed")
                        .help(format!("run \"hactl explain {current_path}.{}\"", renamed.current)),
                    None => failure(&most_similar).help(format!("run \"hactl explain {current_path}\"")),
                }
            })?;
            current_path = format!("{current_path}.{name}");
        }
        let terminal = session.terminal();
        let mut text = format!(
            "{}  {}\n",
            terminal.paint(Style::Bold, kind.name()),
            terminal.paint(Style::Dim, API_VERSION)
        );
        if current_path.contains('.') {
            text += &format!(
                "\n{} {}\n",
                terminal.paint(Style::Bold, &current_path),
                terminal.paint(Style::Dim, &type_of(schema.0))
            );
        }
        if let Some(description) = schema.description() {
            text += &format!("\n{}\n", indented(description, 2));
        }
        if !schema.words().is_empty() {
            text += &format!("\n  One of: {}\n", schema.words().join(", "));
        }
        if let Some(default) = default_of(schema.0) {
            text += &format!("  Default: {default}\n");
        }
        let field_list = render_fields(terminal, with_fields(schema), 2, self.recursive);
        if !field_list.is_empty() {
            text += &format!("\n{}\n{field_list}", terminal.paint(Style::Bold, "Fields"));
        }
        terminal.print(&text);
        Ok(Exit::Done)
    }
}

fn child_schema<'a>(schema: Field<'a>, name: &str) -> Result<Field<'a>, String> {
    let schema = with_fields(schema);
    match (schema.member(name), schema.members()) {
        (Some(field), _) => Ok(field),
        (None, Some(known_members)) => {
            let most_similar = most_similar(name, known_members.map(|(name, _)| name));
            Err(most_similar
                .map(|most_similar| format!("; did you mean {most_similar}?"))
                .unwrap_or_default())
        }
        (None, None) => schema.values().ok_or_else(String::new),
    }
}

/// Returns the schema of a list's items, or the schema itself if it is not a list. If the schema has several
/// alternatives, returns the alternative with fields.
fn with_fields(schema: Field<'_>) -> Field<'_> {
    let schema = schema.items().unwrap_or(schema);
    schema.alternatives().find(|alternative| alternative.members().is_some()).unwrap_or(schema)
}

fn render_fields(terminal: &Terminal, schema: Field<'_>, indent: usize, recursive: bool) -> String {
    let mut text = String::new();
    for (name, field) in schema.members().into_iter().flatten() {
        let default = default_of(field.0).map(|default| format!(", default {default}")).unwrap_or_default();
        let blanks = " ".repeat(indent);
        text += &format!(
            "{blanks}{}  {}\n",
            terminal.paint(Style::Bold, name),
            terminal.paint(Style::Dim, &format!("{}{default}", type_of(field.0)))
        );
        if let Some(description) = field.description() {
            text += &format!("{}\n", indented(description, indent + 4));
        }
        if recursive {
            text += &render_fields(terminal, with_fields(field), indent + 4, true);
        }
    }
    text
}

fn indented(text: &str, indent: usize) -> String {
    let blanks = " ".repeat(indent);
    text.lines().map(|line| format!("{blanks}{line}").trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::kind::Kind;

    #[test]
    fn field_paths_traverse_lists_maps_and_alternatives() {
        let check = |kind: Kind, path: &str, is_found: bool| {
            let schema = path.split('.').try_fold(Field::object(kind), child_schema);
            assert_eq!(schema.is_ok_and(|schema| schema.description().is_some()), is_found, "{path}");
        };
        check(Kind::Operation, "spec.action", true);
        check(Kind::Resource, "status.copies.definition.driver.exec.command", true);
        check(Kind::Cluster, "spec.notifications.webhooks.url", true);
        check(Kind::Node, "status.conditions.type", true);
        check(Kind::Node, "status.conditions.kind", false);
    }
}
