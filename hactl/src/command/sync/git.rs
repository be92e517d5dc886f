//! A clone of a Git repository, with the git program of the machine.

use crate::failure::Failure;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Longest run of one git command.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Ref of the commit that was fetched last.
const FETCHED_REF: &str = "refs/hactl/fetched";
/// Ref of the commit that was applied last, so that git keeps its files.
const APPLIED_REF: &str = "refs/hactl/applied";
/// Longest error text of git in a message, in characters.
const MAX_ERROR_LENGTH: usize = 500;

/// A clone in a directory.
pub(super) struct Repository {
    directory: PathBuf,
}

impl Repository {
    /// Opens or creates a clone.
    ///
    /// # Errors
    /// Fails if the directory cannot be created, or if git is missing.
    pub(super) async fn open(directory: PathBuf) -> Result<Repository, Failure> {
        std::fs::create_dir_all(&directory)
            .map_err(|error| Failure::failed(format!("cannot create {}: {error}", directory.display())))?;
        let repository = Repository { directory };
        repository.git(["init", "--quiet"]).await?;
        Ok(repository)
    }

    /// Returns the directory with the files of the commit that was checked out last.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Fetches a branch, or the default branch, and returns the id of its last commit.
    pub(super) async fn fetch(&self, url: &str, branch: Option<&str>) -> Result<String, Failure> {
        let source = branch.map_or_else(|| "HEAD".to_owned(), |branch| format!("refs/heads/{branch}"));
        let refspec = format!("+{source}:{FETCHED_REF}");
        self.git(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", url, &refspec]).await?;
        self.commit(FETCHED_REF).await
    }

    /// Checks that a commit has a valid signature of an allowed signer.
    pub(super) async fn verify(&self, commit: &str, allowed_signers: Option<&Path>) -> Result<(), Failure> {
        let mut setting = std::ffi::OsString::from("gpg.ssh.allowedSignersFile=");
        let mut arguments: Vec<&OsStr> = Vec::new();
        if let Some(file) = allowed_signers {
            setting.push(file);
            arguments.extend([OsStr::new("-c"), &setting]);
        }
        arguments.extend(["verify-commit", commit].map(OsStr::new));
        self.git(arguments).await.map(drop).map_err(|failure| {
            let cause = failure.message.split_once(": ").map_or("", |(_, cause)| cause);
            let cause = if cause.is_empty() { "the commit is not signed" } else { cause };
            Failure::failed(format!("commit {} has no valid signature: {cause}", short(commit)))
                .help("sign the commit with a key of an allowed signer")
        })
    }

    /// Replaces the files with those of a commit. Symbolic links become files with their target as text, so that a
    /// commit cannot name a file outside of the repository.
    pub(super) async fn check_out(&self, commit: &str) -> Result<(), Failure> {
        let settings = ["-c", "core.symlinks=false", "-c", "core.hooksPath=/dev/null"];
        let arguments = ["checkout", "--quiet", "--force", "--detach", commit, "--"];
        self.git(settings.into_iter().chain(arguments)).await?;
        self.git(["clean", "-ffdxq"]).await?;
        Ok(())
    }

    /// Returns `true` if the clone has a commit.
    pub(super) async fn has(&self, commit: &str) -> bool {
        self.commit(commit).await.is_ok()
    }

    /// Records the commit whose objects are applied.
    pub(super) async fn record_applied(&self, commit: &str) -> Result<(), Failure> {
        self.git(["update-ref", APPLIED_REF, commit]).await.map(drop)
    }

    async fn commit(&self, name: &str) -> Result<String, Failure> {
        let name = format!("{name}^{{commit}}");
        let output = self.git(["rev-parse", "--quiet", "--verify", "--end-of-options", &name]).await?;
        Ok(output.trim().to_owned())
    }

    /// Runs git in the clone, and returns its output.
    async fn git<W: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = W>) -> Result<String, Failure> {
        let mut command = Command::new("git");
        for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"] {
            command.env_remove(variable);
        }
        if std::env::var_os("GIT_SSH_COMMAND").is_none() && std::env::var_os("GIT_SSH").is_none() {
            command.env("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=10");
        }
        // The transport ext:: runs programs.
        command.env("GIT_ALLOW_PROTOCOL", "file:git:http:https:ssh");
        command.env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
        command.arg("-C").arg(&self.directory).args(arguments);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let limit = TIMEOUT.as_secs();
        let output = tokio::time::timeout(TIMEOUT, command.output())
            .await
            .map_err(|_| Failure::failed(format!("git did not finish within {limit} s")))?
            .map_err(|error| {
                Failure::usage(format!("cannot run git: {error}")).help("run \"apt-get install git\"")
            })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let text: String = text.trim().replace('\n', "; ").chars().take(MAX_ERROR_LENGTH).collect();
        Err(Failure::failed(format!("git failed: {text}")))
    }
}

/// Returns the beginning of a commit's id, for messages.
pub(super) fn short(commit: &str) -> String {
    commit.chars().take(10).collect()
}

/// Checks the URL of a repository on the command line.
pub(super) fn parse_url(text: &str) -> Result<String, String> {
    let authority = text.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or_default());
    let user = authority.and_then(|authority| authority.rsplit_once('@')).map(|(user, _)| user);
    if user.is_some_and(|user| user.contains(':')) {
        return Err(
            "contains a password, which other users of this machine can see; use a credential helper of \
                    git, or an SSH key"
                .to_owned(),
        );
    }
    if text.is_empty() || text.starts_with('-') {
        return Err("is not a URL or a directory".to_owned());
    }
    Ok(text.to_owned())
}

/// Checks the path of a directory within the repository.
pub(super) fn parse_path(text: &str) -> Result<String, String> {
    let is_inside = Path::new(text)
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir));
    if !is_inside || text.is_empty() {
        return Err("must be a relative path within the repository, without ..".to_owned());
    }
    if Path::new(text).components().any(|part| part.as_os_str() == ".git") {
        return Err("must not be in .git".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_with_a_password_and_paths_outside_are_refused() {
        for url in
            ["https://git.example.org/ha.git", "ssh://git@host:22/ha.git", "git@host:ha.git", "/srv/ha"]
        {
            assert_eq!(parse_url(url).as_deref(), Ok(url));
        }
        for url in ["https://ada:secret@git.example.org/ha.git", "--upload-pack=touch", ""] {
            assert!(parse_url(url).is_err(), "{url}");
        }
        for path in [".", "cluster", "sites/site1"] {
            assert_eq!(parse_path(path).as_deref(), Ok(path));
        }
        for path in ["/etc", "../other", "a/../../b", ".git", ""] {
            assert!(parse_path(path).is_err(), "{path}");
        }
    }
}
