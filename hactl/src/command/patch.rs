//! `hactl patch`: changes fields of an object by a merge patch or a JSON patch.

use super::dry_run::DryRunFlag;
use crate::failure::{Exit, Failure, Outcome};
use crate::merge;
use crate::names::{Selection, parse_selection};
use crate::render::{self, Format};
use crate::session::Session;
use clap::{Args, ValueEnum, ValueHint};
use ha_api_types::{document, renamed, yaml};
use serde_json::Value;
use std::io::Read;

/// Change fields of an object with a merge patch or a JSON patch
#[derive(Args, Debug)]
#[command(
    override_usage = "hactl patch [OPTIONS] KIND NAME -p <PATCH>\n       hactl patch [OPTIONS] KIND/NAME -p <PATCH>"
)]
#[command(after_help = "Examples:\n  hactl patch resource web -p '{\"spec\":{\"maxRestart\":3}}'\n  \
        hactl patch group/web --type json -p '[{\"op\":\"remove\",\"path\":\"/spec/nodes/node1\"}]'\n\n\
        A merge patch replaces lists; null removes a field. The API has no strategic merge patches.")]
pub(crate) struct Patch {
    /// KIND NAME or KIND/NAME
    #[arg(required = true, value_name = "OBJECT")]
    object_arguments: Vec<String>,
    /// Type of the patch
    #[arg(id = "type", long = "type", value_name = "TYPE", default_value = "merge")]
    kind: PatchType,
    /// Patch in JSON or YAML
    #[arg(
        id = "patch",
        long = "patch",
        short = 'p',
        value_name = "PATCH",
        required_unless_present = "patch_file"
    )]
    inline: Option<String>,
    /// File with the patch, or - for standard input
    #[arg(id = "patch_file", long = "patch-file", value_name = "FILE", conflicts_with = "patch", value_hint = ValueHint::FilePath)]
    file: Option<String>,
    #[command(flatten)]
    dry_run: DryRunFlag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PatchType {
    /// Fields to merge into the object (RFC 7396)
    Merge,
    /// A list of operations (RFC 6902)
    Json,
}

impl PatchType {
    fn media_type(self) -> &'static str {
        match self {
            PatchType::Merge => "application/merge-patch+json",
            PatchType::Json => "application/json-patch+json",
        }
    }
}

impl Patch {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json, Format::Name])?;
        let target = match parse_selection(&self.object_arguments)? {
            Selection::Objects(mut targets) if targets.len() == 1 => targets.remove(0),
            Selection::Objects(_) | Selection::Kinds(_) => {
                return Err(Failure::usage("a patch requires exactly one object")
                    .help("specify KIND NAME or KIND/NAME"));
            }
        };
        let patch = self.read()?;
        let client = session.client()?;
        let live = client.get_target(&target).await?;
        let object_after = match (self.dry_run.mode.write_mode(), self.kind) {
            (Some(write_mode), patch_type) => {
                let media_type = patch_type.media_type();
                client.patch_as(media_type, target.kind, &target.name.name, &patch, write_mode).await?
            }
            (None, PatchType::Merge) => {
                let mut patch = patch;
                renamed::convert_to_current_names(target.kind, &mut patch).map_err(|problems| {
                    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                    Failure::usage(problems.join("\n"))
                })?;
                merge::with_merge_patch(&live, &patch)
            }
            (None, PatchType::Json) => {
                return Err(Failure::usage("a JSON patch is applied only by the server")
                    .help("add --dry-run=server instead of --dry-run=client"));
            }
        };
        match format {
            Some(Format::Name) => session.terminal().print_line(&target.display_name()),
            _ if session.print_value(format, &render::readable(&object_after))? => {}
            _ => {
                let is_changed = render::readable(&object_after) != render::readable(&live);
                let outcome_word = if is_changed { "patched" } else { "unchanged" };
                let suffix = self.dry_run.mode.suffix();
                session.terminal().report(&format!("{} {outcome_word}{suffix}", target.display_name()));
            }
        }
        Ok(Exit::Done)
    }

    fn read(&self) -> Result<Value, Failure> {
        let (source, text) = match (&self.inline, &self.file) {
            (Some(text), _) => ("--patch", Ok(text.clone())),
            (None, Some(path)) if path != "-" => (path.as_str(), std::fs::read_to_string(path)),
            (None, _) => {
                let mut text = String::new();
                ("standard input", std::io::stdin().read_to_string(&mut text).map(|_| text))
            }
        };
        let text = text.map_err(|error| Failure::usage(format!("cannot read {source}: {error}")))?;
        parse(self.kind, &text).map_err(|failure| failure.with_context(source))
    }
}

/// Parses a patch in JSON or YAML.
fn parse(patch_type: PatchType, text: &str) -> Result<Value, Failure> {
    let patch = match document::json(text.as_bytes()) {
        Ok(read) if read.duplicates.is_empty() => read.value,
        // The error of the YAML parser names the line, for both languages.
        Ok(_) | Err(_) => {
            let documents = yaml::documents(text).map_err(|error| {
                let line = error.line.map_or(String::new(), |line| format!("line {line}: "));
                Failure::usage(format!("{line}{}", error.message))
            })?;
            match <[_; 1]>::try_from(documents) {
                Ok([one]) => one.value,
                Err(_) => return Err(Failure::usage("a patch must be exactly one document")),
            }
        }
    };
    match patch_type {
        PatchType::Merge if !patch.is_object() => Err(Failure::usage("a merge patch must be a map")
            .help("specify {\"spec\":{\"FIELD\":VALUE}}, or add --type json for a list of operations")),
        PatchType::Json if !patch.is_array() => {
            Err(Failure::usage("a JSON patch must be a list of operations")
                .help("specify [{\"op\":\"replace\",\"path\":\"/spec/FIELD\",\"value\":VALUE}]"))
        }
        PatchType::Merge | PatchType::Json => Ok(patch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_has_the_form_of_its_type() {
        let check = |patch_type: PatchType, text: &str, expected: Result<Value, &str>| match (
            parse(patch_type, text),
            expected,
        ) {
            (Ok(result), Ok(expected)) => assert_eq!(result, expected),
            (Err(failure), Err(part)) => {
                assert!(failure.message.contains(part), "{part:?} is not in {failure:?}");
                assert_eq!(failure.exit, Exit::Usage);
            }
            (result, expected) => panic!("{text:?}: {result:?} instead of {expected:?}"),
        };
        let merge = PatchType::Merge;
        check(merge, "{\"spec\": {\"a\": null}}", Ok(json!({"spec": {"a": null}})));
        check(merge, "spec:\n  maxRestart: 3\n", Ok(json!({"spec": {"maxRestart": 3}})));
        check(merge, "[]", Err("must be a map"));
        check(merge, "", Err("exactly one document"));
        check(merge, "a: 1\n---\nb: 2\n", Err("exactly one document"));
        check(merge, "{\"a\": 1, \"a\": 2}", Err("a"));
        check(merge, "{\"a\": [", Err("line 1"));
        let operations = "[{\"op\": \"remove\", \"path\": \"/spec/a\"}]";
        check(PatchType::Json, operations, Ok(json!([{"op": "remove", "path": "/spec/a"}])));
        check(PatchType::Json, "{}", Err("must be a list"));
    }
}
