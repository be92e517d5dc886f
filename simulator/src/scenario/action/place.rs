//! The ends of a link: one machine, etcd, or a group of machines.

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// A machine.
    Node(String),
    /// etcd, with all its members.
    Store,
    /// Every controller on another machine.
    Controllers,
    /// Every other machine.
    Peers,
}

impl End {
    /// Reads an end: a word that names a group, or else a machine.
    pub(super) fn parse(word: &str) -> End {
        match word {
            "store" => End::Store,
            "controllers" => End::Controllers,
            "peers" => End::Peers,
            node => End::Node(node.to_owned()),
        }
    }

    /// The machine, if it is one.
    pub(super) fn node(&self) -> Option<&str> {
        match self {
            End::Node(node) => Some(node),
            End::Store | End::Controllers | End::Peers => None,
        }
    }
}
