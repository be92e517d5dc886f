//! Encryption of files with age, by the program of that name (<https://age-encryption.org>).

use crate::etcdctl::{find_program, run};
use crate::failure::{Exit, Failure};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// First bytes of each file that age encrypts, in binary and in PEM form.
const HEADERS: [&[u8]; 2] = [b"age-encryption.org/", b"-----BEGIN AGE ENCRYPTED FILE-----"];

/// The installed program.
#[derive(Debug)]
pub(crate) struct AgeProgram(PathBuf);

impl AgeProgram {
    /// Finds the program.
    ///
    /// # Errors
    /// Fails if age is not installed.
    pub(crate) fn find() -> Result<AgeProgram, Failure> {
        find_program("age", None)
            .map(AgeProgram)
            .map_err(|failure| failure.help("install the package \"age\""))
    }

    /// Encrypts a file for recipients: public keys of age or SSH.
    ///
    /// # Errors
    /// Fails if age refuses a recipient.
    pub(crate) async fn encrypt(
        &self,
        file: &Path,
        recipients: &[String],
        encrypted: &Path,
    ) -> Result<(), Failure> {
        let options = recipients.iter().flat_map(|recipient| ["--recipient", recipient]).map(OsStr::new);
        self.run("--encrypt", options, file, encrypted).await
    }

    async fn run<'a>(
        &self,
        mode: &str,
        options: impl Iterator<Item = &'a OsStr>,
        file: &Path,
        output: &Path,
    ) -> Result<(), Failure> {
        let mut command = Command::new(&self.0);
        command.arg(mode).arg("--output").arg(output).args(options).arg("--").arg(file);
        run(&mut command).await.map(drop).map_err(|failure| Failure { exit: Exit::Usage, ..failure })
    }
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
    let options = identities.iter().flat_map(|identity| [OsStr::new("--identity"), identity.as_os_str()]);
    AgeProgram::find()?.run("--decrypt", options, file, &copy).await?;
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
