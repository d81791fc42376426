//! Abilities beside transactions: hints of what others changed, and a write that changes nothing (B4).

use crate::case::cases;
use crate::{Outcome, Scenario, World};
use leasehold_core::store::{BoxError, Hint, Hints, Listener};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

cases! {
    who_listens_hears_of_what_another_handle_committed proves ["B4"] needs [Hints, SecondHandle];
    a_write_that_changes_nothing_changes_nothing proves ["B4", "O3"];
}

/// How long a hint may be on its way before the case gives up; one takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Ear(Mutex<Sender<Hint>>);

impl Listener for Ear {
    fn hear(&self, hint: Hint) {
        // The case may have ended.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).send(hint);
    }
}

fn hints(w: &World) -> Result<Arc<dyn Hints>, BoxError> {
    w.store().hints().ok_or_else(|| "the store has no hints".into())
}

fn heard(from: &Receiver<Hint>) -> Result<Hint, BoxError> {
    from.recv_timeout(PATIENCE).map_err(|_| "no hint came".into())
}

fn who_listens_hears_of_what_another_handle_committed(w: &mut World) -> Outcome {
    let other = w.second_handle()?;
    let (tell, hear) = channel();
    let ear: Arc<dyn Listener> = Arc::new(Ear(Mutex::new(tell)));
    hints(w)?.listen(&ear);
    heard(&hear).map_err(|_| "the first hint, that hints come, did not come")?;
    for hint in [Hint::Work, Hint::Canceled] {
        // Whatever is still on its way is not the next one.
        while hear.try_recv().is_ok() {}
        Scenario::new().op("a").build(&other)?;
        hints(&other)?.tell(hint);
        heard(&hear)?;
    }
    drop(ear);
    // With its listener gone the ear is closed, once what was on its way has come.
    loop {
        match hear.recv_timeout(PATIENCE) {
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => return Err("the listener lives on although nobody keeps it".into()),
        }
    }
}

fn a_write_that_changes_nothing_changes_nothing(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let before = w.fingerprint(&planted)?;
    w.store().try_write()?;
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}
