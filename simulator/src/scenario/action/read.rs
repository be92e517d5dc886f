//! Parser of actions. An error states the defect, its position and the accepted forms.

use super::{
    Action, Command, FenceDeviceCondition, JournalCondition, LinkEnd, PetBehavior, ProcessVerb,
    without_type_prefix,
};
use crate::duration::Duration;
use crate::scenario::reader::suggested_names;
use crate::scenario::sections::SLEEP_WORDS;
use ha_api_types::id::NodeName;
use ha_api_types::kind::Kind;
use ha_api_types::quantity::{Quantity, QuantityError};
use ha_api_types::renamed::{self, RenamedField};
use ha_api_types::schema;
use ha_api_types::time::Millis;
use ha_api_types::usage::Usage;
use serde_json::{Value, json};

/// Each verb with its accepted form.
const ACTION_FORMS: [(&str, &str); 43] = [
    ("power", "power N on|off"),
    ("network", "network N on|off"),
    ("reboot", "reboot N"),
    ("shutdown", "shutdown N"),
    ("replace", "replace N [clone]"),
    ("agent", "agent N stop|start|restart|kill|hang|resume|upgrade [words]|downgrade"),
    ("controller", "controller N stop|start|restart|kill|hang|resume|upgrade [words]|downgrade"),
    ("suspend", "suspend N DURATION"),
    ("clock", "clock N rate NUMBER"),
    ("watchdog", "watchdog N stop DURATION"),
    ("plan-time", "plan-time N DURATION"),
    ("watchdogd", "watchdogd N kill|start"),
    ("pets", "pets N fail|fail-counting|ok|reopen"),
    ("sleep", "sleep N never|masked|inhibitor|unprotected"),
    ("drivers", "drivers N unknown|known"),
    ("journal", "journal N full|ok|lost|old"),
    ("link", "link A B off|on [one-way]"),
    ("migration-network", "migration-network N off|on"),
    ("autostart", "autostart N R on|off"),
    ("driver", "driver N slow R DURATION, or driver N hang|resume"),
    ("fence-device", "fence-device N ok|broken|no-effect"),
    (
        "store",
        "store outage DURATION, store leader-change, store leader-pause DURATION, store compact, store snapshot, store restore [empty], store latency DURATION, store flaky DURATION, store full on|off, or store lag N DURATION",
    ),
    ("set", "set R FIELD=VALUE … [in-place], or set cluster/default|node/N FIELD=VALUE …"),
    ("definition", "definition R identity=TEXT"),
    ("add", "add R [NODE [running]]"),
    ("delete", "delete R"),
    ("delete-node", "delete-node N"),
    ("delete-controller", "delete-controller N"),
    ("migrate", "migrate R N"),
    ("relocate", "relocate R N"),
    ("replace-secondary", "replace-secondary R N"),
    ("stop", "stop R [DURATION]"),
    ("start", "start R"),
    ("restart", "restart R"),
    ("clear-error", "clear-error R"),
    ("maintenance", "maintenance N enable|disable"),
    ("confirm-fenced", "confirm-fenced N"),
    ("test-watchdog", "test-watchdog N"),
    ("fence", "fence N"),
    ("unfence", "unfence N"),
    ("disarm", "disarm freeze|ignore"),
    ("arm", "arm"),
    ("crash", "crash R"),
];

/// Each verb that changes a service without HA, with its accepted form.
const MANUAL_ACTION_FORMS: [(&str, &str); 4] = [
    ("load", "load R [cpu=2] [memory=4Gi] [disk=10Mi] [network=10Mi]"),
    ("move-by-hand", "move-by-hand R N"),
    ("start-by-hand", "start-by-hand R N"),
    ("stop-by-hand", "stop-by-hand R"),
];

fn forms() -> impl Iterator<Item = (&'static str, &'static str)> + Clone {
    ACTION_FORMS.into_iter().chain(MANUAL_ACTION_FORMS)
}

