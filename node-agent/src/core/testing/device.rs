//! The watchdog daemon's core with a simulated device.

use super::*;

impl World {
    pub(super) fn daemon_input(&mut self, input: daemon::Input) {
        self.daemon.handle(self.moment(), input);
        while let Some(effect) = self.daemon.poll_effect() {
            let answer = match effect {
                daemon::Effect::Open { .. } if self.pets_fail => {
                    let location = protocol::Name::new(b"/dev/watchdog");
                    daemon::Input::Opened(Err(protocol::Refusal::NoDevice { errno: 19, location }))
                }
                daemon::Effect::Pet { .. } if self.pets_fail => daemon::Input::Petted(Err(19)),
                daemon::Effect::Open { timeout_seconds } => {
                    self.pet(u64::from(timeout_seconds) * 1000);
                    daemon::Input::Opened(Ok(protocol::DeviceFacts {
                        kind: protocol::DeviceKind::Kernel,
                        identity: protocol::Name::new(b"test"),
                        location: protocol::Name::new(b"/dev/watchdog"),
                        timeout_seconds,
                        smallest_timeout_seconds: 1,
                        largest_timeout_seconds: 300,
                        sliding: true,
                        descriptor_retained: true,
                        nowayout: false,
                    }))
                }
                daemon::Effect::Pet { timeout_seconds } => {
                    let timeout_ms = timeout_seconds.map_or(self.device_timeout_ms, |s| u64::from(s) * 1000);
                    self.pet(timeout_ms);
                    daemon::Input::Petted(Ok(u32::try_from(timeout_ms / 1000).expect("small")))
                }
                daemon::Effect::Close => {
                    self.fires_at_ms = None;
                    daemon::Input::Closed(Ok(()))
                }
                daemon::Effect::Save(_) | daemon::Effect::Disconnect => continue,
                daemon::Effect::Reset => {
                    self.fires_at_ms = Some(self.now_ms);
                    continue;
                }
                daemon::Effect::Reply(reply) => {
                    self.reply(reply);
                    continue;
                }
            };
            self.daemon.handle(self.moment(), answer);
        }
    }

    fn pet(&mut self, timeout_ms: u64) {
        self.device_timeout_ms = timeout_ms;
        self.fires_at_ms = Some(self.now_ms + timeout_ms);
    }

    fn reply(&mut self, reply: protocol::Reply) {
        let event = match reply.outcome {
            protocol::Outcome::Notice(protocol::Notice::Welcome) => {
                WatchdogEvent::Connected { status: reply.status, device: "/dev/watchdog".to_owned() }
            }
            protocol::Outcome::Notice(notice) => WatchdogEvent::Notice { notice, status: reply.status },
            protocol::Outcome::Done | protocol::Outcome::Refused(_) => {
                let Some(id) = self.pending_requests.remove(&reply.answers) else { return };
                let refusal = match reply.outcome {
                    protocol::Outcome::Refused(refusal) => Some(refusal),
                    protocol::Outcome::Done | protocol::Outcome::Notice(_) => None,
                };
                WatchdogEvent::Answered { id, refusal, status: reply.status }
            }
        };
        self.input(Input::Watchdog(event));
    }
}
