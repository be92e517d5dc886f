//! The ends of a network link: one machine, etcd, or a group of machines.

/// An end of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The machine with this name.
    Node(String),
    /// etcd, with all its members.
    Store,
    /// Every controller on another machine.
    Controllers,
    /// Every other machine.
    Peers,
}

impl End {
    /// Parses an end: a word that names a group, or the name of a machine.
    pub(super) fn parse(word: &str) -> End {
        match word {
            "store" => End::Store,
            "controllers" => End::Controllers,
            "peers" => End::Peers,
            node => End::Node(node.to_owned()),
        }
    }

    /// Returns the name of the machine; `None` for etcd and groups.
    pub(super) fn node(&self) -> Option<&str> {
        match self {
            End::Node(node) => Some(node),
            End::Store | End::Controllers | End::Peers => None,
        }
    }
}
