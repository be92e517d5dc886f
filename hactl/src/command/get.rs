//! `hactl get`: shows objects as a table, YAML, JSON, fields or names; once, or as they change.

use crate::client::{Change, Client, Collection, List, Representation, Watcher};
use crate::failure::{Exit, Failure, Outcome};
use crate::names::{Selection, Target, event_names, name_of, parse_selection};
use crate::render::columns::Columns;
use crate::render::path::{Path, value_text};
use crate::render::table::Table;
use crate::render::{self, Format};
use crate::session::Session;
use clap::Args;
use ha_api_types::quantity::Quantity;
use ha_api_types::table::ColumnDefinition;
use serde_json::{Value, json};
use std::cmp::Ordering;

/// List objects
#[derive(Args, Debug)]
#[command(
    override_usage = "hactl get [OPTIONS] KIND[,KIND…] [NAME…]\n       hactl get [OPTIONS] KIND/NAME…",
    after_help = "Kinds: resources (har), groups (hag), affinityrules (rule), nodes (no), nodegroups (ng), clusters, \
        operations (op), events (ev). Separate several kinds with commas. The kind \"all\" means resources and groups.\n\n\
        -o wide shows more columns; -o yaml, json and name print the objects or their names.\n\
        -o jsonpath=TEMPLATE and -o custom-columns=HEADER:PATH,… use the path syntax of kubectl.\n\n\
        Examples:\n  hactl get resources,nodes\n  hactl get resource web -o yaml\n  hactl get resources -l app=web -w\n  \
        hactl get nodes -o custom-columns=NAME:.metadata.name,STATE:.status.state\n  \
        hactl get resources -o jsonpath='{range .items[*]}{.metadata.name}{\"\\n\"}{end}'"
)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent flags")]
pub(crate) struct Get {
    /// KIND [NAME…] or KIND/NAME…
    #[arg(required = true, value_name = "OBJECT")]
    object_arguments: Vec<String>,
    /// Select objects by labels, such as app=web,tier!=test
    #[arg(long, short = 'l', value_name = "LABELS")]
    selector: Option<String>,
    /// Select objects by fields, such as status.node=node1
    #[arg(long, value_name = "FIELDS")]
    field_selector: Option<String>,
    /// Sort by a field, such as .metadata.creationTimestamp
    #[arg(long, value_name = "PATH", value_parser = Path::parse_relaxed, conflicts_with = "watch")]
    sort_by: Option<Path>,
    /// Omit the headers of tables
    #[arg(long)]
    no_headers: bool,
    /// Show all labels as the last column of tables
    #[arg(long)]
    show_labels: bool,
    /// Labels to show as columns of tables, separated by commas
    #[arg(long, short = 'L', value_name = "LABEL", value_delimiter = ',')]
    label_columns: Vec<String>,
    /// Exit with status 0 if a named object does not exist
    #[arg(long, conflicts_with = "watch")]
    ignore_not_found: bool,
    /// Watch for changes until interrupted
    #[arg(long, short = 'w')]
    watch: bool,
}

/// The objects of one collection.
pub(super) struct FoundObjects {
    pub(super) collection: Collection,
    pub(super) list: List,
}

/// The objects that the arguments name.
enum RequestedObjects {
    Collections(Vec<Collection>),
    Objects(Vec<Target>),
    Events(Vec<String>),
}

impl RequestedObjects {
    fn parse(arguments: &[String]) -> Result<RequestedObjects, Failure> {
        Ok(match event_names(arguments) {
            Some(names) if names.is_empty() => RequestedObjects::Collections(vec![Collection::Events]),
            Some(names) => RequestedObjects::Events(names),
            None => match parse_selection(arguments)? {
                Selection::Kinds(kinds) => {
                    RequestedObjects::Collections(kinds.into_iter().map(Collection::Kind).collect())
                }
                Selection::Objects(targets) => RequestedObjects::Objects(targets),
            },
        })
    }

    /// Fails if the arguments name objects, because selectors select among all objects of a kind.
    fn check_no_names(&self) -> Result<(), Failure> {
        match self {
            RequestedObjects::Collections(_) => Ok(()),
            RequestedObjects::Objects(_) | RequestedObjects::Events(_) => {
                Err(Failure::usage("names cannot be combined with a selector")
                    .help("omit the names, or -l and --field-selector"))
            }
        }
    }

