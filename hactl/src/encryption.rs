//! Encryption of files with age, by the program of that name (<https://age-encryption.org>).

use crate::etcdctl::run;
use crate::failure::{Exit, Failure};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// First bytes of each file that age encrypts, in binary and in PEM form.
const HEADERS: [&[u8]; 2] = [b"age-encryption.org/", b"-----BEGIN AGE ENCRYPTED FILE-----"];

/// Encrypts a file for recipients: public keys of age or SSH.
///
/// # Errors
/// Fails if age is not installed, or refuses a recipient.
pub(crate) async fn encrypt(file: &Path, recipients: &[String], encrypted: &Path) -> Result<(), Failure> {
    let mut command = Command::new("age");
    command.arg("--encrypt").arg("--output").arg(encrypted);
    for recipient in recipients {
        command.arg("--recipient").arg(recipient);
    }
    run_age(command.arg("--").arg(file)).await
}

/// Returns the file itself if it is not encrypted, and otherwise a decrypted copy in the scratch directory.
///
/// # Errors
/// Fails if the file is encrypted and no identity decrypts it.
pub(crate) async fn decrypted(
    file: &Path,
    identities: &[PathBuf],
    scratch: &Path,
) -> Result<PathBuf, Failure> {
    if !is_encrypted(file)? {
        return Ok(file.to_owned());
    }
    if identities.is_empty() {
        return Err(Failure::usage(format!("{} is encrypted with age", file.display()))
            .help("add --identity FILE with the private key"));
    }
    let copy = scratch.join("decrypted");
    let mut command = Command::new("age");
    command.arg("--decrypt").arg("--output").arg(&copy);
    for identity in identities {
        command.arg("--identity").arg(identity);
    }
    run_age(command.arg("--").arg(file)).await?;
    Ok(copy)
}

fn is_encrypted(file: &Path) -> Result<bool, Failure> {
    let longest = HEADERS.iter().map(|header| header.len()).max().unwrap_or_default();
    let mut start = Vec::new();
    File::open(file)
        .and_then(|opened| opened.take(longest as u64).read_to_end(&mut start))
        .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    Ok(HEADERS.iter().any(|header| start.starts_with(header)))
}

async fn run_age(command: &mut Command) -> Result<(), Failure> {
    match run(command).await {
        Ok(_) => Ok(()),
        Err(failure) if failure.message.contains("No such file") => {
            Err(Failure::failed("age not found in PATH").help("install the package \"age\""))
        }
        Err(failure) => Err(Failure { exit: Exit::Usage, ..failure }),
    }
}
