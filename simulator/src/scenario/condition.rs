//! What a step waits for or checks.

use super::action::bare;
use ha_api_types::node::NodeState;
use ha_api_types::resource::ServiceState;

/// A statement about the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `service R is STATE`.
    ServiceIs(String, ServiceState),
    /// `service R on NODE`.
    ServiceOn(String, String),
    /// `service R running`.
    ServiceRunning(String),
    /// `node N is STATE`.
    NodeIs(String, NodeState),
    /// `leader is N`.
    LeaderIs(String),
    /// `no service on N`.
    NoServiceOn(String),
    /// `not` and a condition.
    Not(Box<Condition>),
}

impl Condition {
    /// Reads a condition; the error says what is wrong.
    pub fn parse(text: &str) -> Result<Condition, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["not", ..] => {
                let rest = text.trim_start().trim_start_matches("not").trim_start();
                Ok(Condition::Not(Box::new(Condition::parse(rest)?)))
            }
            ["service", resource, "is", state] => ServiceState::ALL
                .into_iter()
                .find(|known| format!("{known:?}").eq_ignore_ascii_case(state))
                .map(|state| Condition::ServiceIs(bare(resource), state))
                .ok_or_else(|| format!("{text:?}: {state:?} is not a service state")),
            ["service", resource, "on", node] => Ok(Condition::ServiceOn(bare(resource), (*node).to_owned())),
            ["service", resource, "running"] => Ok(Condition::ServiceRunning(bare(resource))),
            ["node", node, "is", state] => [
                NodeState::Online,
                NodeState::Offline,
                NodeState::Unknown,
                NodeState::Fence,
                NodeState::Maintenance,
                NodeState::Gone,
            ]
            .into_iter()
            .find(|known| format!("{known:?}").eq_ignore_ascii_case(state))
            .map(|state| Condition::NodeIs((*node).to_owned(), state))
            .ok_or_else(|| format!("{text:?}: {state:?} is not a node state")),
            ["leader", "is", node] => Ok(Condition::LeaderIs((*node).to_owned())),
            ["no", "service", "on", node] => Ok(Condition::NoServiceOn((*node).to_owned())),
            _ => Err(format!(
                "{text:?} is not a condition: write `service R is STATE`, `service R on NODE`, `service R running`, \
                 `node N is STATE`, `leader is N`, `no service on N`, or `not` and one of them"
            )),
        }
    }
}
