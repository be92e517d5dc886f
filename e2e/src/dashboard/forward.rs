//! What passes on to a port of a machine's own loopback, as agents' metrics need: a proxy on the node, in a few lines.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns};

use crate::background::Background;
use crate::cluster::Cluster;

/// Listens outside of the machine until it is dropped.
pub struct Forward {
    address: SocketAddr,
    _work: Background,
}

impl Forward {
    /// Passes connections on to `port` of the machine's loopback; whether anybody listens there shows with each connection.
    ///
    /// # Errors
    /// Without namespaces, or when no port is free.
    pub fn start(cluster: &Cluster, machine: &str, port: u16) -> Result<Self> {
        let path = format!("/run/netns/{}", cluster.namespace(machine));
        let namespace = File::open(&path).with_context(|| path.clone())?;
        let listener = TcpListener::bind((cluster.host_address(), 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let work = Background::start(move |stop| {
            while !stop.is_asked() {
                match (listener.accept(), namespace.try_clone()) {
                    (Ok((outer, _)), Ok(namespace)) => {
                        // What fails is closed, as by a machine where nobody listens.
                        thread::spawn(move || pass(&outer, &namespace, port));
                    }
                    (Ok(_) | Err(_), _) => thread::sleep(Duration::from_millis(20)),
                }
            }
        });
        Ok(Self { address, _work: work })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// In a thread of its own, which alone enters the machine's network.
fn pass(outer: &TcpStream, namespace: &File, port: u16) -> io::Result<()> {
    setns(namespace, CloneFlags::CLONE_NEWNET)?;
    let inner = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    outer.set_nonblocking(false)?;
    thread::scope(|scope| {
        scope.spawn(|| copy(outer, &inner));
        copy(&inner, outer);
    });
    Ok(())
}

/// One direction, to its end; the other end learns of it.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    // A connection that breaks is one that ends.
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
