//! A daemon's options in layers: flags take precedence over the environment, the file of `--config` and the defaults,
//! in this order.

use clap::builder::OsStr;
use clap::{Arg, ArgAction, Command, CommandFactory, FromArgMatches};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Reason why the options could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Invalid flags or environment, or a request for help: [`clap::Error::exit`] prints it and ends the process.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// The file could not be read.
    #[error("cannot read configuration file {}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// I/O error of the read.
        source: std::io::Error,
    },
    /// The file is not a YAML map, or has invalid content.
    #[error("{}", problems.join("\n"))]
    File {
        /// All problems, one for each entry, with the file and, if known, the line.
        problems: Vec<String>,
    },
}

/// Reads a daemon's options from the process's arguments and environment.
///
/// Each option with a long flag `--store-timeout` is also the variable `<PREFIX>_STORE_TIMEOUT` and the key
/// `storeTimeout` of the YAML file. `--config` or `<PREFIX>_CONFIG` names the file. Flags take precedence over
/// variables, variables over the file, and the file over the default. A list in the file is equivalent to a flag that
/// is given several times. A map is valid for a flag with value name `YAML`, and equivalent to its text.
///
/// # Errors
/// Fails if the file has an unknown key (the error has the line and the nearest known key), or if a value is invalid
/// (the error has the flag).
pub fn read<O: CommandFactory + FromArgMatches>(prefix: &str) -> Result<O, ConfigError> {
    read_from(prefix, std::env::args_os().collect())
}

/// Behaves like [`read`], with the given arguments; the first is the program's name.
pub fn read_from<O: CommandFactory + FromArgMatches>(
    prefix: &str,
    arguments: Vec<OsString>,
) -> Result<O, ConfigError> {
    let command = command::<O>(prefix);
    let command = match config_path(&command, &arguments) {
        Some(path) => with_file(command, &path)?,
        None => command,
    };
    let mut matches = command.clone().try_get_matches_from(arguments)?;
    O::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command.clone()).into())
}

/// Returns a daemon's command line, with `--config` and the environment variable of each option.
pub fn command<O: CommandFactory>(prefix: &str) -> Command {
    with_environment(O::command(), prefix)
}

/// Adds `--config`, and sets the environment variable of each option.
fn with_environment(command: Command, prefix: &str) -> Command {
    let config = Arg::new(CONFIG_FLAG)
        .long(CONFIG_FLAG)
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("YAML file with options, by their names in camelCase; flags and environment variables take precedence");
    let prefix = prefix.to_owned();
    command.arg(config).mut_args(move |argument| {
        match argument.get_long().map(|long| long.replace('-', "_").to_ascii_uppercase()) {
            Some(name) if argument.get_env().is_none() && is_configurable(&argument) => {
                argument.env(OsStr::from(format!("{prefix}_{name}")))
            }
            Some(_) | None => argument,
        }
    })
}

const CONFIG_FLAG: &str = "config";

/// Value name of flags whose value is YAML: the file contains a map for such a flag.
const YAML_VALUE_NAME: &str = "YAML";

/// Returns `true` if the file and the environment can set an option; they cannot set help and version.
fn is_configurable(argument: &Arg) -> bool {
    matches!(
        argument.get_action(),
        ArgAction::Set | ArgAction::Append | ArgAction::SetTrue | ArgAction::SetFalse | ArgAction::Count
    )
}

/// Returns the path of the file from flags or environment. The complete parse later reports other errors in the flags
/// and the environment.
fn config_path(command: &Command, arguments: &[OsString]) -> Option<PathBuf> {
    let lenient = command.clone().ignore_errors(true).disable_help_flag(true).disable_version_flag(true);
    let matches = lenient.try_get_matches_from(arguments).ok()?;
    matches.try_get_one::<PathBuf>(CONFIG_FLAG).ok().flatten().cloned()
}

