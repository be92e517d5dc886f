//! `hactl events`: lists events, once or as they happen.

use crate::client::{ApiError, Change, Client, Collection, Watcher};
use crate::failure::{Exit, Outcome};
use crate::names::Target;
use crate::render::table::{Cell, Table};
use crate::render::{self, Format, age};
use crate::session::Session;
use crate::terminal::Style;
use clap::Args;
use ha_api_types::kind::Kind;
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
}

impl Events {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Wide, Format::Yaml, Format::Json])?;
        let about = self.about.as_deref().map(Target::parse).transpose()?;
        let query = about.iter().map(|about| selector(about.kind, &about.name.name)).collect::<Vec<_>>();
        let client = session.client()?;
        if self.watch {
            return follow(session, client, query, format).await;
        }
        let mut events = client.list(Collection::Events, &query).await?.items;
        events.sort_by(|left, right| when(left).cmp(when(right)));
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": events});
        if !session.print_value(format, &list)? {
            if events.is_empty() {
                session.terminal().progress("no events in the last hour");
                return Ok(Exit::Done);
            }
            let subjects = about.is_none();
            let mut table = table(subjects);
            for event in &events {
                table.row(row(event, subjects));
            }
            session.terminal().out(&table.render(session.terminal(), 0));
        }
        Ok(Exit::Done)
    }
}

async fn follow(
    session: &Session,
    client: &Client,
    query: Vec<(&'static str, String)>,
    format: Option<Format>,
) -> Outcome {
    let terminal = session.terminal();
    let subjects = query.is_empty();
    let mut watcher = Watcher::new(client, Collection::Events, query);
    // Known events are sorted first; later events are printed as they happen.
    let mut before = Some(Vec::new());
    let mut widths = Vec::new();
    while !terminal.is_closed() {
        let events = match (watcher.next().await?, &mut before) {
            (Change::Applied(event), Some(before)) => {
                before.push(event);
                continue;
            }
            (Change::Applied(event), None) => vec![event],
            (Change::Deleted(_), _) => continue,
            (Change::Synced, _) => {
                let mut events = before.take().unwrap_or_default();
                events.sort_by(|left, right| when(left).cmp(when(right)));
                if matches!(format, None | Some(Format::Wide)) {
                    widths = table(subjects).widths(&[4, 7, 14, 18]);
                    terminal.out(&table(subjects).header_line(terminal, &widths, 0));
                }
                events
            }
        };
        for event in events {
            match format {
                Some(Format::Json) => terminal.line(&event.to_string()),
                Some(Format::Yaml) => terminal.out(&format!("---\n{}", render::yaml(&event)?)),
                Some(Format::Wide | Format::Name) | None => {
                    let mut table = table(subjects);
                    table.row(row(&event, subjects));
                    widths = table.widths(&widths);
                    terminal.out(&table.row_lines(terminal, &widths));
                }
            }
        }
    }
    Ok(Exit::Done)
}

/// Returns the events of an object, oldest first.
pub(super) async fn about(client: &Client, kind: Kind, name: &str) -> Result<Vec<Value>, ApiError> {
    let mut events = client.list(Collection::Events, &[selector(kind, name)]).await?.items;
    events.sort_by(|left, right| when(left).cmp(when(right)));
    Ok(events)
}

fn selector(kind: Kind, name: &str) -> (&'static str, String) {
    ("fieldSelector", format!("involvedObject.kind={},involvedObject.name={name}", kind.name()))
}

pub(super) fn when(event: &Value) -> &str {
    ["lastTimestamp", "eventTime", "firstTimestamp"]
        .iter()
        .find_map(|field| event[field].as_str())
        .or_else(|| event.pointer("/metadata/creationTimestamp").and_then(Value::as_str))
        .unwrap_or_default()
}

/// Returns a table of events, with or without the column of the object.
pub(super) fn table(subjects: bool) -> Table {
    if subjects {
        Table::new(&["AGE", "TYPE", "REASON", "ABOUT", "FROM", "MESSAGE"])
    } else {
        Table::new(&["AGE", "TYPE", "REASON", "FROM", "MESSAGE"])
    }
}

/// Returns the table row of an event.
pub(super) fn row(event: &Value, subjects: bool) -> Vec<Cell> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let sort = text(&event["type"]);
    let style = if sort == "Warning" { Style::Warn } else { Style::Plain };
    let source = [&event["source"]["component"], &event["reportingComponent"]].map(text);
    let source = source.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
    let mut cells = vec![
        Cell::plain(&age(Some(when(event)))),
        Cell::styled(&sort, style),
        Cell::plain(&text(&event["reason"])),
    ];
    if subjects {
        let object = &event["involvedObject"];
        cells.push(Cell::plain(&format!(
            "{}/{}",
            text(&object["kind"]).to_lowercase(),
            text(&object["name"])
        )));
    }
    cells.push(Cell::plain(&source));
    cells.push(Cell::plain(&text(&event["message"])));
    cells
}
