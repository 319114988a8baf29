//! Commands that run to their end, within a bound, and whose failure tells what they said.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;
use tokio::time::timeout;

/// Enough for anything that only talks to the kernel.
pub const SHORT: Duration = Duration::from_secs(20);

/// Runs a command for at most `limit` and returns its standard output; an error holds the end of its standard error.
pub async fn run(command: &mut Command, limit: Duration) -> Result<String> {
    let shown = shown(command);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let output = timeout(limit, child.wait_with_output())
        .await
        .with_context(|| format!("`{shown}` did not end within {limit:?}"))?
        .with_context(|| format!("cannot wait for `{shown}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed ({}): {}", output.status, tail(&said, 20));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program with arguments for at most [`SHORT`].
pub async fn short(program: &str, args: &[&str]) -> Result<String> {
    run(Command::new(program).args(args), SHORT).await
}

fn shown(command: &Command) -> String {
    let command = command.as_std();
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The last `count` lines.
pub(crate) fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let skipped = lines.len().saturating_sub(count);
    lines
        .into_iter()
        .skip(skipped)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_names_the_command_and_what_it_said() {
        let error = short("sh", &["-c", "echo no such thing >&2; exit 3"])
            .await
            .unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("sh -c") && error.contains("no such thing"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_ended() {
        let limit = Duration::from_millis(50);
        let error = run(Command::new("sleep").arg("60"), limit)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("did not end within 50ms"));
    }

    #[test]
    fn a_tail_keeps_the_end() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 2), "a");
    }
}
