//! The open connections of a server: how many it permits, and which one it closes if too many clients are unknown.
//!
//! A client is unknown until its certificate or its token was checked. Unknown clients can only displace each other, so
//! that a client without credentials keeps no other client out.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Limits of the open connections of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum number of connections of unknown clients. If one more is opened, the oldest connection of the address
    /// with the most such connections is closed.
    pub unknown: usize,
    /// Maximum number of connections of all users together, except those of `reserved_groups`.
    pub all_users: usize,
    /// Maximum number of connections of one user.
    pub one_user: usize,
    /// Groups whose users are not limited by `all_users`, because no other client may keep them out.
    pub reserved_groups: Vec<String>,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits { unknown: 512, all_users: 1024, one_user: 256, reserved_groups: Vec::new() }
    }
}

/// A limit that a user has reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TooManyConnections {
    /// The user has this number of connections.
    OneUser(usize),
    /// All users together have this number of connections.
    AllUsers(usize),
}

impl fmt::Display for TooManyConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TooManyConnections::OneUser(count) => write!(f, "this user has {count} open connections"),
            TooManyConnections::AllUsers(count) => write!(f, "{count} connections are open"),
        }
    }
}

/// The open connections of one server.
#[derive(Debug, Default)]
pub(super) struct Connections {
    limits: ConnectionLimits,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    accepted_count: u64,
    /// Connections of unknown clients by address, oldest first. A client of a Unix socket has no address.
    unknown: BTreeMap<Option<IpAddr>, BTreeMap<u64, Arc<Notify>>>,
    users: BTreeMap<String, usize>,
    /// Number of connections of users without a reserved group.
    ordinary_count: usize,
}

impl Connections {
    pub(super) fn new(limits: ConnectionLimits) -> Connections {
        Connections { limits, table: Mutex::default() }
    }

    /// Adds the connection of an unknown client, which may close an older one.
    pub(super) fn add(self: &Arc<Self>, address: Option<IpAddr>) -> OpenConnection {
        let mut table = self.table();
        table.accepted_count += 1;
        let number = table.accepted_count;
        let displaced = Arc::new(Notify::new());
        table.unknown.entry(address).or_default().insert(number, Arc::clone(&displaced));
        if table.unknown.values().map(BTreeMap::len).sum::<usize>() > self.limits.unknown {
            table.displace_oldest();
        }
        let owner = Mutex::new(Owner::Unknown { address, number });
        OpenConnection { entry: Arc::new(Entry { connections: Arc::clone(self), owner }), displaced }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Displaces the oldest connection of the address with the most unknown connections.
    fn displace_oldest(&mut self) {
        let most = self.unknown.iter_mut().max_by_key(|(_, connections)| connections.len());
        if let Some((_, displaced)) = most.and_then(|(_, connections)| connections.pop_first()) {
            displaced.notify_one();
        }
    }

    fn remove_unknown(&mut self, address: Option<IpAddr>, number: u64) {
        if let Some(connections) = self.unknown.get_mut(&address) {
            connections.remove(&number);
            if connections.is_empty() {
                self.unknown.remove(&address);
            }
        }
    }
}

/// One open connection. It ends on drop.
pub(super) struct OpenConnection {
    entry: Arc<Entry>,
    displaced: Arc<Notify>,
}

impl OpenConnection {
    /// Returns the handle with which a request identifies the client.
    pub(super) fn handle(&self) -> ConnectionHandle {
        ConnectionHandle { entry: Arc::clone(&self.entry) }
    }

    /// Waits until the connection must be closed in favor of newer ones.
    pub(super) async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.entry.end();
    }
}

/// A connection, in the extensions of its requests.
#[derive(Clone, Debug)]
pub struct ConnectionHandle {
    entry: Arc<Entry>,
}

impl ConnectionHandle {
    /// Records that a user owns the connection, after its credentials were checked. Repeated calls change nothing.
    ///
    /// # Errors
    /// The user, or all users together, have too many connections. The connection remains that of an unknown client.
    pub fn identify(&self, user: &str, groups: &[String]) -> Result<(), TooManyConnections> {
        self.entry.identify(user, groups)
    }
}

#[derive(Debug)]
struct Entry {
    connections: Arc<Connections>,
    owner: Mutex<Owner>,
}

