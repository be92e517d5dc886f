//! Background threads that run until their owner ends or drops them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// A thread that ends on request. The owner waits for its end.
pub struct BackgroundThread<T = ()> {
    stop: StopFlag,
    thread: Option<JoinHandle<T>>,
}

/// A flag by which the owner requests the end of a background thread.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Returns `true` if the owner has requested the end of the thread. The thread must check this often.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T: Send + 'static> BackgroundThread<T> {
    /// Starts a thread that runs `work`.
    pub fn start(work: impl FnOnce(&StopFlag) -> T + Send + 'static) -> Self {
        let stop = StopFlag::default();
        let thread = thread::spawn({
            let stop = stop.clone();
            move || work(&stop)
        });
        Self { stop, thread: Some(thread) }
    }
}

impl<T> BackgroundThread<T> {
    /// Ends the thread and returns its result; `None` if it panicked or was ended before.
    pub fn end(&mut self) -> Option<T> {
        self.stop.0.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl<T> Drop for BackgroundThread<T> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{TryRecvError, channel};

    #[test]
    fn background_thread_returns_its_result() {
        let (sender, receiver) = channel();
        let mut background = BackgroundThread::start(move |stop| {
            let mut count = 0_u32;
            while !stop.is_requested() {
                count += 1;
                // The test may have dropped the receiver.
                let _ = sender.send(count);
            }
            count
        });
        assert_eq!(receiver.iter().take(3).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(background.end() >= Some(3));
        assert_eq!(background.end(), None);
    }

    #[test]
    fn background_thread_ends_when_owner_is_dropped() {
        let (sender, receiver) = channel();
        let background =
            BackgroundThread::start(move |stop| while !stop.is_requested() && sender.send(()).is_ok() {});
        assert!(receiver.recv().is_ok());
        drop(background);
        receiver.try_iter().for_each(drop);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected), "the thread has dropped the sender");
    }
}
