//! The stand-in for console.

fn main() -> std::process::ExitCode {
    stand_ins::console::main()
}
