//! The API objects of a scenario, inline or from a file, validated like objects of `hactl apply`.

use super::Scenario;
use super::reader::{Reader, suggested_names};
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::names::{self, TypedName};
use ha_api_types::problem::Problem;
use ha_api_types::resource::Resource;
use ha_api_types::timing::TimingSpec;
use ha_api_types::{renamed, schema, validation, yaml};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Reads a list of objects; an item `{file: …}` adds the documents of that file.
pub(super) fn read_objects(
    reader: &mut Reader<'_>,
    value: &Value,
    name: &str,
    directory: &Path,
) -> Vec<Value> {
    let mut all_objects = Vec::new();
    let mut seen_identities = BTreeSet::new();
    for (index, item) in reader.list(value, name).iter().enumerate() {
        let path = format!("{name}[{index}]");
        let objects = match item.get("file") {
            Some(file) => {
                let Some(fields) = reader.read_fields(item, &path, &["file"]) else { continue };
                let Some(file) = reader.read_text(file, &fields.path_of("file")) else { continue };
                read_object_file(reader, &directory.join(file), &fields.path_of("file"))
            }
            None => read_inline_object(reader, item, &path).into_iter().collect(),
        };
        for object in objects {
            let identity = (object["kind"].to_string(), object["metadata"]["name"].to_string());
            if !seen_identities.insert(identity) {
                let message = format!("{} {} is listed twice", object["kind"], object["metadata"]["name"]);
                reader.add_problem(&path, message);
            }
            all_objects.push(object);
        }
    }
    all_objects
}

/// Reads an object written inline.
pub(super) fn read_inline_object(reader: &mut Reader<'_>, value: &Value, path: &str) -> Option<Value> {
    reader.read_map(value, path)?;
    let (object, problems) = normalize_object(value);
    for problem in &problems {
        let separator = if problem.path.is_empty() { "" } else { "." };
        reader.add_problem(&format!("{path}{separator}{}", problem.path), &problem.message);
    }
    problems.is_empty().then_some(object)
}

fn read_object_file(reader: &mut Reader<'_>, path: &Path, scenario_path: &str) -> Vec<Value> {
    let file = path.display();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            reader.add_problem(scenario_path, format!("cannot read {file}: {error}"));
            return Vec::new();
        }
    };
    let documents = match yaml::documents(&text) {
        Ok(documents) => documents,
        Err(error) => {
            reader.add_file_problem(
                scenario_path,
                format!("{file}:{}: {}", error.line.unwrap_or(1), error.message),
            );
            return Vec::new();
        }
    };
    let mut objects = Vec::new();
    for document in documents {
        let (object, problems) = normalize_object(&document.value);
        for problem in &problems {
            let line = document.lines.of(&problem.path).unwrap_or(1);
            reader.add_file_problem(scenario_path, format!("{file}:{line}: {problem}"));
        }
        if problems.is_empty() {
            objects.push(object);
        }
    }
    objects
}

/// Returns the object under its name without type, and every problem for which the API would refuse it.
fn normalize_object(value: &Value) -> (Value, Vec<Problem>) {
    let mut object = value.clone();
    if !object.is_object() {
        return (object, vec![Problem::invalid("", "an object must be a map")]);
    }
    let kind_name = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == kind_name) else {
        let accepted_kinds = suggested_names(&kind_name, Kind::ALL.iter().map(|kind| kind.name()));
        return (
            object,
            vec![Problem::invalid("kind", format!("{kind_name:?} is not a valid kind, {accepted_kinds}"))],
        );
    };
    if object.get("apiVersion").is_none() {
        object["apiVersion"] = json!(API_VERSION);
    }
    let schema = schema::of(kind);
    // Scenarios of earlier versions remain readable, because traces and bug reports contain them.
    let mut problems = renamed::convert_to_current_names(kind, &mut object).err().unwrap_or_default();
    // A status in the file has no effect, because a scenario is not a client of the API. So remove the status.
    if let Some(map) = object.as_object_mut() {
        map.shift_remove("status");
    }
    problems.extend(schema::unknown_fields(schema, &object));
    schema::prune_nulls(schema, &mut object);
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if name.is_empty() {
        problems.push(Problem::required("metadata.name", "is required, as a string: put a number in quotes"));
    } else if kind == Kind::Resource {
        let typed_name = TypedName::parse(&name);
        if let Ok(resource) = serde_json::from_value::<Resource>(object.clone())
            && let Err(problem) = typed_name.check(&resource.spec)
        {
            problems.push(Problem::invalid("metadata.name", problem));
        }
        object["metadata"]["name"] = json!(names::without_type(&name));
    }
    problems.extend(validation::problems(kind, &object));
    if kind == Kind::Cluster && name != CLUSTER_NAME {
        let message = format!("must be {CLUSTER_NAME}: only one Cluster object exists");
        problems.push(Problem::invalid("metadata.name", message));
    }
    (object, problems)
}

/// Ensures that a Cluster object exists, with the scenario's timing unless the object has its own.
pub(super) fn ensure_cluster_object(reader: &mut Reader<'_>, scenario: &mut Scenario, has_timing: bool) {
    let timing = serde_json::to_value(&scenario.timing).unwrap_or_else(|_| json!({}));
    let cluster = scenario.objects.iter_mut().find(|object| object["kind"] == Kind::Cluster.name());
    let Some(cluster) = cluster else {
        scenario.objects.insert(
            0,
            json!({
                "apiVersion": API_VERSION, "kind": Kind::Cluster.name(), "metadata": {"name": CLUSTER_NAME},
                "spec": {"timing": timing},
            }),
        );
        return;
    };
    if let Some(own_timing) = cluster.pointer("/spec/timing").cloned() {
        if has_timing {
            reader.add_problem(
                "timing",
                "the Cluster object has its own spec.timing: specify only one of them",
            );
        }
        scenario.timing = serde_json::from_value::<TimingSpec>(own_timing).unwrap_or_default();
        return;
    }
    if cluster.get("spec").is_none() {
        cluster["spec"] = json!({});
    }
    cluster["spec"]["timing"] = timing;
}
