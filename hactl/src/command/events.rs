//! `hactl events`: lists events, once or as they happen.

use crate::client::{ApiError, Change, Client, Collection, Form, List, Watcher};
use crate::failure::{Exit, Failure, Outcome};
use crate::names::Target;
use crate::render::columns::Columns;
use crate::render::{self, Format};
use crate::session::Session;
use clap::Args;
use ha_api_types::kind::Kind;
use ha_api_types::kubernetes::CoreEvent;
use ha_api_types::lenient;
use ha_api_types::table::ColumnDefinition;
use serde_json::{Value, json};

/// List events with their reasons
#[derive(Args, Debug)]
pub(crate) struct Events {
    /// Select events of one object: KIND/NAME, or the NAME of a resource
    #[arg(long = "for", value_name = "KIND/NAME")]
    about: Option<String>,
    /// Watch for new events until interrupted
    #[arg(long, short = 'w')]
    watch: bool,
    /// Omit the headers of the table
    #[arg(long)]
    no_headers: bool,
}

impl Events {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Wide, Format::Yaml, Format::Json])?;
        let about = self.about.as_deref().map(Target::parse).transpose()?;
        let query = about.iter().map(|about| selector(about.kind, &about.name.name)).collect::<Vec<_>>();
        let client = session.client()?;
        let form = if render::is_table(format) { Form::Rows } else { Form::Objects };
        if self.watch {
            return self.follow(session, about.as_ref(), query, form, format).await;
        }
        let list = sorted(client, &query, form).await?;
        if list.items.is_empty() {
            exists(client, about.as_ref()).await?;
        }
        if form == Form::Rows {
            if list.items.is_empty() {
                session.terminal().note("No events found");
                return Ok(Exit::Done);
            }
            let rows = list.items.iter().map(|event| (event, false));
            let table = columns(&list.columns, about.is_none()).table(rows).omit_header(self.no_headers);
            session.terminal().out(&table.render(session.terminal(), 0));
        } else {
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list.items});
            session.print_value(format, &list)?;
        }
        Ok(Exit::Done)
    }

    async fn follow(
        &self,
        session: &Session,
        about: Option<&Target>,
        query: Vec<(&'static str, String)>,
        form: Form,
        format: Option<&Format>,
    ) -> Outcome {
        let terminal = session.terminal();
        let client = session.client()?;
        let mut watcher = Watcher::new(client, Collection::Events, with_objects(query, form)).form(form);
        // Known events are sorted first; later events are printed as they happen.
        let mut before = Some(Vec::new());
        let mut widths = vec![9, 7, 14, 18];
        while !terminal.is_closed() {
            let (events, is_first) = match (watcher.next().await?, &mut before) {
                (Change::Applied(event), Some(before)) => {
                    before.push(event);
                    continue;
                }
                (Change::Applied(event), None) => (vec![event], false),
                (Change::Deleted(_), _) => continue,
                (Change::Synced, _) => {
                    let mut events = before.take().unwrap_or_default();
                    if events.is_empty() {
                        exists(client, about).await?;
                    }
                    events.sort_by_cached_key(when);
                    (events, true)
                }
            };
            if form == Form::Rows {
                let rows = events.iter().map(|event| (event, false));
                let table = columns(watcher.columns(), about.is_none()).table(rows);
                widths = table.widths(&widths);
                if is_first && !self.no_headers {
                    terminal.out(&table.header_line(terminal, &widths, 0));
                }
                terminal.out(&table.row_lines(terminal, &widths));
                continue;
            }
            for event in events {
                match format {
                    Some(Format::Json) => terminal.line(&event.to_string()),
                    Some(Format::Yaml) => terminal.out(&format!("---\n{}", render::yaml(&event)?)),
                    Some(Format::Wide | Format::Name | Format::JsonPath(_) | Format::CustomColumns(_))
                    | None => {
                        session.print_value(format, &event)?;
                    }
                }
            }
        }
        Ok(Exit::Done)
    }
}

/// Fails if an object without events does not exist. A deleted object has events for some time.
async fn exists(client: &Client, about: Option<&Target>) -> Result<(), Failure> {
    if let Some(about) = about {
        client.target(about).await?;
    }
    Ok(())
}

/// Returns the events of an object as rows, oldest first.
pub(super) async fn about(client: &Client, kind: Kind, name: &str) -> Result<List, ApiError> {
    sorted(client, &[selector(kind, name)], Form::Rows).await
}

/// Returns the selected events, oldest first.
pub(super) async fn sorted(
    client: &Client,
    query: &[(&'static str, String)],
    form: Form,
) -> Result<List, ApiError> {
    let query = with_objects(query.to_vec(), form);
    let mut list = client.list_as(Collection::Events, &query, form).await?;
    list.items.sort_by_cached_key(when);
    Ok(list)
}

/// Requests the events together with the rows, because sorting needs their times.
fn with_objects(mut query: Vec<(&'static str, String)>, form: Form) -> Vec<(&'static str, String)> {
    if form == Form::Rows {
        query.push(("includeObject", "Object".to_owned()));
    }
    query
}

fn selector(kind: Kind, name: &str) -> (&'static str, String) {
    ("fieldSelector", format!("involvedObject.kind={},involvedObject.name={name}", kind.name()))
}

/// Returns the time of an event, or of its row.
fn when(event: &Value) -> String {
    lenient::view::<CoreEvent>(event).time().to_owned()
}

/// Returns the columns of events, with or without the object.
pub(super) fn columns(definitions: &[ColumnDefinition], objects: bool) -> Columns {
    let names = ["Last Seen", "Type", "Reason", "Source", "Message", "Object"];
    Columns::named(definitions, if objects { &names[..] } else { &names[..5] })
}