    fn is_single(&self) -> bool {
        match self {
            RequestedObjects::Collections(_) => false,
            RequestedObjects::Objects(targets) => targets.len() == 1,
            RequestedObjects::Events(names) => names.len() == 1,
        }
    }
}

impl Get {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Wide, Format::Yaml, Format::Json, Format::Name])?;
        let requested = RequestedObjects::parse(&self.object_arguments)?;
        if self.selector.is_some() || self.field_selector.is_some() {
            requested.check_no_names()?;
        }
        if self.watch {
            return self.watch(session, &requested, format).await;
        }
        let representation = representation_for(format);
        let client = session.client()?;
        let (mut lists, failure) = match &requested {
            RequestedObjects::Collections(collections) => {
                (self.list_collections(client, collections, representation).await?, None)
            }
            RequestedObjects::Objects(targets) => self.list_targets(session, targets, representation).await?,
            RequestedObjects::Events(names) => self.list_events(session, names, representation).await?,
        };
        if format == Some(&Format::Wide) {
            super::top::add_usage_columns(session, &mut lists).await?;
        }
        if let Some(path) = &self.sort_by {
            sort(&mut lists, path)?;
        }
        self.print_lists(session, &lists, format, requested.is_single())?;
        let is_empty = lists.iter().all(|objects| objects.list.items.is_empty());
        if is_empty
            && failure.is_none()
            && !self.ignore_not_found
            && (representation == Representation::Rows || format == Some(&Format::Name))
        {
            session.terminal().note("No resources found");
        }
        failure.map_or(Ok(Exit::Done), Err)
    }

    /// Returns the query with the selectors; `fields` is an additional field selector.
    fn query(&self, fields: Option<String>) -> Vec<(&'static str, String)> {
        let fields: Vec<String> = self.field_selector.iter().cloned().chain(fields).collect();
        let mut query = Vec::new();
        if let Some(labels) = &self.selector {
            query.push(("labelSelector", labels.clone()));
        }
        if !fields.is_empty() {
            query.push(("fieldSelector", fields.join(",")));
        }
        if self.sort_by.is_some() {
            query.push(("includeObject", "Object".to_owned()));
        }
        query
    }

    async fn list_collections(
        &self,
        client: &Client,
        collections: &[Collection],
        representation: Representation,
    ) -> Result<Vec<FoundObjects>, Failure> {
        let mut lists = Vec::new();
        for collection in collections {
            let query = self.query(None);
            let list = match collection {
                // The same order as in `hactl events`, unless the user chooses another order.
                Collection::Events if self.sort_by.is_none() => {
                    super::events::list_sorted(client, &query, representation).await?
                }
                Collection::Events | Collection::Kind(_) => {
                    client.list_as(*collection, &query, representation).await?
                }
            };
            lists.push(FoundObjects { collection: *collection, list });
        }
        Ok(lists)
    }

    /// Returns the events with these names, and the failure if some do not exist.
    async fn list_events(
        &self,
        session: &Session,
        names: &[String],
        representation: Representation,
    ) -> Result<(Vec<FoundObjects>, Option<Failure>), Failure> {
        let mut lists = Vec::new();
        let mut deferred_failure = None;
        for name in names {
            let query = self.query(Some(format!("metadata.name={name}")));
            let list = session.client()?.list_as(Collection::Events, &query, representation).await?;
            if list.items.is_empty() {
                let failure =
                    Failure::failed(format!("event/{name} not found")).with_server_reason("NotFound");
                self.defer_failure(session, &mut deferred_failure, failure.help("run \"hactl get events\""));
            }
            append_list(&mut lists, Collection::Events, list);
        }
        Ok((lists, deferred_failure))
    }

    /// Returns all named objects that exist, and the failure if some do not.
    async fn list_targets(
        &self,
        session: &Session,
        targets: &[Target],
        representation: Representation,
    ) -> Result<(Vec<FoundObjects>, Option<Failure>), Failure> {
        let mut lists = Vec::new();
        let mut deferred_failure = None;
        for target in targets {
            match session.client()?.list_target_as(target, representation).await {
                Ok(list) => append_list(&mut lists, Collection::Kind(target.kind), list),
                Err(failure) if failure.exit == Exit::Failed => {
                    self.defer_failure(session, &mut deferred_failure, failure);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok((lists, deferred_failure))
    }

    /// Keeps a failure for the end of the command, and shows an earlier one now. A missing object is not a failure with
    /// `--ignore-not-found`.
    fn defer_failure(&self, session: &Session, deferred_failure: &mut Option<Failure>, failure: Failure) {
        if self.ignore_not_found && failure.is_not_found() {
            return;
        }
        if let Some(earlier) = deferred_failure.replace(failure) {
            session.terminal().failure(&earlier);
        }
    }

    /// Prints a single named object as itself, and any other result as a list.
    fn print_lists(
        &self,
        session: &Session,
        lists: &[FoundObjects],
        format: Option<&Format>,
        is_single: bool,
    ) -> Result<(), Failure> {
        let terminal = session.terminal();
        let items = || lists.iter().flat_map(|objects| &objects.list.items).map(render::readable);
        match format {
            Some(Format::Name) => {
                for FoundObjects { collection, list } in lists {
                    for object in &list.items {
                        terminal.print_line(&format!("{}/{}", collection.singular(), name_of(object)));
                    }
                }
            }
            Some(Format::CustomColumns(columns)) => {
                let table = columns.table(&items().collect::<Vec<_>>());
                terminal.print(&self.with_header_option(table).render(terminal, 0));
            }
            Some(Format::Json | Format::Yaml | Format::JsonPath(_)) => {
                let mut items: Vec<Value> = items().collect();
                let value = match items.pop() {
                    Some(only) if is_single => only,
                    // The object does not exist, so only the failure is shown.
                    None if is_single => return Ok(()),
                    last => {
                        items.extend(last);
                        json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
                    }
                };
                session.print_value(format, &value)?;
            }
            None | Some(Format::Wide) => {
                let non_empty: Vec<&FoundObjects> =
                    lists.iter().filter(|objects| !objects.list.items.is_empty()).collect();
                for (index, FoundObjects { collection, list }) in non_empty.iter().enumerate() {
                    let rows = list.items.iter().map(|row| (row, false));
                    let table = self.columns(&list.columns, format).table(rows);
                    if non_empty.len() > 1 && !self.no_headers {
                        let gap = if index > 0 { "\n" } else { "" };
                        terminal.print_line(&format!("{gap}{}:", collection.plural()));
                    }
                    terminal.print(&self.with_header_option(table).render(terminal, 0));
                }
            }
        }
        Ok(())
    }

    fn columns(&self, definitions: &[ColumnDefinition], format: Option<&Format>) -> Columns {
        Columns::new(definitions, format.is_some()).with_labels(&self.label_columns, self.show_labels)
    }

    fn with_header_option(&self, table: Table) -> Table {
        table.omit_header(self.no_headers)
    }

    async fn watch(
        &self,
        session: &Session,
        requested: &RequestedObjects,
        format: Option<&Format>,
    ) -> Outcome {
        let terminal = session.terminal();
        let client = session.client()?;
        let (collection, name) = match requested {
            RequestedObjects::Collections(collections) => match collections.as_slice() {
                [collection] => (*collection, None),
                _ => return Err(Failure::usage("--watch requires a single kind")),
            },
            RequestedObjects::Objects(targets) => match targets.as_slice() {
                [target] => {
                    client.get_target(target).await?;
                    (Collection::Kind(target.kind), Some(&target.name.name))
                }
                _ => return Err(Failure::usage("--watch requires one object or all objects of a kind")),
            },
            RequestedObjects::Events(names) => match names.as_slice() {
                [name] => (Collection::Events, Some(name)),
                _ => return Err(Failure::usage("--watch requires one object or all objects of a kind")),
            },
        };
        let query = self.query(name.map(|name| format!("metadata.name={name}")));
        let mut watcher = Watcher::new(client, collection, query).representation(representation_for(format));
        let mut stream =
            WatchOutput { get: self, session, collection, format, widths: Vec::new(), header_printed: false };
        // The objects that exist at the beginning are printed as one table.
        let mut existing = Some(Vec::new());
        while !terminal.is_closed() {
            let changes = match watcher.next().await? {
                Change::Applied(object) => vec![(object, false)],
                Change::Deleted(object) => vec![(object, true)],
                Change::Synced => existing.take().unwrap_or_default(),
            };
            match &mut existing {
                Some(existing) => existing.extend(changes),
                None => stream.print(watcher.columns(), &changes)?,
            }
        }
        Ok(Exit::Done)
    }
}

struct WatchOutput<'a> {
    get: &'a Get,
    session: &'a Session,
    collection: Collection,
    format: Option<&'a Format>,
    /// Widths of the columns of all rows so far.
    widths: Vec<usize>,
    /// `true` once the headers have been printed.
    header_printed: bool,
}

impl WatchOutput<'_> {
    /// Prints objects; `true` marks a deleted object.
    fn print(&mut self, definitions: &[ColumnDefinition], changes: &[(Value, bool)]) -> Result<(), Failure> {
        let terminal = self.session.terminal();
        let objects = || changes.iter().map(|(object, _)| render::readable(object));
        let table = match self.format {
            None | Some(Format::Wide) => {
                let rows = changes.iter().map(|(row, deleted)| (row, *deleted));
                self.get.columns(definitions, self.format).table(rows)
            }
            Some(Format::CustomColumns(columns)) => columns.table(&objects().collect::<Vec<_>>()),
            // Readers of a stream parse it line by line or document by document.
            Some(Format::Json) => {
                objects().for_each(|object| terminal.print_line(&object.to_string()));
                return Ok(());
            }
            Some(Format::Yaml) => {
                for object in objects() {
                    terminal.print(&format!("---\n{}", render::yaml(&object)?));
                }
                return Ok(());
            }
            Some(Format::JsonPath(template)) => {
                objects().for_each(|object| terminal.print(&template.render(&object)));
                return Ok(());
            }
            Some(Format::Name) => {
                for object in objects() {
                    terminal.print_line(&format!("{}/{}", self.collection.singular(), name_of(&object)));
                }
                return Ok(());
            }
        };
        let table = self.get.with_header_option(table);
        self.widths = table.widths(&self.widths);
        if !std::mem::replace(&mut self.header_printed, true) {
            terminal.print(&table.header_line(terminal, &self.widths, 0));
        }
        terminal.print(&table.row_lines(terminal, &self.widths));
        Ok(())
    }
}

