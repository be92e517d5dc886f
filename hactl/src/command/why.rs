//! `hactl why`: explains, for each node, the reason why a service runs there or does not, with suggested actions.

use crate::failure::{Exit, Outcome};
use crate::render::Format;
use crate::render::columns::state_style;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use crate::terminal::Style;
use clap::Args;
use ha_api_types::meta::{Condition, ConditionStatus};
use ha_api_types::reason::Reason;
use ha_api_types::usage::Usage;
use ha_api_types::view::{Explanation, Verdict};
use serde_json::Value;

/// Explain why each node is or is not eligible for a resource
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hactl why web\n  hactl why vm:100 -o json")]
pub(crate) struct Why {
    /// Name of the resource
    #[arg(value_name = "RESOURCE")]
    name: String,
}

impl Why {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let target = super::parse_resource(&self.name)?;
        let client = session.client()?;
        // This call refuses a resource that does not exist or has another type.
        client.get_target(&target).await?;
        let explanation = client.explanation(&target.name.name).await?;
        let value = serde_json::to_value(&explanation).unwrap_or(Value::Null);
        if !session.print_value(format, &value)? {
            session.terminal().print(&text(session, &explanation));
        }
        Ok(Exit::Done)
    }
}

pub(super) fn text(session: &Session, explanation: &Explanation) -> String {
    let terminal = session.terminal();
    let state = format!("{:?}", explanation.state);
    let location = match (&explanation.node, &explanation.target) {
        (Some(node), Some(target)) => format!(" on {node}, moving to {target}"),
        (Some(node), None) => format!(" on {node}"),
        (None, Some(target)) => format!(", moving to {target}"),
        (None, None) => String::new(),
    };
    let mut text = format!(
        "{}  {}{location} (requested {:?}, {})\n",
        terminal.paint(Style::Bold, &format!("{}:{}", explanation.type_name, explanation.resource)),
        terminal.paint(state_style(&state), &state),
        explanation.requested,
        if explanation.running { "running" } else { "not running" },
    );
    let sentence =
        if explanation.message.is_empty() { explanation.reason.sentence() } else { &explanation.message };
    text += &format!("  {}: {sentence}\n", explanation.reason);
    let is_stalled = |condition: &&Condition| {
        condition.kind == "Stalled"
            && condition.status == ConditionStatus::True
            && !condition.message.is_empty()
    };
    if let Some(stalled) =
        explanation.conditions.iter().find(is_stalled).filter(|stalled| stalled.message != *sentence)
    {
        text += &format!("  stalled: {}\n", stalled.message);
    }
    if let Some(usage) = &explanation.usage {
        text += &format!("  measured: {}\n", usage_text(usage));
    }
    if let Some(balance) = &explanation.balance {
        text += &format!("  balance: {balance}\n");
    }
    text += &list_section(session, "Waiting for", &explanation.waiting_for);
    if !explanation.nodes.is_empty() {
        text += "\n";
        text += &verdicts_table(&explanation.nodes).render(terminal, 0);
    }
    text += &list_section(session, "Suggested actions", &explanation.help);
    text
}

/// Returns all measured values in one line.
fn usage_text(usage: &Usage) -> String {
    let parts = [
        usage.cpu.map(|cpu| format!("cpu {cpu}")),
        usage.memory.map(|memory| format!("memory {memory}")),
        usage.disk_rate.map(|rate| format!("disk {rate}/s")),
        usage.network_rate.map(|rate| format!("network {rate}/s")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn list_section(session: &Session, title: &str, sentences: &[String]) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = sentences.iter().map(|sentence| format!("  - {sentence}\n")).collect();
    format!("\n{}\n{}", session.terminal().paint(Style::Bold, title), lines.concat())
}

fn verdicts_table(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new(&["NODE", "VERDICT", "PRIORITY", "SCORE", "REASON"]);
    for verdict in verdicts {
        let (word, style) = match (verdict.allowed, verdict.current, verdict.chosen) {
            (true, true, _) => ("eligible (current)", Style::Good),
            (true, false, true) => ("eligible (best)", Style::Good),
            (true, false, false) => ("eligible", Style::Plain),
            (false, true, _) => ("not eligible (current)", Style::Bad),
            (false, false, _) => ("not eligible", Style::Bad),
        };
        let mut first = vec![
            Cell::plain(&verdict.node),
            Cell::styled(word, style),
            Cell::plain(&verdict.priority.map(|priority| priority.to_string()).unwrap_or_default()),
            Cell::plain(verdict.score.as_deref().unwrap_or_default()),
        ];
        let mut sentences: Vec<String> = Vec::new();
        for cause in &verdict.causes {
            let sentence = if cause.message.is_empty() { cause.reason.sentence() } else { &cause.message };
            let sentence = if [Reason::Unknown, Reason::Allowed].contains(&cause.reason) {
                sentence.to_owned()
            } else {
                format!("{}: {sentence}", cause.reason)
            };
            sentences.push(if cause.help.is_empty() {
                sentence
            } else {
                format!("{sentence} ({})", cause.help)
            });
        }
        sentences.extend(verdict.load.clone());
        let mut sentences = sentences.into_iter();
        first.push(Cell::plain(&sentences.next().unwrap_or_default()));
        table.add_row(first);
        for sentence in sentences {
            table.add_row(vec![
                Cell::blank(),
                Cell::blank(),
                Cell::blank(),
                Cell::blank(),
                Cell::plain(&sentence),
            ]);
        }
    }
    table
}
