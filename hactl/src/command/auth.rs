//! `hactl auth`: shows the actions that the API allows the user.

use super::api_resources::{ServedKind, list_served_kinds};
use crate::failure::{Exit, Outcome};
use crate::names::most_similar;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use clap::{Args, Subcommand};
use ha_api_types::kubernetes::{ResourceAttributes, ResourceRule, ReviewStatus, RulesReviewStatus};

/// Check permissions
#[derive(Args, Debug)]
pub(crate) struct Auth {
    #[command(subcommand)]
    command: AuthCommand,
}

#[derive(Subcommand, Debug)]
enum AuthCommand {
    /// Check whether the API allows an action, or list all allowed actions
    CanI(CanI),
    /// Show your name and groups, as the API sees them
    Whoami,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hactl auth can-i create resources\n  hactl auth can-i get nodes/node1 --subresource status\n  \
        hactl auth can-i --list\n\n\
        Exit status: 0 allowed; 1 denied. With -q, only the exit status is returned."
)]
struct CanI {
    /// Verb of the API, such as get, list, create or delete; * for all
    #[arg(required_unless_present = "list")]
    verb: Option<String>,
    /// KIND or KIND/NAME; * for all kinds
    #[arg(value_name = "KIND[/NAME]", required_unless_present = "list")]
    object_argument: Option<String>,
    /// List all allowed actions
    #[arg(long, conflicts_with_all = ["verb", "object_argument", "subresource"])]
    list: bool,
    /// Omit the column headers of the list
    #[arg(long, requires = "list")]
    no_headers: bool,
    /// Subresource, such as status
    #[arg(long, value_name = "NAME")]
    subresource: Option<String>,
}

impl Auth {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        match &self.command {
            AuthCommand::CanI(can_i) => can_i.run(session).await,
            AuthCommand::Whoami => print_identity(session).await,
        }
    }
}

/// Prints the user in the form of `kubectl auth whoami`.
async fn print_identity(session: &Session) -> Outcome {
    session.format(&[])?;
    let user = session.client()?.identity_review().await?.user_info;
    let mut table = Table::new(&["ATTRIBUTE", "VALUE"]);
    table.add_row(vec![Cell::plain("Username"), Cell::plain(&user.username)]);
    table.add_row(vec![Cell::plain("Groups"), Cell::plain(&list(&user.groups))]);
    session.terminal().print(&table.render(session.terminal(), 0));
    Ok(Exit::Done)
}

/// Returns a list in the form of kubectl: `[get list]`.
fn list(words: &[String]) -> String {
    format!("[{}]", words.join(" "))
}

impl CanI {
    async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let client = session.client()?;
        let (Some(verb), Some(object_argument)) = (&self.verb, &self.object_argument) else {
            let table = permissions_table(&client.rules_review().await?).omit_header(self.no_headers);
            session.terminal().print(&table.render(session.terminal(), 0));
            return Ok(Exit::Done);
        };
        let (kind, name) = object_argument.split_once('/').unwrap_or((object_argument, ""));
        let (group, resource) = match kind {
            "*" => ("*".to_owned(), "*".to_owned()),
            kind => {
                let served_kinds = list_served_kinds(client).await?;
                let Some(served_kind) = find_kind(session, &served_kinds, kind) else {
                    session.terminal().report("no");
                    return Ok(Exit::Failed);
                };
                (served_kind.group().to_owned(), served_kind.resource.name.clone())
            }
        };
        let action = ResourceAttributes {
            verb: verb.clone(),
            group,
            resource,
            name: name.to_owned(),
            subresource: self.subresource.clone().unwrap_or_default(),
        };
        let ReviewStatus { allowed, reason } = client.access_review(action).await?;
        let answer = if allowed { "yes" } else { "no" };
        // The same output as that of `kubectl auth can-i`.
        session.terminal().report(&if reason.is_empty() {
            answer.to_owned()
        } else {
            format!("{answer} - {reason}")
        });
        Ok(if allowed { Exit::Done } else { Exit::Failed })
    }
}

/// Returns all permissions, with the columns of `kubectl auth can-i --list`.
fn permissions_table(permissions: &RulesReviewStatus) -> Table {
    let mut table = Table::new(&["RESOURCES", "NON-RESOURCE URLS", "RESOURCE NAMES", "VERBS"]);
    let mut add = |resource: &str, paths: &[String], names: &[String], verbs: &[String]| {
        let cells = [resource.to_owned(), list(paths), list(names), list(verbs)];
        table.add_row(cells.iter().map(|cell| Cell::plain(cell)).collect());
    };
    for rule in &permissions.resource_rules {
        for resource in qualified_resources(rule) {
            add(&resource, &[], &rule.resource_names, &rule.verbs);
        }
    }
    for rule in &permissions.non_resource_rules {
        add("", &rule.paths, &[], &rule.verbs);
    }
    table
}

/// Returns the kinds of a rule with their API group, such as `resources.hactl.io/status`.
fn qualified_resources(rule: &ResourceRule) -> Vec<String> {
    let qualified = |resource: &String, group: &String| match (group.as_str(), resource.split_once('/')) {
        ("", _) => resource.clone(),
        (group, Some((kind, subresource))) => format!("{kind}.{group}/{subresource}"),
        (group, None) => format!("{resource}.{group}"),
    };
    rule.resources
        .iter()
        .flat_map(|resource| rule.api_groups.iter().map(move |group| qualified(resource, group)))
        .collect()
}

/// Returns the kind with this name. Warns if the API serves none, as kubectl does.
fn find_kind<'a>(session: &Session, served_kinds: &'a [ServedKind], text: &str) -> Option<&'a ServedKind> {
    let text = text.to_ascii_lowercase();
    let served_kind = served_kinds.iter().find(|kind| kind.names().contains(&text));
    if served_kind.is_none() {
        let known_names: Vec<String> = served_kinds.iter().flat_map(ServedKind::names).collect();
        let hint = most_similar(&text, known_names.iter().map(String::as_str));
        let hint = hint.map(|most_similar| format!("; did you mean {most_similar}?")).unwrap_or_default();
        session.terminal().warn(&format!("the API does not serve a kind {text:?}{hint}"));
    }
    served_kind
}
