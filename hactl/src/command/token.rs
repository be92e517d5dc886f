//! `hactl token`: the bearer tokens that controllers accept, in a file on each controller.

use super::init::CONTROLLER_GROUP;
use crate::duration::since_1970;
use crate::failure::{Exit, Failure, Outcome};
use crate::render::now_seconds;
use crate::render::table::{Cell, Table};
use crate::session::Session;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use ha_api_types::role;
use ha_api_types::time::Timestamp;
use ha_api_types::token::{TOKEN_PREFIX, Token, TokenFile, TokenHash};
use ha_api_types::yaml;
use nix::unistd::{Group, chown};
use rand::Rng;
use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default of `--file`, and of `--token-file` of the controllers in the documentation.
const DEFAULT_FILE: &str = "/etc/hactl/tokens.yaml";

/// Manage the tokens that controllers accept, in a file on each controller
#[derive(Args, Debug)]
#[command(
    after_help = "Controllers accept the tokens in the file of their option --token-file, and read a changed file \
                  within a second. Copy the file to every controller.\n\n\
        Examples:\n  hactl token create ada --role viewer\n  hactl token create ci --role editor --valid 24h\n  \
        hactl token revoke ci"
)]
pub(crate) struct TokenCommand {
    #[command(subcommand)]
    command: Subcommands,
    /// File with the tokens of the controllers
    #[arg(long, global = true, value_name = "FILE", default_value = DEFAULT_FILE, value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

#[derive(Subcommand, Debug)]
enum Subcommands {
    /// Create a token and print it; it cannot be printed again
    Create {
        /// Name of the user
        name: String,
        /// Role of the user
        #[arg(long, value_enum)]
        role: Role,
        /// Validity of the token
        #[arg(long = "valid", value_name = "DURATION", default_value = "90d", value_parser = crate::duration::parse)]
        validity: Duration,
    },
    /// List the tokens
    List,
    /// Revoke a token
    Revoke {
        /// Name of the user
        name: String,
    },
}

/// Roles of tokens. Agents and controllers identify themselves with certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    /// Read all objects, events and logs of services
    Viewer,
    /// Request operations, and drain nodes
    Operator,
    /// Write resources, groups and affinity rules
    Editor,
    /// Read metrics
    Metrics,
    /// All permissions
    Admin,
}

impl From<Role> for role::Role {
    fn from(role: Role) -> role::Role {
        match role {
            Role::Viewer => role::Role::Viewer,
            Role::Operator => role::Role::Operator,
            Role::Editor => role::Role::Editor,
            Role::Metrics => role::Role::Metrics,
            Role::Admin => role::Role::Admin,
        }
    }
}

impl TokenCommand {
    pub(crate) fn run(&self, session: &Session) -> Outcome {
        session.format(&[])?;
        match &self.command {
            Subcommands::Create { name, role, validity } => {
                self.create(session, name, (*role).into(), *validity)
            }
            Subcommands::List => self.list(session),
            Subcommands::Revoke { name } => self.revoke(session, name),
        }
    }

    fn create(&self, session: &Session, name: &str, role: role::Role, validity: Duration) -> Outcome {
        let mut file = read(&self.file)?;
        if file.tokens.iter().any(|token| token.name == name) {
            return Err(Failure::failed(format!("token {name} already exists in {}", self.file.display()))
                .help(format!("run \"hactl token revoke {name}\" first, or use another name")));
        }
        let text = random_token();
        let expires = since_1970().saturating_add(validity).as_millis();
        let expires = Timestamp::from_unix_ms(i128::try_from(expires).unwrap_or(i128::MAX));
        file.tokens.push(Token {
            name: name.to_owned(),
            role,
            sha256: TokenHash::of(&text),
            expires: expires.clone(),
        });
        write(&self.file, &file)?;
        session.terminal().warn(&format!(
            "token {name} with role {role} is valid until {expires}; copy {} to every controller",
            self.file.display()
        ));
        session.terminal().print_line(&text);
        Ok(Exit::Done)
    }

    fn list(&self, session: &Session) -> Outcome {
        let mut table = Table::new(&["NAME", "ROLE", "EXPIRES", "STATE"]);
        for token in read(&self.file)?.tokens {
            let state = if token.has_expired(now_seconds()) { "Expired" } else { "Valid" };
            table.add_row(vec![
                Cell::plain(&token.name),
                Cell::plain(token.role.name()),
                Cell::plain(&token.expires.to_string()),
                Cell::plain(state),
            ]);
        }
        session.terminal().print(&table.render(session.terminal(), 0));
        Ok(Exit::Done)
    }

    fn revoke(&self, session: &Session, name: &str) -> Outcome {
        let mut file = read(&self.file)?;
        let count_before = file.tokens.len();
        file.tokens.retain(|token| token.name != name);
        if file.tokens.len() == count_before {
            return Err(Failure::failed(format!("token {name} not found in {}", self.file.display()))
                .help("run \"hactl token list\""));
        }
        write(&self.file, &file)?;
        session.terminal().report(&format!(
            "token {name} revoked on this controller; copy {} to every controller",
            self.file.display()
        ));
        Ok(Exit::Done)
    }
}

/// Returns a new token with 256 random bits.
fn random_token() -> String {
    let mut bytes = [0_u8; 32];
    rand::rng().fill_bytes(&mut bytes);
    bytes.iter().fold(TOKEN_PREFIX.to_owned(), |mut token, byte| {
        // Writing to a string does not fail.
        let _ = write!(token, "{byte:02x}");
        token
    })
}

/// Reads the file; a missing file has no tokens.
fn read(path: &Path) -> Result<TokenFile, Failure> {
    let invalid = |message: String| Failure::usage(format!("{}: {message}", path.display()));
    match std::fs::read_to_string(path) {
        Ok(text) => TokenFile::parse(&text).map_err(invalid),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(TokenFile::default()),
        Err(error) => Err(invalid(error.to_string())),
    }
}

/// Writes the file atomically. A new file is readable by the controller's group only; an existing file keeps its owner
/// and its permissions.
fn write(path: &Path, file: &TokenFile) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::failed(format!("cannot write {}: {error}", path.display()))
            .help("run the command as root on a controller, or add --file FILE")
    };
    let value = serde_json::to_value(file).map_err(|error| Failure::failed(error.to_string()))?;
    let text = yaml::to_text(&value).map_err(|error| Failure::failed(error.to_string()))?;
    let (mode, owner, group) = match std::fs::metadata(path) {
        Ok(existing) => (existing.mode(), Some(existing.uid().into()), Some(existing.gid().into())),
        Err(_) => (0o640, None, Group::from_name(CONTROLLER_GROUP).ok().flatten().map(|group| group.gid)),
    };
    crate::atomic_file::replace(path, &text, |file| {
        chown(file.path(), owner, group)?;
        file.as_file().set_permissions(Permissions::from_mode(mode & 0o7777))
    })
    .map_err(failed)
}
