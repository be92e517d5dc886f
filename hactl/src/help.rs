//! The help of the command line: commands in groups, and the global options apart from those of a command.

use crate::arguments::Arguments;
use clap::{Arg, Command, CommandFactory};

/// The commands that help lists, in groups and in their order.
const COMMAND_GROUPS: [(&str, &[&str]); 8] = [
    (
        "Inspect",
        &[
            "status",
            "get",
            "describe",
            "why",
            "events",
            "logs",
            "trace",
            "top",
            "doctor",
            "explain",
            "api-resources",
            "cluster-info",
        ],
    ),
    (
        "Change objects",
        &[
            "apply", "diff", "sync", "convert", "create", "edit", "set", "patch", "label", "annotate",
            "delete",
        ],
    ),
    (
        "Operate services",
        &["start", "stop", "restart", "migrate", "relocate", "replace-secondary", "clear-error", "wait"],
    ),
    ("Operate nodes", &["cordon", "uncordon", "drain", "node", "disarm", "arm"]),
    ("Capacity", &["balance", "check", "capacity", "allocate", "evacuate", "group"]),
    ("Set up", &["init", "import", "backup", "restore", "store", "pki", "token", "config", "completion"]),
    ("Test", &["simulate", "timing", "notify"]),
    ("Other", &["auth", "support", "options", "version"]),
];

/// Last lines of the help of a command.
const OPTIONS_HINT: &str = "Use \"hactl options\" for a list of global options.";

/// Returns the command line as it is parsed. Global options are hidden: help omits them, and usage errors name only the
/// arguments of the command. Man pages and completion scripts use [`Arguments::command`], which shows all options.
pub(crate) fn command() -> Command {
    let command = Arguments::command().mut_args(|arg| {
        let is_global = arg.is_global_set();
        arg.hide(is_global)
    });
    let overview = overview(&command);
    command.help_template(overview).mut_subcommands(with_options_hint)
}

/// Returns the global options as text.
pub(crate) fn options() -> String {
    let command = Arguments::command();
    let globals: Vec<Arg> = command.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    let mut shown = Command::new("hactl")
        .args(globals)
        .disable_help_flag(true)
        .help_template("These options can be passed to any command.\n\n{all-args}")
        .max_term_width(110);
    shown.render_help().to_string()
}

/// Returns a command whose help ends with a reference to the global options, including the help of its subcommands.
fn with_options_hint(command: Command) -> Command {
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{{all-args}}{{after-help}}\n\n{OPTIONS_HINT}"
    );
    command.help_template(template).disable_version_flag(true).mut_subcommands(with_options_hint)
}

/// Returns the template of the main help, which lists the commands in groups.
fn overview(command: &Command) -> String {
    let (heading, literal) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let width =
        COMMAND_GROUPS.iter().flat_map(|(_, names)| names.iter()).map(|name| name.len()).max().unwrap_or(0);
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (title, names) in COMMAND_GROUPS {
        text += &format!("\n{heading}{title}:{heading:#}\n");
        for listed in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let (name, about) = (listed.get_name(), listed.get_about().cloned().unwrap_or_default());
            let aliases = listed.get_visible_aliases().collect::<Vec<_>>().join(", ");
            let aliases = if aliases.is_empty() { aliases } else { format!(" [alias: {aliases}]") };
            let gap = width - name.len();
            text += &format!("  {literal}{name}{literal:#}{:gap$}  {about}{aliases}\n", "");
        }
    }
    let text = text.trim_end();
    format!(
        "{text}{{after-help}}\n\nUse \"hactl COMMAND --help\" for more information about a command.\n{OPTIONS_HINT}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_visible_command_is_in_one_group() {
        let command = Arguments::command();
        let visible: BTreeSet<&str> = command
            .get_subcommands()
            .filter(|subcommand| !subcommand.is_hide_set())
            .map(Command::get_name)
            .collect();
        let grouped: Vec<&str> = COMMAND_GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let once: BTreeSet<&str> = grouped.iter().copied().collect();
        assert_eq!(once, visible, "commands in groups, visible commands");
        assert_eq!(grouped.len(), once.len(), "a command is in two groups: {grouped:?}");
    }

    /// Returns the help of a command, given by its words after `hactl`.
    fn help_of(words: &[&str]) -> String {
        let line = ["hactl"].iter().chain(words).chain(&["--help"]);
        command().try_get_matches_from(line).expect_err("help is an error for clap").to_string()
    }

    #[test]
    fn help_leaves_out_global_options_and_names_the_command_that_lists_them() {
        for words in [&["get"][..], &["node", "maintenance", "enable"], &["version"], &[]] {
            let help = help_of(words);
            assert!(help.contains(OPTIONS_HINT), "{help}");
            for option in ["--server", "--context", "--request-timeout", "--output", "--verbose"] {
                assert!(!help.contains(option), "{option} in {help}");
                assert!(options().contains(option), "{option}");
            }
        }
        assert!(help_of(&["get"]).ends_with(&format!("\n{OPTIONS_HINT}\n")));
        let main = help_of(&[]);
        let at = |text: &str| main.find(text).unwrap_or_else(|| panic!("{text} in {main}"));
        assert!(at("Inspect:") < at("  status ") && at("  status ") < at("Change objects:"), "{main}");
        assert!(main.contains("[alias: move]"), "{main}");
    }

    #[test]
    fn usage_errors_name_only_the_arguments_of_the_command() {
        let line = ["hactl", "--server", "https://c1:7443", "--client-key", "key.pem", "why", "-q"];
        let error = command().try_get_matches_from(line).expect_err("a missing resource").to_string();
        assert!(
            error.contains("  <RESOURCE>\n") && error.contains("Usage: hactl why <RESOURCE>\n"),
            "{error}"
        );
    }
}