/// Returns the form of objects that a format needs.
fn representation_for(format: Option<&Format>) -> Representation {
    if render::is_table(format) { Representation::Rows } else { Representation::Objects }
}

/// Appends a list to the objects that were already found in its collection.
fn append_list(lists: &mut Vec<FoundObjects>, collection: Collection, list: List) {
    match lists.iter_mut().find(|objects| objects.collection == collection) {
        Some(objects) => objects.list.items.extend(list.items),
        None => lists.push(FoundObjects { collection, list }),
    }
}

/// Sorts the objects of each collection by a field. Objects without the field come first.
fn sort(lists: &mut [FoundObjects], path: &Path) -> Result<(), Failure> {
    let items = || lists.iter().flat_map(|objects| &objects.list.items);
    if items().next().is_some() && !items().any(|item| sort_value(path, item).is_some()) {
        return Err(Failure::usage(format!("--sort-by: no object has the field {}", path.text()))
            .help("run \"hactl explain KIND\" to list the fields"));
    }
    for objects in lists {
        objects
            .list
            .items
            .sort_by(|left, right| compare_values(sort_value(path, left), sort_value(path, right)));
    }
    Ok(())
}

fn sort_value<'a>(path: &Path, item: &'a Value) -> Option<&'a Value> {
    path.values(item, item).first().copied()
}

