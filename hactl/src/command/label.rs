//! `hactl label` and `hactl annotate`: set and remove labels and annotations of objects.

use super::dry_run::DryRunFlag;
use crate::client::{Client, Collection};
use crate::failure::{Exit, Failure, Outcome};
use crate::names::{Selection, Target, TypedName, name_of, parse_selection};
use crate::object::AnyObject;
use crate::render::Format;
use crate::session::Session;
use clap::Args;
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::validation;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Set or remove labels of objects
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hactl label resource web tier=front\n  hactl label node/node1 rack=2 --overwrite\n  \
    hactl label nodes --all rack-"
)]
#[command(
    override_usage = "hactl label [OPTIONS] KIND [NAME…] KEY=VALUE… KEY-…\n       hactl label [OPTIONS] KIND/NAME… KEY=VALUE… KEY-…"
)]
pub(crate) struct Label {
    #[command(flatten)]
    edit: Edit,
}

/// Set or remove annotations of objects
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hactl annotate resource web example.com/owner='team a'\n  \
    hactl annotate resources -l tier=front example.com/owner-")]
#[command(
    override_usage = "hactl annotate [OPTIONS] KIND [NAME…] KEY=VALUE… KEY-…\n       hactl annotate [OPTIONS] KIND/NAME… KEY=VALUE… KEY-…"
)]
pub(crate) struct Annotate {
    #[command(flatten)]
    edit: Edit,
}

// The arguments of both commands. (A doc comment would replace the help of each command that uses it.)
#[derive(Args, Debug)]
struct Edit {
    /// KIND NAME… or KIND/NAME…, then KEY=VALUE to set and KEY- to remove
    #[arg(required = true, value_name = "OBJECT|KEY=VALUE|KEY-")]
    object_arguments: Vec<String>,
    /// Replace existing values
    #[arg(long)]
    overwrite: bool,
    /// Select all objects of the kind
    #[arg(long, conflicts_with = "selector")]
    all: bool,
    /// Select objects by labels, such as app=web,tier!=test
    #[arg(long, short = 'l', value_name = "LABELS")]
    selector: Option<String>,
    #[command(flatten)]
    dry_run: DryRunFlag,
}

/// The part of the metadata that a command changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Labels,
    Annotations,
}

impl Field {
    fn name(self) -> &'static str {
        match self {
            Field::Labels => "labels",
            Field::Annotations => "annotations",
        }
    }

    fn values_of(self, object: &Value) -> BTreeMap<String, String> {
        let metadata = AnyObject::from_value(object).metadata;
        match self {
            Field::Labels => metadata.labels,
            Field::Annotations => metadata.annotations,
        }
    }

    fn singular(self) -> &'static str {
        match self {
            Field::Labels => "label",
            Field::Annotations => "annotation",
        }
    }
}

impl Label {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        self.edit.run(session, Field::Labels).await
    }
}

impl Annotate {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        self.edit.run(session, Field::Annotations).await
    }
}

impl Edit {
    async fn run(&self, session: &Session, field: Field) -> Outcome {
        let format = session.format(&[Format::Name])?;
        let (objects, changes) = parse(field, &self.object_arguments)?;
        let client = session.client()?;
        let objects = self.objects(client, parse_selection(objects)?).await?;
        if !self.overwrite {
            let conflicts: Vec<String> = objects
                .iter()
                .flat_map(|(target, object)| conflicts(field, target, object, &changes))
                .collect();
            if !conflicts.is_empty() {
                return Err(Failure::failed(conflicts.join("\n"))
                    .help("nothing was changed; add --overwrite to replace existing values"));
            }
        }
        if objects.is_empty() {
            session.terminal().notice("No resources found");
        }
        for (target, object) in &objects {
            let display_name = target.display_name();
            let current = field.values_of(object);
            for (key, _) in
                changes.iter().filter(|(key, value)| value.is_null() && !current.contains_key(*key))
            {
                session.terminal().warn(&format!("{display_name} has no {} {key}", field.singular()));
            }
            let differing = differing(&current, &changes);
            if let Some(write_mode) = self.dry_run.mode.write_mode().filter(|_| !differing.is_empty()) {
                let patch = json!({"metadata": {field.name(): differing}});
                client
                    .patch(target.kind, &target.name.name, &patch, write_mode)
                    .await
                    .map_err(|error| Failure::from(error).with_context(&display_name))?;
            }
            match format {
                Some(Format::Name) => session.terminal().print_line(&display_name),
                _ => session.terminal().report(&format!(
                    "{display_name} {}{}",
                    outcome_word(field, &differing),
                    self.dry_run.mode.suffix()
                )),
            }
        }
        Ok(Exit::Done)
    }

