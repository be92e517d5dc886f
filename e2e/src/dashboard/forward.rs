//! Proxy to a port on a machine's loopback, where agents serve their metrics.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns};

use crate::background::BackgroundThread;
use crate::cluster::Cluster;

/// A proxy that listens outside the machine until it is dropped.
pub struct PortForward {
    address: SocketAddr,
    _work: BackgroundThread,
}

impl PortForward {
    /// Forwards connections to `port` on the machine's loopback. If no process listens there, each connection is closed.
    ///
    /// # Errors
    /// Fails without namespaces, or if no port is free.
    pub fn start(cluster: &Cluster, machine: &str, port: u16) -> Result<Self> {
        let path = format!("/run/netns/{}", cluster.namespace(machine));
        let namespace = File::open(&path).with_context(|| path.clone())?;
        let listener = TcpListener::bind((cluster.host_address(), 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let work = BackgroundThread::start(move |stop| {
            while !stop.is_requested() {
                match (listener.accept(), namespace.try_clone()) {
                    (Ok((outer, _)), Ok(namespace)) => {
                        // A failed connection is closed, like on a machine where no process listens.
                        thread::spawn(move || relay(&outer, &namespace, port));
                    }
                    (Ok(_) | Err(_), _) => thread::sleep(Duration::from_millis(20)),
                }
            }
        });
        Ok(Self { address, _work: work })
    }

    /// Returns the address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Copies both directions of one connection. Runs in its own thread, because it enters the machine's network namespace.
fn relay(outer: &TcpStream, namespace: &File, port: u16) -> io::Result<()> {
    setns(namespace, CloneFlags::CLONE_NEWNET)?;
    let inner = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    outer.set_nonblocking(false)?;
    thread::scope(|scope| {
        scope.spawn(|| copy(outer, &inner));
        copy(&inner, outer);
    });
    Ok(())
}

/// Copies one direction until its end, then shuts down writing to `to`.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    // A broken connection is treated as ended.
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
