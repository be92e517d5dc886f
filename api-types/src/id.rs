//! Identities that must not be confused: each has a type of its own, and the stored form is the bare value.
//!
//! ```
//! use ha_api_types::id::{Epoch, Revision};
//!
//! assert!(Epoch(1) < Epoch(1) + 1);
//! assert_eq!(Revision(7) - Revision(3), 4);
//! assert_eq!(serde_json::to_string(&Epoch(2)).unwrap(), "2");
//! ```
//!
//! An epoch is not a revision:
//!
//! ```compile_fail,E0308
//! use ha_api_types::id::{Epoch, Revision};
//!
//! let fence = ha_api_types::record::Fence { epoch: Revision(1), ..Default::default() };
//! ```
//!
//! A term is not a revision, although it is made from one:
//!
//! ```compile_fail,E0308
//! use ha_api_types::id::{Revision, Term};
//!
//! assert!(Term(1) == Revision(1));
//! ```
//!
//! A boot id, or any other text, is not the uid of an action:
//!
//! ```compile_fail,E0308
//! use ha_api_types::record::{Assignment, NodeReport};
//!
//! let boot_id = NodeReport::default().boot_id;
//! let assignment = Assignment { action_uid: boot_id, ..Assignment::default() };
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::ParseIntError;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

/// Defines an identity that is a number. Steps are added and subtracted; two identities of one kind have a distance.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($number:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        #[schemars(inline)]
        pub struct $name(pub $number);

        impl FromStr for $name {
            type Err = ParseIntError;

            fn from_str(text: &str) -> Result<$name, ParseIntError> {
                text.parse().map($name)
            }
        }

        impl Add<$number> for $name {
            type Output = $name;

            fn add(self, steps: $number) -> $name {
                $name(self.0 + steps)
            }
        }

        impl AddAssign<$number> for $name {
            fn add_assign(&mut self, steps: $number) {
                self.0 += steps;
            }
        }

        impl Sub<$number> for $name {
            type Output = $name;

            fn sub(self, steps: $number) -> $name {
                $name(self.0 - steps)
            }
        }

        impl Sub for $name {
            type Output = $number;

            fn sub(self, earlier: $name) -> $number {
                self.0 - earlier.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    )*};
}

numbers! {
    /// Number of a node's registration. It grows with each revocation, so a message of an earlier registration is
    /// recognized.
    Epoch(u64);
    /// A revision of etcd, which every commit increases by one.
    Revision(i64);
    /// Number of a leadership: the revision at which the leader's key was created.
    Term(i64);
}

/// Defines an identity that is a text.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        #[schemars(inline)]
        pub struct $name(String);

        impl $name {
            /// Returns `true` if there is no identity.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// Returns the identity as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> $name {
                $name(text)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                $name(text.to_owned())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    )*};
}

texts! {
    /// Unique id of one request to an agent, as in an assignment. The agent begins each at most once, and its answer
    /// contains it.
    ActionUid;
}

impl Term {
    /// Returns the term of the leadership whose key was created at this revision.
    #[must_use]
    pub fn created_at(revision: Revision) -> Term {
        Term(revision.0)
    }

    /// Returns the revision at which the leader's key was created.
    #[must_use]
    pub fn revision(self) -> Revision {
        Revision(self.0)
    }
}

impl Epoch {
    /// Returns the epoch before this one; the first epoch for the first.
    #[must_use]
    pub fn previous(self) -> Epoch {
        Epoch(self.0.saturating_sub(1))
    }
}

impl Revision {
    /// Returns `true` for revision 0, which precedes every commit.
    #[must_use]
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }
}
