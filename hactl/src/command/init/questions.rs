//! Questions on the terminal, as an alternative to flags: an empty answer selects the default in brackets.

use super::settings::{host_name, is_https_url, node_name};
use super::{CONFIG_DIRECTORY, Init, ProfileName, Role};
use crate::failure::Failure;
use clap::ValueEnum;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

/// Directory in which the kernel lists its watchdogs.
const WATCHDOG_CLASS_DIRECTORY: &str = "/sys/class/watchdog";

/// A dialog with the user.
pub(super) struct Questions<R, W> {
    input: R,
    output: W,
}

impl<R: BufRead, W: Write> Questions<R, W> {
    pub(super) fn new(input: R, output: W) -> Questions<R, W> {
        Questions { input, output }
    }

    /// Asks for every setting that no flag gives.
    ///
    /// # Errors
    /// Fails if the input ends before all questions are answered.
    pub(super) fn ask_missing(&mut self, flags: &mut Init) -> Result<(), Failure> {
        flags.etcd_endpoints = self.ask_until_valid(
            "Client URLs of etcd, separated by commas",
            "http://127.0.0.1:2379",
            |text| {
                let urls: Vec<String> = text.split(',').map(|url| url.trim().to_owned()).collect();
                for url in &urls {
                    is_https_url("URL", url).map_err(|failure| failure.message)?;
                }
                Ok(urls)
            },
        )?;
        if flags.roles.is_empty() {
            flags.roles = self.ask_until_valid(
                "Roles of this host: node, controller or both",
                "both",
                |text| match text {
                    "both" => Ok(vec![Role::Controller, Role::Node]),
                    one => Role::from_str(one, true)
                        .map(|role| vec![role])
                        .map_err(|_| "enter node, controller or both".to_owned()),
                },
            )?;
        }
        let has_role = |role| flags.roles.contains(&role);
        let (is_node, is_controller) = (has_role(Role::Node), has_role(Role::Controller));
        if flags.etcd_endpoints.iter().any(|url| url.starts_with("https:")) {
            let host = host_name();
            self.ask_file(&mut flags.etcd_ca, "CA certificate file of etcd", "ca.pem")?;
            self.ask_file(
                &mut flags.etcd_cert,
                "Client certificate file of this host",
                &format!("{host}.pem"),
            )?;
            self.ask_file(&mut flags.etcd_key, "Private key file of this host", &format!("{host}.key"))?;
        }
        if is_node {
            self.ask_text(&mut flags.node, "Name of this node", &node_name())?;
            let devices_text = watchdog_identities(Path::new(WATCHDOG_CLASS_DIRECTORY));
            let devices_text = if devices_text.is_empty() {
                "no watchdog device found".to_owned()
            } else {
                format!("found: {devices_text}")
            };
            self.ask_text(
                &mut flags.watchdog,
                &format!("Watchdog kernel module ({devices_text})"),
                "softdog",
            )?;
        }
        if is_controller {
            if flags.etcd_ca.is_some() {
                self.ask_text(&mut flags.listen, "Listen address of the API", "0.0.0.0:7443")?;
            }
            if flags.profile.is_none() {
                let profile = self.ask_until_valid(
                    "Timing profile: fast, default or conservative",
                    "default",
                    |text| {
                        ProfileName::from_str(text, true)
                            .map_err(|_| "enter fast, default or conservative".to_owned())
                    },
                )?;
                flags.profile = Some(profile);
            }
        }
        Ok(())
    }

    fn ask_file(&mut self, value: &mut Option<PathBuf>, question: &str, name: &str) -> Result<(), Failure> {
        if value.is_none() {
            let default = Path::new(CONFIG_DIRECTORY).join(name).display().to_string();
            *value = Some(self.ask_until_valid(question, &default, |text| Ok(PathBuf::from(text)))?);
        }
        Ok(())
    }

    fn ask_text(&mut self, value: &mut Option<String>, question: &str, default: &str) -> Result<(), Failure> {
        if value.is_none() {
            *value = Some(self.ask_until_valid(question, default, |text| Ok(text.to_owned()))?);
        }
        Ok(())
    }

