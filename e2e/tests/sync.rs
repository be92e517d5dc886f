//! Tests of `hactl sync` on a whole cluster with a real Git repository: broken commits, drift, pruning, signatures and
//! metrics.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use ha_e2e::binaries;
use ha_e2e::command::{check_output, output_text};
use ha_e2e::network::free_port;
use ha_e2e::plan::TOKEN_FILE;
use ha_e2e::process::OwnedChild;
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario};
use ha_e2e::wait::wait_until;
use serde_json::{Value, json};

/// Name of the GitSync object.
const SITE: &str = "site1";

/// A repository with a work tree, as its author uses it.
struct Repository {
    directory: PathBuf,
}

impl Repository {
    fn create(directory: PathBuf) -> Result<Repository> {
        fs::create_dir_all(directory.join("cluster"))?;
        let repository = Repository { directory };
        repository.git(&["init", "--quiet", "--initial-branch=main"])?;
        for (setting, value) in [("user.name", "ada"), ("user.email", "ada@example.org")] {
            repository.git(&["config", setting, value])?;
        }
        Ok(repository)
    }

    fn git(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new("git").arg("-C").arg(&self.directory).args(arguments).output()?;
        ensure!(output.status.success(), "git {arguments:?}: {}", output_text(&output));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Writes a file; without content, deletes it.
    fn write(&self, name: &str, content: Option<&str>) -> Result<()> {
        let path = self.directory.join("cluster").join(name);
        match content {
            Some(content) => fs::write(path, content)?,
            None => fs::remove_file(path)?,
        }
        Ok(())
    }

    /// Commits all files, and returns the id of the commit.
    fn commit(&self, options: &[&str]) -> Result<String> {
        self.git(&["add", "--all"])?;
        self.git(&[&["commit", "--quiet", "--allow-empty", "-m", "change"], options].concat())?;
        self.git(&["rev-parse", "HEAD"])
    }
}

/// The users of a test, with one token each.
struct Clients<'a> {
    scenario: &'a Scenario,
    url: String,
    authority_file: String,
}

impl Clients<'_> {
    fn new(scenario: &Scenario) -> Result<Clients<'_>> {
        let cluster = &scenario.cluster;
        let authority_file = cluster.directory().join("tls/ca.pem").to_string_lossy().into_owned();
        let url = cluster.url("controller1")?;
        let token_file = cluster.directory().join(TOKEN_FILE).to_string_lossy().into_owned();
        for user in ["gitops", "ada"] {
            let created = cluster.hactl_without_connection(&[
                "token",
                "create",
                user,
                "--role",
                "editor",
                "--file",
                &token_file,
            ])?;
            check_output(&created, 0, &["role editor"])?;
            fs::write(cluster.directory().join(user), String::from_utf8(created.stdout)?.trim())?;
        }
        Ok(Clients { scenario, url, authority_file })
    }

    fn arguments(&self, user: &str, arguments: &[&str]) -> Vec<String> {
        let token_file = self.scenario.cluster.directory().join(user).to_string_lossy().into_owned();
        let connection = [
            "--server",
            &self.url,
            "--certificate-authority",
            &self.authority_file,
            "--token-file",
            &token_file,
        ];
        connection.iter().chain(arguments).map(|word| (*word).to_owned()).collect()
    }

    fn run(&self, user: &str, arguments: &[&str]) -> Result<Output> {
        let arguments = self.arguments(user, arguments);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.scenario.cluster.hactl_without_connection(&arguments)
    }

    /// Makes one pass.
    fn sync(&self, repository: &Repository, options: &[&str]) -> Result<Output> {
        let (git, directory) = self.paths(repository);
        let arguments =
            ["sync", SITE, "--git", &git, "--path", "cluster", "--directory", &directory, "--once"];
        self.run("gitops", &[&arguments, options].concat())
    }

    fn paths(&self, repository: &Repository) -> (String, String) {
        let directory = self.scenario.cluster.directory().join("sync");
        (repository.directory.to_string_lossy().into_owned(), directory.to_string_lossy().into_owned())
    }

    /// Returns a condition of the GitSync object as `STATUS REASON: MESSAGE`.
    fn condition(&self, kind: &str) -> Result<String> {
        let object = self.scenario.object("gitsyncs", SITE).context("GitSync not found")?;
        let conditions = object["status"]["conditions"].as_array().context("no conditions")?;
        let condition = conditions.iter().find(|condition| condition["type"] == kind).context("absent")?;
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        Ok(format!("{} {}: {}", text("status"), text("reason"), text("message")))
    }
}

