//! Exec sessions that podman still waits for: podman reports the pid of their process only after it has ended.
//!
//! Each session has its own conmon, with the id of the session among its arguments. The session's command is a child
//! of this conmon.

use super::container::{self, Process};
use std::fs;
use std::path::Path;

/// Returns the pids of the given exec sessions of a container.
pub(super) fn processes(proc: &Path, container: &str, commands: &[String]) -> Vec<i32> {
    let pids: Vec<i32> = fs::read_dir(proc)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    let is_session_conmon =
        |pid: i32| commands.iter().any(|command| container::is_conmon_alive(proc, pid, command));
    pids.into_iter()
        .filter(|pid| container::process(proc, *pid, container) == Process::Alive)
        .filter(|pid| parent(proc, *pid).is_some_and(is_session_conmon))
        .collect()
}

fn parent(proc: &Path, pid: i32) -> Option<i32> {
    let stat = fs::read(proc.join(pid.to_string()).join("stat")).ok()?;
    // The name in brackets may contain any character, so the state and the parent are read after the last bracket.
    let stat = String::from_utf8_lossy(&stat).into_owned();
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_process_is_found_by_its_conmon() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let process = |pid: i32, parent: i32, command: &str, group: &str| {
            let path = directory.path().join(pid.to_string());
            fs::create_dir_all(&path).expect("made");
            fs::write(path.join("stat"), format!("{pid} (a) b) S {parent} 1 1")).expect("written");
            fs::write(path.join("cmdline"), command.replace(' ', "\0")).expect("written");
            fs::write(path.join("cgroup"), format!("0::{group}\n")).expect("written");
        };
        process(10, 1, "conmon -c web0 -u web0", "/conmon");
        process(11, 10, "redis", "/libpod-web0");
        process(20, 1, "conmon -c web0 -u check1", "/conmon");
        process(21, 20, "sleep 9", "/libpod-web0");
        process(22, 21, "its child", "/libpod-web0");
        process(23, 20, "conmon itself", "/conmon");
        process(30, 1, "conmon -c web0 -u shell2", "/conmon");
        process(31, 30, "a shell of somebody", "/libpod-web0");
        let pids_of = |commands: &[&str]| {
            let commands: Vec<String> = commands.iter().map(|command| (*command).to_owned()).collect();
            processes(directory.path(), "web0", &commands)
        };
        assert_eq!(pids_of(&["check1"]), [21]);
        assert_eq!(pids_of(&[]), Vec::<i32>::new());
        assert_eq!(pids_of(&["check9"]), Vec::<i32>::new());
    }
}
