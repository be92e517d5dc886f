//! `hactl edit`: opens an object in the editor, and sends it back when it is saved and valid.

use crate::client::Commitment;
use crate::failure::{Exit, Failure, Outcome};
use crate::manifest::{self, Entry, Need};
use crate::merge;
use crate::names::{Selection, Target, selection};
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
    what: Vec<String>,
}

impl Edit {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        let target = match selection(&self.what)? {
            Selection::Objects(mut targets) if targets.len() == 1 => targets.remove(0),
            Selection::Objects(_) | Selection::Kinds(_) => {
                return Err(
                    Failure::usage("more than one object specified").help("write KIND NAME or KIND/NAME")
                );
            }
        };
        let client = session.client()?;
        let live = client.target(&target).await?;
        let mut shown = render::readable(&live);
        manifest::own_fields_only(&mut shown);
        let original = render::yaml(&shown)?;
        let mut text = original.clone();
        let mut complaint = String::new();
        loop {
            let before = format!("{}{text}", comment(&target, &complaint));
            let after = edited(&before)?;
            text =
                after.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
            if text.trim().is_empty() || text == original {
                session.terminal().say(&format!("{} unchanged", target.shown()));
                return Ok(Exit::Done);
            }
            if after == before {
                // The user saved the same mistakes again, so end the loop.
                return Err(Failure::usage(complaint)
                    .help("nothing was changed; correct the object, then run the command again"));
            }
            complaint = match changed(&target, &text) {
                Ok(entry) => {
                    match client.replace(target.kind, &with_identity(&entry, &live), Commitment::Real).await {
                        Ok(stored) => {
                            let is_unchanged = merge::is_unchanged(&live, &stored);
                            let word = if is_unchanged { "unchanged" } else { "configured" };
                            session.terminal().say(&format!("{} {word}", target.shown()));
                            return Ok(Exit::Done);
                        }
                        Err(error) => {
                            let is_input = error.is_status(422) || error.is_status(400);
                            let failure = Failure::from(error);
                            if !is_input {
                                return Err(keep(&text, failure));
                            }
                            failure.message
                        }
                    }
                }
                Err(failure) => failure.message,
            };
            if !std::io::stdin().is_terminal() {
                // An editor that is a script would repeat the same mistake indefinitely.
                return Err(Failure::usage(complaint)
                    .help("nothing was changed; correct the object, then run the command again"));
            }
        }
    }
}

fn comment(target: &Target, complaint: &str) -> String {
    let mut lines = vec![
        format!(
            "# {}: save and quit to apply the changes; an unchanged or empty file cancels the edit.",
            target.shown()
        ),
        "# Lines that begin with # are ignored.".to_owned(),
    ];
    if !complaint.is_empty() {
        lines.push("#".to_owned());
        lines.push("# Not accepted:".to_owned());
        lines.extend(complaint.lines().map(|line| format!("#   {line}")));
    }
    lines.join("\n") + "\n"
}

/// Lets the user edit a text, and returns the edited text.
fn edited(text: &str) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::refused(format!("cannot use the temporary file: {error}"));
    let mut file = tempfile::Builder::new().prefix("hactl-").suffix(".yaml").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.flush().map_err(failed)?;
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    // The variable may contain arguments, so a shell parses it; the file name is a separate argument.
    let status =
        Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(file.path()).status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => {
            return Err(Failure::refused(format!("editor {editor:?} failed: {status}"))
                .help("nothing was changed; check $VISUAL and $EDITOR"));
        }
        Err(error) => {
            return Err(Failure::refused(format!("cannot start editor {editor:?}: {error}")));
        }
    }
    std::fs::read_to_string(file.path()).map_err(failed)
}

/// Parses the object in an edited text, which must be valid and still the same object.
fn changed(target: &Target, text: &str) -> Result<Entry, Failure> {
    let (mut entries, mut problems) = (Vec::new(), Vec::new());
    manifest::read("line", text, Need::Whole, &mut entries, &mut problems);
    if !problems.is_empty() {
        return Err(Failure::usage(problems.join("\n")));
    }
    match (entries.pop(), entries.pop()) {
        (Some(entry), None) if entry.kind == target.kind && entry.name == target.name.name => Ok(entry),
        _ => Err(Failure::usage(format!("the file must contain exactly one object, {}", target.shown()))),
    }
}

/// Restores the API's own fields, which the editor does not show.
fn with_identity(entry: &Entry, live: &Value) -> Value {
    let live = AnyObject::of(live).metadata;
    let given = |text: String| (!text.is_empty()).then_some(text);
    let mut own = json!({"uid": given(live.uid), "resourceVersion": given(live.resource_version)});
    if let Some(memory) = live.annotations.get(merge::LAST_APPLIED) {
        own["annotations"] = json!({merge::LAST_APPLIED: memory});
    }
    merge::patched(&entry.object, &json!({"metadata": own}))
}

/// Keeps the user's text in a file when it cannot be sent.
fn keep(text: &str, failure: Failure) -> Failure {
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
    // A new file, so that no link of another user in a shared directory is followed.
    std::fs::OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}