    /// Returns the selected objects; all named objects must exist.
    async fn objects(&self, client: &Client, selection: Selection) -> Result<Vec<(Target, Value)>, Failure> {
        let mut objects_found = Vec::new();
        match selection {
            Selection::Objects(_) if self.all || self.selector.is_some() => {
                return Err(Failure::usage("names cannot be combined with --all or --selector")
                    .help("remove the names, or remove --all and --selector"));
            }
            Selection::Objects(targets) => {
                for target in targets {
                    let object = client.get_target(&target).await?;
                    objects_found.push((target, object));
                }
            }
            Selection::Kinds(_) if !self.all && self.selector.is_none() => {
                return Err(Failure::usage("no names specified")
                    .help("add names, -l LABELS, or --all for all objects of the kind"));
            }
            Selection::Kinds(kinds) => {
                let query: Vec<(&str, String)> =
                    self.selector.iter().map(|selector| ("labelSelector", selector.clone())).collect();
                for kind in kinds {
                    let list = client.list(Collection::Kind(kind), &query).await?;
                    objects_found
                        .extend(list.items.into_iter().map(|object| (target(kind, &object), object)));
                }
            }
        }
        Ok(objects_found)
    }
}

fn target(kind: Kind, object: &Value) -> Target {
    Target { kind, name: TypedName { type_name: None, name: name_of(object).to_owned() } }
}

/// Splits the arguments into objects and the merge patch of the field, in which null removes a key.
fn parse(field: Field, arguments: &[String]) -> Result<(&[String], Map<String, Value>), Failure> {
    let noun = field.singular();
    let is_change = |text: &String| text.contains('=') || text.ends_with('-');
    let (objects, change_texts) =
        arguments.split_at(arguments.iter().position(is_change).unwrap_or(arguments.len()));
    if change_texts.is_empty() {
        return Err(Failure::usage(format!("no {noun} specified"))
            .help(format!("specify KEY=VALUE to set the {noun}, KEY- to remove it")));
    }
    let mut changes = Map::new();
    for change_text in change_texts {
        let (key, value) = match (change_text.split_once('='), change_text.strip_suffix('-')) {
            (Some((key, value)), _) => (key, json!(value)),
            (None, Some(key)) => (key, Value::Null),
            (None, None) => {
                return Err(Failure::usage(format!("{change_text:?} is not KEY=VALUE or KEY-"))
                    .help(format!("specify the names of objects before the {}", field.name())));
            }
        };
        if changes.insert(key.to_owned(), value).is_some() {
            return Err(Failure::usage(format!("{noun} {key} is specified twice")));
        }
    }
    let problems = problems(field, &changes);
    if problems.is_empty() { Ok((objects, changes)) } else { Err(Failure::usage(problems.join("\n"))) }
}

/// Returns the problems of keys and values, by the rules of the API.
fn problems(field: Field, changes: &Map<String, Value>) -> Vec<String> {
    let texts: Map<String, Value> =
        changes.iter().map(|(key, value)| (key.clone(), json!(value.as_str().unwrap_or_default()))).collect();
    // The rules are the same for every kind, and a node needs no other fields.
    let object = json!({
        "apiVersion": API_VERSION, "kind": Kind::Node.name(),
        "metadata": {"name": "any", field.name(): texts}, "spec": {},
    });
    let path_prefix = format!("metadata.{}", field.name());
    validation::problems(Kind::Node, &object)
        .iter()
        .filter(|problem| problem.path.starts_with(&path_prefix))
        .map(ToString::to_string)
        .collect()
}

