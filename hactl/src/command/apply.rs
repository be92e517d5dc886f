//! `hactl apply`: creates and updates objects from files.

pub(super) mod inventory;

use super::dry_run::{DryRun, DryRunFlag};
use super::in_place::InPlaceFlags;
use super::stop_first::{StopFirstFlags, with_state};
use super::wait::{WaitFlags, wait_until_ready};
use crate::client::{ApiError, Client, WriteMode};
use crate::failure::{Exit, Failure, Outcome};
use crate::manifest::{self, Completeness, FileFlags, ManifestObject};
use crate::merge;
use crate::render::{self, Format};
use crate::session::Session;
use clap::Args;
use serde_json::{Value, json};

/// Create or update objects from files
#[derive(Args, Debug)]
#[command(
    override_usage = "hactl apply [OPTIONS] -f <FILE|DIR|->...",
    after_help = "All documents of all files are validated before the first one is sent. Fields set only by other clients \
        are kept. Fields set by an earlier apply that are no longer in the file are removed.\n\n\
        Examples:\n  hactl apply -f web.yaml\n  hactl apply -f web.yaml --dry-run\n  \
        hactl apply -R -f cluster/ --inventory site1 --prune\n  hactl apply -f web.yaml --stop-first"
)]
pub(crate) struct Apply {
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    dry_run: DryRunFlag,
    /// Label the objects as members of this inventory
    #[arg(long, value_name = "NAME")]
    inventory: Option<String>,
    /// Delete objects of the same inventory that are no longer in the files
    #[arg(long, requires = "inventory")]
    prune: bool,
    /// With --prune, delete the whole inventory if the files contain no objects
    #[arg(long, requires = "prune")]
    allow_empty: bool,
    #[command(flatten)]
    stop_first: StopFirstFlags,
    #[command(flatten)]
    in_place: InPlaceFlags,
    #[command(flatten)]
    wait: WaitFlags,
}

/// The outcome for one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Created,
    Configured,
    Unchanged,
}

impl Change {
    /// Returns `true` if the object differs from before.
    pub(super) fn is_change(self) -> bool {
        self != Change::Unchanged
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Change::Created => "created",
            Change::Configured => "configured",
            Change::Unchanged => "unchanged",
        }
    }
}

impl Apply {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json, Format::Name])?;
        let mut entries = manifest::load(&self.files, Completeness::Whole)?;
        if entries.is_empty() && !(self.prune && self.allow_empty) {
            let failure = Failure::usage("no object found in the files");
            return Err(if self.prune {
                failure.help("to delete the whole inventory, add --allow-empty")
            } else {
                failure
            });
        }
        manifest::warn_renamed(session.terminal(), &entries);
        let client = session.client()?;
        let mut live_objects = Vec::with_capacity(entries.len());
        for entry in &entries {
            live_objects.push(client.get(entry.kind, &entry.name).await?);
        }
        if let Some(name) = &self.inventory {
            inventory::add_to_inventory(name, &mut entries, &live_objects)?;
        }
        let edited: Vec<_> = entries.iter().map(|entry| (entry.kind, entry.name.as_str())).collect();
        self.in_place.confirm(&edited)?;
        let write_mode = self.dry_run.mode.write_mode();
        let mut applied = Vec::with_capacity(entries.len());
        for (entry, live) in entries.iter().zip(&live_objects) {
            session.terminal().hold_warnings();
            let outcome = match (
                apply_entry(client, entry, live.as_ref(), write_mode).await.map_err(Failure::from),
                live,
            ) {
                (Err(refusal), Some(live))
                    if self.stop_first.resolves_refusal(entry.kind, &refusal.message) =>
                {
                    self.apply_after_stop(session, client, entry, live).await
                }
                (outcome, _) => outcome,
            };
            session
                .terminal()
                .retain_warnings(|warning| !manifest::creates_missing_object(&entries, warning));
            session.terminal().release_warnings(|_| true);
            let (change, object) = outcome.map_err(|failure| {
                failure.with_context(&format!("{}: {}", entry.location, entry.display_name()))
            })?;
            if format.is_none() {
                let suffix = self.dry_run.mode.suffix();
                session.terminal().report(&format!("{} {}{suffix}", entry.display_name(), change.name()));
            }
            if change != Change::Created {
                self.in_place.execute(session, entry.kind, &object).await?;
            }
            applied.push(object);
        }
        if self.prune
            && let Some(name) = &self.inventory
        {
            for prune_candidate in
                inventory::prune_candidates(client, name, &entries, session.terminal()).await?
            {
                if let Some(write_mode) = self.dry_run.mode.write_mode() {
                    client
                        .delete(prune_candidate.kind, &prune_candidate.name, &prune_candidate.uid, write_mode)
                        .await
                        .map_err(|error| {
                            Failure::from(error).with_context(&format!(
                                "pruning {}/{}",
                                prune_candidate.kind.singular(),
                                prune_candidate.name
                            ))
                        })?;
                }
                if format.is_none() {
                    let suffix = self.dry_run.mode.suffix();
                    session.terminal().report(&format!(
                        "{}/{} pruned{suffix}",
                        prune_candidate.kind.singular(),
                        prune_candidate.name
                    ));
                }
            }
        }
        print(session, format, &entries, &applied)?;
        if self.wait.wait && self.dry_run.mode == DryRun::None {
            let targets: Vec<_> = entries.iter().map(|entry| (entry.kind, entry.name.clone())).collect();
            return wait_until_ready(session, &targets, &self.wait).await;
        }
        Ok(Exit::Done)
    }

    /// Applies an edit that requires the resource to be stopped first.
    async fn apply_after_stop(
        &self,
        session: &Session,
        client: &Client,
        entry: &ManifestObject,
        live: &Value,
    ) -> Result<(Change, Value), Failure> {
        let state_before = self.stop_first.stop(session, client, &entry.name, live).await?;
        let desired = merge::with_last_applied(&entry.object);
        let stopped = client
            .get(entry.kind, &entry.name)
            .await?
            .ok_or_else(|| Failure::failed(format!("{} was deleted", entry.display_name())))?;
        let patch = with_state(&patch(&desired, &stopped), &desired, &state_before);
        let object_after = client.patch(entry.kind, &entry.name, &patch, WriteMode::Persist).await?;
        Ok((Change::Configured, object_after))
    }
}

