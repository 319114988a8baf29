//! Starts the operator: arguments in, exit code out.

use std::io::{self, Write as _};
use std::process::ExitCode;

use orchestratord::cli::{Args, Invocation, parse};
use orchestratord::{logging, operator, signals};
use tokio::runtime::Runtime;

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
        Ok((stop, Runtime::new()?))
    });
    let (stop, runtime) = match started {
        Ok(started) => started,
        Err(error) => {
            eprintln!("orchestratord: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    ExitCode::from(operator::run_to_end(runtime, args, None, stop))
}
