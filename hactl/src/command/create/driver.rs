//! The driver of `create resource`, chosen by flags or by the type in the name.

use super::{non_null_fields, null_if_empty};
use crate::failure::Failure;
use crate::names::TypedName;
use clap::Args;
use ha_api_types::driver::DriverSpec;
use serde_json::{Map, Value, json};

/// The drivers, one of which is used.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Driver (one of)")]
pub(super) struct DriverFlags {
    /// Run the command after -- as a supervised foreground process
    #[arg(long)]
    exec: bool,
    /// Environment variable for --exec; repeatable
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Working directory for --exec
    #[arg(long, value_name = "DIR")]
    working_directory: Option<String>,
    /// User for --exec
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Systemd unit
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Libvirt domain
    #[arg(long, value_name = "DOMAIN")]
    libvirt_domain: Option<String>,
    /// File with the domain definition, on storage shared by all nodes
    #[arg(long, value_name = "FILE")]
    libvirt_definition: Option<String>,
    /// Podman container
    #[arg(long, value_name = "NAME")]
    container: Option<String>,
    /// Image of the podman container
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// LXC container
    #[arg(long, value_name = "NAME")]
    lxc_container: Option<String>,
    /// OCF resource agent
    #[arg(long, value_name = "PROVIDER:AGENT")]
    ocf: Option<String>,
    /// Parameter for --ocf; repeatable
    #[arg(long = "parameter", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// Simulated service, for tests
    #[arg(long)]
    simulated: bool,
    /// Command with arguments, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl DriverFlags {
    /// Returns the value of `spec.driver`.
    ///
    /// # Errors
    /// Fails if no driver or several drivers are given, or if the driver does not match the type in the name.
    pub(super) fn driver(&self, name: &TypedName) -> Result<Value, Failure> {
        let mut chosen: Vec<Value> = Vec::new();
        if self.exec || !self.command.is_empty() {
            chosen.push(json!({"exec": self.exec()?}));
        } else if !self.environment.is_empty() || self.working_directory.is_some() || self.user.is_some() {
            return Err(Failure::usage("--env, --working-directory and --user require --exec")
                .help("add --exec -- COMMAND…"));
        }
        if let Some(unit) = &self.unit {
            chosen.push(json!({"systemd": {"unit": unit}}));
        }
        if self.libvirt_domain.is_some() || self.libvirt_definition.is_some() {
            let domain = self.libvirt_domain.as_ref().unwrap_or(&name.name);
            let fields = [("domain", json!(domain)), ("definition", json!(self.libvirt_definition))];
            chosen.push(json!({"libvirt": non_null_fields(fields)}));
        }
        if self.container.is_some() || self.image.is_some() {
            let container = self.container.as_ref().unwrap_or(&name.name);
            let fields = [("container", json!(container)), ("image", json!(self.image))];
            chosen.push(json!({"podman": non_null_fields(fields)}));
        }
        if let Some(container) = &self.lxc_container {
            chosen.push(json!({"lxc": {"container": container}}));
        }
        if let Some(agent) = &self.ocf {
            let parameters = null_if_empty(parse_pairs("--parameter", &self.parameters)?);
            chosen
                .push(json!({"ocf": non_null_fields([("agent", json!(agent)), ("parameters", parameters)])}));
        } else if !self.parameters.is_empty() {
            return Err(Failure::usage("--parameter requires --ocf"));
        }
        if self.simulated {
            chosen.push(json!({"simulated": {}}));
        }
        let driver = match chosen.len() {
            0 => driver_of_type(name)?,
            1 => chosen.remove(0),
            _ => {
                return Err(Failure::usage("more than one driver specified")
                    .help("keep exactly one of the driver options"));
            }
        };
        let type_name = serde_json::from_value::<DriverSpec>(driver.clone()).unwrap_or_default().type_name();
        match &name.type_name {
            Some(typed) if *typed != type_name => {
                Err(Failure::usage(format!("{typed}:{}: the type of this driver is {type_name}", name.name))
                    .help(format!("specify {type_name}:{} or {}", name.name, name.name)))
            }
            Some(_) | None => Ok(driver),
        }
    }

    fn exec(&self) -> Result<Value, Failure> {
        if self.command.is_empty() {
            return Err(Failure::usage("--exec requires a command")
                .help("add --exec -- COMMAND ARGUMENT… at the end"));
        }
        Ok(json!(non_null_fields([
            ("command", json!(self.command)),
            ("environment", null_if_empty(parse_pairs("--env", &self.environment)?)),
            ("workingDirectory", json!(self.working_directory)),
            ("user", json!(self.user)),
        ])))
    }
}

/// Returns the driver that a type implies.
fn driver_of_type(name: &TypedName) -> Result<Value, Failure> {
    let service_name = &name.name;
    match name.type_name.as_deref() {
        Some("vm") => Ok(json!({"libvirt": {"domain": service_name}})),
        Some("ct") => Ok(json!({"podman": {"container": service_name}})),
        Some("unit") => Ok(json!({"systemd": {"unit": format!("{service_name}.service")}})),
        Some("sim") => Ok(json!({"simulated": {}})),
        Some(_) | None => Err(Failure::usage("no driver specified").help(
            "add --exec -- COMMAND…, --unit UNIT, --libvirt-domain DOMAIN, --container NAME, --lxc-container NAME or --ocf PROVIDER:AGENT",
        )),
    }
}

fn parse_pairs(flag: &str, texts: &[String]) -> Result<Value, Failure> {
    let mut pairs = Map::new();
    for text in texts {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("{flag}: {text:?} is not NAME=VALUE")))?;
        pairs.insert(name.to_owned(), json!(value));
    }
    Ok(Value::Object(pairs))
}