/// Replaces the defaults with the values of the file.
fn with_file(mut command: Command, path: &Path) -> Result<Command, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let refused =
        |problem: String| ConfigError::File { problems: vec![format!("{}: {problem}", path.display())] };
    // A file with only comments is an empty map.
    let options: Option<BTreeMap<String, Value>> =
        serde_yaml::from_str(&text).map_err(|error| refused(error.to_string()))?;
    let flags: BTreeMap<String, (clap::Id, bool)> = command
        .get_arguments()
        .filter(|argument| is_configurable(argument) && argument.get_id() != CONFIG_FLAG)
        .filter_map(|argument| {
            let is_yaml = argument
                .get_value_names()
                .is_some_and(|names| names.iter().any(|name| name == YAML_VALUE_NAME));
            Some((camel_case(argument.get_long()?), (argument.get_id().clone(), is_yaml)))
        })
        .collect();
    let mut problems = Vec::new();
    for (key, value) in options.unwrap_or_default() {
        let place = file_location(path, &text, &key);
        let Some((id, is_yaml)) = flags.get(&key) else {
            problems.push(format!("{place}: unknown key `{key}`{}", most_similar(&key, flags.keys())));
            continue;
        };
        let values = if *is_yaml && value.is_object() {
            Ok(Some(vec![value.to_string()]))
        } else {
            argument_values(&value)
        };
        match values {
            Ok(None) => {}
            Ok(Some(words)) => {
                command = command.mut_arg(id, |argument| {
                    argument.required(false).default_values(words.into_iter().map(OsStr::from))
                });
            }
            Err(found_type) => {
                problems.push(format!(
                    "{place}: key `{key}` must be a word, a number or a list of them, not {found_type}"
                ));
            }
        }
    }
    if problems.is_empty() { Ok(command) } else { Err(ConfigError::File { problems }) }
}

/// Returns the value as the words of a command line; `None` for null.
fn argument_values(value: &Value) -> Result<Option<Vec<String>>, &'static str> {
    let single_value = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Null => Err("an empty entry"),
        Value::Array(_) => Err("a list of lists"),
        Value::Object(_) => Err("a map"),
    };
    match value {
        Value::Null => Ok(None),
        Value::Array(entries) => entries.iter().map(single_value).collect::<Result<_, _>>().map(Some),
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Object(_) => {
            single_value(value).map(|word| Some(vec![word]))
        }
    }
}

/// Converts `store-timeout` to `storeTimeout`.
fn camel_case(flag: &str) -> String {
    let mut parts = flag.split('-');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    name
}

/// Returns the file and the line that begins with the key, as text for a message.
fn file_location(path: &Path, text: &str, key: &str) -> String {
    let begins_with_key = |line: &str| {
        let line = line.trim_start().trim_start_matches(['"', '\'']);
        line.strip_prefix(key)
            .is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with(':'))
    };
    match text.lines().position(begins_with_key) {
        Some(index) => format!("{}: line {}", path.display(), index + 1),
        None => path.display().to_string(),
    }
}

