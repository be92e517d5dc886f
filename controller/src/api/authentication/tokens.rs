//! The tokens that this controller accepts: a file that is read again when it changes.

use ha_api_types::role::Role;
use ha_api_types::token::{Token, TokenFile, TokenHash};
use ha_runtime::changed_file::FileStamp;
use ha_runtime::clock::wall_unix_ms;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Interval at which a long answer checks whether its token is still accepted.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Reason why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("token file {}: {message}", path.display())]
pub struct TokenFileError {
    path: PathBuf,
    message: String,
}

/// The accepted tokens.
///
/// Guarantees: if a changed file cannot be used, the previous tokens stay accepted, and the problem is logged once for
/// each change. Without the file, no token is accepted.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    stamp: FileStamp,
    tokens: BTreeMap<TokenHash, Token>,
}

/// A token that a request has presented, and that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct AcceptedToken {
    token: Token,
    tokens: Arc<Tokens>,
}

impl Tokens {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// Fails if the file exists and cannot be used.
    pub fn new(path: &Path) -> Result<Tokens, TokenFileError> {
        let stamp = FileStamp::of(path);
        let tokens = read(path)?;
        Ok(Tokens { path: path.to_owned(), current: Mutex::new(Current { stamp, tokens }) })
    }

    /// Accepts or refuses a token.
    ///
    /// # Errors
    /// Fails with the reason, which does not contain the token.
    pub(crate) fn accept(self: &Arc<Tokens>, token: &str) -> Result<AcceptedToken, String> {
        let token = self.find(TokenHash::of(token)).ok_or("the token is unknown or was revoked")?;
        if token.has_expired(unix_seconds()) {
            return Err(format!("token {} expired at {}", token.name, token.expires));
        }
        Ok(AcceptedToken { token, tokens: Arc::clone(self) })
    }

    /// Returns the token with a hash, after reading the file again if it has changed.
    fn find(&self, hash: TokenHash) -> Option<Token> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = FileStamp::of(&self.path);
        if stamp != current.stamp {
            match read(&self.path) {
                Ok(tokens) => {
                    tracing::info!(path = %self.path.display(), tokens = tokens.len(), "reloaded the token file");
                    current.tokens = tokens;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot use the changed token file, keeping the previous tokens");
                }
            }
            current.stamp = stamp;
        }
        current.tokens.get(&hash).cloned()
    }
}

impl AcceptedToken {
    pub(crate) fn name(&self) -> &str {
        &self.token.name
    }

    pub(crate) fn role(&self) -> Role {
        self.token.role
    }

    /// Waits until the token has expired, was revoked, or changed its user or role.
    pub(crate) async fn wait_until_invalid(&self) {
        while self.tokens.find(self.token.sha256).as_ref() == Some(&self.token)
            && !self.token.has_expired(unix_seconds())
        {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }
}

fn read(path: &Path) -> Result<BTreeMap<TokenHash, Token>, TokenFileError> {
    let invalid = |message: String| TokenFileError { path: path.to_owned(), message };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(invalid(error.to_string())),
    };
    let file = TokenFile::parse(&text).map_err(invalid)?;
    Ok(file.tokens.into_iter().map(|token| (token.sha256, token)).collect())
}

fn unix_seconds() -> i64 {
    i64::try_from(wall_unix_ms() / 1000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, token: &str, expires: &str) -> String {
        format!(
            "tokens:\n- {{name: {name}, role: viewer, sha256: {}, expires: {expires:?}}}\n",
            TokenHash::of(token)
        )
    }

    #[tokio::test]
    async fn tokens_follow_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.yaml");
        let tokens = Arc::new(Tokens::new(&path).unwrap());
        assert_eq!(tokens.accept("secret").unwrap_err(), "the token is unknown or was revoked");
        std::fs::write(&path, file("ada", "secret", "9999-01-01T00:00:00Z")).unwrap();
        let ada = tokens.accept("secret").unwrap();
        assert_eq!((ada.name(), ada.role()), ("ada", Role::Viewer));
        assert!(tokens.accept("Secret").is_err());
        // An unusable file changes nothing.
        std::fs::write(&path, "tokens: nonsense").unwrap();
        tokens.accept("secret").unwrap();
        std::fs::write(&path, file("ada", "secret", "2001-01-01T00:00:00Z")).unwrap();
        assert_eq!(tokens.accept("secret").unwrap_err(), "token ada expired at 2001-01-01T00:00:00Z");
        ada.wait_until_invalid().await;
        std::fs::remove_file(&path).unwrap();
        assert!(tokens.accept("secret").is_err());
    }

    #[test]
    fn an_unusable_file_is_an_error_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.yaml");
        std::fs::write(&path, "tokens: 1").unwrap();
        let error = Tokens::new(&path).unwrap_err().to_string();
        assert!(error.contains("tokens.yaml") && error.contains("expected a sequence"), "{error}");
    }
}
