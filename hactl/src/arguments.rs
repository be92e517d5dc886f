//! The command line of hactl: global flags and the command.

use crate::command::Command;
use crate::config::ConnectionFlags;
use crate::render::Format;
use crate::terminal::ColorChoice;
use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Args, FromArgMatches, Parser};

/// High availability for services on bare-metal nodes.
#[derive(Parser, Debug)]
#[command(
    name = "hactl",
    version,
    about = "High availability for services on bare-metal nodes",
    after_help = "Exit status: 0 done, healthy, no differences; 1 refused, failed, degraded, differences; 2 invalid usage or input \
        (status: a requested service does not run, or no leader); 3 unreachable; 4 permission denied; \
        124 timed out.",
    propagate_version = true,
    disable_help_subcommand = false,
    max_term_width = 110
)]
pub(crate) struct Arguments {
    /// Flags that every command takes
    #[command(flatten)]
    pub(crate) global: GlobalFlags,
    /// Command to run
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct GlobalFlags {
    /// The cluster and its connection
    #[command(flatten)]
    pub(crate) connection: ConnectionFlags,
    /// Output format
    #[arg(long, short = 'o', global = true, value_name = "FORMAT", help_heading = "Output")]
    pub(crate) output: Option<Format>,
    /// Use of colors; auto: on terminals, unless NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = "Output")]
    pub(crate) color: ColorChoice,
    /// Suppress confirmations and progress; print only results and errors
    #[arg(long, short = 'q', global = true, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// Print every HTTP request on standard error
    #[arg(long, short = 'v', global = true, action = ArgAction::Count, help_heading = "Output")]
    pub(crate) verbose: u8,
}

impl Arguments {
    /// Parses the command line of this process.
    ///
    /// # Errors
    /// Fails on wrong usage, and if help or the version is requested; the error prints the help or the version.
    pub(crate) fn read() -> Result<Arguments, clap::Error> {
        let mut command = crate::help::command();
        let mut matches =
            command.try_get_matches_from_mut(std::env::args_os()).map_err(explain_kubectl_flag)?;
        Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }
}

/// Explains the error about a flag that kubectl has and hactl does not need.
fn explain_kubectl_flag(mut error: clap::Error) -> clap::Error {
    let unknown = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    let command = std::env::args().find(|word| ["cordon", "uncordon", "drain"].contains(&word.as_str()));
    if let Some(tip) = namespace_tip(&unknown).or_else(|| drain_tip(&command?, &unknown)) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Returns the tip for a namespace flag of kubectl: hactl's objects have no namespace.
fn namespace_tip(flag: &str) -> Option<String> {
    let is_namespace_flag = ["-A", "--all-namespaces", "-n", "--namespace"].contains(&flag);
    is_namespace_flag.then(|| format!("objects of hactl have no namespace: omit {flag}"))
}

/// Returns the tip for a flag of kubectl's `cordon`, `uncordon` and `drain`.
fn drain_tip(command: &str, flag: &str) -> Option<String> {
    match (command, flag) {
        (_, "-l" | "--selector") => {
            Some(format!("specify the nodes: hactl {command} $(hactl get nodes -l SELECTOR -o name)"))
        }
        (
            "drain",
            "--force"
            | "--ignore-daemonsets"
            | "--delete-emptydir-data"
            | "--delete-local-data"
            | "--disable-eviction",
        ) => Some(format!("drain moves services and deletes none: omit {flag}")),
        ("drain", "--grace-period") => Some(
            "each resource has its own limit: hactl set RESOURCE timeouts.stopSeconds=SECONDS".to_owned(),
        ),
        ("drain", "--pod-selector") => {
            Some("drain moves all services; to move a single service: hactl migrate RESOURCE NODE".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use ha_api_types::reason::Reason;

    /// Asserts that every word after `hactl` in a text is a known command or subcommand.
    fn check_commands_exist(text: &str) {
        for command_texts in text.split("hactl ").skip(1) {
            let mut command = Arguments::command();
            for word in
                command_texts.split(|letter: char| letter.is_whitespace() || ",;:()`".contains(letter))
            {
                if !command.has_subcommands() {
                    break;
                }
                let subcommand = command.find_subcommand(word).cloned();
                command =
                    subcommand.unwrap_or_else(|| panic!("{} has no {word}: {text}", command.get_name()));
            }
        }
    }

    #[test]
    fn commands_in_reason_texts_exist() {
        for reason in Reason::ALL {
            check_commands_exist(reason.sentence());
            check_commands_exist(reason.help());
        }
    }
}
