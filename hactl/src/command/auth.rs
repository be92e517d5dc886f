//! `hactl auth`: shows the actions that the API allows the user.

use super::api_resources::{ServedKind, list_served_kinds};
use crate::failure::{Exit, Outcome};
use crate::names::most_similar;
use crate::session::Session;
use clap::{Args, Subcommand};
use ha_api_types::kubernetes::{ResourceAttributes, ReviewStatus};

/// Check permissions
#[derive(Args, Debug)]
pub(crate) struct Auth {
    #[command(subcommand)]
    command: AuthCommand,
}

#[derive(Subcommand, Debug)]
enum AuthCommand {
    /// Check whether the API allows an action
    CanI(CanI),
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hactl auth can-i create resources\n  hactl auth can-i get nodes/node1 --subresource status\n\n\
        Exit status: 0 allowed; 1 denied. With -q, only the exit status is returned."
)]
struct CanI {
    /// Verb of the API, such as get, list, create or delete; * for all
    verb: String,
    /// KIND or KIND/NAME; * for all kinds
    #[arg(value_name = "KIND[/NAME]")]
    what: String,
    /// Subresource, such as status
    #[arg(long, value_name = "NAME")]
    subresource: Option<String>,
}

impl Auth {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        match &self.command {
            AuthCommand::CanI(can_i) => can_i.run(session).await,
        }
    }
}

impl CanI {
    async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let client = session.client()?;
        let (kind, name) = self.what.split_once('/').unwrap_or((&self.what, ""));
        let (group, resource) = match kind {
            "*" => ("*".to_owned(), "*".to_owned()),
            kind => {
                let served = list_served_kinds(client).await?;
                let Some(served_kind) = find(session, &served, kind) else {
                    session.terminal().report("no");
                    return Ok(Exit::Refused);
                };
                (served_kind.group().to_owned(), served_kind.resource.name.clone())
            }
        };
        let action = ResourceAttributes {
            verb: self.verb.clone(),
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
        Ok(if allowed { Exit::Done } else { Exit::Refused })
    }
}

/// Returns the kind with this name. Warns if the API serves none, as kubectl does.
fn find<'a>(session: &Session, served: &'a [ServedKind], text: &str) -> Option<&'a ServedKind> {
    let text = text.to_ascii_lowercase();
    let served_kind = served.iter().find(|one| one.names().contains(&text));
    if served_kind.is_none() {
        let known_names: Vec<String> = served.iter().flat_map(ServedKind::names).collect();
        let hint = most_similar(&text, known_names.iter().map(String::as_str));
        let hint = hint.map(|most_similar| format!("; did you mean {most_similar}?")).unwrap_or_default();
        session.terminal().warn(&format!("the API does not serve a kind {text:?}{hint}"));
    }
    served_kind
}
