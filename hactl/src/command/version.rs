//! `hactl version`: shows the versions of hactl and of the controller.

use crate::failure::{Exit, Outcome};
use crate::render::Format;
use crate::session::Session;
use clap::Args;
use ha_api_types::kubernetes;
use serde_json::json;

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
        let response = match session.client() {
            Ok(client) if !self.client => {
                Some(client.get_document::<kubernetes::Version>(&["version"]).await)
            }
            // No server version without a cluster.
            Ok(_) | Err(_) => None,
        };
        let mut versions = json!({"client": env!("CARGO_PKG_VERSION")});
        let mut server = None;
        if let Some(Ok(answer)) = &response {
            server = answer.hactl_version.as_ref().or(answer.git_version.as_ref());
            versions["server"] = json!(server);
        }
        if !session.print_value(format, &versions)? {
            session.terminal().print_line(&format!("hactl      {}", env!("CARGO_PKG_VERSION")));
            if let Some(server) = server {
                session.terminal().print_line(&format!("controller {server}"));
            }
        }
        match response {
            Some(Err(error)) => Err(error.into()),
            Some(Ok(_)) | None => Ok(Exit::Done),
        }
    }
}