/// Creates an object, or changes it to the content of a file. Without a write mode, nothing is sent.
pub(super) async fn apply_entry(
    client: &Client,
    entry: &ManifestObject,
    live: Option<&Value>,
    write_mode: Option<WriteMode>,
) -> Result<(Change, Value), ApiError> {
    let desired = merge::with_last_applied(&entry.object);
    let Some(live) = live else {
        let created = match write_mode {
            Some(write_mode) => client.create(entry.kind, &desired, write_mode).await?,
            None => desired,
        };
        return Ok((Change::Created, created));
    };
    let patch = patch(&desired, live);
    if patch == json!({}) {
        return Ok((Change::Unchanged, live.clone()));
    }
    let object_after = if let Some(write_mode) = write_mode {
        client.patch(entry.kind, &entry.name, &patch, write_mode).await?
    } else {
        let mut merged = live.clone();
        merge::apply(&mut merged, &patch);
        merged
    };
    // The server does not treat another spelling of the same value (`started`, `0.5`) as a change.
    let is_unchanged = merge::is_unchanged(live, &object_after);
    Ok((if is_unchanged { Change::Unchanged } else { Change::Configured }, object_after))
}

/// Returns the patch that turns a live object into the desired object. The patch also removes fields that an earlier
/// apply set and that are no longer in the file.
///
/// The recorded last apply is compared by value: another field order, or another tool's notation, is not a change.
pub(super) fn patch(desired: &Value, live: &Value) -> Value {
    let last_applied = merge::last_applied(live);
    let mut desired = desired.clone();
    if last_applied.is_some() && merge::last_applied(&desired) == last_applied {
        merge::remove_last_applied(&mut desired);
    }
    merge::merge_patch(last_applied.as_ref(), &desired, live)
}

fn print(
    session: &Session,
    format: Option<&Format>,
    entries: &[ManifestObject],
    applied: &[Value],
) -> Result<(), Failure> {
    match format {
        Some(Format::Name) => {
            for entry in entries {
                session.terminal().print_line(&entry.display_name());
            }
        }
        Some(Format::Yaml | Format::Json | Format::JsonPath(_) | Format::CustomColumns(_)) => {
            let items: Vec<Value> = applied.iter().map(render::readable).collect();
            let value = match items.as_slice() {
                [one] => one.clone(),
                _ => json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}),
            };
            session.print_value(format, &value)?;
        }
        Some(Format::Wide) | None => {}
    }
    Ok(())
}
