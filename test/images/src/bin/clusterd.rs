//! The stand-in for clusterd.

fn main() -> std::process::ExitCode {
    stand_ins::clusterd::main()
}
