//! The QEMU processes of this node, used when libvirt does not answer.

use crate::driver::program::process::{ProcessIdentity, ProcessStatus};
use rustix::process::Signal;
use std::fs;
use std::io;

/// Returns the processes that run a domain.
pub(super) fn of_domain(domain: &str) -> io::Result<Vec<ProcessIdentity>> {
    let runs_domain = |process: &ProcessStatus| {
        !process.ended
            && fs::read(format!("/proc/{}/cmdline", process.identity.pid))
                .is_ok_and(|text| is_command_of(&text, domain))
    };
    Ok(ProcessStatus::all()?.into_iter().filter(runs_domain).map(|process| process.identity).collect())
}

/// Kills all processes that run a domain.
pub(super) fn kill(domain: &str) -> io::Result<()> {
    for process in of_domain(domain)? {
        process.signal(Signal::KILL)?;
    }
    Ok(())
}

/// Returns `true` if a command line is that of libvirt's QEMU for a domain: `… -name guest=NAME,debug-threads=on …`. A
/// comma in a name is doubled.
fn is_command_of(text: &[u8], domain: &str) -> bool {
    let text = String::from_utf8_lossy(text);
    let arguments: Vec<&str> = text.split('\0').collect();
    let guest_argument = format!("guest={}", domain.replace(',', ",,"));
    let is_name_of_domain = |value: &str| {
        value
            .strip_prefix(&guest_argument)
            .is_some_and(|rest| rest.is_empty() || (rest.starts_with(',') && !rest.starts_with(",,")))
    };
    arguments.first().is_some_and(|program| program.contains("qemu"))
        && arguments.windows(2).any(|pair| pair[0] == "-name" && is_name_of_domain(pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_command_line_identifies_its_domain() {
        for (text, domain, expected) in [
            ("/usr/bin/qemu-system-x86_64\0-name\0guest=g1,debug-threads=on\0-S", "g1", true),
            ("/usr/bin/qemu-system-x86_64\0-name\0guest=g1", "g1", true),
            ("/usr/bin/qemu-system-x86_64\0-name\0guest=g11,debug-threads=on\0-S", "g1", false),
            ("/usr/bin/qemu-system-x86_64\0-name\0guest=a,,b,debug-threads=on", "a,b", true),
            ("/usr/bin/qemu-system-x86_64\0-name\0guest=a,,b,debug-threads=on", "a", false),
            ("less\0-name\0guest=g1", "g1", false),
            ("/usr/bin/qemu-system-x86_64\0-append\0guest=g1", "g1", false),
            ("", "g1", false),
        ] {
            assert_eq!(is_command_of(text.as_bytes(), domain), expected, "{text:?}");
        }
    }
}