#[derive(Debug)]
enum Owner {
    Unknown { address: Option<IpAddr>, number: u64 },
    User { name: String, is_reserved: bool },
    Ended,
}

impl Entry {
    fn identify(&self, user: &str, groups: &[String]) -> Result<(), TooManyConnections> {
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        let Owner::Unknown { address, number } = *owner else { return Ok(()) };
        let limits = &self.connections.limits;
        let is_reserved = groups.iter().any(|group| limits.reserved_groups.contains(group));
        let mut table = self.connections.table();
        let own_count = table.users.get(user).copied().unwrap_or(0);
        if own_count >= limits.one_user {
            return Err(TooManyConnections::OneUser(own_count));
        }
        if !is_reserved {
            if table.ordinary_count >= limits.all_users {
                return Err(TooManyConnections::AllUsers(table.ordinary_count));
            }
            table.ordinary_count += 1;
        }
        table.users.insert(user.to_owned(), own_count + 1);
        table.remove_unknown(address, number);
        *owner = Owner::User { name: user.to_owned(), is_reserved };
        Ok(())
    }

    fn end(&self) {
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = self.connections.table();
        match std::mem::replace(&mut *owner, Owner::Ended) {
            Owner::Unknown { address, number } => table.remove_unknown(address, number),
            Owner::User { name, is_reserved } => {
                if !is_reserved {
                    table.ordinary_count -= 1;
                }
                match table.users.get_mut(&name) {
                    Some(count) if *count > 1 => *count -= 1,
                    Some(_) | None => drop(table.users.remove(&name)),
                }
            }
            Owner::Ended => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn open(connections: &Arc<Connections>, last: u8) -> OpenConnection {
        connections.add(Some(IpAddr::from([192, 0, 2, last])))
    }

    fn is_displaced(connection: &OpenConnection) -> bool {
        connection.displaced().now_or_never().is_some()
    }

    fn limited(unknown: usize, all_users: usize, one_user: usize) -> Arc<Connections> {
        let reserved_groups = vec!["node".to_owned()];
        Arc::new(Connections::new(ConnectionLimits { unknown, all_users, one_user, reserved_groups }))
    }

    #[test]
    fn address_with_the_most_unknown_connections_loses_its_oldest() {
        let connections = limited(3, 9, 9);
        let quiet = open(&connections, 1);
        let first = open(&connections, 2);
        let second = open(&connections, 2);
        assert!(![&quiet, &first, &second].into_iter().any(is_displaced));
        let third = open(&connections, 2);
        assert!(is_displaced(&first), "the oldest of the address with the most");
        assert!(![&quiet, &second, &third].into_iter().any(is_displaced));
        drop(second);
        let fourth = open(&connections, 2);
        assert!(
            ![&quiet, &third, &fourth].into_iter().any(is_displaced),
            "an ended connection does not count"
        );
    }

    #[test]
    fn identified_client_is_never_displaced() {
        let connections = limited(1, 9, 9);
        let identified = open(&connections, 1);
        identified.handle().identify("ada", &[]).unwrap();
        let first = open(&connections, 1);
        let _second = open(&connections, 1);
        assert!(is_displaced(&first));
        assert!(!is_displaced(&identified));
    }

    #[test]
    fn limits_apply_to_one_user_and_to_all_users_together() {
        let connections = limited(9, 3, 2);
        let identified = |user: &str, groups: &[String]| {
            let connection = open(&connections, 1);
            connection.handle().identify(user, groups).map(|()| connection)
        };
        let first = identified("ada", &[]).map_err(drop).unwrap();
        first.handle().identify("ada", &[]).unwrap();
        let _second = identified("ada", &[]).map_err(drop).unwrap();
        assert_eq!(identified("ada", &[]).err(), Some(TooManyConnections::OneUser(2)));
        let _third = identified("bob", &[]).map_err(drop).unwrap();
        assert_eq!(identified("eve", &[]).err(), Some(TooManyConnections::AllUsers(3)));
        let node = ["node".to_owned()];
        let _node = identified("node1", &node).map_err(drop).unwrap();
        drop(first);
        let _fourth = identified("eve", &[]).map_err(drop).unwrap();
        assert_eq!(
            identified("bob", &[]).err(),
            Some(TooManyConnections::AllUsers(3)),
            "a node uses no ordinary place"
        );
    }
}
