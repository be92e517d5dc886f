//! `hactl cluster-info`: shows the addresses of the controllers and of etcd.

use crate::failure::{Exit, Outcome};
use crate::session::Session;
use clap::Args;
use ha_api_types::view::{ControllerOverview, ControllerState, EtcdMember, Overview};

/// Show the addresses of the controllers and etcd members
#[derive(Args, Debug)]
#[command(after_help = "Health and problems: hactl status. Information for support: hactl support dump.")]
pub(crate) struct ClusterInfo {}

impl ClusterInfo {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let overview = session.client()?.overview().await?;
        session.terminal().print(&text(&overview));
        Ok(Exit::Done)
    }
}

fn text(overview: &Overview) -> String {
    let mut text = format!("Cluster {} (answered by {})\n", overview.cluster, overview.answered_by);
    text += &overview.controllers.iter().map(controller_line).collect::<String>();
    text += &overview.store.members.iter().map(member_line).collect::<String>();
    text
}

fn controller_line(controller: &ControllerOverview) -> String {
    let is_up = controller.state != ControllerState::Lost;
    let is_leader = controller.state == ControllerState::Leading;
    line(&format!("Controller {}", controller.id), is_up, &controller.url, is_leader)
}

fn member_line(member: &EtcdMember) -> String {
    // The controller reports the URL as the name.
    let subject = if member.name.is_empty() || member.name == member.url {
        "An etcd member".to_owned()
    } else {
        format!("etcd member {}", member.name)
    };
    line(&subject, member.healthy, &member.url, member.healthy && member.leader)
}

fn line(subject: &str, is_up: bool, url: &str, is_leader: bool) -> String {
    let state = if is_up { "is running" } else { "is unreachable" };
    let url = if url.is_empty() { "an unknown URL" } else { url };
    format!("{subject} {state} at {url}{}\n", if is_leader { " (leader)" } else { "" })
}
