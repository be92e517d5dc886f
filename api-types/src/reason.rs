//! The closed vocabulary of causes, used by conditions, events, metric labels, `hactl why` and the docs.

macro_rules! reasons {
    ($( $subject:ident { $( $(#[doc = $doc:expr])+ $name:ident => $sentence:literal, $help:literal ),+ $(,)? } )+) => {
        /// A cause, in one word. An operator reads [`Reason::sentence`] first.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
        pub enum Reason {
            $( $( $(#[doc = $doc])+ $name, )+ )+
            /// Written by a newer version of hactl.
            #[default]
            Unknown,
        }

        impl Reason {
            /// Every reason of this version.
            pub const ALL: &'static [Reason] = &[ $( $( Reason::$name, )+ )+ Reason::Unknown ];

            /// Returns the reason as one CamelCase word.
            pub fn as_str(self) -> &'static str {
                match self { $( $( Reason::$name => stringify!($name), )+ )+ Reason::Unknown => "Unknown" }
            }

            /// Returns the reason whose current or former word this is.
            pub fn from_word(word: &str) -> Option<Reason> {
                let former = || super::RENAMED.iter().find(|(former, _)| *former == word).map(|(_, reason)| *reason);
                match word {
                    $( $( stringify!($name) => Some(Reason::$name), )+ )+
                    _ => former(),
                }
            }

            /// Returns the cause as a sentence without names and without a full stop. It starts with an upper-case
            /// letter, except for most reasons of [`Subject::NodeEligibility`], which follow the name of a node.
            ///
            /// ```
            /// use ha_api_types::reason::{Reason, Subject};
            ///
            /// let reason: Reason = serde_json::from_str("\"NodeInMaintenance\"").unwrap();
            /// assert_eq!((reason, reason.subject()), (Reason::NodeInMaintenance, Subject::NodeEligibility));
            /// assert_eq!(format!("node1: {}", reason.sentence()), "node1: node is in maintenance");
            /// assert_eq!(reason.help(), "hactl node maintenance disable NODE");
            /// // A word of a newer version.
            /// assert_eq!(serde_json::from_str::<Reason>("\"NodeOnFire\"").unwrap(), Reason::Unknown);
            /// ```
            pub fn sentence(self) -> &'static str {
                match self { $( $( Reason::$name => $sentence, )+ )+ Reason::Unknown => "Reason is unknown to this \
                 version" }
            }

            /// Returns the subject of the reason.
            pub fn subject(self) -> Subject {
                match self { $( $( Reason::$name => Subject::$subject, )+ )+ Reason::Unknown => Subject::Object }
            }

            /// Returns the suggested action: lower case, no full stop. Empty if there is none.
            pub fn help(self) -> &'static str {
                match self { $( $( Reason::$name => $help, )+ )+ Reason::Unknown => "run the same version on all \
                 controllers, nodes and clients" }
            }
        }

        impl<'de> Deserialize<'de> for Reason {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Reason, D::Error> {
                Ok(Reason::from_word(&String::deserialize(deserializer)?).unwrap_or_default())
            }
        }
    };
}

mod words;

/// Names of reasons until version 0.1, and the current reasons. Stored events and conditions may still contain the
/// former names.
const RENAMED: [(&str, Reason); 34] = [
    ("NotSeenYet", Reason::Pending),
    ("StoppedAsWanted", Reason::Stopped),
    ("DisabledAsWanted", Reason::Disabled),
    ("IgnoredAsWanted", Reason::Unmanaged),
    ("Placed", Reason::Scheduled),
    ("NoFeasibleNode", Reason::Unschedulable),
    ("MakesRoom", Reason::MovingForAntiAffinity),
    ("MaintenanceMove", Reason::Draining),
    ("MaintenanceReturn", Reason::ReturningFromMaintenance),
    ("OperatorRequest", Reason::UserRequested),
    ("StartOrder", Reason::WaitingForDependency),
    ("StopOrder", Reason::StoppingForDependency),
    ("RunsTwice", Reason::MultipleActive),
    ("StoppedOutside", Reason::StoppedExternally),
    ("StartedOutside", Reason::StartedExternally),
    ("FailedHere", Reason::PreviousFailure),
    ("AlreadyThere", Reason::CurrentNode),
    ("HeartbeatSeen", Reason::NodeReady),
    ("HeartbeatLate", Reason::HeartbeatMissed),
    ("LeftCleanly", Reason::ShutdownComplete),
    ("ClosedIdle", Reason::LostWhileIdle),
    ("NoProofPossible", Reason::FencingUnavailable),
    ("MaxFencingReached", Reason::FencingRateLimited),
    ("ObserverGap", Reason::FailureDetectionReset),
    ("WentDown", Reason::UncleanShutdown),
    ("DoctorFound", Reason::HealthCheckFailed),
    ("ReservationFailed", Reason::InsufficientFailoverCapacity),
    ("ReservationHolds", Reason::FailoverCapacityAvailable),
    ("ReservationUndecided", Reason::FailoverCapacityUnknown),
    ("StoreRestored", Reason::EtcdRestored),
    ("StoreTooOld", Reason::EtcdTooOld),
    ("AgentAway", Reason::AgentDown),
    ("LowerPriorityClass", Reason::LowerPriorityTier),
    ("WatchdogStandIn", Reason::WatchdogSimulated),
];

pub use words::Reason;

use std::fmt;

/// Kind of object that a reason is about. An operation repeats the reason of the object on which it acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The node and state of a service.
    Service,
    /// A failure of a service.
    Failure,
    /// The eligibility of a node for a service.
    NodeEligibility,
    /// A node.
    Node,
    /// Any object, such as a rule.
    Object,
    /// An operation.
    Operation,
    /// The cluster and its controllers.
    Cluster,
}

impl Subject {
    /// All subjects, in the order of the reference.
    pub const ALL: [Subject; 7] = [
        Subject::Service,
        Subject::Failure,
        Subject::NodeEligibility,
        Subject::Node,
        Subject::Object,
        Subject::Operation,
        Subject::Cluster,
    ];

    /// Returns a heading, and a text about where reasons with this subject appear.
    pub fn title_and_text(self) -> (&'static str, &'static str) {
        match self {
            Subject::Service => (
                "Services: node and state",
                "`Resource`: conditions Ready, Reconciling and Stalled, events, `hactl why`, `hactl get resources`.",
            ),
            Subject::Failure => (
                "Services: failures",
                "`Resource`: the same, and the outcome of the `Operation` that requested the action.",
            ),
            Subject::NodeEligibility => (
                "Eligibility of nodes for a service",
                "The verdict on each node in `hactl why` and `hactl check n+1`, the message of Unschedulable, the metric `hactl_resource_unplaced`.",
            ),
            Subject::Node => (
                "Nodes",
                "`Node`: conditions Ready, Fenceable and FenceDevicesHealthy, events, `status.internal.fence`, `hactl status`; the outcome of an `Operation` on a node.",
            ),
            Subject::Object => {
                ("Any object", "Condition Ready, events, outcomes of operations, `hactl status`.")
            }
            Subject::Operation => ("Operations", "`Operation`: `status.reason` and events."),
            Subject::Cluster => (
                "The cluster and its controllers",
                "`Cluster`: conditions and events, `hactl status`, `hactl check n+1`.",
            ),
        }
    }
}

/// Returns a text with an upper-case first letter. A cause usually follows a colon; without other text it is a
/// sentence.
pub fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(characters).collect()
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_round_trips() {
        for reason in Reason::ALL {
            let text = serde_json::to_string(reason).expect("a word");
            assert_eq!(text, format!("{:?}", reason.as_str()));
            assert_eq!(serde_json::from_str::<Reason>(&text).expect("a reason"), *reason);
        }
    }

    #[test]
    fn renamed_reasons_parse_as_current_reasons() {
        for (former, reason) in RENAMED {
            let read: Reason = serde_json::from_str(&format!("{former:?}")).expect("a reason");
            assert_eq!(read, reason, "{former}");
            assert!(
                Reason::ALL.iter().all(|present| present.as_str() != former),
                "{former} has two meanings"
            );
        }
    }

    #[test]
    fn every_failure_reason_suggests_an_action() {
        for reason in Reason::ALL {
            let requires_help = matches!(reason.subject(), Subject::Failure | Subject::NodeEligibility);
            let is_eligible = matches!(reason, Reason::Allowed | Reason::CurrentNode);
            assert!(!requires_help || is_eligible || !reason.help().is_empty(), "{reason}");
            assert!(!reason.sentence().is_empty(), "{reason}");
            for text in [reason.sentence(), reason.help()] {
                assert!(!text.ends_with('.') && !text.contains('|'), "{reason}: {text}");
            }
        }
    }

    #[test]
    fn reasons_of_newer_versions_parse_as_unknown() {
        assert_eq!(serde_json::from_str::<Reason>("\"Moonstruck\"").expect("a reason"), Reason::Unknown);
        assert!(!Reason::Unknown.sentence().is_empty());
    }
}
