//! Standard output, whose reader may go.

use std::fmt::Display;
use std::io::{ErrorKind, Write, stdout};

use anyhow::{Context, Result};

/// Prints one paragraph. A reader that has seen enough, as in `… | head`, is no failure.
pub fn say(text: impl Display) -> Result<()> {
    match writeln!(stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
