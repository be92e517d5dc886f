//! `hactl diff`: shows the changes that an apply would make, and their effects on services.

pub(super) mod changes;

use super::apply::inventory;
use crate::failure::{Exit, Failure, Outcome};
use crate::manifest::{self, Completeness, FileFlags};
use crate::render::{self, Format};
use crate::session::Session;
use crate::terminal::{Style, Terminal};
use changes::{ChangeKind, ObjectChange, comparable, object_after_apply};
use clap::Args;
use ha_api_types::view::{Deletion, Plan, PlanRequest};
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

/// Show what an apply would change, and which services it would affect
#[derive(Args, Debug)]
#[command(
    override_usage = "hactl diff [OPTIONS] -f <FILE|DIR|->...",
    after_help = "Exit status: 0 no differences; 1 differences; greater than 1: error.\n\n\
        Examples:\n  hactl diff -f web.yaml\n  hactl diff -R -f cluster/ --no-effect\n  \
        hactl diff -R -f cluster/ --inventory site1 --prune -o json"
)]
pub(crate) struct Diff {
    #[command(flatten)]
    files: FileFlags,
    /// Show the changes of an apply with this --inventory
    #[arg(long, value_name = "NAME")]
    inventory: Option<String>,
    /// Show objects of the inventory that an apply with --prune would delete
    #[arg(long, requires = "inventory")]
    prune: bool,
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
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let mut entries = manifest::load(&self.files, Completeness::Whole)?;
        manifest::warn_renamed(session.terminal(), &entries);
        let client = session.client()?;
        let mut live_objects = Vec::with_capacity(entries.len());
        for entry in &entries {
            live_objects.push(client.get(entry.kind, &entry.name).await?);
        }
        if let Some(name) = &self.inventory {
            inventory::add_to_inventory(name, &mut entries, &live_objects)?;
        }
        let mut request = PlanRequest::default();
        let mut changes = Vec::new();
        for (entry, live) in entries.iter().zip(&live_objects) {
            let object_after = object_after_apply(client, entry, live.as_ref()).await.map_err(|failure| {
                failure.with_context(&format!("{}: {}", entry.location, entry.display_name()))
            })?;
            let change = ObjectChange::between(entry.kind, &entry.name, live.as_ref(), &object_after);
            let Some(change) = change else { continue };
            if format.is_none() {
                let suffix = if live.is_some() { "" } else { " (new)" };
                print_difference(
                    session,
                    &format!("{}{suffix}", entry.display_name()),
                    live.as_ref(),
                    Some(&object_after),
                )?;
            }
            changes.push(change);
            request.objects.push(object_after);
        }
        if let Some(name) = self.inventory.as_ref().filter(|_| self.prune) {
            for candidate in inventory::prune_candidates(client, name, &entries, session.terminal()).await? {
                let (kind, name) = (candidate.kind, candidate.name);
                if format.is_none()
                    && let Some(live) = client.get(kind, &name).await?
                {
                    print_difference(
                        session,
                        &format!("{}/{name} (pruned)", kind.singular()),
                        Some(&live),
                        None,
                    )?;
                }
                request.deletions.push(Deletion { kind, name: name.clone() });
                changes.push(ObjectChange { kind, name, change: ChangeKind::Delete, fields: Vec::new() });
            }
        }
        session.terminal().retain_warnings(|warning| !manifest::creates_missing_object(&entries, warning));
        let exit = if changes.is_empty() { Exit::Done } else { Exit::Failed };
        let is_simulated = !changes.is_empty() && !self.no_effect;
        if format.is_some() {
            let plan = if is_simulated { simulate(session, &request).await? } else { None };
            session.print_value(format, &report(&changes, plan.as_ref()))?;
        } else if is_simulated {
            // Without a difference, the command has no output, as `diff` and `kubectl diff`. Scripts test for an empty
            // output.
            show_effects(session, &request).await?;
        }
        Ok(exit)
    }
}

/// Shows the effects of changed objects on services, and the held warnings that the effects do not repeat.
pub(super) async fn show_effects(session: &Session, request: &PlanRequest) -> Result<(), Failure> {
    if let Some(plan) = simulate(session, request).await? {
        session.terminal().print(&effects_text(session.terminal(), &plan));
    }
    Ok(())
}

/// Returns the effects of changed objects on services, and shows the held warnings that the effects do not repeat.
/// Returns `None`, with a warning, if the effects cannot be simulated: the differences remain valid without them.
async fn simulate(session: &Session, request: &PlanRequest) -> Result<Option<Plan>, Failure> {
    let terminal = session.terminal();
    match session.client()?.plan(request).await {
        Ok(plan) => {
            terminal.release_warnings(|warning| !is_in_plan(&plan, warning));
            Ok(Some(plan))
        }
        Err(failure) => {
            terminal.warn(&format!("cannot simulate the effects: {}", failure.message));
            Ok(None)
        }
    }
}

/// Returns the differences for programs. Without a simulation, the effects are absent.
fn report(changes: &[ObjectChange], plan: Option<&Plan>) -> Value {
    let mut report = json!({ "changes": changes });
    if let Some(plan) = plan {
        let mut effects = json!(plan.effects);
        for (effect, planned) in effects.as_array_mut().into_iter().flatten().zip(&plan.effects) {
            effect["message"] = json!(planned.sentence());
        }
        report["effects"] = effects;
        report["waitingFor"] = json!(plan.waiting_for);
        report["warnings"] = json!(plan.warnings);
    }
    report
}

fn print_difference(
    session: &Session,
    header: &str,
    before: Option<&Value>,
    after: Option<&Value>,
) -> Result<(), Failure> {
    let text = |object: Option<&Value>| {
        object.map(|object| render::yaml(&comparable(object))).transpose().map(Option::unwrap_or_default)
    };
    let terminal = session.terminal();
    terminal.print(&unified_diff_text(terminal, header, &text(before)?, &text(after)?));
    Ok(())
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