/// Compares values: numbers and quantities by amount, then all others as text.
fn compare_values(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    let (Some(left), Some(right)) = (left, right) else { return left.is_some().cmp(&right.is_some()) };
    match (numeric_value(left), numeric_value(right)) {
        (Some(left), Some(right)) => left.total_cmp(&right),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => value_text(left).cmp(&value_text(right)),
    }
}

fn numeric_value(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse::<Quantity>().ok().map(Quantity::as_f64),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_sorted_by_amount_or_text() {
        let check = |values: Value, expected: Value| {
            let items = values.as_array().expect("a list").iter().map(|value| json!({"x": value})).collect();
            let list = List { items, ..List::default() };
            let mut lists = [FoundObjects { collection: Collection::Events, list }];
            sort(&mut lists, &Path::parse_relaxed(".x").expect("a path")).expect("sorted");
            let sorted_values: Vec<&Value> = lists[0].list.items.iter().map(|item| &item["x"]).collect();
            assert_eq!(json!(sorted_values), expected);
        };
        check(json!([10, 9, -1]), json!([-1, 9, 10]));
        check(json!(["10Gi", "900Mi", "2"]), json!(["2", "900Mi", "10Gi"]));
        check(json!(["web", "db"]), json!(["db", "web"]));
        check(
            json!(["2026-02-01T00:00:00Z", "2026-01-01T00:00:00Z"]),
            json!(["2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"]),
        );
    }
}
