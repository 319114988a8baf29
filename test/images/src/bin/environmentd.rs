//! The stand-in for environmentd.

fn main() -> std::process::ExitCode {
    stand_ins::environmentd::main()
}
