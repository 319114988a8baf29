//! Holds a pod's namespaces open: waits for SIGTERM or SIGINT, then exits 0.

use std::process::ExitCode;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

fn main() -> ExitCode {
    match Signals::new([SIGTERM, SIGINT]) {
        Ok(mut signals) => {
            signals.forever().next();
            ExitCode::SUCCESS
        }
        Err(err) => {
            eprintln!("pause: listening for signals: {err}");
            ExitCode::FAILURE
        }
    }
}
