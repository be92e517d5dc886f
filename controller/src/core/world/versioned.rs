//! A value with the revisions at which it was read, and the time at which this process first saw it.

use ha_api_types::id::Revision;
use ha_api_types::time::Mono;

/// A value, as read.
#[derive(Clone, Debug, PartialEq)]
pub struct Versioned<T> {
    /// The parsed value.
    pub value: T,
    /// Create revision of the key.
    pub created: Revision,
    /// Mod revision of the key.
    pub modified: Revision,
    /// Time on this process's own clock when it first saw this revision. Every wait that a later leader may repeat in
    /// full counts from this time; wall clocks affect no decision.
    pub seen: Mono,
}
