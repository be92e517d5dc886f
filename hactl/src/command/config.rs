//! `hactl config`: the contexts, each of which names a cluster.

use crate::config::{ConfigFile, Context, files, user_file};
use crate::failure::{Exit, Failure, Outcome};
use crate::render::Format;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Manage contexts, the connection settings of clusters
#[derive(Args, Debug)]
#[command(
    after_help = "Contexts are read from $HACTL_CONFIG or ~/.config/hactl/config.yaml, then from /etc/hactl/config.yaml. \
        Flags and HACTL_SERVER take precedence over contexts."
)]
pub(crate) struct Config {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand, Debug)]
enum ConfigCommand {
    /// List contexts
    GetContexts,
    /// Print the name of the current context
    CurrentContext,
    /// Set the current context
    UseContext {
        /// Name of the context
        name: String,
    },
    /// Add or change a context
    SetContext {
        /// Name of the context
        name: String,
    },
    /// Remove a context
    DeleteContext {
        /// Name of the context
        name: String,
    },
    /// Print the configuration
    View,
}

impl Config {
    pub(crate) fn run(&self, session: &Session) -> Outcome {
        match &self.command {
            ConfigCommand::GetContexts => list_contexts(session),
            ConfigCommand::CurrentContext => {
                let current = current_context(&files()?).ok_or_else(|| {
                    Failure::failed("no current context").help("run \"hactl config use-context NAME\"")
                })?;
                session.terminal().print_line(&current);
                Ok(Exit::Done)
            }
            ConfigCommand::UseContext { name } => {
                let known_names: Vec<String> = files()?
                    .into_iter()
                    .flat_map(|(_, file)| file.contexts)
                    .map(|context| context.name)
                    .collect();
                if !known_names.contains(name) {
                    let help = if known_names.is_empty() {
                        "run \"hactl config set-context NAME --server URL\"".to_owned()
                    } else {
                        format!("known contexts: {}", known_names.join(", "))
                    };
                    return Err(Failure::usage(format!("context {name:?} not found")).help(help));
                }
                edit_user_file(|file| file.current_context = Some(name.clone()))?;
                session.terminal().report(&format!("context {name} is the current context"));
                Ok(Exit::Done)
            }
            ConfigCommand::SetContext { name } => set_context(session, name),
            ConfigCommand::DeleteContext { name } => {
                let mut is_found = false;
                edit_user_file(|file| {
                    let count_before = file.contexts.len();
                    file.contexts.retain(|context| context.name != *name);
                    is_found = file.contexts.len() < count_before;
                    if file.current_context.as_ref() == Some(name) {
                        file.current_context = None;
                    }
                })?;
                if !is_found {
                    return Err(Failure::failed(format!(
                        "context {name:?} not found in the user's configuration file"
                    )));
                }
                session.terminal().report(&format!("context {name} deleted"));
                Ok(Exit::Done)
            }
            ConfigCommand::View => view_config(session),
        }
    }
}

fn current_context(files: &[(PathBuf, ConfigFile)]) -> Option<String> {
    files.iter().find_map(|(_, file)| file.current_context.clone())
}

fn list_contexts(session: &Session) -> Outcome {
    session.format(&[])?;
    let files = files()?;
    let current = current_context(&files);
    let mut table = Table::new(&["CURRENT", "NAME", "SERVERS", "FILE"]);
    let mut listed_names: Vec<String> = Vec::new();
    for (path, file) in &files {
        for context in &file.contexts {
            if listed_names.contains(&context.name) {
                continue;
            }
            listed_names.push(context.name.clone());
            let mark = if current.as_ref() == Some(&context.name) { Cell::plain("*") } else { Cell::blank() };
            table.add_row(vec![
                mark,
                Cell::plain(&context.name),
                Cell::plain(&context.servers.join(",")),
                Cell::plain(&path.display().to_string()),
            ]);
        }
    }
    session.terminal().print(&table.render(session.terminal(), 0));
    Ok(Exit::Done)
}

fn set_context(session: &Session, name: &str) -> Outcome {
    let flags = &session.flags().connection;
    if flags.token.is_some() {
        return Err(Failure::usage("a context contains no token, only the path of a file")
            .help("write the token to a file that only you can read, and add --token-file FILE"));
    }
    // An absolute path is valid from every directory.
    let absolute = |path: &Option<PathBuf>| {
        path.as_deref().map(|path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
    };
    let mut change_word = "changed";
    edit_user_file(|file| {
        let existing_index = file.contexts.iter().position(|context| context.name == name);
        let index = existing_index.unwrap_or_else(|| {
            change_word = "added";
            file.contexts.push(Context { name: name.to_owned(), ..Context::default() });
            file.contexts.len() - 1
        });
        let context = &mut file.contexts[index];
        if !flags.server.is_empty() {
            context.servers.clone_from(&flags.server);
        }
        for (field, new_value) in [
            (&mut context.certificate_authority, &flags.certificate_authority),
            (&mut context.client_certificate, &flags.client_certificate),
            (&mut context.client_key, &flags.client_key),
            (&mut context.token_file, &flags.token_file),
        ] {
            if new_value.is_some() {
                *field = absolute(new_value);
            }
        }
        if file.current_context.is_none() {
            file.current_context = Some(name.to_owned());
        }
    })?;
    session.terminal().report(&format!("context {name} {change_word}"));
    Ok(Exit::Done)
}

fn edit_user_file(edit: impl FnOnce(&mut ConfigFile)) -> Result<(), Failure> {
    let path = user_file().ok_or_else(|| {
        Failure::usage("cannot determine the configuration file").help("set HACTL_CONFIG or HOME")
    })?;
    let mut file = ConfigFile::read(&path)?.unwrap_or_default();
    edit(&mut file);
    file.write(&path)
}

fn view_config(session: &Session) -> Outcome {
    let format = session.format(&[Format::Yaml, Format::Json])?;
    let files = files()?;
    let mut contexts: Vec<Context> = Vec::new();
    for (_, file) in &files {
        for context in &file.contexts {
            if !contexts.iter().any(|listed| listed.name == context.name) {
                contexts.push(context.clone());
            }
        }
    }
    let merged = ConfigFile { current_context: current_context(&files), contexts };
    let value: Value = serde_json::to_value(&merged).unwrap_or_else(|_| json!({}));
    session.print_value(format.or(Some(&Format::Yaml)), &value)?;
    Ok(Exit::Done)
}
