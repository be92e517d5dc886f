//! The form that ClusterLabs' fence agents have, for agents of our own: attributes come as lines on standard input, the answer
//! is the exit status.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::BufRead;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::program;

/// What `status` and `monitor` exit with when the machine is off.
const OFF: u8 = 2;
/// What every agent can be asked for.
const ACTIONS: [&str; 6] = ["on", "off", "reboot", "status", "monitor", "metadata"];

/// What an agent says of itself.
#[derive(Debug, Clone, Copy)]
pub struct Agent {
    /// Its program's name.
    pub name: &'static str,
    /// What it is for.
    pub description: &'static str,
    /// The attributes that it needs beside the action.
    pub parameters: &'static [&'static str],
}

/// The power of the machine that an agent was asked about.
pub trait Power {
    /// Whether it is on.
    ///
    /// # Errors
    /// When that cannot be told.
    fn is_on(&self) -> Result<bool>;

    /// Switches it off, and makes sure that it is.
    ///
    /// # Errors
    /// When it is not off.
    fn off(&self) -> Result<()>;

    /// Switches it on, and makes sure that it is.
    ///
    /// # Errors
    /// When it is not on.
    fn on(&self) -> Result<()>;
}

/// The attributes that an agent was given.
#[derive(Debug, Clone, Default)]
pub struct Attributes(BTreeMap<String, String>);

impl Attributes {
    fn read(lines: impl BufRead) -> Result<Self> {
        let mut attributes = BTreeMap::new();
        for line in lines.lines() {
            if let Some((name, value)) = line?.trim().split_once('=') {
                attributes.insert(name.trim().to_owned(), value.trim().to_owned());
            }
        }
        Ok(Self(attributes))
    }

    /// An attribute that may be missing.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// An attribute that must be there.
    ///
    /// # Errors
    /// When it is missing.
    pub fn needed(&self, name: &str) -> Result<&str> {
        self.get(name).with_context(|| format!("attribute {name} is missing"))
    }
}

impl Agent {
    /// The whole program: does what standard input asks for, to the power that `find` gives for its attributes.
    pub fn main<P: Power>(&self, find: impl FnOnce(&Attributes) -> Result<P>) -> ExitCode {
        let outcome = Attributes::read(std::io::stdin().lock()).and_then(|given| self.act(&given, find));
        program::end(self.name, outcome)
    }

    fn act<P: Power>(
        &self,
        attributes: &Attributes,
        find: impl FnOnce(&Attributes) -> Result<P>,
    ) -> Result<ExitCode> {
        let action = attributes.get("action").unwrap_or("reboot");
        if action == "metadata" {
            program::say(&self.metadata()?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let power = find(attributes)?;
        match action {
            "status" | "monitor" if !power.is_on()? => return Ok(ExitCode::from(OFF)),
            "status" | "monitor" => {}
            "off" => power.off()?,
            "on" => power.on()?,
            "reboot" => {
                power.off()?;
                power.on()?;
            }
            other => bail!("{other} is no action; there are {}", ACTIONS.join(", ")),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn metadata(&self) -> Result<String> {
        let Self { name, description, parameters } = self;
        let mut text = format!(
            r#"<?xml version="1.0" ?>
<resource-agent name="{name}" shortdesc="{description}">
<parameters>
  <parameter name="action" required="1"><content type="string" default="reboot"/></parameter>
"#
        );
        for parameter in *parameters {
            writeln!(
                text,
                r#"  <parameter name="{parameter}" required="1"><content type="string"/></parameter>"#
            )?;
        }
        text += "</parameters>\n<actions>";
        for action in ACTIONS {
            write!(text, r#"<action name="{action}"/>"#)?;
        }
        text += "</actions>\n</resource-agent>";
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Switch<'a>(&'a Cell<bool>);

    impl Power for Switch<'_> {
        fn is_on(&self) -> Result<bool> {
            Ok(self.0.get())
        }

        fn off(&self) -> Result<()> {
            self.0.set(false);
            Ok(())
        }

        fn on(&self) -> Result<()> {
            self.0.set(true);
            Ok(())
        }
    }

    const AGENT: Agent = Agent { name: "fence_switch", description: "A switch", parameters: &["plug"] };

    /// What a machine that is on or off exits with when it is asked, and whether it is on afterwards.
    fn check(input: &str, on: bool, expected: Result<(ExitCode, bool), &str>) {
        let state = Cell::new(on);
        let attributes = Attributes::read(input.as_bytes()).unwrap();
        let outcome = AGENT.act(&attributes, |given| given.needed("plug").map(|_| Switch(&state)));
        let found = outcome.map(|code| (code, state.get())).map_err(|error| error.to_string());
        assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{input}");
    }

    #[test]
    fn each_action_is_answered_as_fence_agents_do() {
        let done = ExitCode::SUCCESS;
        check("action=status\nplug=a\n", true, Ok((done, true)));
        check(" action = monitor \nplug=a", false, Ok((ExitCode::from(2), false)));
        check("# a remark\naction=off\nplug=a", true, Ok((done, false)));
        check("plug=a\naction=on", false, Ok((done, true)));
        check("plug=a", false, Ok((done, true)));
        check("action=off", true, Err("attribute plug is missing"));
        check(
            "action=list\nplug=a",
            true,
            Err("list is no action; there are on, off, reboot, status, monitor, metadata"),
        );
    }
}
