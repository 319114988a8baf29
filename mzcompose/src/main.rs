//! `cargo mzcompose`: arguments in, exit code out.

mod bench;
mod cli;
mod down;
mod environment;
mod exec;
mod images;
mod install;
mod interrupt;
mod kubernetes;
mod output;
mod run;
mod status;
mod target;
mod test_run;
mod up;
mod workflow;

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    match cli::Cli::parse().run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
