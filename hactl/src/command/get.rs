//! `hactl get`: shows objects as a table, YAML, JSON or names; once, or as they change.

use crate::client::{Change, Collection, Watcher};
use crate::failure::{Exit, Failure, Outcome};
use crate::names::{Selection, Target, name_of, selection};
use crate::render::{self, Format, columns};
use crate::session::Session;
use clap::Args;
use ha_api_types::kind::Kind;
use serde_json::{Value, json};

/// List objects
#[derive(Args, Debug)]
#[command(
    after_help = "Kinds: resources (har), groups (hag), affinityrules (rule), nodes (no), nodegroups (ng), clusters, \
        operations (op). Separate several kinds with commas; all selects all kinds except clusters and operations."
)]
pub(crate) struct Get {
    /// KIND [NAME…] or KIND/NAME…
    #[arg(required = true, value_name = "KIND [NAME…]")]
    what: Vec<String>,
    /// Select objects by labels, such as app=web,tier!=test
    #[arg(long, short = 'l', value_name = "LABELS")]
    selector: Option<String>,
    /// Watch for changes until interrupted
    #[arg(long, short = 'w')]
    watch: bool,
}

impl Get {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Wide, Format::Yaml, Format::Json, Format::Name])?;
        let selection = selection(&self.what)?;
        match (&selection, self.watch) {
            (Selection::Kinds(kinds), true) => match kinds.as_slice() {
                [kind] => self.watch(session, *kind, None, format).await,
                _ => Err(Failure::usage("--watch requires a single kind")),
            },
            (Selection::Objects(targets), true) => match targets.as_slice() {
                [target] => self.watch(session, target.kind, Some(target), format).await,
                _ => Err(Failure::usage("--watch requires one object or all objects of a kind")),
            },
            (Selection::Kinds(kinds), false) => self.kinds(session, kinds, format).await,
            (Selection::Objects(targets), false) => objects(session, targets, format).await,
        }
    }

    fn query(&self) -> Vec<(&'static str, String)> {
        self.selector.iter().map(|selector| ("labelSelector", selector.clone())).collect()
    }

    async fn kinds(&self, session: &Session, kinds: &[Kind], format: Option<Format>) -> Outcome {
        let mut found = Vec::new();
        for kind in kinds {
            let list = session.client()?.list(Collection::Kind(*kind), &self.query()).await?;
            found.extend(list.items.into_iter().map(|object| (*kind, object)));
        }
        if found.is_empty() && matches!(format, None | Some(Format::Wide)) {
            let plurals: Vec<&str> = kinds.iter().map(|kind| kind.plural()).collect();
            let matching = if self.selector.is_some() { " with these labels" } else { "" };
            session.terminal().progress(&format!("no {}{matching}", plurals.join(", ")));
            return Ok(Exit::Done);
        }
        if format == Some(Format::Wide) {
            super::top::add_to(session, &mut found).await?;
        }
        print(session, &found, format, false)?;
        Ok(Exit::Done)
    }

    async fn watch(
        &self,
        session: &Session,
        kind: Kind,
        target: Option<&Target>,
        format: Option<Format>,
    ) -> Outcome {
        let terminal = session.terminal();
        let client = session.client()?;
        let mut watcher = match target {
            Some(target) => {
                client.target(target).await?;
                Watcher::object(client, kind, &target.name.name)
            }
            None => Watcher::new(client, Collection::Kind(kind), self.query()),
        };
        let wide = format == Some(Format::Wide);
        let mut widths: Vec<usize> = Vec::new();
        let mut first = Some(columns::table(kind, wide));
        while !terminal.is_closed() {
            let (object, deleted) = match watcher.next().await? {
                Change::Applied(object) => (object, false),
                Change::Deleted(object) => (object, true),
                Change::Synced => {
                    if let Some(table) = first.take().filter(|_| is_table(format)) {
                        widths = table.widths(&widths);
                        terminal.out(&table.header_line(terminal, &widths, 0));
                        terminal.out(&table.row_lines(terminal, &widths));
                    }
                    continue;
                }
            };
            match (format, &mut first) {
                (None | Some(Format::Wide), Some(table)) => {
                    table.row(columns::row(kind, &object, wide, deleted));
                }
                (None | Some(Format::Wide), None) => {
                    let mut table = columns::table(kind, wide);
                    table.row(columns::row(kind, &object, wide, deleted));
                    widths = table.widths(&widths);
                    terminal.out(&table.row_lines(terminal, &widths));
                }
                // Readers of a stream parse it line by line or document by document.
                (Some(Format::Json), _) => terminal.line(&render::readable(&object).to_string()),
                (Some(Format::Yaml), _) => {
                    terminal.out(&format!("---\n{}", render::yaml(&render::readable(&object))?));
                }
                (Some(Format::Name), _) => {
                    terminal.line(&format!("{}/{}", kind.singular(), name_of(&object)));
                }
            }
        }
        Ok(Exit::Done)
    }
}

fn is_table(format: Option<Format>) -> bool {
    match format {
        None | Some(Format::Wide) => true,
        Some(Format::Yaml | Format::Json | Format::Name) => false,
    }
}

/// Prints all objects that exist, even if others are missing.
async fn objects(session: &Session, targets: &[Target], format: Option<Format>) -> Outcome {
    let mut found = Vec::new();
    let mut failed = None;
    for target in targets {
        match session.client()?.target(target).await {
            Ok(object) => found.push((target.kind, object)),
            Err(failure) if failure.exit == Exit::Refused => {
                if let Some(earlier) = failed.replace(failure) {
                    session.terminal().failure(&earlier);
                }
            }
            Err(failure) => return Err(failure),
        }
    }
    if format == Some(Format::Wide) {
        super::top::add_to(session, &mut found).await?;
    }
    print(session, &found, format, targets.len() == 1)?;
    failed.map_or(Ok(Exit::Done), Err)
}

/// Prints objects: a single named one as itself, and any other result as a list.
fn print(
    session: &Session,
    found: &[(Kind, Value)],
    format: Option<Format>,
    single: bool,
) -> Result<(), Failure> {
    let terminal = session.terminal();
    match format {
        Some(Format::Name) => {
            for (kind, object) in found {
                terminal.line(&format!("{}/{}", kind.singular(), name_of(object)));
            }
        }
        Some(Format::Json | Format::Yaml) => {
            let mut items: Vec<Value> = found.iter().map(|(_, object)| render::readable(object)).collect();
            let value = match items.pop() {
                Some(only) if single => only,
                last => {
                    items.extend(last);
                    json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
                }
            };
            session.print_value(format, &value)?;
        }
        None | Some(Format::Wide) => {
            let wide = format == Some(Format::Wide);
            let mut kinds: Vec<Kind> = Vec::new();
            for (kind, _) in found {
                if !kinds.contains(kind) {
                    kinds.push(*kind);
                }
            }
            for (index, kind) in kinds.iter().enumerate() {
                let mut table = columns::table(*kind, wide);
                for (_, object) in found.iter().filter(|(of, _)| of == kind) {
                    table.row(columns::row(*kind, object, wide, false));
                }
                if kinds.len() > 1 {
                    let gap = if index > 0 { "\n" } else { "" };
                    terminal.line(&format!("{gap}{}:", kind.plural()));
                }
                terminal.out(&table.render(terminal, 0));
            }
        }
    }
    Ok(())
}
