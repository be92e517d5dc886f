//! `hactl diff`: shows the changes that an apply would make, and their effects on services.

use super::apply::patch;
use crate::client::{Client, WriteMode};
use crate::failure::{Exit, Failure, Outcome};
use crate::manifest::{self, Completeness, Entry, FileFlags};
use crate::merge;
use crate::render;
use crate::session::Session;
use crate::terminal::{Style, Terminal};
use clap::Args;
use ha_api_types::view::{Plan, PlanRequest};
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

/// Show what an apply would change, and which services it would affect
#[derive(Args, Debug)]
#[command(
    override_usage = "hactl diff [OPTIONS] -f <FILE|DIR|->...",
    after_help = "Exit status: 0 no differences; 1 differences; greater than 1: error.\n\n\
        Examples:\n  hactl diff -f web.yaml\n  hactl diff -R -f cluster/ --no-effect"
)]
pub(crate) struct Diff {
    #[command(flatten)]
    files: FileFlags,
    /// Skip the simulation of effects on services
    #[arg(long)]
    no_effect: bool,
}

impl Diff {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        // The plan of all changes may repeat the warnings of the dry runs of single objects.
        session.terminal().hold_warnings();
        let outcome = self.differences(session).await;
        session.terminal().release_warnings(|_| true);
        // For this command, status 1 means that differences exist, so a refusal needs another status.
        outcome.map_err(|failure| match failure.exit {
            Exit::Failed => Failure { exit: Exit::Usage, ..failure },
            Exit::Done | Exit::Usage | Exit::Unreachable | Exit::NotPermitted | Exit::TimedOut => failure,
        })
    }

    async fn differences(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let entries = manifest::load(&self.files, Completeness::Whole)?;
        manifest::warn_renamed(session.terminal(), &entries);
        let client = session.client()?;
        let mut changed = Vec::new();
        for entry in &entries {
            let live = client.get(entry.kind, &entry.name).await?;
            let object_after = object_after_apply(client, entry, live.as_ref()).await.map_err(|failure| {
                failure.with_context(&format!("{}: {}", entry.location, entry.display_name()))
            })?;
            let text_before = live.as_ref().map(comparable_text).transpose()?.unwrap_or_default();
            let text = comparable_text(&object_after)?;
            if text_before != text {
                let header = if live.is_some() {
                    entry.display_name()
                } else {
                    format!("{} (new)", entry.display_name())
                };
                session.terminal().print(&unified_diff_text(
                    session.terminal(),
                    &header,
                    &text_before,
                    &text,
                ));
                changed.push(object_after);
            }
        }
        session.terminal().retain_warnings(|warning| !manifest::creates_missing_object(&entries, warning));
        if changed.is_empty() {
            // Without a difference, the command has no output, as `diff` and `kubectl diff`. Scripts test for an empty
            // output.
            return Ok(Exit::Done);
        }
        if !self.no_effect {
            show_effects(session, changed).await?;
        }
        Ok(Exit::Failed)
    }
}

/// Shows the effects of changed objects on services, and the held warnings that the effects do not repeat.
pub(super) async fn show_effects(session: &Session, changed: Vec<Value>) -> Result<(), Failure> {
    let terminal = session.terminal();
    match session.client()?.plan(&PlanRequest { objects: changed, deletions: Vec::new() }).await {
        Ok(plan) => {
            terminal.release_warnings(|warning| !is_in_plan(&plan, warning));
            terminal.print(&effects_text(terminal, &plan));
        }
        // The differences remain valid without the effects.
        Err(failure) => terminal.warn(&format!("cannot simulate the effects: {}", failure.message)),
    }
    Ok(())
}