/// Returns the existing values that the changes would replace, as sentences.
fn conflicts(field: Field, target: &Target, object: &Value, changes: &Map<String, Value>) -> Vec<String> {
    let current = field.values_of(object);
    changes
        .iter()
        .filter_map(|(key, value)| Some((key, current.get(key)?, value.as_str()?)))
        .filter(|(_, present, value)| value != present)
        .map(|(key, present, _)| {
            format!("{}: {} {key} already has the value {present:?}", target.display_name(), field.singular())
        })
        .collect()
}

/// Returns the changes that an object does not have yet.
fn differing(current: &BTreeMap<String, String>, changes: &Map<String, Value>) -> Map<String, Value> {
    let is_new = |key: &String, value: &Value| current.get(key).map(String::as_str) != value.as_str();
    let new = changes.iter().filter(|(key, value)| is_new(key, value));
    new.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn outcome_word(field: Field, sent: &Map<String, Value>) -> &'static str {
    match field {
        Field::Labels | Field::Annotations if sent.is_empty() => "unchanged",
        Field::Labels if sent.values().all(Value::is_null) => "unlabeled",
        Field::Labels => "labeled",
        Field::Annotations => "annotated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(field: Field, arguments: &[&str], expected: Result<(&[&str], Value), &str>) {
        let change_texts: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        match (parse(field, &change_texts), expected) {
            (Ok((objects, changes)), Ok((names, patch))) => {
                assert_eq!(objects, names, "{arguments:?}");
                assert_eq!(Value::Object(changes), patch, "{arguments:?}");
            }
            (Err(failure), Err(part)) => {
                assert!(failure.message.contains(part), "{part:?} is not in {failure:?}");
                assert_eq!(failure.exit, Exit::Usage);
            }
            (result, expected) => panic!("{arguments:?}: {result:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn label_changes_are_parsed_after_objects() {
        let labels = Field::Labels;
        check(
            labels,
            &["resource", "web", "tier=front", "old-"],
            Ok((&["resource", "web"], json!({"tier": "front", "old": null}))),
        );
        check(labels, &["nodes", "example.com/rack="], Ok((&["nodes"], json!({"example.com/rack": ""}))));
        check(
            Field::Annotations,
            &["node/node1", "note=a = b-"],
            Ok((&["node/node1"], json!({"note": "a = b-"}))),
        );
        check(labels, &["resource", "web"], Err("no label specified"));
        check(labels, &["resource", "web", "tier=front", "db"], Err("\"db\" is not KEY=VALUE or KEY-"));
        check(labels, &["resource", "web", "tier=front", "tier-"], Err("tier is specified twice"));
        check(labels, &["resource", "web", "tier=a b"], Err("metadata.labels.tier: \"a b\" is not a valid"));
        check(labels, &["resource", "web", "a/b/c=x"], Err("metadata.labels[a/b/c]"));
        check(labels, &["resource", "web", "=x"], Err("is not a valid key"));
        check(Field::Annotations, &["resource", "web", "a b-"], Err("is not a valid key"));
    }

    #[test]
    fn only_different_label_values_conflict() {
        let object = json!({"metadata": {"name": "web", "labels": {"tier": "front", "app": "shop"}}});
        let check = |changes: Value, expected: &[&str], sent: Value| {
            let changes = changes.as_object().expect("a map");
            let target = target(Kind::Resource, &object);
            assert_eq!(conflicts(Field::Labels, &target, &object, changes), expected, "{changes:?}");
            assert_eq!(Value::Object(differing(&Field::Labels.values_of(&object), changes)), sent);
        };
        check(json!({"tier": "front"}), &[], json!({}));
        check(json!({"tier": null, "gone": null}), &[], json!({"tier": null}));
        check(
            json!({"tier": "back", "app": "shop"}),
            &["resource/web: label tier already has the value \"front\""],
            json!({"tier": "back"}),
        );
        assert_eq!(Value::Object(differing(&BTreeMap::new(), &Map::new())), json!({}));
    }
}