/// Returns a resource that no node runs.
fn resource(name: &str, priority: i64) -> String {
    json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": name},
        "spec": {"state": "Stopped", "priority": priority, "driver": {"exec": {"command": ["/bin/sleep", "1000"]}}}})
    .to_string()
}

#[test]
fn objects_follow_the_repository() -> Result<()> {
    let scenario = Scenario::start("sync")?;
    let clients = Clients::new(&scenario)?;
    let repository = Repository::create(scenario.cluster.directory().join("repository"))?;
    let priority =
        |name: &str| scenario.object("resources", name).map(|object| object["spec"]["priority"].clone());

    // The first commit is applied, and another pass changes nothing.
    repository.write("web.yaml", Some(&resource("web", 1)))?;
    repository.write("db.yaml", Some(&resource("db", 1)))?;
    let first = repository.commit(&[])?;
    check_output(&clients.sync(&repository, &[])?, 0, &["resource/db created", "resource/web created"])?;
    let again = clients.sync(&repository, &[])?;
    check_output(&again, 0, &[])?;
    ensure!(again.stdout.is_empty(), "{}", output_text(&again));
    ensure!(
        clients.condition("Ready")?.starts_with("True CommitApplied: Commit"),
        "{}",
        clients.condition("Ready")?
    );
    ensure!(clients.condition("Drifted")?.starts_with("False NoDrift"), "{}", clients.condition("Drifted")?);

    // A broken commit changes nothing, although one of its files is valid. The second commit is refused by the server.
    repository.write("web.yaml", Some(&resource("web", 2)))?;
    repository.write(
        "new.yaml",
        Some("apiVersion: hactl.io/v1\nkind: Resource\nmetadata: {name: new}\nspec: {stat: 1}\n"),
    )?;
    repository.commit(&[])?;
    check_output(&clients.sync(&repository, &[])?, 1, &["cluster/new.yaml:4: spec.stat: unknown field"])?;
    ensure!(
        clients.condition("Ready")?.contains("False CommitRefused: commit"),
        "{}",
        clients.condition("Ready")?
    );
    repository.write(
        "new.yaml",
        Some(r#"{"apiVersion": "hactl.io/v1", "kind": "NodeGroup", "metadata": {"name": "new"}}"#),
    )?;
    repository.commit(&[])?;
    check_output(&clients.sync(&repository, &[])?, 4, &["cannot create resource \"nodegroups\""])?;
    ensure!(priority("web") == Some(json!(1)), "a broken commit changed web");
    let applied = |object: &Value| object["status"]["appliedRevision"].clone();
    let object = scenario.object("gitsyncs", SITE).context("GitSync not found")?;
    ensure!(applied(&object) == json!(first), "{object:#}");

    // The next commit is applied. A removed file deletes its object.
    repository.write("new.yaml", None)?;
    repository.write("db.yaml", None)?;
    repository.commit(&[])?;
    check_output(&clients.sync(&repository, &[])?, 0, &["resource/web configured", "resource/db pruned"])?;
    wait_until("db to be deleted", STEP_TIMEOUT, || scenario.object("resources", "db").is_none())?;

    // A manual change is undone, and the condition and the event name the user. A field that is not in Git stays. The
    // removal of a field is also drift.
    check_output(&clients.run("ada", &["set", "web", "priority=9", "maxRestart=3"])?, 0, &["configured"])?;
    let corrected = clients.sync(&repository, &[])?;
    check_output(
        &corrected,
        0,
        &["resource/web: spec.priority changed by ada (hactl)", "resource/web configured"],
    )?;
    let drifted = clients.condition("Drifted")?;
    ensure!(
        drifted.starts_with("True DriftCorrected: resource/web: spec.priority changed by ada"),
        "{drifted}"
    );
    let object = scenario.object("resources", "web").context("web not found")?;
    ensure!(object["spec"]["priority"] == 2 && object["spec"]["maxRestart"] == 3, "{object:#}");
    let events = scenario.hactl(&["events", "--for", "resource/web"])?;
    ensure!(
        events.contains("DriftCorrected") && events.contains("spec.priority changed by ada (hactl)"),
        "{events}"
    );
    check_output(
        &clients.run("ada", &["patch", "resource", "web", "-p", r#"{"spec":{"priority":null}}"#])?,
        0,
        &[],
    )?;
    check_output(&clients.sync(&repository, &[])?, 0, &["spec.priority changed by ada (hactl)"])?;
    check_output(&clients.sync(&repository, &[])?, 0, &[])?;
    ensure!(clients.condition("Drifted")?.starts_with("False NoDrift"), "{}", clients.condition("Drifted")?);

    // A repository that cannot be fetched is an error, and changes nothing.
    let hidden = repository.directory.with_extension("hidden");
    fs::rename(&repository.directory, &hidden)?;
    check_output(&clients.sync(&repository, &[])?, 1, &["git failed"])?;
    ensure!(clients.condition("Ready")?.starts_with("False FetchFailed"), "{}", clients.condition("Ready")?);
    fs::rename(&hidden, &repository.directory)?;
    scenario.finish()
}

/// Creates an SSH key that signs the commits of a repository.
fn create_key(directory: &Path, name: &str) -> Result<String> {
    let path = directory.join(name).to_string_lossy().into_owned();
    let output = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &path]).output()?;
    ensure!(output.status.success(), "{}", output_text(&output));
    Ok(path)
}

fn metrics(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn only_signed_commits_are_applied_and_a_process_reports_metrics() -> Result<()> {
    let scenario = Scenario::start("sync-signed")?;
    let clients = Clients::new(&scenario)?;
    let repository = Repository::create(scenario.cluster.directory().join("repository"))?;
    let directory = scenario.cluster.directory();
    let (allowed, other) = (create_key(directory, "allowed")?, create_key(directory, "other")?);
    let signers = directory.join("signers");
    fs::write(&signers, format!("ada@example.org {}", fs::read_to_string(format!("{allowed}.pub"))?))?;
    let signers = signers.to_string_lossy().into_owned();
    let signed = |options: &[&str]| {
        clients
            .sync(&repository, &[&["--verify-signatures", "--allowed-signers", &signers], options].concat())
    };
    repository.git(&["config", "gpg.format", "ssh"])?;

    repository.write("web.yaml", Some(&resource("web", 1)))?;
    repository.commit(&[])?;
    check_output(&signed(&[])?, 1, &["has no valid signature"])?;
    repository.git(&["config", "user.signingkey", &other])?;
    repository.commit(&["-S"])?;
    check_output(&signed(&[])?, 1, &["has no valid signature"])?;
    ensure!(scenario.object("resources", "web").is_none(), "an unsigned commit was applied");
    ensure!(
        clients.condition("Ready")?.starts_with("False CommitNotVerified"),
        "{}",
        clients.condition("Ready")?
    );
    repository.git(&["config", "user.signingkey", &allowed])?;
    let commit = repository.commit(&["-S"])?;
    check_output(&signed(&[])?, 0, &["resource/web created"])?;

    // A process follows the branch.
    let port = free_port()?;
    let (git, state) = clients.paths(&repository);
    let address = format!("127.0.0.1:{port}");
    let arguments = clients.arguments(
        "gitops",
        &[
            "sync",
            SITE,
            "--git",
            &git,
            "--path",
            "cluster",
            "--directory",
            &state,
            "--interval",
            "1s",
            "--metrics-address",
            &address,
        ],
    );
    let program = binaries::workspace_program("hactl")?;
    let _process = OwnedChild(Command::new(program).args(arguments).stdout(Stdio::null()).spawn()?);
    let shows = |part: &str| metrics(port).is_ok_and(|text| text.contains(part));
    wait_until("the metrics to show the commit", STEP_TIMEOUT, || {
        shows(&format!("hactl_sync_info{{commit=\"{commit}\",gitsync=\"{SITE}\"}} 1"))
    })?;
    repository.write("web.yaml", Some("broken: ["))?;
    repository.commit(&[])?;
    wait_until("a failed pass", STEP_TIMEOUT, || {
        clients.condition("Ready").is_ok_and(|text| text.contains("CommitRefused"))
            && metrics(port)
                .is_ok_and(|text| !text.contains("hactl_sync_failures_total{gitsync=\"site1\"} 0"))
    })?;
    repository.write("web.yaml", Some(&resource("web", 5)))?;
    let commit = repository.commit(&[])?;
    wait_until("the next commit", STEP_TIMEOUT, || shows(&commit))?;
    let object = scenario.object("resources", "web").context("web not found")?;
    ensure!(object["spec"]["priority"] == 5, "{object:#}");
    scenario.finish()
}
