//! `hactl pki show`: the certificates in the directory.

use super::directory::{PkiDirectory, RevocationLists, StoredCertificate};
use super::timestamp;
use crate::failure::{Exit, Outcome};
use crate::render::table::{Cell, Table};
use crate::render::{Format, now_seconds};
use crate::session::Session;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

/// State of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum State {
    Valid,
    /// Two thirds of the validity are used.
    RenewalDue,
    Expired,
    Revoked,
    /// A newer certificate has the same name.
    Replaced,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Valid => "Valid",
            State::RenewalDue => "RenewalDue",
            State::Expired => "Expired",
            State::Revoked => "Revoked",
            State::Replaced => "Replaced",
        }
    }
}

/// Returns the state of a certificate, with the revocation lists of the authorities.
pub(super) fn state(lists: &RevocationLists, certificate: &StoredCertificate) -> State {
    let facts = &certificate.facts;
    let now = now_seconds();
    let is_revoked = lists.get(&certificate.authority).is_some_and(|list| list.contains(&facts.serial));
    if !certificate.is_authority && is_revoked {
        State::Revoked
    } else if facts.has_expired(now) {
        State::Expired
    } else if !certificate.is_current {
        State::Replaced
    } else if facts.is_renewal_due(now) {
        State::RenewalDue
    } else {
        State::Valid
    }
}

/// List the certificates with their expiry and state
#[derive(Args, Debug)]
#[command(
    after_help = "States: Valid; RenewalDue (two thirds of the validity are used); Expired; Revoked; Replaced (not expired, but \
                  a newer certificate has the same name)."
)]
pub(super) struct Show {
    /// Names of the certificates, such as c1 or api-c1; default: all
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

impl Show {
    pub(super) fn run(&self, session: &Session, directory: &PkiDirectory) -> Outcome {
        let format = session.format(&[Format::Yaml, Format::Json])?;
        let mut certificates = directory.certificates()?;
        if let Some(unknown) = self
            .names
            .iter()
            .find(|name| !certificates.iter().any(|certificate| certificate.facts.name == **name))
        {
            return Err(directory.not_found(unknown));
        }
        certificates
            .retain(|certificate| self.names.is_empty() || self.names.contains(&certificate.facts.name));
        let mut table = Table::new(&["NAME", "KIND", "SERIAL", "ISSUER", "EXPIRES", "STATE"]);
        let mut items = Vec::new();
        let lists = directory.lists()?;
        for certificate in &certificates {
            let state = state(&lists, certificate);
            // An expired certificate that was replaced needs no attention, so the list omits it.
            if state == State::Expired && !certificate.is_current {
                continue;
            }
            let facts = &certificate.facts;
            let expires = timestamp(facts.not_after).to_string();
            table.add_row(
                [
                    &facts.name,
                    certificate.kind_name(),
                    &facts.serial.to_string(),
                    &facts.issuer,
                    &expires,
                    state.name(),
                ]
                .map(Cell::plain)
                .into(),
            );
            items.push(item(certificate, state));
        }
        if !session.print_value(format, &json!({"items": items}))? {
            session.terminal().print(&table.render(session.terminal(), 0));
        }
        Ok(Exit::Done)
    }
}

fn item(certificate: &StoredCertificate, state: State) -> Value {
    let facts = &certificate.facts;
    json!({
        "name": facts.name,
        "kind": certificate.kind_name(),
        "groups": facts.groups,
        "addresses": facts.addresses,
        "serial": facts.serial.to_string(),
        "issuer": facts.issuer,
        "notBefore": timestamp(facts.not_before),
        "notAfter": timestamp(facts.not_after),
        "state": state,
        "file": certificate.file,
    })
}
