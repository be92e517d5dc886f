//! Real etcd for tests: found, started, stopped and killed, at addresses that no other test uses.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Returns the etcd program: `$ETCD`, a supported version in PATH, or the cache of `./dev/setup`; otherwise fails with
/// a hint.
pub(crate) fn find_etcd() -> PathBuf {
    if let Some(path) = std::env::var_os("ETCD") {
        return PathBuf::from(path);
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the repository");
    let cache = std::env::var_os("HACTL_CACHE").map_or_else(|| repository.join(".cache"), PathBuf::from);
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&on_path)
        .map(|directory| directory.join("etcd"))
        .chain([cache.join("etcd/usr/bin/etcd")])
        .find(|program| is_new_enough(program))
        .expect("no etcd 3.5.30 (or 3.6.11) or newer was found: run ./dev/setup, or set ETCD=/path/to/etcd")
}

fn is_new_enough(program: &Path) -> bool {
    let Ok(output) = Command::new(program).arg("--version").output() else {
        return false;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version =
        text.lines().next().and_then(|line| line.strip_prefix("etcd Version: ")).unwrap_or_default();
    let numbers: Vec<u32> = version.split('.').filter_map(|number| number.parse().ok()).collect();
    match numbers.as_slice() {
        [3, 5, patch] => *patch >= 30,
        numbers => numbers >= [3, 6, 11].as_slice(),
    }
}

/// Runs etcdctl with a member.
pub(crate) fn etcdctl(endpoint: &str, arguments: &[&str]) -> Result<String, String> {
    let next_to_etcd = find_etcd().with_file_name("etcdctl");
    let program = std::env::var_os("ETCDCTL").map_or(next_to_etcd, PathBuf::from);
    let output = Command::new(&program)
        .arg(format!("--endpoints={endpoint}"))
        .args(arguments)
        .env("ETCDCTL_API", "3")
        .output()
        .map_err(|error| format!("{}: {error}: run ./dev/setup, or set ETCDCTL", program.display()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Port at which a member reports its health, with or without TLS on the other ports.
const METRICS_PORT: u16 = 2381;

/// Options of a cluster.
#[derive(Clone, Default)]
pub(crate) struct Flags {
    /// Certificate authority, certificate and key of the members; clients then also need a certificate.
    pub(crate) tls: Option<(PathBuf, PathBuf, PathBuf)>,
    /// Additional arguments.
    pub(crate) extra_flags: Vec<String>,
}

/// A cluster of etcd members in its own directory. Dropping this value ends the members.
pub(crate) struct Cluster {
    members: Vec<Member>,
    _directory: tempfile::TempDir,
}

struct Member {
    arguments: Vec<String>,
    address: String,
    scheme: &'static str,
    log: PathBuf,
    process: Option<Child>,
}

/// Returns loopback addresses that no other process of these tests uses: 127.A.B.C from the process id and a counter.
pub(crate) fn addresses(count: u32) -> Vec<String> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let first = NEXT.fetch_add(count, Ordering::Relaxed);
    let process = std::process::id() % 60_000;
    (first..first + count)
        .map(|index| format!("127.{}.{}.{}", 10 + process / 256, process % 256, 1 + index % 250))
        .collect()
}

impl Cluster {
    /// Starts a cluster, and waits until its members serve clients.
    pub(crate) fn start(size: u32, flags: &Flags) -> Cluster {
        Cluster::start_on(&addresses(size), flags)
    }

    /// Starts a cluster as [`Cluster::start`] does, at addresses that a certificate contains.
    pub(crate) fn start_on(addresses: &[String], flags: &Flags) -> Cluster {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let peers: Vec<String> = addresses
            .iter()
            .enumerate()
            .map(|(index, address)| format!("m{index}=http://{address}:2380"))
            .collect();
        let scheme = if flags.tls.is_some() { "https" } else { "http" };
        let members = addresses.iter().enumerate().map(|(index, address)| {
            let data = directory.path().join(format!("m{index}"));
            let mut arguments: Vec<String> = [
                format!("--name=m{index}"),
                format!("--data-dir={}", data.display()),
                format!("--listen-client-urls={scheme}://{address}:2379"),
                format!("--advertise-client-urls={scheme}://{address}:2379"),
                format!("--listen-peer-urls=http://{address}:2380"),
                format!("--initial-advertise-peer-urls=http://{address}:2380"),
                format!("--listen-metrics-urls=http://{address}:{METRICS_PORT}"),
                format!("--initial-cluster={}", peers.join(",")),
                "--heartbeat-interval=100".to_owned(),
                "--election-timeout=1000".to_owned(),
                "--unsafe-no-fsync".to_owned(),
                "--log-level=warn".to_owned(),
            ]
            .into();
            if let Some((ca, cert, key)) = &flags.tls {
                arguments.extend([
                    "--client-cert-auth".to_owned(),
                    format!("--trusted-ca-file={}", ca.display()),
                    format!("--cert-file={}", cert.display()),
                    format!("--key-file={}", key.display()),
                ]);
            }
            arguments.extend(flags.extra_flags.iter().cloned());
            let log = directory.path().join(format!("m{index}.log"));
            Member { arguments, address: address.clone(), scheme, log, process: None }
        });
        let mut cluster = Cluster { members: members.collect(), _directory: directory };
        for index in 0..cluster.members.len() {
            cluster.members[index].start();
        }
        for member in &cluster.members {
            member.wait_until("/health");
        }
        cluster
    }

    /// Returns the members' client URLs.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("{}://{}:2379", member.scheme, member.address)).collect()
    }

    /// Kills a member by SIGKILL.
    pub(crate) fn kill(&mut self, index: usize) {
        self.members[index].terminate();
    }

    /// Starts a killed member, and waits until it answers requests that need no majority.
    pub(crate) fn restart(&mut self, index: usize) {
        self.members[index].start();
        self.members[index].wait_until("/health?serializable=true");
    }

    /// Stops a member by SIGSTOP: it keeps its connections open, but does not answer. On return, all its threads have
    /// stopped.
    pub(crate) fn pause(&self, index: usize) {
        self.members[index].signal("STOP");
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.members[index].is_stopped() {
            assert!(Instant::now() < deadline, "the stopped etcd still runs");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Resumes a member by SIGCONT.
    pub(crate) fn resume(&self, index: usize) {
        self.members[index].signal("CONT");
    }
}

impl Member {
    fn start(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(&self.log).expect("a log file");
        let errors = log.try_clone().expect("a second handle");
        let process = Command::new(find_etcd())
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .expect("etcd starts");
        self.process = Some(process);
    }

    /// Waits until the member reports itself healthy at this path. An open port is not enough: the member accepts
    /// connections before it has a leader, but does not answer until then.
    fn wait_until(&self, path: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.is_healthy(path).unwrap_or(false) {
            let log = || std::fs::read_to_string(&self.log).unwrap_or_default();
            assert!(Instant::now() < deadline, "etcd on {} is not healthy: {}", self.address, log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_healthy(&self, path: &str) -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(format!("{}:{METRICS_PORT}", self.address))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.contains(r#""health":"true""#))
    }

    fn signal(&self, signal: &str) {
        let process = self.process.as_ref().expect("a running member");
        let status = Command::new("kill").args([format!("-{signal}"), process.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill -{signal}");
    }

    /// Returns `true` if every thread has stopped: kill returns before the signal takes effect.
    fn is_stopped(&self) -> bool {
        let process = self.process.as_ref().expect("a running member");
        let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("a running member");
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|fields| fields.trim_start().starts_with('T'))
        })
    }

    fn terminate(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            member.terminate();
        }
    }
}
