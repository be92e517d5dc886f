//! `hactl edit`: opens an object in the editor, and sends it back when it is saved and valid.

use crate::client::WriteMode;
use crate::failure::{Exit, Failure, Outcome};
use crate::manifest::{self, Completeness, ManifestObject};
use crate::merge;
use crate::names::{Selection, Target, parse_selection};
use crate::object::AnyObject;
use crate::render;
use crate::session::Session;
use clap::Args;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::Command;

/// Edit an object
#[derive(Args, Debug)]
#[command(override_usage = "hactl edit [OPTIONS] KIND NAME\n       hactl edit [OPTIONS] KIND/NAME")]
#[command(after_help = "The editor is $VISUAL, $EDITOR or vi. An unchanged or empty file cancels the edit.")]
pub(crate) struct Edit {
    /// KIND NAME or KIND/NAME
    #[arg(required = true, value_name = "OBJECT")]
    object_arguments: Vec<String>,
}

impl Edit {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let target = match parse_selection(&self.object_arguments)? {
            Selection::Objects(mut targets) if targets.len() == 1 => targets.remove(0),
            Selection::Objects(_) | Selection::Kinds(_) => {
                return Err(
                    Failure::usage("more than one object specified").help("specify KIND NAME or KIND/NAME")
                );
            }
        };
        let client = session.client()?;
        let live = client.get_target(&target).await?;
        let mut editable = render::readable(&live);
        manifest::remove_server_fields(&mut editable);
        let original = render::yaml(&editable)?;
        let mut text = original.clone();
        let mut rejection = String::new();
        loop {
            let text_before = format!("{}{text}", header_comment(&target, &rejection));
            let text_after = open_in_editor(&text_before)?;
            text = text_after
                .lines()
                .filter(|line| !line.starts_with('#'))
                .map(|line| format!("{line}\n"))
                .collect();
            if text.trim().is_empty() || text == original {
                session.terminal().report(&format!("{} unchanged", target.display_name()));
                return Ok(Exit::Done);
            }
            if text_after == text_before {
                // The user saved the same mistakes again, so end the loop.
                return Err(Failure::usage(rejection)
                    .help("nothing was changed; correct the object, then run the command again"));
            }
            rejection = match parse_edited_object(&target, &text) {
                Ok(entry) => {
                    match client
                        .replace(target.kind, &with_server_fields(&entry, &live), WriteMode::Persist)
                        .await
                    {
                        Ok(stored) => {
                            let is_unchanged = merge::is_unchanged(&live, &stored);
                            let outcome_word = if is_unchanged { "unchanged" } else { "configured" };
                            session.terminal().report(&format!("{} {outcome_word}", target.display_name()));
                            return Ok(Exit::Done);
                        }
                        Err(error) => {
                            let is_input = error.is_status(422) || error.is_status(400);
                            let failure = Failure::from(error);
                            if !is_input {
                                return Err(save_rejected_text(&text, failure));
                            }
                            failure.message
                        }
                    }
                }
                Err(failure) => failure.message,
            };
            if !std::io::stdin().is_terminal() {
                // A script as editor would repeat the mistake indefinitely.
                return Err(Failure::usage(rejection)
                    .help("nothing was changed; correct the object, then run the command again"));
            }
        }
    }
}

fn header_comment(target: &Target, rejection: &str) -> String {
    let mut lines = vec![
        format!(
            "# {}: save and quit to apply the changes; an unchanged or empty file cancels the edit.",
            target.display_name()
        ),
        "# Lines that begin with # are ignored.".to_owned(),
    ];
    if !rejection.is_empty() {
        lines.push("#".to_owned());
        lines.push("# Not accepted:".to_owned());
        lines.extend(rejection.lines().map(|line| format!("#   {line}")));
    }
    lines.join("\n") + "\n"
}

/// Lets the user edit a text, and returns the edited text.
fn open_in_editor(text: &str) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("cannot use the temporary file: {error}"));
    let mut file = tempfile::Builder::new().prefix("hactl-").suffix(".yaml").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.flush().map_err(failed)?;
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = variable("VISUAL").or_else(|| variable("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    // The variable may contain arguments, so a shell parses it; the file name is a separate argument.
    let status =
        Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(file.path()).status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => {
            return Err(Failure::failed(format!("editor {editor:?} failed: {status}"))
                .help("nothing was changed; check $VISUAL and $EDITOR"));
        }
        Err(error) => {
            return Err(Failure::failed(format!("cannot start editor {editor:?}: {error}")));
        }
    }
    std::fs::read_to_string(file.path()).map_err(failed)
}

/// Parses the object in an edited text, which must be valid and still the same object.
fn parse_edited_object(target: &Target, text: &str) -> Result<ManifestObject, Failure> {
    let (mut entries, mut problems) = (Vec::new(), Vec::new());
    manifest::read("line", text, Completeness::Whole, &mut entries, &mut problems);
    if !problems.is_empty() {
        return Err(Failure::usage(problems.join("\n")));
    }
    match (entries.pop(), entries.pop()) {
        (Some(entry), None) if entry.kind == target.kind && entry.name == target.name.name => Ok(entry),
        _ => Err(Failure::usage(format!(
            "the file must contain exactly one object, {}",
            target.display_name()
        ))),
    }
}

/// Restores the API's own fields, which the editor does not show.
fn with_server_fields(entry: &ManifestObject, live: &Value) -> Value {
    let live = AnyObject::from_value(live).metadata;
    let non_empty = |text: String| (!text.is_empty()).then_some(text);
    let mut server_fields =
        json!({"uid": non_empty(live.uid.to_string()), "resourceVersion": non_empty(live.resource_version)});
    if let Some(last_applied) = live.annotations.get(merge::LAST_APPLIED) {
        server_fields["annotations"] = json!({merge::LAST_APPLIED: last_applied});
    }
    merge::with_merge_patch(&entry.object, &json!({"metadata": server_fields}))
}

/// Keeps the user's text in a file when it cannot be sent.
fn save_rejected_text(text: &str, failure: Failure) -> Failure {
    let path = std::env::temp_dir().join(format!("hactl-edit-{}.yaml", std::process::id()));
    match write_new(&path, text) {
        Ok(()) => {
            let help = format!("{}\nthe edited text is saved in {}", failure.help, path.display());
            failure.help(help.trim_start().to_owned())
        }
        Err(_) => failure,
    }
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    // A new file is created, so that a link of another user in a shared directory is not followed.
    std::fs::OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}
