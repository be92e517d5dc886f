//! `hactl set`: sets fields of an object's spec.

use super::dry_run::DryRunFlag;
use super::in_place::InPlaceFlags;
use super::stop_first::{StopFirstFlags, with_state};
use crate::client::WriteMode;
use crate::failure::{Exit, Failure, Outcome};
use crate::merge;
use crate::names::Target;
use crate::render::{self, Format};
use crate::schema::Field;
use crate::session::Session;
use clap::Args;
use ha_api_types::kind::Kind;
use ha_api_types::renamed::{self, RenamedField};
use ha_api_types::validation;
use serde_json::{Value, json};

/// Set fields in the spec of an object
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hactl set web state=stopped maxRestart=3\n  hactl set vm:100 group= comment='moved to rack 2'\n  \
    hactl set node/node1 unschedulable=true\n\nAn empty value removes the field, so that its default applies."
)]
pub(crate) struct Set {
    /// NAME of a resource, or KIND/NAME
    #[arg(value_name = "OBJECT")]
    object_argument: String,
    /// Fields and values, nested with dots, such as requests.memory=2Gi
    #[arg(required = true, value_name = "FIELD=VALUE")]
    fields: Vec<String>,
    #[command(flatten)]
    dry_run: DryRunFlag,
    #[command(flatten)]
    stop_first: StopFirstFlags,
    #[command(flatten)]
    in_place: InPlaceFlags,
}

impl Set {
    pub(crate) async fn run(&self, session: &Session) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json, Format::Name])?;
        let target = Target::parse(&self.object_argument)?;
        let (patch, renamed) = spec_patch(target.kind, &self.fields)?;
        for renamed in renamed {
            session.terminal().warn(&renamed.notice());
        }
        let client = session.client()?;
        let live = client.get_target(&target).await?;
        let mut merged = live.clone();
        merge::apply(&mut merged, &patch);
        // Existing defects of the object are left to the server; only the changed object is validated.
        let problems: Vec<String> =
            validation::problems(target.kind, &merged).iter().map(ToString::to_string).collect();
        if !problems.is_empty() {
            return Err(Failure::usage(problems.join("\n"))
                .help("nothing was changed; correct the values, then run the command again"));
        }
        self.in_place.confirm(&[(target.kind, &target.name.name)])?;
        let object_after = match self.dry_run.mode.write_mode() {
            Some(write_mode) => self.send(session, &target, &live, patch, write_mode).await?,
            None => merged,
        };
        self.in_place.execute(session, target.kind, &object_after).await?;
        let outcome_word = if merge::is_unchanged(&live, &object_after) { "unchanged" } else { "configured" };
        match format {
            Some(Format::Name) => session.terminal().print_line(&target.display_name()),
            _ if session.print_value(format, &render::readable(&object_after))? => {}
            _ => {
                let suffix = self.dry_run.mode.suffix();
                session.terminal().report(&format!("{} {outcome_word}{suffix}", target.display_name()));
            }
        }
        Ok(Exit::Done)
    }

    /// Sends a patch, and stops the resource first if the edit requires that and the user permits it.
    async fn send(
        &self,
        session: &Session,
        target: &Target,
        live: &Value,
        patch: Value,
        write_mode: WriteMode,
    ) -> Result<Value, Failure> {
        let (client, name) = (session.client()?, &target.name.name);
        match client.patch(target.kind, name, &patch, write_mode).await.map_err(Failure::from) {
            Err(refusal) if self.stop_first.resolves_refusal(target.kind, &refusal.message) => {
                let state_before = self.stop_first.stop(session, client, name, live).await?;
                let patch = with_state(&patch, &patch, &state_before);
                Ok(client.patch(target.kind, name, &patch, write_mode).await?)
            }
            other => other,
        }
    }
}

/// Returns the merge patch for `FIELD=VALUE…`, and the fields that are given by an earlier name.
fn spec_patch(kind: Kind, fields: &[String]) -> Result<(Value, Vec<&'static RenamedField>), Failure> {
    let (mut spec, mut renamed_fields) = (json!({}), Vec::new());
    for text in fields {
        let (path, value) = text.split_once('=').ok_or_else(|| {
            Failure::usage(format!("{text:?} is not an assignment"))
                .help("specify FIELD=VALUE, such as state=stopped")
        })?;
        let path = path.strip_prefix("spec.").unwrap_or(path);
        let renamed = renamed::renamed_field_of_spec_path(kind, path);
        renamed_fields.extend(renamed);
        let path = renamed.map_or_else(|| path.to_owned(), RenamedField::current_path);
        let mut schema = Field::spec(kind);
        let mut field_value = &mut spec;
        for (depth, name) in path.split('.').enumerate() {
            schema = child_schema(schema, name).map_err(|hint| {
                let field_path = path.split('.').take(depth + 1).collect::<Vec<_>>().join(".");
                Failure::usage(format!("{} has no field {field_path}{hint}", kind.name()))
                    .help(format!("run \"hactl explain {}.spec\"", kind.singular()))
            })?;
            if !field_value.is_object() {
                *field_value = json!({});
            }
            field_value = &mut field_value[name];
        }
        let value =
            parse_value(schema, value).map_err(|reason| Failure::usage(format!("{path}: {reason}")))?;
        *field_value = match renamed {
            Some(renamed) => renamed.to_current(value),
            None => value,
        };
    }
    Ok((json!({"spec": spec}), renamed_fields))
}

