//! Checks of the parameters in a resource against the meta-data of its agent.

use super::{AgentMetadata, AgentName, Parameter, ParameterType};
use crate::problem::{Problem, ProblemKind, field_path};
use crate::schema::suggestion;
use crate::setting::Setting;
use std::collections::BTreeMap;

/// Path of the parameters in a resource.
const PARAMETERS_PATH: &str = "spec.driver.ocf.parameters";

/// Parameters that every agent accepts without listing them in its meta-data.
const COMMON_PARAMETERS: [&str; 2] = ["trace_ra", "trace_file"];

/// Returns the problems of the parameters in a resource.
pub fn check(
    name: &AgentName,
    metadata: &AgentMetadata,
    given_parameters: &BTreeMap<String, Setting>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let find_parameter = |name: &str| metadata.parameters.iter().find(|parameter| parameter.name == name);
    for (parameter, value) in given_parameters {
        match find_parameter(parameter) {
            // The controller does not know a value that comes from the node.
            Some(known_parameter) => {
                problems.extend(value.text().and_then(|text| type_problem(known_parameter, text)));
            }
            None if COMMON_PARAMETERS.contains(&parameter.as_str()) => {}
            None => {
                let names = metadata.parameters.iter().map(|parameter| parameter.name.as_str());
                let hint = suggestion(parameter, names).map_or_else(
                    || format!("run \"hactl explain {name}\" to list them"),
                    |closest| format!("did you mean {closest}?"),
                );
                let message = format!("{name} has no parameter {parameter}; {hint}");
                problems.push(Problem::new(
                    field_path(PARAMETERS_PATH, parameter),
                    ProblemKind::FieldValueUnknown,
                    message,
                ));
            }
        }
    }
    for parameter in &metadata.parameters {
        let has_default = parameter.default.as_ref().is_some_and(|default| !default.is_empty());
        if parameter.required && !has_default && !given_parameters.contains_key(&parameter.name) {
            let description = if parameter.short.is_empty() {
                String::new()
            } else {
                format!(" ({})", one_line(&parameter.short))
            };
            let message = format!("{name} requires the parameter {}{description}", parameter.name);
            problems.push(Problem::required(field_path(PARAMETERS_PATH, &parameter.name), message));
        }
    }
    problems
}

/// Returns the problem of a value with the wrong type. The agent's own default is always accepted, even if it does not
/// match the type.
fn type_problem(parameter: &Parameter, value: &str) -> Option<Problem> {
    if parameter.default.as_deref() == Some(value) {
        return None;
    }
    let requirement = match &parameter.kind {
        ParameterType::Integer if value.trim().parse::<i64>().is_err() => "must be an integer".to_owned(),
        ParameterType::Boolean if !is_boolean(value) => "must be true or false".to_owned(),
        ParameterType::Select(values) if !values.iter().any(|allowed| allowed == value) => {
            format!("must be one of {}", values.join(", "))
        }
        ParameterType::Integer
        | ParameterType::Boolean
        | ParameterType::Select(_)
        | ParameterType::Text(_) => {
            return None;
        }
    };
    let message = format!("{requirement}, got {value:?}");
    Some(Problem::new(
        field_path(PARAMETERS_PATH, &parameter.name),
        ProblemKind::FieldValueTypeInvalid,
        message,
    ))
}

/// Returns `true` if the shell library of the resource agents accepts the text as a boolean. Case is ignored.
fn is_boolean(value: &str) -> bool {
    let words = ["yes", "true", "1", "ja", "on", "no", "false", "0", "nein", "off"];
    words.iter().any(|word| value.eq_ignore_ascii_case(word))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT_METADATA: &str = r#"<resource-agent>
        <parameters>
        <parameter name="ip" required="1"><shortdesc>IPv4 or
          IPv6 address</shortdesc><content type="string"/></parameter>
        <parameter name="nic" required="1"><content type="string" default="eth0"/></parameter>
        <parameter name="cidr_netmask"><content type="integer" default="auto"/></parameter>
        <parameter name="arp_bg"><content type="boolean" default="true"/></parameter>
        <parameter name="mode"><content type="select" default="fast"><option value="fast"/><option value="safe"/></content></parameter>
        </parameters></resource-agent>"#;

    fn assert_problems(given_parameters: &[(&str, &str)], expected: &[&str]) {
        let metadata = AgentMetadata::parse(AGENT_METADATA).expect("meta-data");
        let name = "heartbeat:IPaddr2".parse().expect("a name");
        let given_parameters =
            given_parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        let actual: Vec<String> =
            check(&name, &metadata, &given_parameters).iter().map(ToString::to_string).collect();
        assert_eq!(actual, expected);
    }

    #[test]
    fn each_invalid_agent_parameter_is_reported() {
        assert_problems(&[("ip", "192.0.2.1")], &[]);
        assert_problems(
            &[
                ("ip", "192.0.2.1"),
                ("cidr_netmask", "24"),
                ("arp_bg", "No"),
                ("mode", "safe"),
                ("trace_ra", "1"),
            ],
            &[],
        );
        assert_problems(&[("ip", "192.0.2.1"), ("cidr_netmask", "auto")], &[]);
        assert_problems(
            &[],
            &["spec.driver.ocf.parameters.ip: ocf:heartbeat:IPaddr2 requires the parameter ip (IPv4 or \
                 IPv6 address)"],
        );
        assert_problems(
            &[("ip", ""), ("cidr_netmaks", "24")],
            &["spec.driver.ocf.parameters.cidr_netmaks: ocf:heartbeat:IPaddr2 has no parameter \
                 cidr_netmaks; did you mean cidr_netmask?"],
        );
        assert_problems(
            &[("ip", "192.0.2.1"), ("zzz", "")],
            &["spec.driver.ocf.parameters.zzz: ocf:heartbeat:IPaddr2 has no parameter zzz; run \"hactl \
                 explain ocf:heartbeat:IPaddr2\" to list them"],
        );
        assert_problems(
            &[("ip", "192.0.2.1"), ("cidr_netmask", "/24"), ("arp_bg", "maybe"), ("mode", "slow")],
            &[
                "spec.driver.ocf.parameters.arp_bg: must be true or false, got \"maybe\"",
                "spec.driver.ocf.parameters.cidr_netmask: must be an integer, got \"/24\"",
                "spec.driver.ocf.parameters.mode: must be one of fast, safe, got \"slow\"",
            ],
        );
    }
}
