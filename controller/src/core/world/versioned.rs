//! A value with the revisions under which it was read, and the moment at which this process first saw it.

use ha_api_types::record::Revision;
use ha_api_types::time::Mono;

/// A value as read.
#[derive(Clone, Debug, PartialEq)]
pub struct Versioned<T> {
    /// The value.
    pub value: T,
    /// The key's create revision.
    pub created: Revision,
    /// The key's mod revision.
    pub modified: Revision,
    /// This process's own clock when it first saw this revision. Every wait that a later leader may repeat in full
    /// counts from here: wall clocks never decide.
    pub seen: Mono,
}