impl Action {
    /// Parses an action.
    ///
    /// Errors: the text is not an action. The message names the defect and the accepted forms.
    pub fn parse(text: &str) -> Result<Action, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let action = match words.first().copied() {
            None => Err("an action is empty".to_owned()),
            Some("store") => parse_store_action(&words),
            Some(
                "set" | "definition" | "add" | "delete" | "migrate" | "relocate" | "replace-secondary"
                | "stop" | "start" | "restart" | "clear-error",
            ) => parse_resource_command(&words).map(Action::Command),
            Some("load" | "crash" | "move-by-hand" | "start-by-hand" | "stop-by-hand") => {
                parse_service_action(&words)
            }
            Some(
                "delete-node" | "delete-controller" | "maintenance" | "confirm-fenced" | "test-watchdog"
                | "fence" | "unfence" | "disarm" | "arm",
            ) => parse_cluster_command(&words).map(Action::Command),
            Some(_) => parse_machine_action(&words),
        };
        action.map_err(|problem| format!("{text:?}: {problem}"))
    }
}

/// Returns the message for an unknown verb, or for a known verb with invalid arguments.
fn form_error(words: &[&str]) -> String {
    let verb = words.first().copied().unwrap_or_default();
    match forms().find(|(form_verb, _)| *form_verb == verb) {
        Some((_, form)) => format!("write `{form}`"),
        None => format!(
            "{verb:?} is not a valid action, {}",
            suggested_names(verb, forms().map(|(form_verb, _)| form_verb))
        ),
    }
}

fn duration_ms(word: &str) -> Result<Millis, String> {
    Duration::parse(word).map(|duration| duration.0)
}

/// Parses one of two words: `true` for `true_word`, `false` for `false_word`.
fn parse_switch(word: &str, true_word: &str, false_word: &str) -> Result<bool, String> {
    match word {
        _ if word == true_word => Ok(true),
        _ if word == false_word => Ok(false),
        _ => Err(format!("{word:?} must be {true_word} or {false_word}")),
    }
}

fn parse_machine_action(words: &[&str]) -> Result<Action, String> {
    let node_name = |word: &str| NodeName::from(word);
    match words {
        ["power", node, word] => {
            Ok(Action::Power { node: node_name(node), on: parse_switch(word, "on", "off")? })
        }
        ["network", node, word] => {
            Ok(Action::Network { node: node_name(node), on: parse_switch(word, "on", "off")? })
        }
        ["reboot", node] => Ok(Action::Reboot { node: node_name(node) }),
        ["shutdown", node] => Ok(Action::Shutdown { node: node_name(node) }),
        ["replace", node] => Ok(Action::Replace { node: node_name(node), clone: false }),
        ["replace", node, "clone"] => Ok(Action::Replace { node: node_name(node), clone: true }),
        ["agent", node, "upgrade", "words"] => Ok(Action::Agent {
            node: node_name(node),
            verb: ProcessVerb::Upgrade { writes_new_values: true },
        }),
        ["controller", node, "upgrade", "words"] => Ok(Action::Controller {
            node: node_name(node),
            verb: ProcessVerb::Upgrade { writes_new_values: true },
        }),
        ["agent", node, verb] => Ok(Action::Agent { node: node_name(node), verb: process_verb(verb)? }),
        ["controller", node, verb] => {
            Ok(Action::Controller { node: node_name(node), verb: process_verb(verb)? })
        }
        ["suspend", node, word] => {
            Ok(Action::Suspend { node: node_name(node), duration_ms: duration_ms(word)? })
        }
        ["clock", node, "rate", rate] => match rate.parse::<f64>() {
            Ok(rate) if (0.5..=2.0).contains(&rate) => Ok(Action::ClockRate { node: node_name(node), rate }),
            _ => Err(format!("{rate:?} is not a valid rate: specify a number from 0.5 to 2")),
        },
        ["watchdog", node, "stop", word] => {
            Ok(Action::Watchdog { node: node_name(node), duration_ms: duration_ms(word)? })
        }
        ["plan-time", node, word] => {
            Ok(Action::PlanTime { node: node_name(node), duration_ms: duration_ms(word)? })
        }
        ["watchdogd", node, word] => {
            Ok(Action::WatchdogDaemon { node: node_name(node), start: parse_switch(word, "start", "kill")? })
        }
        ["pets", node, word] => {
            let pets = match *word {
                "ok" => PetBehavior::Accept,
                "fail" => PetBehavior::Fail,
                "fail-counting" => PetBehavior::FailCounting,
                "reopen" => PetBehavior::Reopen,
                _ => return Err(form_error(words)),
            };
            Ok(Action::Pets { node: node_name(node), pets })
        }
        ["sleep", node, word] => match SLEEP_WORDS.iter().find(|(sleep_word, _)| sleep_word == word) {
            Some((_, protection)) => Ok(Action::Sleep { node: node_name(node), protection: *protection }),
            None => Err(form_error(words)),
        },
        ["drivers", node, word] => {
            Ok(Action::Drivers { node: node_name(node), supported: parse_switch(word, "known", "unknown")? })
        }
        ["journal", node, word] => {
            Ok(Action::Journal { node: node_name(node), fault: journal_condition(word)? })
        }
        ["link", from, to, word, rest @ ..] if matches!(rest, [] | ["one-way"]) => Ok(Action::Link {
            from: LinkEnd::parse(from),
            to: LinkEnd::parse(to),
            on: parse_switch(word, "on", "off")?,
            one_way: !rest.is_empty(),
        }),
        ["migration-network", node, word] => {
            Ok(Action::MigrationNetwork { node: node_name(node), on: parse_switch(word, "on", "off")? })
        }
        ["autostart", node, resource, word] => Ok(Action::Autostart {
            node: node_name(node),
            resource: without_type_prefix(resource),
            on: parse_switch(word, "on", "off")?,
        }),
        ["driver", node, "slow", resource, word] => Ok(Action::SlowDriver {
            node: node_name(node),
            resource: without_type_prefix(resource),
            duration_ms: duration_ms(word)?,
        }),
        ["driver", node, word] => {
            Ok(Action::Driver { node: node_name(node), hangs: parse_switch(word, "hang", "resume")? })
        }
        ["fence-device", node, word] => {
            Ok(Action::FenceDevice { node: node_name(node), condition: fence_device_condition(word)? })
        }
        _ => Err(form_error(words)),
    }
}

