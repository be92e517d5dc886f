//! `hactl version`: shows the versions of hactl and of the controller.

use crate::failure::{Exit, Outcome};
use crate::render::Format;
use crate::session::Session;
use clap::Args;
use serde_json::{Value, json};

/// Show the versions of hactl and the controller
#[derive(Args, Debug)]
pub(crate) struct Version {
    /// Show only the version of hactl; do not contact a controller
    #[arg(long)]
    client: bool,
}

impl Version {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let mut versions = json!({"client": env!("CARGO_PKG_VERSION")});
        let asked = match session.client() {
            Ok(client) if !self.client => Some(client.server_version().await),
            // No server version without a cluster.
            Ok(_) | Err(_) => None,
        };
        if let Some(Ok(server)) = &asked {
            versions["server"] =
                server.get("hactlVersion").or_else(|| server.get("gitVersion")).cloned().into();
        }
        if !session.print_value(format, &versions)? {
            session.terminal().line(&format!("hactl      {}", env!("CARGO_PKG_VERSION")));
            if let Some(server) = versions.get("server").and_then(Value::as_str) {
                session.terminal().line(&format!("controller {server}"));
            }
        }
        match asked {
            Some(Err(error)) => Err(error.into()),
            Some(Ok(_)) | None => Ok(Exit::Done),
        }
    }
}
