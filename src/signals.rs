//! SIGTERM and SIGINT, heard on a plain thread: also when the async runtime is stuck.

use std::process;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio_util::sync::CancellationToken;

/// Cancels the returned token at the first signal. From then on the process has `budget` to end
/// by itself; after that, or at a second signal, it is ended.
///
/// # Errors
/// The operating system refuses the handler or the thread.
pub fn listen(budget: Duration) -> std::io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let heard = stop.clone();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut arrivals = signals.forever();
            arrivals.next();
            heard.cancel();
            thread::spawn(move || {
                thread::sleep(budget);
                eprintln!("orchestratord: could not stop within {budget:?}, ending at once");
                process::exit(1);
            });
            if let Some(signal) = arrivals.next() {
                process::exit(128 + signal);
            }
        })?;
    Ok(stop)
}
