//! `hactl events`: lists events, once or as they happen.

use crate::client::{ApiError, Change, Client, Collection, List, Representation, Watcher};
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
        let query =
            about.iter().map(|about| object_selector(about.kind, &about.name.name)).collect::<Vec<_>>();
        let client = session.client()?;
        let representation =
            if render::is_table(format) { Representation::Rows } else { Representation::Objects };
        if self.watch {
            return self.follow(session, about.as_ref(), query, representation, format).await;
        }
        let list = list_sorted(client, &query, representation).await?;
        if list.items.is_empty() {
            check_exists(client, about.as_ref()).await?;
        }
        if representation == Representation::Rows {
            if list.items.is_empty() {
                session.terminal().note("No events found");
                return Ok(Exit::Done);
            }
            let rows = list.items.iter().map(|event| (event, false));
            let table = columns(&list.columns, about.is_none()).table(rows).omit_header(self.no_headers);
            session.terminal().print(&table.render(session.terminal(), 0));
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
        representation: Representation,
        format: Option<&Format>,
    ) -> Outcome {
        let terminal = session.terminal();
        let client = session.client()?;
        let mut watcher =
            Watcher::new(client, Collection::Events, with_included_objects(query, representation))
                .representation(representation);
        // Known events are sorted first; later events are printed as they happen.
        let mut initial_events = Some(Vec::new());
        let mut widths = vec![9, 7, 14, 18];
        while !terminal.is_closed() {
            let (events, is_first) = match (watcher.next().await?, &mut initial_events) {
                (Change::Applied(event), Some(initial_events)) => {
                    initial_events.push(event);
                    continue;
                }
                (Change::Applied(event), None) => (vec![event], false),
                (Change::Deleted(_), _) => continue,
                (Change::Synced, _) => {
                    let mut events = initial_events.take().unwrap_or_default();
                    if events.is_empty() {
                        check_exists(client, about).await?;
                    }
                    events.sort_by_cached_key(event_time);
                    (events, true)
                }
            };
            if representation == Representation::Rows {
                let rows = events.iter().map(|event| (event, false));
                let table = columns(watcher.columns(), about.is_none()).table(rows);
                widths = table.widths(&widths);
                if is_first && !self.no_headers {
                    terminal.print(&table.header_line(terminal, &widths, 0));
                }
                terminal.print(&table.row_lines(terminal, &widths));
                continue;
            }
            for event in events {
                match format {
                    Some(Format::Json) => terminal.print_line(&event.to_string()),
                    Some(Format::Yaml) => terminal.print(&format!("---\n{}", render::yaml(&event)?)),
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

/// Fails if an object has no events and does not exist. A deleted object still has events for some time.
async fn check_exists(client: &Client, about: Option<&Target>) -> Result<(), Failure> {
    if let Some(about) = about {
        client.get_target(about).await?;
    }
    Ok(())
}

/// Returns the events of an object as rows, oldest first.
pub(super) async fn events_of(client: &Client, kind: Kind, name: &str) -> Result<List, ApiError> {
    list_sorted(client, &[object_selector(kind, name)], Representation::Rows).await
}

/// Returns the selected events, oldest first.
pub(super) async fn list_sorted(
    client: &Client,
    query: &[(&'static str, String)],
    representation: Representation,
) -> Result<List, ApiError> {
    let query = with_included_objects(query.to_vec(), representation);
    let mut list = client.list_as(Collection::Events, &query, representation).await?;
    list.items.sort_by_cached_key(event_time);
    Ok(list)
}

/// Requests the events together with the rows, because sorting needs their times.
fn with_included_objects(
    mut query: Vec<(&'static str, String)>,
    representation: Representation,
) -> Vec<(&'static str, String)> {
    if representation == Representation::Rows {
        query.push(("includeObject", "Object".to_owned()));
    }
    query
}

fn object_selector(kind: Kind, name: &str) -> (&'static str, String) {
    ("fieldSelector", format!("involvedObject.kind={},involvedObject.name={name}", kind.name()))
}

/// Returns the time of an event, or of its row.
fn event_time(event: &Value) -> String {
    lenient::read_part::<CoreEvent>(event).time().to_owned()
}

/// Returns the columns of events, with or without the object.
pub(super) fn columns(definitions: &[ColumnDefinition], objects: bool) -> Columns {
    let names = ["Last Seen", "Type", "Reason", "Source", "Message", "Object"];
    Columns::named(definitions, if objects { &names[..] } else { &names[..5] })
}
