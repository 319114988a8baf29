//! The stand-in for balancerd.

fn main() -> std::process::ExitCode {
    stand_ins::balancerd::main()
}
