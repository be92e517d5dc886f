//! `hactl trace`: follows one operation or action over controllers and agents.

mod subject_trace;

use crate::client::Collection;
use crate::failure::{Exit, Failure, Outcome};
use crate::names::Target;
use crate::object::TypedObject;
use crate::render::Format;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use crate::terminal::Style;
use clap::Args;
use ha_api_types::kind::Kind;
use ha_api_types::kubernetes::CoreEvent;
use ha_api_types::lenient;
use ha_api_types::operation::OperationSpec;
use ha_api_types::resource::ResourceSpec;
use serde_json::{Value, json};
use subject_trace::{Step, Subject, SubjectTrace};

/// Trace an operation or action across controllers and agents
#[derive(Args, Debug)]
#[command(
    after_help = "SUBJECT is an operation (name, uid or operation/NAME), the uid of an action (status.internal.actionUid, or in log lines), \
        or a resource (NAME or TYPE:NAME), whose current or last action is traced. Events are kept for 1 h.\n\n\
        Exit status: 0 shown; 1 no events; 2 invalid usage; 3 unreachable; 4 permission denied."
)]
pub(crate) struct Trace {
    /// Operation, action uid or resource to trace
    #[arg(value_name = "SUBJECT")]
    subject: String,
}

impl Trace {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let target = self.target()?;
        let client = session.client()?;
        let subject = match self.operation(&target, client.all().await?)? {
            Some(operation) => Subject::Operation(Box::new(operation)),
            None => self.action(&target, session).await?,
        };
        let events = client.list(Collection::Events, &[]).await?.items;
        let mut events: Vec<CoreEvent> = events.iter().map(lenient::read_part).collect();
        events.sort_by(|left, right| left.time().cmp(right.time()));
        let trace = SubjectTrace::new(subject, &events);
        if trace.steps.is_empty() {
            return Err(Failure::failed(format!(
                "no events found for {}",
                trace.subject.display_name()
            ))
            .help(
                "events are kept for 1 h; for older entries, run \"journalctl HACTL_ACTION=UID\" on each host (or HACTL_OPERATION=NAME, HACTL_RESOURCE=NAME)",
            ));
        }
        if !session.print_value(format, &json_output(&trace))? {
            session.terminal().print(&text(session, &trace));
        }
        Ok(Exit::Done)
    }

    /// Returns the target. Fails if objects of its kind cannot be traced.
    fn target(&self) -> Result<Target, Failure> {
        let target = Target::parse(&self.subject)?;
        match target.kind {
            Kind::Operation | Kind::Resource => Ok(target),
            Kind::Group
            | Kind::AffinityRule
            | Kind::Node
            | Kind::NodeGroup
            | Kind::Cluster
            | Kind::GitSync => {
                let text = format!("cannot trace a {}", target.kind.singular());
                Err(Failure::usage(text).help("specify an operation, the uid of an action, or a resource"))
            }
        }
    }

    /// Returns the operation that the subject names, if any.
    fn operation(
        &self,
        target: &Target,
        operations: Vec<TypedObject<OperationSpec>>,
    ) -> Result<Option<TypedObject<OperationSpec>>, Failure> {
        let find = |name: &str| {
            operations
                .into_iter()
                .find(|operation| operation.metadata.name == name || operation.metadata.uid == name)
        };
        if target.kind != Kind::Operation {
            return Ok(if self.subject.contains('/') { None } else { find(&self.subject) });
        }
        find(&target.name.name).map(Some).ok_or_else(|| {
            Failure::failed(format!("{} not found", self.subject))
                .help("run \"hactl get operations\"; operations are kept for 1 d")
        })
    }

    /// Returns the current or last action of a resource, or the action with this uid.
    async fn action(&self, target: &Target, session: &Session) -> Result<Subject, Failure> {
        let Some(resource) = session.client()?.find::<ResourceSpec>(&target.name.name).await? else {
            // A uid has no prefix with a kind or type.
            if self.subject.contains(['/', ':']) {
                return Err(Failure::failed(format!("{} not found", target.display_name()))
                    .with_server_reason("NotFound"));
            }
            return Ok(Subject::Action(self.subject.clone()));
        };
        target.name.check(&resource.value)?;
        match resource.status.and_then(|status| status.action_uid) {
            Some(uid) => Ok(Subject::Action(uid.to_string())),
            None => Err(Failure::failed(format!("no action recorded for {} yet", self.subject))
                .help(format!("run \"hactl why {}\"", self.subject))),
        }
    }
}

fn text(session: &Session, trace: &SubjectTrace) -> String {
    let mut text = format!("{}\n", trace.subject.title());
    for uid in &trace.actions {
        text.push_str(&format!("Action {uid}\n"));
    }
    text.push('\n');
    let mut table =
        Table::new(&["TIME", "ELAPSED", "SOURCE", "NODE", "REGISTRATION", "OBJECT", "REASON", "MESSAGE"]);
    for step in &trace.steps {
        let style = if step.warning { Style::Warn } else { Style::Plain };
        table.add_row(vec![
            Cell::plain(&step.at),
            Cell::plain(&step.elapsed_text()),
            Cell::plain(&step.source),
            Cell::plain(&step.node),
            Cell::plain(&step.epoch),
            Cell::plain(&step.object),
            Cell::styled(&step.reason, style),
            Cell::plain(&step.message),
        ]);
    }
    text.push_str(&table.render(session.terminal(), 0));
    text
}

fn json_output(trace: &SubjectTrace) -> Value {
    let step = |step: &Step| {
        json!({
            "at": step.at, "afterSeconds": step.after_seconds, "from": step.source, "node": step.node, "epoch": step.epoch,
            "about": step.object, "reason": step.reason, "message": step.message, "action": step.action,
        })
    };
    json!({
        "subject": trace.subject.display_name(),
        "actions": trace.actions,
        "steps": trace.steps.iter().map(step).collect::<Vec<_>>(),
    })
}