fn parse_store_action(words: &[&str]) -> Result<Action, String> {
    match words {
        ["store", "outage", word] => Ok(Action::StoreOutage { duration_ms: duration_ms(word)? }),
        ["store", "leader-change"] => Ok(Action::StoreLeaderChange),
        ["store", "leader-pause", word] => Ok(Action::StoreLeaderPause { duration_ms: duration_ms(word)? }),
        ["store", "compact"] => Ok(Action::StoreCompact),
        ["store", "snapshot"] => Ok(Action::StoreSnapshot),
        ["store", "restore"] => Ok(Action::StoreRestore { empty: false }),
        ["store", "restore", "empty"] => Ok(Action::StoreRestore { empty: true }),
        ["store", "full", word] => Ok(Action::StoreFull { on: parse_switch(word, "on", "off")? }),
        ["store", "flaky", word] => Ok(Action::StoreFlaky { duration_ms: duration_ms(word)? }),
        ["store", "lag", node, word] => {
            Ok(Action::StoreLag { node: (*node).into(), duration_ms: duration_ms(word)? })
        }
        ["store", "latency", word] => Ok(Action::StoreLatency { duration_ms: duration_ms(word)? }),
        _ => Err(form_error(words)),
    }
}

fn parse_resource_command(words: &[&str]) -> Result<Command, String> {
    match words {
        ["set", resource, fields @ ..] if !fields.is_empty() => {
            let (kind, name) = match resource.split_once('/') {
                Some(("cluster", name)) => (Kind::Cluster, name.to_owned()),
                Some(("node", name)) => (Kind::Node, name.to_owned()),
                Some(_) | None => (Kind::Resource, without_type_prefix(resource).to_string()),
            };
            let (in_place, fields) = match fields {
                [fields @ .., "in-place"] if kind == Kind::Resource && !fields.is_empty() => (true, fields),
                _ => (false, fields),
            };
            let fields =
                fields.iter().map(|field| field_assignment(kind, field)).collect::<Result<_, _>>()?;
            Ok(Command::Set { kind, name, fields, in_place })
        }
        ["definition", resource, field] if field.starts_with("identity=") => Ok(Command::Set {
            kind: Kind::Resource,
            name: without_type_prefix(resource).to_string(),
            fields: vec![field_assignment(Kind::Resource, &format!("driver.simulated.{field}"))?],
            in_place: false,
        }),
        ["add", resource] => {
            Ok(Command::Add { resource: without_type_prefix(resource), node: None, running: false })
        }
        ["add", resource, node] => Ok(Command::Add {
            resource: without_type_prefix(resource),
            node: Some((*node).into()),
            running: false,
        }),
        ["add", resource, node, "running"] => Ok(Command::Add {
            resource: without_type_prefix(resource),
            node: Some((*node).into()),
            running: true,
        }),
        ["delete", resource] => Ok(Command::Delete { resource: without_type_prefix(resource) }),
        ["migrate", resource, node] => {
            Ok(Command::Migrate { resource: without_type_prefix(resource), node: (*node).into() })
        }
        ["replace-secondary", resource, node] => {
            Ok(Command::ReplaceSecondary { resource: without_type_prefix(resource), node: (*node).into() })
        }
        ["relocate", resource, node] => {
            Ok(Command::Relocate { resource: without_type_prefix(resource), node: (*node).into() })
        }
        ["stop", resource] => Ok(Command::Stop { resource: without_type_prefix(resource), timeout_ms: None }),
        ["stop", resource, word] => Ok(Command::Stop {
            resource: without_type_prefix(resource),
            timeout_ms: Some(duration_ms(word)?),
        }),
        ["start", resource] => Ok(Command::Start { resource: without_type_prefix(resource) }),
        ["restart", resource] => Ok(Command::Restart { resource: without_type_prefix(resource) }),
        ["clear-error", resource] => Ok(Command::ClearError { resource: without_type_prefix(resource) }),
        _ => Err(form_error(words)),
    }
}

