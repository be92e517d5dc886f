//! `hactl pki join-token`: a token with which one machine becomes a node, once.

use crate::failure::{Exit, Outcome};
use crate::session::Session;
use clap::Args;
use ha_api_types::join::JOIN_TOKEN_SECONDS_MAX;
use std::time::Duration;

/// Create a token that permits one machine to join as a node, once
#[derive(Args, Debug)]
#[command(
    after_help = "A controller with joinAuthority creates the token and accepts it. On the new machine, run \
                  \"hactl init --join TOKEN@CONTROLLER\". A new token replaces an earlier one for the same node.\n\n\
        Examples:\n  hactl pki join-token c4\n  hactl pki join-token c4 --ttl 1h"
)]
pub(super) struct CreateJoinToken {
    /// Name of the node
    #[arg(value_name = "NODE")]
    node: String,
    /// Validity of the token, at most 1h
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = parse_validity)]
    ttl: Duration,
}

fn parse_validity(text: &str) -> Result<Duration, String> {
    let validity = crate::duration::parse(text)?;
    let limits = Duration::from_secs(1)..=Duration::from_secs(u64::from(JOIN_TOKEN_SECONDS_MAX));
    if limits.contains(&validity) { Ok(validity) } else { Err("specify 1s to 1h".to_owned()) }
}

impl CreateJoinToken {
    pub(super) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let node = super::super::parse_node(&self.node)?.name.name;
        let seconds = u32::try_from(self.ttl.as_secs()).unwrap_or(JOIN_TOKEN_SECONDS_MAX);
        let answer = session.client()?.create_join_token(&node, seconds).await?;
        session.terminal().warn(&format!(
            "the token permits one machine to join as node {node} until {}; on this machine, run \"hactl init --join TOKEN@CONTROLLER\"",
            answer.expires
        ));
        session.terminal().print_line(&answer.token);
        Ok(Exit::Done)
    }
}
