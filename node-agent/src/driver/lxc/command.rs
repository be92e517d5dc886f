//! Command lines of LXC's programs: the container to which a process belongs.

use std::path::{Path, PathBuf};

/// Short options that have a value, of all programs that are recognized.
const SHORT_VALUE_OPTIONS: &str = "cfgLnoPpstu";
/// Long options that have a value.
const LONG_VALUE_OPTIONS: [&str; 15] = [
    "--console",
    "--console-log",
    "--define",
    "--gid",
    "--lxcpath",
    "--logfile",
    "--logpriority",
    "--name",
    "--pidfile",
    "--rcfile",
    "--share-ipc",
    "--share-net",
    "--share-pid",
    "--share-uts",
    "--timeout",
];
/// Beginning of the process title of a monitor in the background.
const MONITOR_TITLE: &str = "[lxc monitor] ";

/// Role of a process of LXC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The monitor of a container, or a program that is about to become the monitor.
    Monitor,
    /// A program that ends a container.
    Stopper,
}

/// Process of LXC for one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invocation {
    pub(super) role: Role,
    pub(super) name: String,
    /// Directory of the containers; `None` for LXC's default.
    pub(super) path: Option<PathBuf>,
}

impl Invocation {
    /// Parses the content of `/proc/PID/cmdline`; `None` if the process is not one of LXC's.
    pub(super) fn parse(line: &[u8]) -> Option<Invocation> {
        let text = String::from_utf8_lossy(line);
        if let Some(title) = text.strip_prefix(MONITOR_TITLE) {
            // The name of a container contains no space.
            let (path, name) = title.trim_end_matches('\0').trim_end().rsplit_once(' ')?;
            let (name, path) = (name.to_owned(), Some(PathBuf::from(path)));
            return Some(Invocation { role: Role::Monitor, name, path });
        }
        let mut arguments = text.split('\0');
        let role = match Path::new(arguments.next()?).file_name()?.to_str()? {
            "lxc-start" | "lxc-execute" => Role::Monitor,
            "lxc-stop" | "lxc-destroy" => Role::Stopper,
            _ => return None,
        };
        let (mut name, mut path, mut positional) = (None, None, None);
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                break;
            }
            let (option, value) = match argument.strip_prefix('-') {
                Some(long) if long.starts_with('-') => match argument.split_once('=') {
                    Some((option, value)) => (option, Some(value)),
                    None if LONG_VALUE_OPTIONS.contains(&argument) => (argument, arguments.next()),
                    None => continue,
                },
                Some(short) => {
                    let Some(index) = short.find(|option| SHORT_VALUE_OPTIONS.contains(option)) else {
                        continue;
                    };
                    let attached = &short[index + 1..];
                    let value = if attached.is_empty() { arguments.next() } else { Some(attached) };
                    (&short[index..=index], value)
                }
                None => {
                    positional = positional.or((!argument.is_empty()).then_some(argument));
                    continue;
                }
            };
            match option {
                "n" | "--name" => name = value,
                "P" | "--lxcpath" => path = value,
                _ => {}
            }
        }
        Some(Invocation { role, name: name.or(positional)?.to_owned(), path: path.map(PathBuf::from) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<(Role, &str, Option<&str>)>) {
        let invocation = Invocation::parse(line.replace('|', "\0").as_bytes());
        let expected = expected.map(|(role, name, path)| Invocation {
            role,
            name: name.to_owned(),
            path: path.map(PathBuf::from),
        });
        assert_eq!(invocation, expected, "{line}");
    }

    #[test]
    fn processes_are_assigned_to_containers() {
        use Role::{Monitor, Stopper};
        check("[lxc monitor] /var/lib/lxc web|", Some((Monitor, "web", Some("/var/lib/lxc"))));
        check("[lxc monitor] /srv/my containers web", Some((Monitor, "web", Some("/srv/my containers"))));
        check("/usr/bin/lxc-start|-F|-n|web|", Some((Monitor, "web", None)));
        check("lxc-start|-nweb|-P/srv|-d|", Some((Monitor, "web", Some("/srv"))));
        check("lxc-start|-dn|web|-f|/x|-s|a=b|--lxcpath=/srv|", Some((Monitor, "web", Some("/srv"))));
        check("lxc-start|--name|web|--logfile|x|", Some((Monitor, "web", None)));
        check("lxc-start|-F|web|", Some((Monitor, "web", None)));
        check("lxc-execute|-n|web|--|/bin/sh|-n|other|", Some((Monitor, "web", None)));
        check("lxc-stop|-k|-t|5|web|", Some((Stopper, "web", None)));
        check("lxc-destroy|-f|-n|web|", Some((Stopper, "web", None)));
        for unrelated_command in
            ["", "lxc-start|", "lxc-info|-n|web|", "sh|-c|lxc-start -n web|", "vi|lxc-start|web|"]
        {
            check(unrelated_command, None);
        }
    }
}
