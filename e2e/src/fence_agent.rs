//! Interface of ClusterLabs' fence agents, for this project's own agents. Attributes arrive as lines on standard input; the exit
//! status is the result.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::BufRead;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::program;

/// Exit status of `status` and `monitor` for a machine that is off.
const OFF: u8 = 2;
/// Actions that every agent supports.
const ACTIONS: [&str; 6] = ["on", "off", "reboot", "status", "monitor", "metadata"];

/// Description of a fence agent.
#[derive(Debug, Clone, Copy)]
pub struct FenceAgent {
    /// Name of the program.
    pub name: &'static str,
    /// Purpose of the agent, for its metadata.
    pub description: &'static str,
    /// Attributes that the agent requires in addition to the action.
    pub parameters: &'static [&'static str],
}

/// Control of one machine's power.
pub trait PowerSwitch {
    /// Returns `true` if the machine is on.
    ///
    /// # Errors
    /// Fails if the state is unknown.
    fn is_on(&self) -> Result<bool>;

    /// Switches the machine off and verifies the result.
    ///
    /// # Errors
    /// Fails if the machine is not off after the action.
    fn switch_off(&self) -> Result<()>;

    /// Switches the machine on and verifies the result.
    ///
    /// # Errors
    /// Fails if the machine is not on after the action.
    fn switch_on(&self) -> Result<()>;
}

/// Attributes that an agent received.
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

    /// Returns the value of an attribute; `None` if it is missing.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the value of a required attribute.
    ///
    /// # Errors
    /// Fails if the attribute is missing.
    pub fn required(&self, name: &str) -> Result<&str> {
        self.get(name).with_context(|| format!("missing attribute {name}"))
    }
}

impl FenceAgent {
    /// Runs the whole program: executes the action from standard input on the machine that `find` returns for the attributes.
    pub fn main<P: PowerSwitch>(&self, find: impl FnOnce(&Attributes) -> Result<P>) -> ExitCode {
        let outcome =
            Attributes::read(std::io::stdin().lock()).and_then(|attributes| self.execute(&attributes, find));
        program::exit_code_of(self.name, outcome)
    }

    fn execute<P: PowerSwitch>(
        &self,
        attributes: &Attributes,
        find: impl FnOnce(&Attributes) -> Result<P>,
    ) -> Result<ExitCode> {
        let action = attributes.get("action").unwrap_or("reboot");
        if action == "metadata" {
            program::print_line(&self.metadata()?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let power = find(attributes)?;
        match action {
            "status" | "monitor" if !power.is_on()? => return Ok(ExitCode::from(OFF)),
            "status" | "monitor" => {}
            "off" => power.switch_off()?,
            "on" => power.switch_on()?,
            "reboot" => {
                power.switch_off()?;
                power.switch_on()?;
            }
            other => bail!("{other} is not a valid action; valid actions: {}", ACTIONS.join(", ")),
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

    impl PowerSwitch for Switch<'_> {
        fn is_on(&self) -> Result<bool> {
            Ok(self.0.get())
        }

        fn switch_off(&self) -> Result<()> {
            self.0.set(false);
            Ok(())
        }

        fn switch_on(&self) -> Result<()> {
            self.0.set(true);
            Ok(())
        }
    }

    const AGENT: FenceAgent =
        FenceAgent { name: "fence_switch", description: "A switch", parameters: &["plug"] };

    /// Checks the exit status of an action, and whether the machine is on after it. `on` is the state before.
    fn check(input: &str, on: bool, expected: Result<(ExitCode, bool), &str>) {
        let state = Cell::new(on);
        let attributes = Attributes::read(input.as_bytes()).unwrap();
        let outcome =
            AGENT.execute(&attributes, |attributes| attributes.required("plug").map(|_| Switch(&state)));
        let result = outcome.map(|code| (code, state.get())).map_err(|error| error.to_string());
        assert_eq!(format!("{result:?}"), format!("{expected:?}"), "{input}");
    }

    #[test]
    fn actions_follow_the_fence_agent_api() {
        let success = ExitCode::SUCCESS;
        check("action=status\nplug=a\n", true, Ok((success, true)));
        check(" action = monitor \nplug=a", false, Ok((ExitCode::from(2), false)));
        check("# a remark\naction=off\nplug=a", true, Ok((success, false)));
        check("plug=a\naction=on", false, Ok((success, true)));
        check("plug=a", false, Ok((success, true)));
        check("action=off", true, Err("missing attribute plug"));
        check(
            "action=list\nplug=a",
            true,
            Err("list is not a valid action; valid actions: on, off, reboot, status, monitor, metadata"),
        );
    }
}
