//! The conditions that a step waits for or checks.

use super::action::without_type_prefix;
use super::reader::suggested_names;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::node::NodeState;
use ha_api_types::reason::Reason;
use ha_api_types::resource::ServiceState;

/// A statement about the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `service R is STATE`.
    ServiceIs(ResourceName, ServiceState),
    /// `service R on NODE`.
    ServiceOn(ResourceName, NodeName),
    /// `service R running`.
    ServiceRunning(ResourceName),
    /// `node N is STATE`.
    NodeIs(NodeName, NodeState),
    /// `leader is N`.
    LeaderIs(NodeName),
    /// `no service on N`.
    NoServiceOn(NodeName),
    /// `cluster is Armed|Disarming|Disarmed|Arming`.
    ClusterIs(&'static str),
    /// `service R says REASON`: a condition in the resource's status has this reason.
    ServiceHasReason(ResourceName, Reason),
    /// `node N says REASON`.
    NodeHasReason(NodeName, Reason),
    /// `cluster says REASON`.
    ClusterHasReason(Reason),
    /// `why R says REASON on N`: `hactl why R` gives this verdict about the node.
    ExplanationHasReason(ResourceName, Reason, NodeName),
    /// `command TEXT says REASON`: the last command with this text was answered with this reason.
    CommandHasReason(String, Reason),
    /// `event REASON about NAME`: this event was emitted at some time in the run.
    EventEmitted(Reason, String),
    /// `not` and a condition: the condition does not hold.
    Not(Box<Condition>),
}

/// Node states, by name.
pub(super) const NODE_STATES: [(&str, NodeState); 6] = [
    ("Online", NodeState::Online),
    ("Offline", NodeState::Offline),
    ("Unknown", NodeState::Unknown),
    ("Fence", NodeState::Fence),
    ("Maintenance", NodeState::Maintenance),
    ("Gone", NodeState::Gone),
];

/// Arming states of the cluster, as in `ClusterStatus.arming`.
const ARMING_STATES: [&str; 4] = ["Armed", "Disarming", "Disarmed", "Arming"];

/// Accepted forms of a condition, for error messages.
const CONDITION_FORMS: &str = "write `service R is STATE`, `service R on NODE`, `service R running`, `node N is STATE`, \
     `leader is N`, `no service on N`, `cluster is Armed|Disarming|Disarmed`, `service R says REASON`, \
     `node N says REASON`, `cluster says REASON`, `why R says REASON on N`, `command TEXT says REASON`, `event REASON about NAME`, \
     or `not` and one of them";

/// Parses a reason of the vocabulary.
fn parse_reason(word: &str) -> Result<Reason, String> {
    let reason_words = || Reason::ALL.iter().map(|reason| reason.as_str());
    Reason::from_word(word)
        .ok_or_else(|| format!("{word:?} is not a valid reason, {}", suggested_names(word, reason_words())))
}

/// Parses a service state, ignoring case.
pub(super) fn parse_service_state(word: &str) -> Result<ServiceState, String> {
    let names: Vec<String> = ServiceState::ALL.iter().map(|state| format!("{state:?}")).collect();
    ServiceState::ALL
        .into_iter()
        .find(|candidate| format!("{candidate:?}").eq_ignore_ascii_case(word))
        .ok_or_else(|| {
            format!(
                "{word:?} is not a valid service state, {}",
                suggested_names(word, names.iter().map(String::as_str))
            )
        })
}