/// Returns the schema of a field. The error is a hint with the most similar name, if any.
fn child_schema<'a>(schema: Field<'a>, name: &str) -> Result<Field<'a>, String> {
    if let Some(member) = schema.member(name) {
        return Ok(member);
    }
    if let Some(known_members) = schema.members() {
        let known_members: Vec<&str> = known_members.map(|(name, _)| name).collect();
        // Flags are written with dashes; fields are not.
        let camel = camel_case(name);
        let most_similar = known_members.iter().copied().find(|known_members| *known_members == camel);
        let most_similar =
            most_similar.or_else(|| crate::names::most_similar(name, known_members.iter().copied()));
        return Err(most_similar
            .map(|most_similar| format!("; did you mean {most_similar}?"))
            .unwrap_or_default());
    }
    schema.values().or_else(|| schema.alternatives().find_map(Field::values)).ok_or_else(String::new)
}

fn camel_case(name: &str) -> String {
    let mut parts = name.split('-');
    let mut camel = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut characters = part.chars();
        camel.extend(characters.next().map(|first| first.to_ascii_uppercase()));
        camel.extend(characters);
    }
    camel
}

/// Parses the value by the schema's type; an empty value removes the field.
fn parse_value(schema: Field<'_>, text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Ok(Value::Null);
    }
    let invalid = |problem: &str| format!("{text:?} is {problem}");
    let alternatives = schema.alternatives().filter_map(Field::type_name);
    let alternatives: Vec<&str> = schema.type_name().into_iter().chain(alternatives).collect();
    match alternatives.as_slice() {
        ["string"] => Ok(json!(text)),
        ["string", "object"] if !text.starts_with('{') => Ok(json!(text)),
        ["boolean"] => match text {
            "true" | "yes" | "1" => Ok(json!(true)),
            "false" | "no" | "0" => Ok(json!(false)),
            _ => Err(invalid("not true or false")),
        },
        ["integer"] => text.parse::<i64>().map(Value::from).map_err(|_| invalid("not an integer")),
        ["number"] => text
            .parse::<f64>()
            .ok()
            .and_then(serde_json::Number::from_f64)
            .map(Value::Number)
            .ok_or_else(|| invalid("not a number")),
        ["array"] if !text.starts_with('[') => text
            .split(',')
            .map(|part| parse_value(schema.items().unwrap_or(Field(&Value::Null)), part))
            .collect::<Result<_, _>>()
            .map(Value::Array),
        _ => {
            let documents = ha_api_types::yaml::documents(text)
                .map_err(|error| invalid(&format!("not valid YAML: {error}")))?;
            Ok(documents.into_iter().next().map_or(Value::Null, |document| document.value))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, fields: &[&str], expected: Result<Value, &str>) {
        let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        match (spec_patch(kind, &fields), expected) {
            (Ok((result, _)), Ok(expected)) => assert_eq!(result["spec"], expected),
            (Err(failure), Err(part)) => assert!(failure.message.contains(part), "{failure:?}"),
            (result, expected) => panic!("{fields:?}: {result:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn set_values_take_the_field_type() {
        let resource = Kind::Resource;
        check(resource, &["state=stopped", "maxRestart=3"], Ok(json!({"state": "stopped", "maxRestart": 3})));
        check(resource, &["comment=123", "group="], Ok(json!({"comment": "123", "group": null})));
        check(resource, &["failback=no", "tags=a,b"], Ok(json!({"failback": false, "tags": ["a", "b"]})));
        check(
            resource,
            &["requests.memory=2Gi", "requests.cpu=1"],
            Ok(json!({"requests": {"memory": "2Gi", "cpu": 1}})),
        );
        check(resource, &["after=a,b"], Ok(json!({"dependsOn": ["a", "b"]})));
        let milliseconds = "driver.libvirt.migration.downtimeMilliseconds=300";
        let migration = json!({"maxDowntimeSeconds": 0.3});
        check(resource, &[milliseconds], Ok(json!({"driver": {"libvirt": {"migration": migration}}})));
        check(resource, &["timeouts.startSeconds=1.5"], Ok(json!({"timeouts": {"startSeconds": 1.5}})));
        check(
            resource,
            &["driver.exec.environment.DEBUG=1"],
            Ok(json!({"driver": {"exec": {"environment": {"DEBUG": "1"}}}})),
        );
        let reference = json!({"valueFrom": {"file": "db"}});
        check(
            resource,
            &["driver.exec.environment.PASSWORD={valueFrom: {file: db}}"],
            Ok(json!({"driver": {"exec": {"environment": {"PASSWORD": reference}}}})),
        );
        check(
            Kind::Group,
            &["nodes.node1=2", "nodes.node2="],
            Ok(json!({"nodes": {"node1": 2, "node2": null}})),
        );
        check(Kind::Node, &["unschedulable=true"], Ok(json!({"unschedulable": true})));
        check(Kind::Node, &["schedulable=false"], Ok(json!({"unschedulable": true})));
        check(resource, &["max-restart=3"], Err("did you mean maxRestart?"));
        check(resource, &["stat=x"], Err("did you mean state?"));
        check(resource, &["requests.ram=1"], Err("requests.ram"));
        check(resource, &["maxRestart=x"], Err("not an integer"));
        check(resource, &["failback=perhaps"], Err("not true or false"));
        check(resource, &["nothing"], Err("not an assignment"));
    }
}
