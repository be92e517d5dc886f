//! `hactl auth`: shows the actions that the API allows the user.

use super::api_resources::{ApiResource, discovered};
use crate::failure::{Exit, Outcome};
use crate::names::nearest;
use crate::session::Session;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

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
    after_help = "Examples:\n  hactl auth can-i create resources\n  hactl auth can-i get nodes/node1 --subresource status\n\
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
                let served = discovered(client).await?;
                let Some(found) = find(session, &served, kind) else {
                    session.terminal().say("no");
                    return Ok(Exit::Refused);
                };
                (found.group().to_owned(), found.name.clone())
            }
        };
        let attributes = json!({
            "verb": self.verb, "group": group, "resource": resource, "name": name,
            "subresource": self.subresource.as_deref().unwrap_or_default(),
        });
        let review = client.access_review(&attributes).await?;
        let (allowed, line) = answer(&review["status"]);
        session.terminal().say(&line);
        Ok(if allowed { Exit::Done } else { Exit::Refused })
    }
}

/// Returns the kind with this name. Warns if the API serves none, as kubectl does.
fn find<'a>(session: &Session, served: &'a [ApiResource], text: &str) -> Option<&'a ApiResource> {
    let text = text.to_ascii_lowercase();
    let found = served.iter().find(|resource| resource.names().contains(&text));
    if found.is_none() {
        let known: Vec<String> = served.iter().flat_map(ApiResource::names).collect();
        let hint = nearest(&text, known.iter().map(String::as_str));
        let hint = hint.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
        session.terminal().warn(&format!("the API does not serve a kind {text:?}{hint}"));
    }
    found
}

/// Returns `true` if the review allows the action, and the answer as kubectl prints it.
fn answer(status: &Value) -> (bool, String) {
    let allowed = status["allowed"] == true;
    let word = if allowed { "yes" } else { "no" };
    match status["reason"].as_str().unwrap_or_default() {
        "" => (allowed, word.to_owned()),
        reason => (allowed, format!("{word} - {reason}")),
    }
}