/// Returns `, did you mean ...?` with the nearest known key, or an empty string.
fn most_similar<'a>(key: &str, accepted_keys: impl Iterator<Item = &'a String>) -> String {
    accepted_keys
        .map(|name| (strsim::damerau_levenshtein(&key.to_lowercase(), &name.to_lowercase()), name))
        .min()
        .filter(|(distance, name)| *distance <= 2.max(name.len() / 3))
        .map_or_else(String::new, |(_, name)| format!(", did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[derive(Debug, clap::Parser, PartialEq)]
    struct Options {
        #[arg(long)]
        node_name: String,
        #[arg(long, default_value_t = 4)]
        max_workers: u32,
        #[arg(long)]
        endpoint: Vec<String>,
        #[arg(long)]
        allow_old_store: bool,
        #[arg(long, value_name = "YAML")]
        limits: Option<String>,
    }

    fn check(file: &str, flags: &[&str]) -> Result<Options, String> {
        let mut yaml = tempfile::NamedTempFile::new().unwrap();
        yaml.write_all(file.as_bytes()).unwrap();
        let path = yaml.path().display().to_string();
        let arguments = ["program", "--config", &path].iter().chain(flags).map(OsString::from).collect();
        read_from("HA_TEST_CONFIG", arguments).map_err(|error| error.to_string().replace(&path, "FILE"))
    }

    #[test]
    fn config_file_sets_missing_flags() {
        let file = "# options\nnodeName: node1\nmaxWorkers: 2\nendpoint: [a, b]\nallowOldStore: true\n";
        let expected = Options {
            node_name: "node1".to_owned(),
            max_workers: 2,
            endpoint: vec!["a".to_owned(), "b".to_owned()],
            allow_old_store: true,
            limits: None,
        };
        assert_eq!(check(file, &[]), Ok(expected));
        let with_flags = check(file, &["--max-workers", "9", "--endpoint", "c"]).unwrap();
        assert_eq!((with_flags.max_workers, with_flags.endpoint), (9, vec!["c".to_owned()]));
        assert_eq!(with_flags.node_name, "node1");
    }

    #[test]
    fn maps_in_the_config_file_are_values_of_yaml_flags() {
        let options = check("nodeName: n\nlimits:\n  a: [b, 1]\n", &[]).unwrap();
        assert_eq!(options.limits.as_deref(), Some(r#"{"a":["b",1]}"#));
        let options = check("nodeName: n\nlimits: {a: b}\n", &["--limits", "{}"]).unwrap();
        assert_eq!(options.limits.as_deref(), Some("{}"));
    }

    #[test]
    fn empty_config_file_changes_nothing() {
        let options = check("# nothing\n", &["--node-name", "n"]).unwrap();
        assert_eq!((options.max_workers, options.allow_old_store), (4, false));
        assert!(check("", &[]).unwrap_err().contains("--node-name"));
    }

    #[test]
    fn environment_overrides_the_config_file() {
        let command = with_environment(<Options as CommandFactory>::command(), "HA_TEST");
        let variables: Vec<_> = command.get_arguments().filter_map(|argument| argument.get_env()).collect();
        assert!(variables.contains(&std::ffi::OsStr::new("HA_TEST_MAX_WORKERS")), "{variables:?}");
        assert!(variables.contains(&std::ffi::OsStr::new("HA_TEST_CONFIG")), "{variables:?}");
    }

    #[test]
    fn flags_override_environment_and_config_file() {
        #[derive(Debug, clap::Parser)]
        struct Layered {
            // The test uses a variable that every process has, because a change of the environment would affect other
            // tests.
            #[arg(long, env = "PATH")]
            search: String,
        }
        let mut yaml = tempfile::NamedTempFile::new().unwrap();
        yaml.write_all(b"search: file\n").unwrap();
        let path = yaml.path().display().to_string();
        let read = |flags: &[&str]| {
            let arguments = ["program", "--config", &path].iter().chain(flags).map(OsString::from).collect();
            read_from::<Layered>("HA_TEST_CONFIG", arguments).unwrap().search
        };
        assert_eq!(read(&[]), std::env::var("PATH").unwrap());
        assert_eq!(read(&["--search", "flag"]), "flag");
    }

    #[test]
    fn config_file_problems_are_named_with_line() {
        let error = check("nodeName: node1\nmaxWorker: 2\nendpoint: {a: b}\nnonsense: 1\n", &[]).unwrap_err();
        assert_eq!(
            error,
            "FILE: line 3: key `endpoint` must be a word, a number or a list of them, not a map\n\
             FILE: line 2: unknown key `maxWorker`, did you mean `maxWorkers`?\n\
             FILE: line 4: unknown key `nonsense`"
        );
        assert!(check("nodeName: [", &[]).unwrap_err().starts_with("FILE: "));
        assert!(check("- a\n", &[]).unwrap_err().starts_with("FILE: "));
        assert!(check("maxWorkers: many\n", &["--node-name", "n"]).unwrap_err().contains("many"));
    }

    #[test]
    fn missing_config_file_is_named() {
        let arguments = ["program", "--config", "/nonexistent/ha.yaml"].map(OsString::from).to_vec();
        let error = read_from::<Options>("HA_TEST_CONFIG", arguments).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/ha.yaml"), "{error}");
    }
}