impl Condition {
    /// Parses a condition.
    ///
    /// Errors: the text is not a condition. The message names the defect and the accepted forms.
    pub fn parse(text: &str) -> Result<Condition, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let with_condition_text = |problem: String| format!("{text:?}: {problem}");
        match words.as_slice() {
            ["not", rest @ ..] => Ok(Condition::Not(Box::new(Condition::parse(&rest.join(" "))?))),
            ["service", resource, "is", state] => parse_service_state(state)
                .map(|state| Condition::ServiceIs(without_type_prefix(resource), state))
                .map_err(with_condition_text),
            ["service", resource, "on", node] => {
                Ok(Condition::ServiceOn(without_type_prefix(resource), (*node).into()))
            }
            ["service", resource, "running"] => Ok(Condition::ServiceRunning(without_type_prefix(resource))),
            ["node", node, "is", state] => NODE_STATES
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(state))
                .map(|(_, state)| Condition::NodeIs((*node).into(), *state))
                .ok_or_else(|| {
                    let accepted = suggested_names(state, NODE_STATES.iter().map(|(name, _)| *name));
                    format!("{text:?}: {state:?} is not a valid node state, {accepted}")
                }),
            ["leader", "is", node] => Ok(Condition::LeaderIs((*node).into())),
            ["no", "service", "on", node] => Ok(Condition::NoServiceOn((*node).into())),
            ["cluster", "is", state] => ARMING_STATES
                .into_iter()
                .find(|name| name.eq_ignore_ascii_case(state))
                .map(Condition::ClusterIs)
                .ok_or_else(|| {
                    with_condition_text(format!(
                        "{state:?} is not a valid state, {}",
                        suggested_names(state, ARMING_STATES.into_iter())
                    ))
                }),
            ["service", resource, "says", word] => parse_reason(word)
                .map(|reason| Condition::ServiceHasReason(without_type_prefix(resource), reason))
                .map_err(with_condition_text),
            ["node", node, "says", word] => parse_reason(word)
                .map(|reason| Condition::NodeHasReason((*node).into(), reason))
                .map_err(with_condition_text),
            ["cluster", "says", word] => {
                parse_reason(word).map(Condition::ClusterHasReason).map_err(with_condition_text)
            }
            ["why", resource, "says", word, "on", node] => parse_reason(word)
                .map(|reason| {
                    Condition::ExplanationHasReason(without_type_prefix(resource), reason, (*node).into())
                })
                .map_err(with_condition_text),
            ["command", command @ .., "says", word] => parse_reason(word)
                .map(|reason| Condition::CommandHasReason(command.join(" "), reason))
                .map_err(with_condition_text),
            ["event", word, "about", name] => parse_reason(word)
                .map(|reason| Condition::EventEmitted(reason, without_type_prefix(name).to_string()))
                .map_err(with_condition_text),
            _ => Err(format!("{text:?} is not a valid condition: {CONDITION_FORMS}")),
        }
    }

    /// Returns the resource that the condition names.
    pub(super) fn resource(&self) -> Option<&str> {
        match self {
            Condition::ServiceIs(name, _)
            | Condition::ServiceOn(name, _)
            | Condition::ServiceRunning(name)
            | Condition::ServiceHasReason(name, _)
            | Condition::ExplanationHasReason(name, ..) => Some(name),
            Condition::Not(condition) => condition.resource(),
            Condition::NodeIs(..)
            | Condition::LeaderIs(_)
            | Condition::NoServiceOn(_)
            | Condition::ClusterIs(_)
            | Condition::ClusterHasReason(_)
            | Condition::NodeHasReason(..)
            | Condition::CommandHasReason(..)
            | Condition::EventEmitted(..) => None,
        }
    }

    /// Returns the node that the condition names.
    pub(super) fn node(&self) -> Option<&str> {
        match self {
            Condition::ServiceOn(_, node)
            | Condition::NodeIs(node, _)
            | Condition::LeaderIs(node)
            | Condition::NodeHasReason(node, _)
            | Condition::ExplanationHasReason(_, _, node)
            | Condition::NoServiceOn(node) => Some(node),
            Condition::Not(condition) => condition.node(),
            Condition::ServiceIs(..)
            | Condition::ServiceRunning(_)
            | Condition::ClusterIs(_)
            | Condition::ClusterHasReason(_)
            | Condition::ServiceHasReason(..)
            | Condition::CommandHasReason(..)
            | Condition::EventEmitted(..) => None,
        }
    }
}