fn parse_cluster_command(words: &[&str]) -> Result<Command, String> {
    match words {
        ["maintenance", node, word] => Ok(Command::Maintenance {
            node: (*node).into(),
            is_enabled: parse_switch(word, "enable", "disable")?,
        }),
        ["delete-node", node] => Ok(Command::DeleteNode { node: (*node).into() }),
        ["delete-controller", node] => Ok(Command::DeleteController { node: (*node).into() }),
        ["confirm-fenced", node] => Ok(Command::ConfirmFenced { node: (*node).into() }),
        ["test-watchdog", node] => Ok(Command::TestWatchdog { node: (*node).into() }),
        ["fence", node] => Ok(Command::Fence { node: (*node).into() }),
        ["unfence", node] => Ok(Command::Unfence { node: (*node).into() }),
        ["disarm", word] => {
            Ok(Command::Disarm { keeps_services_frozen: parse_switch(word, "freeze", "ignore")? })
        }
        ["arm"] => Ok(Command::Arm),
        _ => Err(form_error(words)),
    }
}

fn parse_service_action(words: &[&str]) -> Result<Action, String> {
    match words {
        ["crash", resource] => Ok(Action::Crash { resource: without_type_prefix(resource) }),
        ["move-by-hand", resource, node] => {
            Ok(Action::MoveByHand { resource: without_type_prefix(resource), node: (*node).into() })
        }
        ["start-by-hand", resource, node] => {
            Ok(Action::StartByHand { resource: without_type_prefix(resource), node: (*node).into() })
        }
        ["stop-by-hand", resource] => Ok(Action::StopByHand { resource: without_type_prefix(resource) }),
        ["load", resource, amounts @ ..] if !amounts.is_empty() => {
            let mut usage = Usage::default();
            for amount in amounts {
                let (name, text) = amount.split_once('=').ok_or_else(|| form_error(words))?;
                let quantity: Quantity = text.parse().map_err(|error: QuantityError| error.to_string())?;
                match name {
                    "cpu" => usage.cpu = Some(quantity),
                    "memory" => usage.memory = Some(quantity),
                    "disk" => usage.disk_rate = Some(quantity),
                    "network" => usage.network_rate = Some(quantity),
                    _ => {
                        let accepted_names =
                            suggested_names(name, ["cpu", "memory", "disk", "network"].into_iter());
                        return Err(format!("{name:?} is not a valid load, {accepted_names}"));
                    }
                }
            }
            Ok(Action::Load { resource: without_type_prefix(resource), usage })
        }
        _ => Err(form_error(words)),
    }
}

