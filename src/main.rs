//! Starts the operator: arguments in, exit code out.

use std::io::{self, Write as _};
use std::process::ExitCode;

use orchestratord::cli::{Args, Invocation, parse};
use orchestratord::errors::cause_chain;
use orchestratord::{logging, operator, signals};

fn main() -> ExitCode {
    match parse(std::env::args_os()) {
        Ok(Invocation::Run(args)) => run(*args),
        Ok(Invocation::Print(text)) => print(&text),
        Err(error) => {
            eprintln!("orchestratord: {error}");
            ExitCode::from(2)
        }
    }
}

fn print(text: &str) -> ExitCode {
    let mut stdout = io::stdout();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        // Whoever reads only the beginning, like `head`, has what they wanted.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("orchestratord: cannot write to stdout: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn run(args: Args) -> ExitCode {
    let started = signals::listen(args.stop_budget()).and_then(|stop| {
        logging::start(&args.logging);
        Ok((stop, tokio::runtime::Runtime::new()?))
    });
    let (stop, runtime) = match started {
        Ok(started) => started,
        Err(error) => {
            eprintln!("orchestratord: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(operator::run(args, None, stop));
    // Nothing that still blocks a thread may hold up the end of the process.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("orchestratord: {}", cause_chain(&error));
            ExitCode::FAILURE
        }
    }
}