    /// Asks until the answer is valid.
    fn ask_until_valid<T>(
        &mut self,
        question: &str,
        default: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, Failure> {
        let failed = |error: std::io::Error| Failure::failed(format!("cannot read the answer: {error}"));
        loop {
            write!(self.output, "{question} [{default}]: ").map_err(failed)?;
            self.output.flush().map_err(failed)?;
            let mut line = String::new();
            if self.input.read_line(&mut line).map_err(failed)? == 0 {
                return Err(Failure::usage("unexpected end of input; nothing was written"));
            }
            let answer = if line.trim().is_empty() { default } else { line.trim() };
            match read(answer) {
                Ok(value) => return Ok(value),
                Err(problem) => writeln!(self.output, "{problem}").map_err(failed)?,
            }
        }
    }
}

/// Returns the names that the drivers of this machine's watchdogs report.
fn watchdog_identities(directory: &Path) -> String {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("identity")).ok())
        .map(|identity| identity.trim().to_owned())
        .collect();
    names.sort();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        init: Init,
    }

    fn flags(arguments: &[&str]) -> Init {
        Line::parse_from(["init"].iter().chain(arguments)).init
    }

    /// Returns the questions that were asked, and the result of the answers.
    fn check(arguments: &[&str], answers: &str) -> (String, Result<Init, Failure>) {
        let (mut printed_questions, mut flags) = (Vec::new(), flags(arguments));
        let outcome = Questions::new(answers.as_bytes(), &mut printed_questions).ask_missing(&mut flags);
        (String::from_utf8_lossy(&printed_questions).into_owned(), outcome.map(|()| flags))
    }

    #[test]
    fn empty_answers_take_the_defaults() {
        let (printed_questions, flags) = check(&[], "\n\n\n\n\n");
        let flags = flags.expect("answered");
        assert_eq!(flags.etcd_endpoints, ["http://127.0.0.1:2379"]);
        assert_eq!(flags.roles, [Role::Controller, Role::Node]);
        assert_eq!(flags.watchdog.as_deref(), Some("softdog"));
        assert_eq!(flags.listen, None, "without certificates, only the Unix socket is served");
        assert_eq!(flags.profile, Some(ProfileName::Default));
        assert!(!printed_questions.contains("certificate"), "{printed_questions}");
    }

    #[test]
    fn https_endpoints_require_certificate_answers() {
        let answers = "https://a:2379, https://b:2379\nnode\n/ca\n/cert\n/key\nn1\niTCO_wdt\n";
        let (printed_questions, flags) = check(&[], answers);
        let flags = flags.expect("answered");
        assert_eq!(flags.etcd_endpoints, ["https://a:2379", "https://b:2379"]);
        assert_eq!(flags.etcd_key, Some(PathBuf::from("/key")));
        assert_eq!((flags.node.as_deref(), flags.watchdog.as_deref()), (Some("n1"), Some("iTCO_wdt")));
        assert!(!printed_questions.contains("Listen address of the API"), "{printed_questions}");
    }

    #[test]
    fn values_given_as_flags_are_not_prompted() {
        let (printed_questions, flags) = check(&["--role", "node", "--node", "n1", "--watchdog", ""], "\n");
        assert_eq!(flags.expect("answered").watchdog.as_deref(), Some(""));
        assert_eq!(printed_questions, "Client URLs of etcd, separated by commas [http://127.0.0.1:2379]: ");
    }

    #[test]
    fn invalid_answers_are_prompted_again() {
        let (printed_questions, flags) =
            check(&["--role", "controller", "--listen", "127.0.0.1:1"], "a:2379\n\nslow\nfast\n");
        assert_eq!(flags.expect("answered").profile, Some(ProfileName::Fast));
        assert!(
            printed_questions.contains("is not an http or https URL")
                && printed_questions.contains("enter fast, default or conservative"),
            "{printed_questions}"
        );
        let (_, ended) = check(&[], "\n");
        assert!(ended.expect_err("too few answers").message.contains("unexpected end of input"));
    }
}
