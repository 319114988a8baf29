//! `cargo mzcompose`: arguments in, exit code out.

fn main() {}
