//! A client that writes all the while and remembers what was acknowledged: all of it must be there in the end.

use crate::api::Api;
use crate::background::{Background, Stop};
use crate::cluster::Cluster;
use crate::machine::Role;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

/// How many objects are written in turns.
const ACCOUNTS: usize = 5;
/// Time from one write to the next.
const PERIOD: Duration = Duration::from_millis(100);

/// What one object was told.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    /// The newest number whose write was acknowledged.
    acknowledged: u64,
    /// The newest number that was sent; its write may have been applied without an answer.
    sent: u64,
}

/// Writes in the background until it is closed or dropped.
pub struct Ledger {
    background: Background<Books>,
}

/// What was written.
#[derive(Debug, Clone, Default)]
pub struct Books {
    accounts: [Account; ACCOUNTS],
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Writes that were refused or got no answer.
    pub failed: u64,
}

impl Ledger {
    /// Creates the objects (resources that stay stopped) and begins to write their comments.
    ///
    /// # Errors
    /// When they cannot be created.
    pub fn open(cluster: &Cluster) -> Result<Ledger> {
        let apis: Vec<Api> =
            cluster.names(Role::Controller).iter().map(|name| cluster.api(name)).collect::<Result<_>>()?;
        let first = apis.first().context("there is no controller")?;
        for index in 0..ACCOUNTS {
            first.apply(
                "resources",
                &json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": name(index)},
                    "spec": {"driver": {"exec": {"command": ["/bin/false"]}}, "state": "Stopped", "comment": "0"}}),
            )?;
        }
        Ok(Ledger { background: Background::start(move |stop| write(&apis, stop)) })
    }

    /// Ends writing and gives what was written.
    ///
    /// # Errors
    /// When the writer died.
    pub fn close(mut self) -> Result<Books> {
        self.background.end().context("the writer of acknowledged changes died")
    }
}

impl Books {
    /// Compares with what is there now.
    ///
    /// # Errors
    /// Naming an object that lost an acknowledged write, or says what nobody wrote.
    pub fn check(&self, read: impl Fn(&str) -> Option<Value>) -> Result<()> {
        for (index, account) in self.accounts.iter().enumerate() {
            let name = name(index);
            let object = read(&name).with_context(|| format!("{name} was created and is not there"))?;
            let number = number(&object).with_context(|| format!("{name} has no number: {object}"))?;
            if number < account.acknowledged {
                bail!("{name} says {number}, but the write of {} was acknowledged", account.acknowledged);
            }
            if number > account.sent {
                bail!("{name} says {number}, but only {} was ever written", account.sent);
            }
        }
        Ok(())
    }
}

fn name(index: usize) -> String {
    format!("ledger-{index}")
}

fn number(object: &Value) -> Option<u64> {
    object["spec"]["comment"].as_str()?.parse().ok()
}

fn write(apis: &[Api], stop: &Stop) -> Books {
    let mut books = Books::default();
    let mut turn = 0;
    while !stop.is_asked() {
        let account = &mut books.accounts[turn % ACCOUNTS];
        // Another controller each time: what one acknowledged, all must know.
        match one(&apis[turn % apis.len()], &name(turn % ACCOUNTS), account) {
            Ok(()) => books.acknowledged += 1,
            Err(_) => books.failed += 1,
        }
        turn += 1;
        thread::sleep(PERIOD);
    }
    books
}

/// Reads, and writes the next number onto what was read: a write that comes late conflicts instead of undoing a newer one.
fn one(api: &Api, name: &str, account: &mut Account) -> Result<()> {
    let object = api.object("resources", name)?.with_context(|| format!("{name} is not there"))?;
    let version = object["metadata"]["resourceVersion"].clone();
    let next = account.sent + 1;
    account.sent = next;
    api.patch(
        "resources",
        name,
        &json!({"metadata": {"resourceVersion": version}, "spec": {"comment": next.to_string()}}),
    )?;
    account.acknowledged = next;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(number: &str, expected: bool) {
        let mut books = Books::default();
        books.accounts[2] = Account { acknowledged: 5, sent: 7 };
        let read = |name: &str| {
            let comment = if name == "ledger-2" { number } else { "0" };
            Some(json!({"spec": {"comment": comment}}))
        };
        assert_eq!(books.check(read).is_ok(), expected, "{number}");
    }

    #[test]
    fn a_lost_write_is_seen() {
        check("4", false);
        check("5", true);
        check("7", true);
        check("8", false);
        check("none", false);
        assert!(Books::default().check(|_| None).is_err());
    }
}
