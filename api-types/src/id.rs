//! Identities that must not be confused. Each kind has a separate Rust type; the stored form is the bare value.
//!
//! ```
//! use ha_api_types::id::{Epoch, Revision};
//!
//! assert!(Epoch(1) < Epoch(1) + 1);
//! assert_eq!(Revision(7) - Revision(3), 4);
//! assert_eq!(serde_json::to_string(&Epoch(2)).unwrap(), "2");
//! ```
//!
//! Names are texts. A `str` from outside finds its entry in a map, and a clone shares the text:
//!
//! ```
//! use ha_api_types::id::NodeName;
//! use std::collections::BTreeMap;
//!
//! let silent = BTreeMap::from([(NodeName::from("node1"), 5)]);
//! assert_eq!(silent.get("node1"), Some(&5));
//! assert_eq!(NodeName::from("node1"), "node1");
//! assert_eq!(serde_json::to_string(&silent).unwrap(), r#"{"node1":5}"#);
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
//! The id of a boot is not the name of a node, although an agent reports both:
//!
//! ```compile_fail,E0308
//! use ha_api_types::id::BootId;
//! use ha_api_types::record::Assignment;
//!
//! let assignment = Assignment { node: BootId::from("b1"), ..Assignment::default() };
//! ```
//!
//! Nor is the name of a node the id of its boot:
//!
//! ```compile_fail,E0308
//! use ha_api_types::id::NodeName;
//! use ha_api_types::record::Fence;
//!
//! let fence = Fence { boot_id: NodeName::from("node1"), ..Fence::default() };
//! ```
//!
//! The name of an operation is not that of its node:
//!
//! ```compile_fail,E0308
//! use ha_api_types::id::OperationName;
//! use ha_api_types::keys::Keys;
//!
//! let key = Keys::new("lab").fence(&OperationName::from("fence-node1"));
//! ```
//!
//! The name of a node is not that of a resource:
//!
//! ```compile_fail,E0308
//! use ha_api_types::id::NodeName;
//! use ha_api_types::keys::Keys;
//!
//! let key = Keys::new("lab").assignment(&NodeName::from("node1"));
//! ```
//!
//! A report is that of a node about a resource, and not the other way round:
//!
//! ```compile_fail,E0308
//! use ha_api_types::id::{NodeName, ResourceName};
//! use ha_api_types::keys::Keys;
//!
//! let (node, resource) = (NodeName::from("node1"), ResourceName::from("web"));
//! let key = Keys::new("lab").service_report(&resource, &node);
//! ```
//!
//! A map of services is not searched with the name of a node:
//!
//! ```compile_fail,E0277
//! use ha_api_types::id::NodeName;
//! use ha_api_types::record::UsageReport;
//!
//! let found = UsageReport::default().services.get(&NodeName::from("node1"));
//! ```
//!
//! A node does not confirm its own fencing, because its name is not that of an operation:
//!
//! ```compile_fail,E0308
//! use ha_api_types::id::NodeName;
//! use ha_api_types::record::Proof;
//!
//! let proof = Proof::Operator { operation: NodeName::from("node1"), requested_by: String::new() };
//! ```
//!
//! A map of nodes is not searched with the name of an operation:
//!
//! ```compile_fail,E0277
//! use ha_api_types::id::{NodeName, OperationName};
//! use std::collections::BTreeMap;
//!
//! let silent: BTreeMap<NodeName, u64> = BTreeMap::new();
//! let found = silent.get(&OperationName::from("fence-node1"));
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

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use std::borrow::{Borrow, Cow};
use std::convert::Infallible;
use std::fmt;
use std::num::ParseIntError;
use std::ops::{Add, AddAssign, Deref, Sub};
use std::str::FromStr;
use std::sync::Arc;

/// Defines an identity that is a number. Adding a number gives an identity of the same kind; subtracting two identities
/// gives a number.
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
    /// A revision of etcd. Every commit increases the revision by one.
    Revision(i64);
    /// Number of a leadership: the revision at which the leader's key was created.
    Term(i64);
}

/// Defines an identity that is a text. A clone shares the text: one name is a key of many maps, and each input, effect
/// and log line of a core contains a clone.
///
/// A map lookup and a comparison accept a `str` without a conversion. One kind of identity does not convert to another.
/// Identities are ordered by their texts. The schema and the debug output equal those of a `String`.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the identity as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> $name {
                $name(text.into())
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                $name(text.into())
            }
        }

        impl FromStr for $name {
            type Err = Infallible;

            fn from_str(text: &str) -> Result<$name, Infallible> {
                Ok($name::from(text))
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, text: &str) -> bool {
                &*self.0 == text
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, text: &&str) -> bool {
                &*self.0 == *text
            }
        }

        impl PartialEq<String> for $name {
            fn eq(&self, text: &String) -> bool {
                *self == **text
            }
        }

        impl PartialEq<$name> for String {
            fn eq(&self, identity: &$name) -> bool {
                *identity == **self
            }
        }

        impl PartialEq<$name> for str {
            fn eq(&self, identity: &$name) -> bool {
                self == &*identity.0
            }
        }

        impl PartialEq<$name> for &str {
            fn eq(&self, identity: &$name) -> bool {
                *self == &*identity.0
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                String::inline_schema()
            }

            fn schema_name() -> Cow<'static, str> {
                String::schema_name()
            }

            fn schema_id() -> Cow<'static, str> {
                String::schema_id()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                String::json_schema(generator)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, formatter)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&*self.0, formatter)
            }
        }
    )*};
}

texts! {
    /// Name of a node: of its object, and in every key of its agent.
    NodeName;
    /// Name of a Resource object, without its type: `100` for `vm:100`. Also the name of its service, in every map and key.
    ResourceName;
    /// Name of an Operation object.
    OperationName;
    /// Id of one boot of a machine, which the kernel draws.
    BootId;
    /// Unique id of one request to an agent, as in an assignment. The agent begins each request at most once, and its
    /// answer contains this id.
    ActionUid;
    /// Unique id of one object. An object that is deleted and created again gets another uid.
    ObjectUid;
    /// Unique id of one replacement of a secondary.
    ReplacementUid;
    /// Id of a machine's installation, from `/etc/machine-id`. A cloned disk has the id of its original.
    MachineId;
    /// Product id of a machine's hardware.
    ProductId;
    /// Id of a controller, stable over restarts.
    ControllerId;
    /// Id of one process of an agent or of a controller. A restart changes it.
    ProcessInstance;
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