/// Returns the object after the apply, as changed by the server's admission.
async fn object_after_apply(client: &Client, entry: &Entry, live: Option<&Value>) -> Result<Value, Failure> {
    let desired = merge::with_last_applied(&entry.object);
    let Some(live) = live else {
        return Ok(client.create(entry.kind, &desired, WriteMode::DryRun).await?);
    };
    let patch = patch(&desired, live);
    if patch == json!({}) {
        return Ok(live.clone());
    }
    Ok(client.patch(entry.kind, &entry.name, &patch, WriteMode::DryRun).await?)
}

/// Returns the fields of an object that users write, as text.
fn comparable_text(object: &Value) -> Result<String, Failure> {
    let mut object = render::readable(object);
    manifest::remove_server_fields(&mut object);
    // The order of fields and the list of their writers do not count as a difference.
    render::yaml(&merge::sorted(&object))
}

fn unified_diff_text(terminal: &Terminal, header: &str, text_before: &str, text_after: &str) -> String {
    let diff = TextDiff::from_lines(text_before, text_after);
    let mut text = format!(
        "{}\n{}\n",
        terminal.paint(Style::Bold, &format!("--- live/{header}")),
        terminal.paint(Style::Bold, &format!("+++ files/{header}"))
    );
    for hunk in diff.unified_diff().context_radius(3).iter_hunks() {
        text += &format!("{}\n", terminal.paint(Style::Dim, &hunk.header().to_string()));
        for change in hunk.iter_changes() {
            let line = change.value().trim_end_matches('\n');
            text += &match change.tag() {
                ChangeTag::Equal => format!(" {line}\n"),
                ChangeTag::Delete => format!("{}\n", terminal.paint(Style::Bad, &format!("-{line}"))),
                ChangeTag::Insert => format!("{}\n", terminal.paint(Style::Good, &format!("+{line}"))),
            };
        }
    }
    text
}

fn effects_text(terminal: &Terminal, plan: &Plan) -> String {
    let mut text = format!("\n{}\n", terminal.paint(Style::Bold, "Effect"));
    if plan.effects.is_empty() {
        text += "  No service would start, stop or move\n";
    }
    for planned in &plan.effects {
        text += &format!("  {}\n", planned.sentence());
    }
    for sentence in &plan.waiting_for {
        text += &format!("  waiting: {sentence}\n");
    }
    for sentence in &plan.warnings {
        text += &format!("  {} {sentence}\n", terminal.paint(Style::Warn, "warning:"));
    }
    text
}

/// Returns `true` if the plan already contains a warning about one object. This is the case if the plan has the same
/// effect, or a warning about the same subject (the text before the colon). The plan takes precedence, because it
/// covers all changes together.
fn is_in_plan(plan: &Plan, warning: &str) -> bool {
    // A warning arrives in a header, which cannot contain arrows.
    let plain = |text: &str| text.replace('→', "->");
    let subject = |text: &str| plain(text.split_once(": ").map_or(text, |(subject, _)| subject));
    plan.effects.iter().any(|planned| plain(&planned.sentence()) == warning)
        || plan.warnings.iter().any(|other| subject(other) == subject(warning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::view::PlannedEffect;

    fn check(warning: &str, expected: bool) {
        let plan = Plan {
            effects: vec![PlannedEffect {
                message: "web would live-migrate node1 → node2".to_owned(),
                ..PlannedEffect::default()
            }],
            waiting_for: Vec::new(),
            warnings: vec![
                "with this change: Failover capacity (N+1) check of cluster c would fail: services of nodes node1, node2".to_owned(),
                "rule apart is not applied: it names one service".to_owned(),
            ],
        };
        assert_eq!(is_in_plan(&plan, warning), expected, "{warning}");
    }

    #[test]
    fn warnings_that_the_plan_contains_are_dropped() {
        check("web would live-migrate node1 -> node2", true);
        check("web would live-migrate node1 -> node3", false);
        check(
            "with this change: Failover capacity (N+1) check of cluster c would fail: services of node node1",
            true,
        );
        check("rule apart is not applied: it names one service", true);
        check("rule together is not applied: it names one service", false);
        check("spec.group: group g does not exist yet", false);
    }
}
