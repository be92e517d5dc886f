//! What a step does: the verbs of scenario files.

use crate::duration::Duration;
use ha_api_types::time::Millis;

/// One verb with its objects. `node` may be the word `leader`: the node whose controller leads.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant shows its text, which names its fields")]
pub enum Action {
    /// `power N on|off`: a cut, no goodbye.
    Power { node: String, on: bool },
    /// `network N on|off`: cut from store and peers.
    Network { node: String, on: bool },
    /// `agent N stop|start|restart|kill|hang|resume`.
    Agent { node: String, verb: ProcessVerb },
    /// `controller N stop|start|kill|hang|resume`.
    Controller { node: String, verb: ProcessVerb },
    /// `suspend N DURATION`: the whole machine.
    Suspend { node: String, length_ms: Millis },
    /// `clock N rate 1.01`.
    ClockRate { node: String, rate: f64 },
    /// `store outage DURATION`.
    StoreOutage { length_ms: Millis },
    /// `store leader-change`.
    StoreLeaderChange,
    /// `store leader-pause DURATION`.
    StoreLeaderPause { length_ms: Millis },
    /// `store compact`.
    StoreCompact,
    /// `store latency DURATION`.
    StoreLatency { length_ms: Millis },
    /// `set R field=value …`.
    Set { resource: String, fields: Vec<(String, String)> },
    /// `add R NODE [running]`: an object given under `later`.
    Add { resource: String, node: Option<String>, running: bool },
    /// `delete R`.
    Delete { resource: String },
    /// `migrate R N`.
    Migrate { resource: String, node: String },
    /// `relocate R N`.
    Relocate { resource: String, node: String },
    /// `stop R [DURATION]`.
    Stop { resource: String, timeout_ms: Option<Millis> },
    /// `start R`.
    Start { resource: String },
    /// `restart R`.
    Restart { resource: String },
    /// `clear-error R`.
    ClearError { resource: String },
    /// `maintenance N enable|disable`.
    Maintenance { node: String, enable: bool },
    /// `crash R`: its process ends.
    Crash { resource: String },
}

/// What can be done to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessVerb {
    /// Ends in order (SIGTERM).
    Stop,
    /// Starts.
    Start,
    /// Stop, then start.
    Restart,
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Hang,
    /// SIGCONT.
    Resume,
}

impl Action {
    /// Reads an action; the error says what is wrong and what is accepted.
    pub fn parse(text: &str) -> Result<Action, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let on_off = |word: &str| match word {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(format!("{text:?}: {word:?} must be on or off")),
        };
        let owned = |word: &str| word.to_owned();
        let length = |word: &str| Duration::parse(word).map(|duration| duration.0);
        match words.as_slice() {
            ["power", node, state] => Ok(Action::Power { node: owned(node), on: on_off(state)? }),
            ["network", node, state] => Ok(Action::Network { node: owned(node), on: on_off(state)? }),
            ["agent", node, verb] => Ok(Action::Agent { node: owned(node), verb: process_verb(text, verb)? }),
            ["controller", node, verb] => {
                Ok(Action::Controller { node: owned(node), verb: process_verb(text, verb)? })
            }
            ["suspend", node, word] => Ok(Action::Suspend { node: owned(node), length_ms: length(word)? }),
            ["clock", node, "rate", rate] => match rate.parse::<f64>() {
                Ok(rate) if (0.5..=2.0).contains(&rate) => Ok(Action::ClockRate { node: owned(node), rate }),
                _ => Err(format!("{text:?}: the rate must be a number from 0.5 to 2")),
            },
            ["store", "outage", word] => Ok(Action::StoreOutage { length_ms: length(word)? }),
            ["store", "leader-change"] => Ok(Action::StoreLeaderChange),
            ["store", "leader-pause", word] => Ok(Action::StoreLeaderPause { length_ms: length(word)? }),
            ["store", "compact"] => Ok(Action::StoreCompact),
            ["store", "latency", word] => Ok(Action::StoreLatency { length_ms: length(word)? }),
            ["set", resource, fields @ ..] if !fields.is_empty() => {
                let fields = fields
                    .iter()
                    .map(|field| match field.split_once('=') {
                        Some((name, value)) => Ok((owned(name), owned(value))),
                        None => Err(format!("{text:?}: {field:?} must be FIELD=VALUE")),
                    })
                    .collect::<Result<_, _>>()?;
                Ok(Action::Set { resource: bare(resource), fields })
            }
            ["add", resource] => Ok(Action::Add { resource: bare(resource), node: None, running: false }),
            ["add", resource, node] => {
                Ok(Action::Add { resource: bare(resource), node: Some(owned(node)), running: false })
            }
            ["add", resource, node, "running"] => {
                Ok(Action::Add { resource: bare(resource), node: Some(owned(node)), running: true })
            }
            ["delete", resource] => Ok(Action::Delete { resource: bare(resource) }),
            ["migrate", resource, node] => {
                Ok(Action::Migrate { resource: bare(resource), node: owned(node) })
            }
            ["relocate", resource, node] => {
                Ok(Action::Relocate { resource: bare(resource), node: owned(node) })
            }
            ["stop", resource] => Ok(Action::Stop { resource: bare(resource), timeout_ms: None }),
            ["stop", resource, word] => {
                Ok(Action::Stop { resource: bare(resource), timeout_ms: Some(length(word)?) })
            }
            ["start", resource] => Ok(Action::Start { resource: bare(resource) }),
            ["restart", resource] => Ok(Action::Restart { resource: bare(resource) }),
            ["clear-error", resource] => Ok(Action::ClearError { resource: bare(resource) }),
            ["maintenance", node, "enable"] => Ok(Action::Maintenance { node: owned(node), enable: true }),
            ["maintenance", node, "disable"] => Ok(Action::Maintenance { node: owned(node), enable: false }),
            ["crash", resource] => Ok(Action::Crash { resource: bare(resource) }),
            _ => Err(format!("{text:?} is not an action of this version")),
        }
    }
}

fn process_verb(text: &str, word: &str) -> Result<ProcessVerb, String> {
    match word {
        "stop" => Ok(ProcessVerb::Stop),
        "start" => Ok(ProcessVerb::Start),
        "restart" => Ok(ProcessVerb::Restart),
        "kill" => Ok(ProcessVerb::Kill),
        "hang" => Ok(ProcessVerb::Hang),
        "resume" => Ok(ProcessVerb::Resume),
        _ => Err(format!("{text:?}: {word:?} must be stop, start, restart, kill, hang or resume")),
    }
}

/// `100` of `vm:100`.
pub fn bare(name: &str) -> String {
    name.rsplit_once(':').map_or(name, |(_, bare)| bare).to_owned()
}
