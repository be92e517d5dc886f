//! The shared state of a command: the terminal, the global flags, and the client once it is needed.

use crate::arguments::GlobalFlags;
use crate::client::Client;
use crate::failure::Failure;
use crate::render::{self, Format};
use crate::terminal::Terminal;
use serde_json::Value;
use std::cell::OnceCell;
use std::sync::Arc;

/// One run of hactl.
pub(crate) struct Session {
    terminal: Arc<Terminal>,
    flags: GlobalFlags,
    client: OnceCell<Client>,
}

impl Session {
    /// Creates a session, without any read or connection.
    pub(crate) fn new(flags: &GlobalFlags) -> Session {
        let terminal = Arc::new(Terminal::new(flags.color, flags.quiet, flags.verbose));
        Session { terminal, flags: flags.clone(), client: OnceCell::new() }
    }

    /// Returns the terminal for standard output and error.
    pub(crate) fn terminal(&self) -> &Terminal {
        &self.terminal
    }

    pub(crate) fn flags(&self) -> &GlobalFlags {
        &self.flags
    }

    /// Returns the client of the chosen cluster.
    ///
    /// # Errors
    /// Fails if no cluster is known, or a certificate cannot be read.
    pub(crate) fn client(&self) -> Result<&Client, Failure> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = Client::new(self.flags.connection.resolve()?, Arc::clone(&self.terminal))?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Returns a new client of the chosen cluster, whose changes have this field manager.
    ///
    /// # Errors
    /// Fails if no cluster is known, or a certificate cannot be read.
    pub(crate) fn client_as(&self, field_manager: &'static str) -> Result<Client, Failure> {
        let client = Client::new(self.flags.connection.resolve()?, Arc::clone(&self.terminal))?;
        Ok(client.with_field_manager(field_manager))
    }

    /// Returns the output format that the user requested; `None` if the user requested none.
    ///
    /// # Errors
    /// Fails if the command does not support the format.
    pub(crate) fn format(&self, supported: &[Format]) -> Result<Option<&Format>, Failure> {
        let has_json = supported.contains(&Format::Json);
        match &self.flags.output {
            Some(format) if !(supported.contains(format) || has_json && format.has_expressions()) => {
                let expressions = ["jsonpath=TEMPLATE", "custom-columns=HEADER:PATH"];
                let names: Vec<&str> = supported
                    .iter()
                    .map(Format::name)
                    .chain(expressions.into_iter().filter(|_| has_json))
                    .collect();
                let help = if names.is_empty() {
                    "remove -o".to_owned()
                } else {
                    format!("valid formats: {}", names.join(", "))
                };
                let text = format!("output format {} is not supported by this command", format.name());
                Err(Failure::usage(text).help(help))
            }
            other => Ok(other.as_ref()),
        }
    }

    /// Prints a value, or fields of it, if requested. Returns `false` if the format is for people.
    pub(crate) fn print_value(&self, format: Option<&Format>, value: &Value) -> Result<bool, Failure> {
        match format {
            Some(Format::Yaml) => self.terminal.print(&render::yaml(value)?),
            Some(Format::Json) => self.terminal.print(&render::json(value)),
            Some(Format::JsonPath(template)) => self.terminal.print(&template.render(value)),
            Some(Format::CustomColumns(columns)) => {
                let list = value["items"].as_array().or_else(|| value.as_array());
                let items = list.map_or(std::slice::from_ref(value), Vec::as_slice);
                self.terminal.print(&columns.table(items).render(&self.terminal, 0));
            }
            Some(Format::Wide | Format::Name) | None => return Ok(false),
        }
        Ok(true)
    }
}
