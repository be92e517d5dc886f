//! `hactl doctor`: shows the checks of a node or of the cluster, with suggested fixes.

use crate::failure::{Exit, Failure, Outcome};
use crate::object::TypedObject;
use crate::render::Format;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use crate::terminal::{Style, Terminal};
use clap::Args;
use ha_api_types::check::{self, Check, Verdict};
use ha_api_types::node::{Node, NodeState};
use serde::Serialize;

/// Check the health of a node or the cluster and suggest fixes
#[derive(Args, Debug)]
#[command(
    after_help = "Exit status: 0 all checks pass, or only warnings; 1 a check failed, or results of a node are \
        missing; 3 unreachable; 4 permission denied."
)]
pub(crate) struct Doctor {
    /// Name of the node; default: the cluster and failed checks of all nodes
    #[arg(value_name = "NODE")]
    node: Option<String>,
}

/// The results of the checks: of the cluster, and of nodes by name.
#[derive(Debug, Serialize)]
struct Findings {
    #[serde(serialize_with = "check::serialize_for_api")]
    cluster: Vec<Check>,
    nodes: Vec<NodeFindings>,
}

#[derive(Debug, Serialize)]
struct NodeFindings {
    node: String,
    #[serde(serialize_with = "check::serialize_for_api")]
    checks: Vec<Check>,
}

impl Doctor {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let client = session.client()?;
        let (cluster, nodes) = match &self.node {
            Some(name) => (Vec::new(), vec![client.node(&super::parse_node(name)?).await?]),
            None => (client.overview().await?.checks, client.all().await?),
        };
        let nodes = nodes.into_iter().map(TypedObject::into_strict).collect::<Result<Vec<Node>, _>>()?;
        let findings =
            Findings { cluster, nodes: nodes.into_iter().filter_map(findings_of_existing_node).collect() };
        let value = serde_json::to_value(&findings)
            .map_err(|error| Failure::failed(format!("cannot print the findings: {error}")))?;
        if !session.print_value(format, &value)? {
            session.terminal().print(&self.text(session.terminal(), &findings));
        }
        let worst = findings.all().map(|check| check.verdict).max();
        let has_results_of_all_nodes = findings.nodes.iter().all(|node| !node.checks.is_empty());
        Ok(if worst == Some(Verdict::Fail) || !has_results_of_all_nodes { Exit::Failed } else { Exit::Done })
    }

    fn text(&self, terminal: &Terminal, findings: &Findings) -> String {
        let mut text = String::new();
        if self.node.is_none() {
            text += &section(terminal, "Cluster", findings.cluster.iter());
        }
        for node in &findings.nodes {
            if !text.is_empty() {
                text.push('\n');
            }
            // Of several nodes, show only checks that need attention.
            let shown_checks =
                node.checks.iter().filter(|check| self.node.is_some() || check.verdict != Verdict::Ok);
            let shown_checks: Vec<&Check> = shown_checks.collect();
            text += &if node.checks.is_empty() {
                let title = terminal.paint(Style::Bold, &format!("Node {}", node.node));
                let missing_results_text =
                    "no results yet: the agent has not run its checks, or its version has no checks";
                format!("{title}  {}\n", terminal.paint(Style::Warn, missing_results_text))
            } else if shown_checks.is_empty() {
                let title = terminal.paint(Style::Bold, &format!("Node {}", node.node));
                format!(
                    "{title}  {}\n",
                    terminal.paint(Style::Good, &format!("all {} ok", node.checks.len()))
                )
            } else {
                section(terminal, &format!("Node {}", node.node), shown_checks.into_iter())
            };
        }
        text
    }
}

impl Findings {
    fn all(&self) -> impl Iterator<Item = &Check> {
        self.cluster.iter().chain(self.nodes.iter().flat_map(|node| &node.checks))
    }
}

/// Returns the results of a node that still exists.
fn findings_of_existing_node(node: Node) -> Option<NodeFindings> {
    let status = node.status.unwrap_or_default();
    (status.state != NodeState::Gone)
        .then_some(NodeFindings { node: node.metadata.name, checks: status.checks })
}

fn section<'a>(terminal: &Terminal, title: &str, checks: impl Iterator<Item = &'a Check>) -> String {
    let mut text = format!("{}\n", terminal.paint(Style::Bold, title));
    for check in checks {
        let mut table = Table::new(&["", "", ""]);
        let verdict = match check.verdict {
            Verdict::Ok => Cell::styled("ok  ", Style::Good),
            Verdict::Warn => Cell::styled("warn", Style::Warn),
            Verdict::Fail => Cell::styled("FAIL", Style::Bad),
        };
        table.add_row(vec![
            verdict,
            Cell::plain(&format!("{:<17}", check.name)),
            Cell::plain(&check.finding),
        ]);
        text += &table.render(terminal, 2);
        if !check.help.is_empty() {
            text += &format!("        → {}\n", check.help);
        }
    }
    text
}