fn fence_device_condition(word: &str) -> Result<FenceDeviceCondition, String> {
    match word {
        "ok" => Ok(FenceDeviceCondition::Works),
        "broken" => Ok(FenceDeviceCondition::Broken),
        "no-effect" => Ok(FenceDeviceCondition::WithoutEffect),
        _ => Err(format!("{word:?} must be ok, broken or no-effect")),
    }
}

fn journal_condition(word: &str) -> Result<JournalCondition, String> {
    match word {
        "full" => Ok(JournalCondition::Full),
        "ok" => Ok(JournalCondition::Works),
        "lost" => Ok(JournalCondition::Lost),
        "old" => Ok(JournalCondition::Old),
        _ => Err(format!("{word:?} must be full, ok, lost or old")),
    }
}

fn process_verb(word: &str) -> Result<ProcessVerb, String> {
    match word {
        "stop" => Ok(ProcessVerb::Stop),
        "start" => Ok(ProcessVerb::Start),
        "restart" => Ok(ProcessVerb::Restart),
        "kill" => Ok(ProcessVerb::Kill),
        "hang" => Ok(ProcessVerb::Hang),
        "resume" => Ok(ProcessVerb::Resume),
        "upgrade" => Ok(ProcessVerb::Upgrade { writes_new_values: false }),
        "downgrade" => Ok(ProcessVerb::Downgrade),
        _ => Err(format!("{word:?} must be stop, start, restart, kill, hang, resume, upgrade or downgrade")),
    }
}

/// Parses `field=value`: the kind's spec must have the field, and the value must have the field's type.
fn field_assignment(kind: Kind, word: &str) -> Result<(String, Value), String> {
    let (field, text) = word.split_once('=').ok_or_else(|| format!("{word:?} must be FIELD=VALUE"))?;
    let renamed = renamed::renamed_field_of_spec_path(kind, field);
    let field = renamed.map_or_else(|| field.to_owned(), RenamedField::current_path);
    let to_current_unit = |value: Value| match renamed {
        Some(renamed) => renamed.to_current(value),
        None => value,
    };
    let object_with_field = |value: Value| {
        let value = field.rsplit('.').fold(value, |value, key| json!({ key: value }));
        json!({"apiVersion": "hactl.io/v1", "kind": kind.name(), "metadata": {"name": "any"}, "spec": value})
    };
    let schema = schema::of(kind);
    if let Some(problem) = schema::unknown_fields(schema, &object_with_field(json!(text))).into_iter().next()
    {
        return Err(problem.message);
    }
    let plain_text = json!(text);
    let value: Value = serde_yaml::from_str(text).unwrap_or_else(|_| plain_text.clone());
    let type_problem =
        |value: &Value| schema::check_types(schema, &object_with_field(value.clone())).into_iter().next();
    match type_problem(&value) {
        None => Ok((field.clone(), to_current_unit(value))),
        Some(_) if type_problem(&plain_text).is_none() => Ok((field.clone(), plain_text)),
        Some(problem) => Err(problem.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_form_begins_with_its_verb() {
        for (verb, form) in forms() {
            assert!(form.starts_with(verb), "{form}");
            let problem = Action::parse(&format!("{verb} too many words for this one")).expect_err(verb);
            assert!(problem.contains(form) || verb == "set", "{problem}");
        }
    }

    #[test]
    fn a_definition_sets_the_identity() {
        let fields = ["definition web identity=2", "set web driver.simulated.identity=2"];
        let [definition, set] = fields.map(|text| Action::parse(text).expect(text));
        assert_eq!(definition, set);
        assert!(Action::parse("definition web type=vm").is_err());
    }

    #[test]
    fn set_values_take_the_field_type() {
        let check = |word: &str, expected: Option<Value>| {
            assert_eq!(
                field_assignment(Kind::Resource, word).ok().map(|(_, value)| value),
                expected,
                "{word}"
            );
        };
        check("state=Stopped", Some(json!("Stopped")));
        check("state=started", Some(json!("started")));
        check("state=Sleeping", None);
        check("maxRestart=3", Some(json!(3)));
        check("maxRestart=many", None);
        check("comment=5", Some(json!("5")));
        check("failback=false", Some(json!(false)));
        check("requests.memory=4Gi", Some(json!("4Gi")));
        check("stat=Stopped", None);
        check("state", None);
    }
}
